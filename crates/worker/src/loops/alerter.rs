//! Evaluates the policies of alerts, and tells sinks what is due. Any number of processes may: an evaluation is written by whoever is
//! first, and a notice is sent by whoever took it. One that dies between sending and writing so leaves a notice that is sent again
//! after a minute, under the same key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use waypost_kernel::alert::{Condition, Delivery, Metric, Policy, Status, due};
use waypost_kernel::breaker::State;
use waypost_kernel::{Span, Time};
use waypost_store::{ALERT_WINDOW, AlertRow, Database, DestinationRow, Result, TargetFigures, iso};

use super::{Loop, More};
use crate::alerts::{Alerts, Sink, Told};
use crate::pace;

/// Between two looks whether something is to be sent.
const EVERY: Duration = Duration::from_secs(5);
/// Between two evaluations, of whichever process.
const EVALUATED_EVERY: Span = Span::from_seconds(30);
/// Where it is kept when the last one was, in milliseconds.
const CURSOR: &str = "alerts";
/// A row that others write all the time is read again so often.
const LOOKS: usize = 10;

type Key = (String, String, String);

pub struct Alerter {
    database: Arc<dyn Database>,
    alerts: Alerts,
}

impl Alerter {
    pub fn new(database: Arc<dyn Database>, alerts: Alerts) -> Alerter {
        Alerter { database, alerts }
    }

    /// All policies, if it is time and nobody else does. The figures cost a look at the newest runs.
    async fn evaluate(&self, now: Time) -> Result<()> {
        let last = self.database.cursor(CURSOR.to_owned()).await?.unwrap_or(0);
        if now.ms() - (last as i64) < EVALUATED_EVERY.ms() {
            return Ok(());
        }
        self.database.put_cursor(CURSOR.to_owned(), now.ms().unsigned_abs()).await?;
        let figures = self.database.target_figures(None).await?;
        let destinations = self.database.destinations(None).await?;
        let mut known: BTreeMap<Key, AlertRow> =
            self.database.alerts(None).await?.into_iter().map(|row| (key(&row), row)).collect();
        for policy in &self.alerts.policies {
            if policy.metric.is_of_destination() {
                for destination in &destinations {
                    let row = take(&mut known, &destination.tenant, policy, &destination.name, now);
                    self.of_destination(policy, destination, row, now).await?;
                }
                continue;
            }
            // One whose last run is long gone has no figures, and its alert ends.
            let of_alerts = known.keys().filter(|key| key.1 == policy.name).map(|key| key.0.clone());
            let tenants: BTreeSet<String> =
                of_alerts.chain(figures.iter().map(|of| of.tenant.clone())).collect();
            for tenant in tenants {
                let row = take(&mut known, &tenant, policy, "", now);
                let of = figures.iter().find(|of| of.tenant == tenant).cloned().unwrap_or_default();
                self.of_tenant(policy, &of, row, now).await?;
            }
        }
        self.let_go(known, now).await
    }

    /// What nobody evaluates any more is over.
    async fn let_go(&self, known: BTreeMap<Key, AlertRow>, now: Time) -> Result<()> {
        for row in known.into_values().filter(|row| row.condition.status != Status::Ok) {
            let Some(policy) = Policy::named(&row.name) else { continue };
            let condition = row.condition.evaluated(policy, None, now);
            self.keep(&row, AlertRow { condition, ..row.clone() }, false).await?;
        }
        Ok(())
    }

    async fn of_tenant(&self, policy: &Policy, of: &TargetFigures, row: AlertRow, now: Time) -> Result<()> {
        if is_fresh(&row, now) {
            return Ok(());
        }
        let (value, summary) = match policy.metric {
            Metric::SuccessRate => {
                let rate = of.success_rate_milli();
                let finished = of.applied + of.failed;
                let in_words = rate.map_or("no target finished lately".to_owned(), |rate| {
                    format!("{} % of {finished} targets that finished lately were applied", in_units(rate))
                });
                (rate, in_words)
            }
            _ => {
                let count = of.dead_letters;
                (Some(count as i64 * 1_000), format!("{count} failed targets wait for a decision"))
            }
        };
        let condition = row.condition.evaluated(policy, value, now);
        let summary = format!("{summary}; {}", threshold(policy));
        self.keep(&row, AlertRow { condition, summary, ..row.clone() }, false).await.map(drop)
    }

