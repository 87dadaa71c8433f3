//! Why runs wait that are held: those that were given back, and those whose worker is gone.
// proves U2

use waypost_kernel::Span;
use waypost_kernel::waiting::{Reason, Waiting};
use waypost_store::{
    Can, Claimed, CleanupWrite, Database, Filter, FinishWrite, Needs, NewRun, Pause, ReleaseWrite, RunRow, Setting, Wait,
    WorkerBeat,
};
use waypost_testkit::Shorthand;

use super::kit::*;

/// One that takes anything of the queue.
fn worker(name: &str, slots: u64) -> WorkerBeat {
    WorkerBeat {
        name: name.into(),
        queues: vec![QUEUE.into()],
        slots,
        version: "1".into(),
        ..WorkerBeat::default()
    }
}

pub async fn why(store: &dyn Database, run: &RunRow) -> Option<Waiting> {
    let row = store.run(run.tenant.clone(), run.id().into()).await.unwrap();
    store.explain(vec![row]).await.unwrap().remove(0).waiting().cloned()
}

#[track_caller]
fn says(waiting: Option<Waiting>, reason: Reason, words: &[&str]) -> Waiting {
    let waiting = waiting.expect("it waits");
    assert_eq!(waiting.reason, reason, "{waiting:?}");
    let hint = waiting.hint.clone().unwrap_or_default();
    let text = format!("{} | {hint}", waiting.text);
    assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    waiting
}

async fn stuck(store: &dyn Database) -> Vec<String> {
    let filter =
        Filter { tenant: TENANT.into(), needs: Some(Needs::Worker), limit: 100, ..Filter::default() };
    store.runs(filter).await.unwrap().runs.iter().map(|row| row.id().to_owned()).collect()
}

async fn orphaned(store: &dyn Database) -> u64 {
    store.queues(None).await.unwrap().iter().map(|queue| queue.orphaned).sum()
}

async fn require_cleanup(store: &dyn Database, claimed: &Claimed) {
    let write = CleanupWrite { held: held(claimed), by: "w1".into(), required: true, failing: None };
    store.require_cleanup(write).await.unwrap();
}

/// Whoever waits for its time has no worker, and lacks none: when it has come, what keeps a ready run keeps it.
pub async fn what_was_given_back_waits_as_a_ready_run_does(store: &dyn Database) {
    let first = held_run(store, job(&["a"])).await;
    wait(store, &first, HOUR).await.unwrap();
    says(why(store, &first.run).await, Reason::Window, &["its maintenance window opens at"]);
    let other = put(store, job(&["b"])).await;
    advance(store, HOUR + 1).await;
    let given_up = "the engine gives it up";
    says(why(store, &first.run).await, Reason::NoWorker, &["queue default", "waypost", given_up]);
    store.beat(worker("w2", 2)).await.unwrap();
    assert_eq!(why(store, &first.run).await, None, "it is about to be taken");
    let pause = Pause { by: "kim".into(), reason: "freeze".into(), ..Pause::default() };
    store.pause_queue(QUEUE.into(), Some(pause)).await.unwrap();
    let words = ["paused by kim", "freeze", "waypost queue resume default"];
    says(why(store, &first.run).await, Reason::QueuePaused, &words);
    assert_eq!((stuck(store).await, orphaned(store).await), (Vec::new(), 0), "nobody has to look after it");
    store.pause_queue(QUEUE.into(), None).await.unwrap();
    store.configure(Setting::QueueLimit(QUEUE.into(), Some(1)), "kim".into()).await.unwrap();
    assert_eq!(why(store, &first.run).await, None, "it has no place in the queue, and there is one");
    store.claim_run(other.id().into(), "w2".into()).await.unwrap();
    let waiting = says(why(store, &first.run).await, Reason::QueueLimit, &["limit of 1", other.id()]);
    assert!(!waiting.text.contains(first.run.id()), "it holds nothing: {}", waiting.text);
    assert_eq!((stuck(store).await, orphaned(store).await), (Vec::new(), 0));
    advance(store, DAY).await;
    says(why(store, &first.run).await, Reason::Orphaned, &["nobody took it since", "ends it as"]);
    assert_eq!(stuck(store).await.len(), 2, "the other one's worker is gone, too");
}

