//! A run's attempts, as its events tell of them: when each began, and which workers had it.

use waypost_kernel::lifecycle::Actor;
use waypost_kernel::{Lifecycle, Phase, Time};
use waypost_store::EventRow;

use crate::console::draw::gantt::{Bar, Line};
use crate::console::parts::tone;

/// Attempts that have a line of their own: the last ones.
const MOST_ATTEMPTS: usize = 20;
/// Workers of one attempt that are named.
const MOST_WORKERS: usize = 3;

const TAKE_OVER: &str = "take-over";
const STEAL: &str = "steal";
const RELEASE: &str = "release";

#[derive(Default)]
struct Attempt {
    number: u64,
    workers: Vec<String>,
    bars: Vec<Bar>,
}

/// Each with its number and its workers' names. `last` is the number of the run's latest attempt: of a long run the events of its middle
/// are not read, and what comes after them is counted from the end.
pub fn attempts(lifecycle: &Lifecycle, found: &[EventRow], last: u64) -> Vec<Line> {
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut after_gap = None;
    let mut before: Option<&EventRow> = None;
    for event in found {
        if let Some(known) = before.filter(|known| known.seq + 1 < event.seq) {
            after_gap = Some(attempts.len());
            end(&mut attempts, known.at);
        }
        tell(lifecycle, &mut attempts, event);
        before = Some(event);
    }
    let count = attempts.len() as u64;
    for (place, attempt) in attempts.iter_mut().enumerate() {
        let from_end = after_gap.is_some_and(|gap| place >= gap);
        let from_start = place as u64 + 1;
        attempt.number = if from_end { (last + from_start).saturating_sub(count) } else { from_start };
    }
    let first = attempts.len().saturating_sub(MOST_ATTEMPTS);
    attempts.into_iter().skip(first).map(line).collect()
}

fn tell(lifecycle: &Lifecycle, attempts: &mut Vec<Attempt>, event: &EventRow) {
    let phase = |name: &str| lifecycle.state_named(name).map(|state| lifecycle.phase(state));
    let was_held = event.from.as_deref().and_then(phase) == Some(Phase::Held);
    let is_held = phase(&event.to) == Some(Phase::Held);
    let begins = is_held && (!was_held || event.command == STEAL);
    let is_workers = event.actor == Actor::Worker.name();
    let grants = is_workers && (begins || event.command == TAKE_OVER);
    let vacates = event.command == RELEASE || begins && !is_workers;
    let moves = event.from.as_ref() != Some(&event.to);
    if !(begins || grants || vacates || moves) {
        return;
    }
    end(attempts, event.at);
    if !is_held {
        return;
    }
    if begins {
        attempts.push(Attempt::default());
    }
    let Some(attempt) = attempts.last_mut() else { return };
    if grants && attempt.workers.last() != Some(&event.by) {
        attempt.workers.push(event.by.clone());
    }
    let bar = match attempt.workers.last() {
        Some(worker) if !vacates => (tone(Phase::Held, None), format!("{} by {worker}", event.to)),
        // A person sent it on, or its worker gave it back.
        _ => (tone(Phase::Ready, None), format!("{}, waits for a worker", event.to)),
    };
    attempt.bars.push(Bar { from: event.at, to: None, tone: bar.0, words: bar.1 });
}

fn end(attempts: &mut [Attempt], at: Time) {
    if let Some(bar) = attempts.last_mut().and_then(|attempt| attempt.bars.last_mut()) {
        bar.to.get_or_insert(at);
    }
}

fn line(attempt: Attempt) -> Line {
    let more = attempt.workers.len().saturating_sub(MOST_WORKERS);
    let mut note = attempt.workers[more..].join(", then ");
    if more > 0 {
        note = format!("{more} others, then {note}");
    }
    Line { label: format!("attempt {}", attempt.number), note, is_part: true, bars: attempt.bars }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_kernel::Catalog;

    fn event(seq: u64, command: &str, actor: &str, by: &str, from: Option<&str>, to: &str) -> EventRow {
        EventRow {
            seq,
            at: Time::from_ms(seq as i64 * 10),
            command: command.to_owned(),
            from: from.map(str::to_owned),
            to: to.to_owned(),
            actor: actor.to_owned(),
            by: by.to_owned(),
            ..EventRow::default()
        }
    }

    fn told(lifecycle: &str, found: &[EventRow], last: u64) -> Vec<(String, String, Vec<String>)> {
        let catalog = Catalog::shipped().expect("they are checked");
        let lines = attempts(catalog.latest(lifecycle).expect("it is shipped"), found, last);
        let words = |bar: &Bar| bar.words.clone();
        lines.into_iter().map(|it| (it.label, it.note, it.bars.iter().map(words).collect())).collect()
    }

    #[test]
    fn one_claim_is_one_attempt_however_many_states_it_passes() {
        let found = [
            event(1, "create", "client", "anna", None, "queued"),
            event(2, "claim", "worker", "w1", Some("queued"), "claimed"),
            event(3, "start", "worker", "w1", Some("claimed"), "running"),
            event(4, "succeed", "worker", "w1", Some("running"), "success"),
        ];
        let bars = vec!["claimed by w1".to_owned(), "running by w1".to_owned()];
        assert_eq!(told("deploy", &found, 1), [("attempt 1".to_owned(), "w1".to_owned(), bars)]);
    }

    #[test]
    fn who_takes_over_is_of_the_same_attempt_and_no_person_is_a_worker() {
        let found = [
            event(1, "create", "client", "anna", None, "pending"),
            event(2, "claim", "worker", "w1", Some("pending"), "running"),
            event(3, "release", "worker", "w1", Some("running"), "running"),
            event(4, "items", "worker", "w1", Some("running"), "running"),
            event(5, "take-over", "worker", "w2", Some("running"), "running"),
        ];
        let lines = told("job", &found, 1);
        assert_eq!((lines.len(), lines[0].1.as_str()), (1, "w1, then w2"), "{lines:?}");
        assert_eq!(lines[0].2, ["running by w1", "running, waits for a worker", "running by w2"]);
        let approved = [
            event(1, "create", "engine", "a", None, "pending"),
            event(2, "approve", "client", "anna", Some("pending"), "applying"),
        ];
        let lines = told("proposal", &approved, 1);
        assert_eq!((lines[0].1.as_str(), lines[0].2[0].as_str()), ("", "applying, waits for a worker"));
    }

    #[test]
    fn after_events_that_were_not_read_attempts_are_counted_from_the_end() {
        let found = [
            event(1, "create", "client", "anna", None, "queued"),
            event(2, "claim", "worker", "w1", Some("queued"), "claimed"),
            event(900, "claim", "worker", "w9", Some("queued"), "claimed"),
        ];
        let labels: Vec<String> = told("deploy", &found, 7).into_iter().map(|it| it.0).collect();
        assert_eq!(labels, ["attempt 1", "attempt 7"]);
    }
}