    async fn of_destination(
        &self,
        policy: &Policy,
        destination: &DestinationRow,
        row: AlertRow,
        now: Time,
    ) -> Result<()> {
        if is_fresh(&row, now) {
            return Ok(());
        }
        let pace = destination.state.bucket.pace_percent;
        let (count, summary);
        let mut samples = row.samples.clone();
        let value = match policy.metric {
            Metric::Throttled => {
                count = throttled_lately(&mut samples, destination.throttled, now);
                summary = format!("{count} answers were 429 in 5 minutes; {}", threshold(policy));
                count
            }
            _ => {
                let seen = samples.last().map_or(0, |(_, opened)| *opened);
                if destination.opened != seen {
                    samples = vec![(now, destination.opened)];
                }
                summary = breaker_in_words(destination);
                u64::from(destination.state.breaker.state != State::Closed || destination.opened > seen)
            }
        };
        let condition = row.condition.evaluated(policy, Some(value as i64 * 1_000), now);
        let is_throttling = policy.metric == Metric::Throttled && destination.throttled > 0;
        let slows = is_throttling && condition.status == Status::Firing;
        let goes_on = is_throttling && condition.status != Status::Firing && pace < 100;
        let new = AlertRow { condition, summary, samples, ..row.clone() };
        // Whoever writes the evaluation changes the pace: one step for each.
        if self.keep(&row, new, slows || goes_on).await? && (slows || goes_on) {
            let (tenant, name) = (destination.tenant.clone(), destination.name.clone());
            let row = self.database.pace_destination(tenant, name, slows).await?;
            let percent = row.state.bucket.pace_percent;
            tracing::info!(destination = row.name, percent, "the pace of a destination was changed");
        }
        Ok(())
    }

    /// What is as it was is not written, and what was never bad is not there at all.
    async fn keep(&self, old: &AlertRow, new: AlertRow, always: bool) -> Result<bool> {
        let same = Condition { evaluated_at: old.condition.evaluated_at, ..new.condition } == old.condition;
        let was_never = old.revision == 0 && new.condition.status == Status::Ok && new.samples.is_empty();
        if !always && (was_never || same && old.revision > 0 && old.samples == new.samples) {
            return Ok(false);
        }
        if old.condition.status != new.condition.status {
            let (alert, subject, status) = (&new.name, &new.subject, new.condition.status.name());
            tracing::warn!(alert, subject, status, summary = new.summary, "an alert changed");
        }
        self.database.put_alert(new).await
    }

