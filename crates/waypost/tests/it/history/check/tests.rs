//! A check that cannot fail is worthless: each is shown a history with the one violation that it is for.

use super::super::record::{
    Answer, Ask, Call, EventRow, Fault, Granted, History, ItemRow, LoggedError, NewRun, Reading, RunRow,
    Seen, Tables,
};
use super::{CHECKS, check, known};

const SECOND: u64 = 1_000_000;

fn call(ask: Ask, invoked: u64, answered: u64, answer: Answer) -> Call {
    Call { client: "c".into(), server: Some(0), ask, invoked, answered, answer }
}

fn new_run() -> NewRun {
    NewRun { lifecycle: "deploy".into(), queue: "q".into(), ..NewRun::default() }
}

fn claim(worker: &str, at: u64, granted: &[(&str, u64)]) -> Call {
    let granted =
        granted.iter().map(|(run_id, fence)| Granted { run_id: (*run_id).into(), fence: Some(*fence) });
    let ask = Ask::Claim { worker: worker.into(), queues: vec!["q".into()] };
    call(ask, at, at + 10, Answer::Claims(granted.collect()))
}

fn begin(worker: &str, at: u64, run_id: &str) -> Call {
    let ask = Ask::Begin { worker: worker.into(), run_id: run_id.into() };
    call(ask, at, at + 10, Answer::Claims(vec![Granted { run_id: run_id.into(), fence: None }]))
}

fn limit(at_most: u64, at: u64) -> Call {
    call(Ask::QueueLimit { queue: "q".into(), at_most: Some(at_most) }, at, at + 10, Answer::Done)
}

fn pause(at: u64) -> Call {
    call(Ask::Pause { queue: "q".into(), paused: true }, at, at + 10, Answer::Done)
}

fn run(run_id: &str, status: &str, seq: u64) -> RunRow {
    RunRow {
        run_id: run_id.into(),
        lifecycle: "deploy".into(),
        status: status.into(),
        queue: "q".into(),
        seq,
        fence: 1,
        ..RunRow::default()
    }
}

/// `way` is who did what to lead where: `w claim claimed`. Positions rise in the order of the calls of this.
fn events(history: &mut History, run_id: &str, way: &[&str]) {
    for (at, step) in way.iter().enumerate() {
        let words: Vec<&str> = step.split(' ').collect();
        let actor = match words[0] {
            "engine" | "client" => words[0],
            _ => "worker",
        };
        let position = history.tables.events.len() as u64 + 1;
        history.tables.events.push(EventRow {
            position,
            run_id: run_id.into(),
            seq: at as u64 + 1,
            at_ms: position,
            command: words[1].into(),
            from: at.checked_sub(1).map(|before| way[before].rsplit(' ').next().unwrap().into()),
            to: words[2].into(),
            actor: actor.into(),
            by: words[0].into(),
            message: (words[1] == "note").then(|| "m".into()),
        });
    }
}

const BORN: &str = "client create queued";

/// One run from its making to its end, and two readers who saw all of it.
fn good() -> History {
    let mut history = History::default();
    events(
        &mut history,
        "a",
        &[BORN, "w claim claimed", "w start running", "w note running", "w succeed success"],
    );
    history.tables.runs = vec![run("a", "success", 5)];
    history.tables.items = vec![ItemRow { run_id: "a".into(), key: "i".into(), status: "completed".into() }];
    let (worker, run_id): (String, String) = ("w".into(), "a".into());
    let item = Ask::Item {
        worker: worker.clone(),
        run_id: run_id.clone(),
        key: "i".into(),
        status: "completed".into(),
    };
    let note = Ask::Note { worker: worker.clone(), run_id: run_id.clone(), message: "m".into() };
    let finish = Ask::Finish { worker, run_id, status: "success".into() };
    history.calls = vec![
        call(Ask::Enqueue(new_run()), 0, 10, Answer::Made { run_id: "a".into(), is_new: true }),
        claim("w", 20, &[("a", 1)]),
        call(item, 40, 50, Answer::Done),
        call(note, 60, 70, Answer::Noted { position: 4 }),
        call(finish, 80, 90, Answer::Status("success".into())),
    ];
    history.seen = vec![seen(&history.tables, Reading::Feed), seen(&history.tables, Reading::Stream)];
    history
}