/// It comes before what is new, in the order of its times.
pub async fn what_was_given_back_is_first_in_line(store: &dyn Database) {
    let [first, second] = [held_run(store, job(&["a"])).await, held_run(store, job(&["b"])).await];
    wait(store, &second, 60).await.unwrap();
    wait(store, &first, 61).await.unwrap();
    let [new, urgent] = [put(store, job(&["c"])).await, put(store, NewRun { priority: 9, ..job(&["d"]) }).await];
    let busy = put(store, NewRun { queue: "q".into(), ..job(&["e"]) }).await;
    store.claim_run(busy.id().into(), "w2".into()).await.unwrap();
    advance(store, 70).await;
    store.beat(worker("w2", 1)).await.unwrap();
    for (row, place) in
        [(&second.run, "it is next"), (&first.run, "1 before it"), (&urgent, "2 before it"), (&new, "3 before it")]
    {
        says(why(store, row).await, Reason::SlotsBusy, &[place]);
    }
}

pub async fn what_was_given_back_has_its_key(store: &dyn Database) {
    let keyed = || NewRun { concurrency_key: Some("prod".into()), ..job(&["a"]) };
    let first = held_run(store, keyed()).await;
    let second = put(store, keyed()).await;
    wait(store, &first, 60).await.unwrap();
    advance(store, 61).await;
    store.beat(worker("w2", 2)).await.unwrap();
    assert_eq!(why(store, &first.run).await, None);
    says(why(store, &second).await, Reason::KeyLimit, &["prod", first.run.id()]);
}

pub async fn a_wait_begins_when_the_run_is_given_back(store: &dyn Database) {
    let claimed = begun_run(store, job(&["a"])).await;
    advance(store, 50).await;
    renew(store, &claimed).await.unwrap();
    let now = store.now().await.unwrap();
    wait(store, &claimed, HOUR).await.unwrap();
    advance(store, 60).await;
    let waiting = says(why(store, &claimed.run).await, Reason::Window, &[]);
    assert!(waiting.since + Span::from_ms(1) >= now, "{} is before {now}", waiting.since);
    assert!(waiting.since < store.now().await.unwrap() - Span::from_seconds(50));
}

/// Only what its worker can know: the rest would be a reason that the store made out.
pub async fn who_gives_a_run_back_names_a_window_or_a_retry(store: &dyn Database) {
    let claimed = begun_run(store, job(&["a"])).await;
    let until = claimed.now + Span::from_seconds(HOUR);
    for said in ["person", "no_worker", "", "lunch"] {
        let wait = Some(Wait { until, reason: said.into() });
        let write = ReleaseWrite { held: held(&claimed), wait };
        let error = store.release(vec![write]).await.unwrap().remove(0).unwrap_err();
        let told = error.to_string();
        assert!(error.code() == "INVALID_INPUT" && told.contains("reason"), "{said:?}: {told}");
        assert!(told.contains("window") && told.contains("retry"), "{said:?}: {told}");
    }
    assert_eq!(why(store, &claimed.run).await, None, "it is still held");
}

/// What comes next is what the sweep does, whoever asks.
pub async fn an_orphan_says_what_becomes_of_it(store: &dyn Database) {
    let once = begun_run(store, deploy()).await;
    let thrice = begun_run(store, NewRun { max_attempts: 3, ..deploy() }).await;
    advance(store, 120).await;
    let swept = "the next sweep of any worker or server ends it as";
    says(why(store, &once.run).await, Reason::Orphaned, &[swept]);
    let waiting = says(why(store, &thrice.run).await, Reason::Orphaned, &["no live worker can take it over"]);
    assert!(waiting.hint.is_some());
    store.beat(worker("w1", 1)).await.unwrap();
    says(why(store, &thrice.run).await, Reason::Orphaned, &["no live worker can take it over"]);
    store.beat(worker("w2", 1)).await.unwrap();
    says(why(store, &thrice.run).await, Reason::Orphaned, &["the next free worker takes it over"]);
    let pause = Pause { by: "kim".into(), ..Pause::default() };
    store.pause_queue(QUEUE.into(), Some(pause)).await.unwrap();
    let words = ["queue default is paused", "waypost queue resume default"];
    says(why(store, &thrice.run).await, Reason::Orphaned, &words);
    assert_eq!((stuck(store).await.len(), orphaned(store).await), (2, 2));
    sweep(store).await;
    assert_eq!(why(store, &once.run).await, None, "it has ended");
    says(why(store, &thrice.run).await, Reason::Orphaned, &words);
}

