//! Alerts: rows that are written by whoever read them last.

use std::collections::BTreeMap;

use waypost_kernel::alert::Condition;
use waypost_kernel::text::MAX_NAME_BYTES;
use waypost_kernel::{Outcome, Phase, Span, Time};
use waypost_store::{AlertRow, Reply, Result, Silence, SilenceAlert, StoreError, TargetFigures, Who};

use super::MemoryStore;
use super::access::check_audit;
use super::rules::intake::{check_name, check_reason, check_tenant, check_text, cleaned_message};
use super::state::State;

type Key = (String, String, String);

const KNOWN: [&str; 6] =
    ["low-success-rate", "critical-success-rate", "dlq-backlog", "dlq-critical", "429-burst", "breaker-open"];

impl MemoryStore {
    pub(crate) fn alerts(&self, tenant: Option<String>) -> Reply<'_, Vec<AlertRow>> {
        self.verb(move |state| {
            let is_asked_for = |row: &&AlertRow| tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant);
            Ok(state.alerts.values().filter(is_asked_for).cloned().collect())
        })
    }

    pub(crate) fn target_figures(&self, tenant: Option<String>) -> Reply<'_, Vec<TargetFigures>> {
        self.verb(move |state| Ok(state.target_figures(tenant.as_deref())))
    }

    pub(crate) fn put_alert(&self, row: AlertRow) -> Reply<'_, bool> {
        self.verb(move |state| {
            check_name("tenant", &row.tenant)?;
            check_tenant(&row.tenant)?;
            check_policy(&row.name)?;
            check_text("subject", &row.subject, MAX_NAME_BYTES)?;
            Ok(state.put_alert(row))
        })
    }

    pub(crate) fn silence_alert(&self, silence: SilenceAlert, who: Who) -> Reply<'_, AlertRow> {
        self.verb(move |state| {
            check_name("tenant", &who.tenant)?;
            check_tenant(&who.tenant)?;
            check_name("by", &who.by)?;
            check_reason(who.reason.as_deref())?;
            check_policy(&silence.name)?;
            if !silence.subject.is_empty() {
                check_name("subject", &silence.subject)?;
            }
            if let Some(ms) = silence.lasts.map(Span::ms).filter(|ms| *ms < 1 || *ms > 2_592_000_000) {
                return Err(StoreError::invalid("lasts_ms", format!("is {ms} ms; allowed: 1 ms to 30 days")));
            }
            let now = state.now;
            let key: Key = (who.tenant.clone(), silence.name.clone(), silence.subject.clone());
            let new = AlertRow {
                tenant: key.0.clone(),
                name: key.1.clone(),
                subject: key.2.clone(),
                condition: Condition { since: now, evaluated_at: now, ..Condition::default() },
                ..AlertRow::default()
            };
            if !state.alerts.contains_key(&key) && silence.lasts.is_none() {
                return Ok(new);
            }
            let mut row = state.alerts.get(&key).cloned().unwrap_or(new);
            row.silence = silence.lasts.map(|lasts| Silence {
                until: now + lasts,
                by: who.by.clone(),
                reason: who.reason.clone().unwrap_or_default(),
            });
            let about = if key.2.is_empty() { key.1.clone() } else { format!("{}/{}", key.1, key.2) };
            let action = if silence.lasts.is_some() { "alert.silence" } else { "alert.unsilence" };
            check_audit(&who, action, &about)?;
            state.put_alert(row);
            state.audit(who, action, &about);
            Ok(state.alerts[&key].clone())
        })
    }
}

fn check_policy(name: &str) -> Result<()> {
    match KNOWN.contains(&name) {
        true => Ok(()),
        false => Err(StoreError::invalid(
            "alert",
            format!("there is no alert {name:?}; allowed: {}", KNOWN.join(", ")),
        )),
    }
}

/// The next whole millisecond.
fn whole(at: Time) -> Time {
    Time::from_ms((at.micros() + 999).div_euclid(1_000))
}

impl State {
    fn target_figures(&self, tenant: Option<&str>) -> Vec<TargetFigures> {
        let mut found: BTreeMap<String, TargetFigures> = BTreeMap::new();
        for entry in self.runs.values().filter(|entry| tenant.is_none_or(|tenant| tenant == entry.row.tenant))
        {
            let row = &entry.row;
            if row.lifecycle.items.first().is_none_or(|kind| kind.stops_run) {
                continue;
            }
            let is_old = row.run.finished_at.is_some_and(|at| (self.now - at).ms() >= 3_600_000);
            let counts = row.run.started_at.is_some()
                && !is_old
                && !matches!(row.phase(), Phase::Draft | Phase::Ready);
            let of = TargetFigures { tenant: row.tenant.clone(), ..TargetFigures::default() };
            let mut of = found.get(&row.tenant).cloned().unwrap_or(of);
            let before = of.clone();
            for item in entry.items.iter().filter(|item| item.kind == 0) {
                let state = row.lifecycle.items[0].state(item.state);
                // A cancel is a decision: what it ended neither finished nor waits for anybody.
                let is_cancelled = item.failure.as_ref().is_some_and(|failure| &*failure.code == "CANCELLED");
                let has_failed = state.outcome == Some(Outcome::Failed) && !is_cancelled;
                // What was undone had been done.
                let was_applied = matches!(state.outcome, Some(Outcome::Succeeded | Outcome::Reverted));
                of.applied += u64::from(counts && was_applied);
                of.failed += u64::from(counts && has_failed);
                let waits = has_failed && state.follow("retry").is_some() && item.failure.is_some();
                let is_undone = row.lifecycle.state(row.run.state).outcome == Some(Outcome::Reverted);
                of.dead_letters += u64::from(waits && !item.discarded && !is_undone);
            }
            if counts || of != before {
                found.insert(row.tenant.clone(), of);
            }
        }
        found.into_values().collect()
    }

    fn put_alert(&mut self, mut row: AlertRow) -> bool {
        let key = (row.tenant.clone(), row.name.clone(), row.subject.clone());
        if self.alerts.get(&key).map_or(0, |known| known.revision) != row.revision {
            return false;
        }
        let it = &mut row.condition;
        (it.since, it.evaluated_at) = (whole(it.since), whole(it.evaluated_at));
        for time in [&mut it.well_since, &mut it.fired_at, &mut it.resolved_at] {
            *time = time.map(whole);
        }
        if let Some(silence) = &mut row.silence {
            silence.until = whole(silence.until);
        }
        row.samples.iter_mut().for_each(|(at, _)| *at = whole(*at));
        for told in row.deliveries.values_mut() {
            (told.sent_at, told.next_at) = (told.sent_at.map(whole), whole(told.next_at));
            told.error = told.error.as_deref().map(cleaned_message);
        }
        row.summary = cleaned_message(&row.summary);
        row.revision += 1;
        row.updated_at = whole(self.now);
        self.writes += 1;
        self.alerts.insert(key, row);
        true
    }
}