fn seen(tables: &Tables, how: Reading) -> Seen {
    let events =
        tables.events.iter().map(|event| (event.position, event.run_id.clone(), event.seq)).collect();
    Seen { reader: format!("{how:?}"), how, events, resets: Vec::new(), reconnects: 0 }
}

/// Two runs of a queue, both held by those who claimed them at 1 s and 2 s.
fn two_held(second: Call) -> History {
    let mut history = History::default();
    events(&mut history, "a", &[BORN, "w claim claimed"]);
    let by = match &second.ask {
        Ask::Begin { worker, .. } | Ask::Claim { worker, .. } => format!("{worker} claim claimed"),
        _ => unreachable!("a claim"),
    };
    events(&mut history, "b", &[BORN, &by]);
    history.tables.runs = vec![run("a", "claimed", 2), run("b", "claimed", 2)];
    history.calls = vec![claim("w", SECOND, &[("a", 1)]), second];
    history
}

fn set_key(history: &mut History) {
    history.tables.runs.iter_mut().for_each(|run| run.concurrency_key = Some("k".into()));
}

/// The violations of one check.
fn found(name: &str, history: &History) -> Vec<String> {
    check(history)
        .into_iter()
        .find(|finding| finding.check == name)
        .expect("there is such a check")
        .violations
}

/// A history in which this check finds something.
fn broken(name: &str) -> History {
    let mut history = good();
    let ways = [break_answers, break_log, break_slots, break_surroundings];
    assert!(ways.iter().any(|way| way(name, &mut history)), "no history breaks {name:?}");
    history
}

fn cancel() -> Ask {
    Ask::Cancel { run_id: "a".into() }
}

fn break_answers(name: &str, history: &mut History) -> bool {
    match name {
        "acknowledged runs exist" => history.tables.runs.clear(),
        "runs taken back are absent" => {
            let answer = Answer::TakenBack { run_id: "a".into() };
            history.calls.push(call(Ask::Enqueue(new_run()), 0, 10, answer));
        }
        "acknowledged runs are found at once" => {
            let answer = Answer::Refused { status: 404, code: "NOT_FOUND".into() };
            history.calls.push(call(Ask::Look { run_id: "a".into() }, 20, 30, answer));
        }
        "keys one run each" => {
            history.tables.runs.push(run("b", "success", 1));
            history.tables.runs.iter_mut().for_each(|run| run.idempotency_key = Some("k".into()));
        }
        "acknowledged claims stand" => history.calls.push(claim("x", 20, &[("a", 2)])),
        "claims are told to their worker" => history.calls[1].answer = Answer::Claims(Vec::new()),
        "acknowledged events stand" => history.calls[3].answer = Answer::Noted { position: 9 },
        "acknowledged items stand" => history.tables.items.clear(),
        "acknowledged finishes stand" => history.tables.events[4].to = "failed".into(),
        "acknowledged cancels stand" => history.calls.push(call(cancel(), 20, 30, Answer::Done)),
        "acknowledged releases stand" => {
            let ask = Ask::Release { worker: "w".into(), run_id: "a".into() };
            history.calls.push(call(ask, 20, 30, Answer::Done));
        }
        _ => return false,
    }
    true
}