pub async fn the_last_sign_of_life_is_told(store: &dyn Database) {
    let claimed = begun_run(store, job(&["a"])).await;
    advance(store, 20).await;
    renew(store, &claimed).await.unwrap();
    let lease = get(store, claimed.run.id()).await.run.lease.unwrap();
    let seen = lease.until - lease.length;
    advance(store, 300).await;
    let waiting = says(why(store, &claimed.run).await, Reason::Orphaned, &[]);
    let shown = waypost_kernel::Time::from_ms(seen.ms().div_euclid(1_000) * 1_000).to_string();
    assert!(waiting.text.contains(&format!("no sign of life since {shown}")), "{shown}: {}", waiting.text);
    assert_eq!(waiting.since, lease.until, "it waits since its lease ended");
}

/// Both: that somebody asked, and that nobody is there to do it.
pub async fn a_cancel_of_an_orphan_says_who_carries_it_out(store: &dyn Database) {
    let [plain, unclean] = [begun_run(store, job(&["a"])).await, begun_run(store, job(&["a"])).await];
    require_cleanup(store, &unclean).await;
    for claimed in [&plain, &unclean] {
        command(store, claimed.run.id(), "cancel").await.unwrap();
        assert_eq!(why(store, &claimed.run).await, None, "its worker is to do it");
    }
    advance(store, 120).await;
    let gone = ["cancel asked by ann", "gave no sign of life"];
    says(why(store, &plain.run).await, Reason::Orphaned, &gone);
    says(why(store, &plain.run).await, Reason::Orphaned, &["ends it as cancelled"]);
    says(why(store, &unclean.run).await, Reason::Orphaned, &gone);
    says(why(store, &unclean.run).await, Reason::Orphaned, &["cleaned up first", "no live worker"]);
    let third = begun_run(store, job(&["a"])).await;
    require_cleanup(store, &third).await;
    wait(store, &third, HOUR).await.unwrap();
    command(store, third.run.id(), "cancel").await.unwrap();
    says(why(store, &third.run).await, Reason::NoWorker, &["cancel asked by ann, to be cleaned up first"]);
}

/// A worker that was killed counts as alive until it has missed some signs of life.
pub async fn a_run_that_is_not_taken_says_who_should(store: &dyn Database) {
    store.beat(WorkerBeat { tenant: Some(TENANT.into()), ..worker("w", 1) }).await.unwrap();
    let run = put(store, NewRun { playbook: Some("build".into()), ..deploy() }).await;
    assert_eq!(why(store, &run).await, None, "it is about to be taken");
    advance(store, 10).await;
    let waiting = says(why(store, &run).await, Reason::NotTaken, &["worker w, last seen at 20", "may take it"]);
    assert_eq!(waiting.hint, None, "it may be busy with something else");
    advance(store, 20).await;
    says(why(store, &run).await, Reason::NotTaken, &["last seen at 20", "start one"]);
    store.beat(worker("all", 1)).await.unwrap();
    says(why(store, &run).await, Reason::NotTaken, &["2 workers may take it", "seen at 20"]);
    advance(store, 20).await;
    says(why(store, &run).await, Reason::NotTaken, &["a worker, last seen at 20"]);
    advance(store, 40).await;
    says(why(store, &run).await, Reason::NoWorker, &[]);
}

pub async fn hints_can_be_typed_as_they_are(store: &dyn Database) {
    let claimed = held_run(store, NewRun { tenant: "shop".into(), ..job(&["a"]) }).await;
    let paused = FinishWrite { reason: Some("look at esx2".into()), ..ending(&claimed, "paused") };
    let parked = write_finish(store, paused).await.unwrap();
    let waiting = says(why(store, &parked).await, Reason::Person, &["waypost run resume"]);
    assert!(waiting.hint.unwrap().ends_with(" --tenant shop"));
    let who = waypost_store::Who::new("shop", "kim", None);
    store.configure(Setting::QueueLimit(QUEUE.into(), Some(0)), who).await.unwrap();
    let full = put(store, NewRun { tenant: "shop".into(), ..deploy() }).await;
    let waiting = says(why(store, &full).await, Reason::QueueLimit, &[]);
    assert_eq!(waiting.hint.as_deref(), Some("waypost queue limit default 1 --tenant shop"));
    // No `waypost worker` takes what says nothing about what is to be done.
    let empty = put(store, deploy()).await;
    let waiting = says(why(store, &empty).await, Reason::NoWorker, &["names no playbook and brings no command"]);
    assert!(!waiting.hint.unwrap().contains("start one"));
    let can = Some(Can { playbooks: vec!["build".into()], carried: true });
    store.beat(WorkerBeat { can, ..worker("w", 1) }).await.unwrap();
    says(why(store, &empty).await, Reason::NoPlaybook, &["names no playbook and brings no command"]);
}