    /// What is due at this process's sinks.
    async fn deliver(&self) -> Result<()> {
        if self.alerts.sinks.is_empty() {
            return Ok(());
        }
        let rows = self.database.alerts(None).await?;
        let now = self.database.now().await?;
        let general: BTreeSet<(String, String)> = rows
            .iter()
            .filter(|row| row.subject.is_empty() && row.is_silenced(now))
            .map(|row| (row.tenant.clone(), row.name.clone()))
            .collect();
        for mut row in rows {
            let silenced = row.is_silenced(now) || general.contains(&(row.tenant.clone(), row.name.clone()));
            let severity = row.severity();
            for sink in self.alerts.sinks.iter().filter(|sink| severity >= sink.severity) {
                let last = row.deliveries.get(&sink.name);
                let Some(taken) = due(&row.condition, last, sink.again(), silenced, now) else { continue };
                let mut new = row.clone();
                new.deliveries.insert(sink.name.clone(), taken.clone());
                if !self.database.put_alert(new.clone()).await? {
                    // Somebody evaluated or sent: it is looked at again the next time.
                    break;
                }
                let taken_row = AlertRow { revision: new.revision + 1, ..new };
                match self.tell(sink, taken_row, taken).await? {
                    Some(written) => row = written,
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// Sends it, and writes what came of it; gives the row as it is then, unless another process took the notice on.
    async fn tell(&self, sink: &Sink, mut row: AlertRow, taken: Delivery) -> Result<Option<AlertRow>> {
        let at = self.database.now().await?;
        let told = if taken.is_firing { Told::Firing { at } } else { Told::Resolved { at } };
        let sent = self.alerts.send(sink, &row, told).await;
        let now = self.database.now().await?;
        let came = match &sent {
            Ok(()) => taken.clone().sent(now),
            Err(error) => {
                let (alert, sink) = (&row.name, &sink.name);
                tracing::warn!(alert, sink, error = error.words, "an alert could not be sent");
                taken.clone().failed(&error.words, error.wait, now)
            }
        };
        for _ in 0..LOOKS {
            row.deliveries.insert(sink.name.clone(), came.clone());
            if self.database.put_alert(row.clone()).await? {
                row.revision += 1;
                return Ok(Some(row));
            }
            let all = self.database.alerts(Some(row.tenant.clone())).await?;
            let is_own =
                |it: &AlertRow| it.deliveries.get(&sink.name).is_some_and(|it| same_taking(it, &taken));
            match all.into_iter().find(|it| key(it) == key(&row)).filter(is_own) {
                Some(read) => row = read,
                None => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// Stores keep milliseconds.
fn same_taking(stored: &Delivery, taken: &Delivery) -> bool {
    let of = |it: &Delivery| (it.episode, it.is_firing, it.tries, it.sent_at);
    of(stored) == of(taken)
}

/// Two processes that began at the same moment: the other one has evaluated it already, and a second time would be another evaluation.
fn is_fresh(row: &AlertRow, now: Time) -> bool {
    row.revision > 0 && (now - row.condition.evaluated_at).ms() < EVALUATED_EVERY.ms() / 2
}

fn key(row: &AlertRow) -> Key {
    (row.tenant.clone(), row.name.clone(), row.subject.clone())
}

fn take(
    known: &mut BTreeMap<Key, AlertRow>,
    tenant: &str,
    policy: &Policy,
    subject: &str,
    now: Time,
) -> AlertRow {
    let key = (tenant.to_owned(), policy.name.to_owned(), subject.to_owned());
    known.remove(&key).unwrap_or_else(|| AlertRow {
        tenant: tenant.to_owned(),
        name: policy.name.to_owned(),
        subject: subject.to_owned(),
        condition: Condition { since: now, evaluated_at: now, ..Condition::default() },
        ..AlertRow::default()
    })
}

/// How much a counter has risen within the window. A sample is kept for each evaluation in which it rose, and the last one before the
/// window; a counter without samples was at 0.
fn throttled_lately(samples: &mut Vec<(Time, u64)>, count: u64, now: Time) -> u64 {
    if samples.last().map_or(0, |(_, last)| *last) != count {
        samples.push((now, count));
    }
    let begins = now - ALERT_WINDOW;
    let before = samples.iter().filter(|(at, _)| *at <= begins).count();
    samples.drain(..before.saturating_sub(1));
    let base = samples.first().filter(|(at, _)| *at <= begins).map_or(0, |(_, base)| *base);
    count.saturating_sub(base)
}

fn in_units(milli: i64) -> String {
    match (milli / 1_000, milli % 1_000 / 10) {
        (whole, 0) => whole.to_string(),
        (whole, hundredths) => format!("{whole}.{hundredths:02}").trim_end_matches('0').to_owned(),
    }
}

fn threshold(policy: &Policy) -> String {
    let unit = if policy.metric == Metric::SuccessRate { " %" } else { "" };
    let word = if policy.is_floor { "below" } else { "above" };
    format!("it fires {word} {}{unit}", in_units(policy.threshold_milli))
}

fn breaker_in_words(destination: &DestinationRow) -> String {
    let answers = destination.state.breaker.consecutive;
    match destination.state.breaker.state {
        State::Closed => "the breaker has closed: it is called again".to_owned(),
        State::Open { until } => {
            format!("{answers} answers in a row were 429: it is not called until {}", iso(until))
        }
        State::Probing { .. } => "one call is out to try whether it answers again".to_owned(),
    }
}

impl Loop for Alerter {
    const WORK: &'static str = "evaluating alerts";

    fn every(&self) -> Duration {
        pace::about(EVERY)
    }

    async fn run_once(&mut self) -> Result<More> {
        let now = self.database.now().await?;
        self.evaluate(now).await?;
        self.deliver().await?;
        Ok(More::Later)
    }
}

impl std::fmt::Debug for Alerter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alerter").field("sinks", &self.alerts.sinks.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves R13
    #[test]
    fn throttled_answers_are_counted_over_five_minutes() {
        let at = |second: i64| Time::from_ms(1_771_056_000_000 + second * 1_000);
        let mut samples = Vec::new();
        let counts = [
            (0, 0),
            (30, 2),
            (60, 4),
            (90, 4),
            (329, 4),
            (330, 4),
            (359, 4),
            (360, 4),
            (390, 5),
            (5_000, 5),
            (5_030, 9),
        ];
        let lately: Vec<u64> = counts
            .iter()
            .map(|(second, count)| throttled_lately(&mut samples, *count, at(*second)))
            .collect();
        assert_eq!(lately, [0, 2, 4, 4, 4, 2, 2, 0, 1, 0, 4]);
        assert_eq!(samples, [(at(390), 5), (at(5_030), 9)], "no more is kept than is needed");
    }

    #[test]
    fn figures_are_told_in_units() {
        let told = [(97_000, "97"), (96_666, "96.66"), (95_500, "95.5"), (0, "0"), (100_000, "100")];
        told.iter().for_each(|(milli, words)| assert_eq!(in_units(*milli), *words));
    }
}
