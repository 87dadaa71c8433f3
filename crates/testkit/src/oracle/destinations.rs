//! What runs call outside.

use waypost_kernel::breaker::Alert;
use waypost_kernel::destination::{Destination, Limit};
use waypost_store::{Admit, Admitted, Answered, DestinationRow, Reply, Result, StoreError};

use super::MemoryStore;
use super::rules::intake::{check_name, check_tenant};
use super::state::State;

/// With the limit that was asked with last.
pub(super) type Known = (DestinationRow, Limit);

impl MemoryStore {
    pub(crate) fn admit(&self, ask: Admit) -> Reply<'_, Admitted> {
        self.verb(move |state| state.admit(&ask))
    }

    pub(crate) fn answered(&self, report: Answered) -> Reply<'_, DestinationRow> {
        self.verb(move |state| {
            if report.answers.len() > 1_000 {
                let message = format!("has {} entries; allowed: up to 1000", report.answers.len());
                return Err(StoreError::invalid("answers", message));
            }
            let now = state.now;
            let (row, _) = state.destination(&report.tenant, &report.destination)?;
            let (after, alert) = row.state.answered(&report.answers, report.unused_milli, now);
            let mut so_far = row.state;
            for answer in &report.answers {
                let one = so_far.answered(std::slice::from_ref(answer), 0, now);
                row.opened += u64::from(one.1 == Some(Alert::Opened));
                so_far = one.0;
            }
            row.state = after;
            row.calls += report.answers.len() as u64;
            row.throttled += report.answers.iter().filter(|answer| answer.throttled).count() as u64;
            row.changed_at = now;
            Ok(DestinationRow { alert, ..row.clone() })
        })
    }

    pub(crate) fn pace_destination(
        &self,
        tenant: String,
        name: String,
        burst: bool,
    ) -> Reply<'_, DestinationRow> {
        self.verb(move |state| {
            let now = state.now;
            let (row, _) = state.destination(&tenant, &name)?;
            row.state = row.state.paced(burst, now);
            row.changed_at = now;
            Ok(row.clone())
        })
    }

    pub(crate) fn destinations(&self, tenant: Option<String>) -> Reply<'_, Vec<DestinationRow>> {
        self.verb(move |state| {
            let rows = state.destinations.values().map(|(row, _)| row);
            Ok(rows
                .filter(|row| tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant))
                .cloned()
                .collect())
        })
    }
}

fn check(tenant: &str, name: &str) -> Result<()> {
    check_name("tenant", tenant)?;
    check_tenant(tenant)?;
    check_name("destination", name)
}

fn check_limit(limit: &Limit) -> Result<()> {
    const MOST: u64 = 9_007_199_254_740_992;
    for (field, value) in
        [("capacity_milli", limit.capacity_milli), ("rate_milli_per_s", limit.rate_milli_per_s)]
    {
        if value == 0 || value > MOST {
            return Err(StoreError::invalid(field, format!("is {value}; allowed: 1 to {MOST}")));
        }
    }
    for (field, span) in
        [("pause_ms", limit.breaker.pause), ("probe_timeout_ms", limit.breaker.probe_timeout)]
    {
        if span.ms() < 0 || span.ms() > 86_400_000 {
            return Err(StoreError::invalid(field, format!("is {} ms; allowed: 0 to 86400000", span.ms())));
        }
    }
    Ok(())
}

impl State {
    fn destination(&mut self, tenant: &str, name: &str) -> Result<&mut Known> {
        check(tenant, name)?;
        let known = self.destinations.get_mut(&(tenant.to_owned(), name.to_owned()));
        known.ok_or_else(|| StoreError::invalid("destination", format!("nobody has asked for {name:?} yet")))
    }

    fn admit(&mut self, ask: &Admit) -> Result<Admitted> {
        check(&ask.tenant, &ask.destination)?;
        check_limit(&ask.limit)?;
        let now = self.now;
        let key = (ask.tenant.clone(), ask.destination.clone());
        let (row, asked) = self.destinations.entry(key).or_insert_with(|| {
            let row = DestinationRow {
                tenant: ask.tenant.clone(),
                name: ask.destination.clone(),
                state: Destination::new(&ask.limit, now),
                calls: 0,
                throttled: 0,
                opened: 0,
                changed_at: now,
                alert: None,
            };
            (row, ask.limit)
        });
        let mut state = row.state;
        if *asked != ask.limit {
            state = state.limited(&ask.limit, now);
            *asked = ask.limit;
            row.changed_at = now;
        }
        let (state, grant) = state.admit(ask.calls, ask.cost_milli, now);
        if state != row.state {
            row.changed_at = now;
        }
        row.state = state;
        let until = grant.wait.map(|wait| now + wait);
        Ok(Admitted { granted: grant.calls, is_probe: grant.is_probe, until, now })
    }
}