fn break_log(name: &str, history: &mut History) -> bool {
    match name {
        "seq gap-free" => drop(history.tables.events.remove(2)),
        "moves are the lifecycle's" => history.tables.events[1].from = Some("failed".into()),
        "one end per run" => {
            events(history, "b", &["w succeed success", "w claim claimed", "w succeed success"]);
        }
        "no write of a former holder" => history.tables.events[3].by = "x".into(),
        "no fence twice" => history.calls.push(claim("x", 20, &[("a", 1)])),
        "nothing begins past its time to live" => {
            history.tables.events[1].at_ms = 5_000;
            history.calls[0].ask = Ask::Enqueue(NewRun { ttl_ms: Some(10), ..new_run() });
        }
        "priorities" => *history = more_urgent_one_waits(),
        "children end with a cancelled parent" => {
            events(history, "b", &[BORN, "x claim claimed"]);
            history.tables.events.last_mut().unwrap().at_ms = 100_000;
            events(history, "parent", &[BORN, "client cancel cancelled"]);
            let new = NewRun { parent: Some("parent".into()), ..new_run() };
            history.calls.push(call(
                Ask::Enqueue(new),
                0,
                10,
                Answer::Made { run_id: "b".into(), is_new: true },
            ));
            history.calls.push(call(Ask::Cancel { run_id: "parent".into() }, 20, 30, Answer::Done));
        }
        _ => return false,
    }
    true
}

fn break_slots(name: &str, history: &mut History) -> bool {
    match name {
        "limits at every position" => {
            *history = two_held(claim("x", 2 * SECOND, &[("b", 1)]));
            history.calls.push(limit(1, 10));
        }
        "keys' slots at every position" => {
            *history = two_held(claim("x", 2 * SECOND, &[("b", 1)]));
            set_key(history);
        }
        "no claim within an acknowledged pause" => history.calls.push(pause(5)),
        "SQL begins keep limits" => {
            *history = two_held(begin("x", 2 * SECOND, "b"));
            history.calls.push(limit(1, 10));
        }
        "SQL begins keep keys' slots" => {
            *history = two_held(begin("x", 2 * SECOND, "b"));
            set_key(history);
        }
        "SQL begins keep times to live" => {
            break_log("nothing begins past its time to live", history);
            history.calls[1] = begin("w", 20, "a");
        }
        "SQL ends keep cancels" => {
            history.calls.push(call(cancel(), 20, 30, Answer::Done));
            history.tables.events[4].by = "by hand".into();
        }
        "SQL begins keep pauses" => {
            history.calls[1] = begin("w", 20, "a");
            history.calls.push(pause(5));
        }
        _ => return false,
    }
    true
}

fn break_surroundings(name: &str, history: &mut History) -> bool {
    match name {
        "feed complete and in order for every reader" => drop(history.seen[0].events.remove(2)),
        "streams complete and in order for every reader" => history.seen[1].events.swap(1, 2),
        "nothing stuck" => history.tables.left_over.push(("holders".into(), "a".into())),
        "verify clean" => history.differences.push("a: differs".into()),
        "no deadlock" => {
            let error = LoggedError { message: "deadlock detected".into(), statements: Vec::new() };
            history.database_log.push(error);
        }
        "SQL errors are documented" => {
            let answer = Answer::Refused { status: 0, code: "22003".into() };
            history.calls.push(Call { server: None, ..call(cancel(), 20, 30, answer) });
        }
        "no panic in a server's log" => history.server_log.push("thread 'x' panicked at".into()),
        "no 5xx but 503 around faults" => {
            let answer = Answer::Unknown { status: Some(503), why: "x".into() };
            history.calls.push(call(cancel(), 20, 30, answer));
        }
        _ => return false,
    }
    true
}

fn more_urgent_one_waits() -> History {
    let queue = super::super::plan::PRIORITIES.to_owned();
    let made = |run_id: &str, priority: i16| {
        let new = NewRun { queue: queue.clone(), priority, ..new_run() };
        call(Ask::Enqueue(new), 0, 10, Answer::Made { run_id: run_id.into(), is_new: true })
    };
    let mut history = History::default();
    events(&mut history, "a", &[BORN, "w claim claimed"]);
    events(&mut history, "b", &[BORN]);
    let row = |run_id: &str, priority| RunRow { queue: queue.clone(), priority, ..run(run_id, "claimed", 2) };
    history.tables.runs = vec![row("a", 0), row("b", 5)];
    let mut claim = claim("w", 20, &[("a", 1)]);
    claim.ask = Ask::Claim { worker: "w".into(), queues: vec![queue.clone()] };
    history.calls = vec![made("a", 0), made("b", 5), claim];
    history
}

#[test]
fn every_check_finds_what_it_is_for_and_is_content_without() {
    for finding in check(&good()) {
        assert_eq!(finding.violations, Vec::<String>::new(), "{}", finding.check);
    }
    for (name, _) in CHECKS {
        assert_ne!(found(name, &broken(name)), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn known_failures_are_checks() {
    for known in known(true) {
        assert!(CHECKS.iter().any(|(name, _)| *name == known.check), "{}", known.check);
    }
}

/// A claim that was under way while the limit was set may have been first.
#[test]
fn calls_that_overlap_may_go_either_way() {
    let name = "limits at every position";
    let mut history = two_held(claim("x", 2 * SECOND, &[("b", 1)]));
    history.calls.push(limit(1, 2 * SECOND + 5));
    assert_eq!(found(name, &history), Vec::<String>::new());
    // Nobody knows whether a call without an answer was done.
    history.calls[2] = limit(1, 10);
    history.calls[2].answer = Answer::Unknown { status: None, why: "it broke off".into() };
    assert_eq!(found(name, &history), Vec::<String>::new());
    history.calls[2] = limit(1, 10);
    assert_eq!(found(name, &history).len(), 1);
    // An earlier one that had no answer may have come last, for a while.
    let unknown = Answer::Unknown { status: None, why: "it broke off".into() };
    history.calls.push(call(Ask::QueueLimit { queue: "q".into(), at_most: None }, 5, 8, unknown));
    assert_eq!(found(name, &history), Vec::<String>::new());
}

/// Former holders are also known by the clock: a heartbeat leaves no event.
#[test]
fn a_lease_that_is_renewed_after_it_was_anothers_is_found() {
    let mut history = good();
    history.calls.push(claim("x", 30, &[("a", 2)]));
    let renew = Ask::Heartbeat { worker: "w".into(), run_id: "a".into() };
    history.calls.push(call(renew.clone(), 35, 60, Answer::Done));
    assert_eq!(found("no write of a former holder", &history), Vec::<String>::new());
    history.calls.push(call(renew, 45, 60, Answer::Done));
    assert_eq!(found("no write of a former holder", &history).len(), 1);
}

/// A fault excuses what is answered around it, and nothing else.
#[test]
fn faults_and_resets_excuse_what_they_must() {
    let mut history = broken("no 5xx but 503 around faults");
    history.faults.push(Fault { what: "kill".into(), began: 25, ended: 40 });
    assert_eq!(found("no 5xx but 503 around faults", &history), Vec::<String>::new());
    history.calls.last_mut().unwrap().answer = Answer::Unknown { status: Some(500), why: "x".into() };
    assert_eq!(found("no 5xx but 503 around faults", &history).len(), 1);
    let mut history = good();
    history.seen[1].events.drain(1..3);
    history.seen[1].resets.push((1, 3));
    assert_eq!(found("streams complete and in order for every reader", &history), Vec::<String>::new());
}

/// Who comes after a begin by hand that took a slot too many is not to blame.
#[test]
fn what_is_begun_by_hand_is_told_apart() {
    let mut history = two_held(begin("x", 2 * SECOND, "b"));
    set_key(&mut history);
    assert_eq!(found("keys' slots at every position", &history), Vec::<String>::new());
    let mut history = two_held(claim("x", 2 * SECOND, &[("b", 1)]));
    history.calls[0] = begin("w", SECOND, "a");
    set_key(&mut history);
    assert_eq!(found("keys' slots at every position", &history), Vec::<String>::new());
    assert_eq!(found("SQL begins keep keys' slots", &history).len(), 1);
}
