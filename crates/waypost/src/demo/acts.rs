//! The runs: what is done to each, and how it is announced to end.

use std::collections::HashMap;
use std::time::Instant;

use waypost_kernel::Span;

use super::process::Identity;
use super::stage::{Cast, Stage};
use crate::output::Result;
use crate::run::output_lines;

pub struct Act {
    pub what: &'static str,
    pub run_id: String,
    pub path: &'static [&'static str],
    /// The error code that it ends with.
    pub code: Option<&'static str>,
    /// What else was to be seen, and whether it was.
    pub seen: Option<(String, bool)>,
}

const SUCCEEDS: &[&str] = &["queued", "claimed", "running", "success"];
const FAILS: &[&str] = &["queued", "claimed", "running", "failed"];
const STOPPED: &[&str] = &["queued", "claimed", "running", "cancelled"];
const STALE: &[&str] = &["queued", "claimed", "cancelled"];
const NEVER_TAKEN: &[&str] = &["queued", "cancelled"];

/// In the order of the report: what, path, error code.
type Announced = (&'static str, &'static [&'static str], Option<&'static str>);
const ANNOUNCED: [Announced; 12] = [
    ("success", SUCCEEDS, None),
    ("success with output", SUCCEEDS, None),
    ("failure", FAILS, Some("EXIT_7")),
    ("failure with retries", FAILS, Some("MAX_RETRIES")),
    ("cancel while queued", NEVER_TAKEN, Some("CANCELLED")),
    ("cancel while running", STOPPED, Some("CANCELLED")),
    ("stale claim", STALE, Some("EXPIRED")),
    ("killed worker", FAILS, Some("WORKER_LOST")),
    ("priority", SUCCEEDS, None),
    ("key sent twice", SUCCEEDS, None),
    ("ignores SIGTERM", STOPPED, Some("CANCELLED")),
    ("scheduled", SUCCEEDS, None),
];

const SLEEPS: &str = "echo pid $$; exec sleep 600";
const IGNORES_SIGTERM: &str = "trap '' TERM; echo pid $$; while :; do sleep 1; done";
const ASKS_FOR_RETRIES: &str = r#"echo "pushing the image"
echo '{"outcome":"retry","retry_after_ms":400,"code":"REGISTRY_503","message":"the registry is away"}' >"$WAYPOST_OUTPUT""#;

/// Runs by what they show, and what was seen of them besides their paths.
#[derive(Default)]
struct Played {
    runs: HashMap<&'static str, String>,
    seen: HashMap<&'static str, (String, bool)>,
}

pub async fn play(stage: &mut Stage) -> Result<Vec<Act>> {
    let mut played = Played::default();
    queue_for_the_crew(stage, &mut played).await?;
    queue_for_nobody(stage, &mut played).await?;
    queue_in_one_lane(stage, &mut played).await?;
    stage.hire(&Cast { queue: "crew", slots: "8", lease: "10s" })?;
    stage.hire(&Cast { queue: "lane", slots: "1", lease: "10s" })?;
    stop_what_runs(stage, &mut played).await?;
    kill_a_worker(stage, &mut played).await?;
    for id in played.runs.values() {
        stage.settled(id).await?;
    }
    look_at_the_output(stage, &mut played).await?;
    look_at_the_order(stage, &mut played).await?;
    look_at_the_time(stage, &mut played).await?;
    look_at_the_tries(stage, &mut played).await?;
    Ok(ANNOUNCED.iter().map(|announced| played.act(announced)).collect())
}

impl Played {
    fn add(&mut self, what: &'static str, run_id: String) {
        self.runs.insert(what, run_id);
    }

    fn id(&self, what: &str) -> &str {
        self.runs.get(what).map_or("", String::as_str)
    }

    fn saw(&mut self, what: &'static str, words: impl Into<String>, is_so: bool) {
        self.seen.insert(what, (words.into(), is_so));
    }

    fn act(&mut self, (what, path, code): &Announced) -> Act {
        let run_id = self.id(what).to_owned();
        Act { what, run_id, path, code: *code, seen: self.seen.remove(what) }
    }
}

async fn queue_for_the_crew(stage: &Stage, played: &mut Played) -> Result {
    let later = stage.store.now().await? + Span::from_seconds(2);
    let plain = [
        ("success", "exit 0"),
        ("success with output", "echo building; echo shipped"),
        ("failure", "echo 'disk full' >&2; exit 7"),
        ("cancel while running", SLEEPS),
        ("ignores SIGTERM", IGNORES_SIGTERM),
    ];
    for (what, script) in plain {
        played.add(what, stage.queue(what, "crew", script, |_| {}).await?);
    }
    let retried = stage.queue("failure with retries", "crew", ASKS_FOR_RETRIES, |new| {
        if let Some(carried) = &mut new.carried {
            carried["retries"] = 2.into();
        }
    });
    played.add("failure with retries", retried.await?);
    let scheduled =
        stage.queue("scheduled", "crew", "echo on time", |new| new.schedule_at = Some(later)).await?;
    played.add("scheduled", scheduled);
    Ok(())
}

/// One is cancelled before anybody takes it; the other is taken by somebody who never begins.
async fn queue_for_nobody(stage: &Stage, played: &mut Played) -> Result {
    let cancelled = stage.queue("cancel while queued", "nobody", "exit 0", |_| {}).await?;
    stage.cancel(&cancelled, "wrong branch").await?;
    played.add("cancel while queued", cancelled);
    let stale = stage.queue("stale claim", "nobody", "exit 0", |_| {}).await?;
    stage.store.claim_run(stale.clone(), "a worker that hangs".into()).await?;
    played.add("stale claim", stale);
    Ok(())
}

/// Both wait before their worker starts, the urgent one behind the other.
async fn queue_in_one_lane(stage: &Stage, played: &mut Played) -> Result {
    let mut ids = Vec::new();
    for _ in 0..2 {
        let keyed = stage.queue("key sent twice", "lane", "echo once", |new| {
            new.idempotency_key = Some("build-4f2a".into());
        });
        ids.push(keyed.await?);
    }
    played.saw("key sent twice", "sent twice, one run", ids[0] == ids[1]);
    played.add("key sent twice", ids.swap_remove(0));
    let urgent = stage.queue("priority", "lane", "echo urgent", |new| new.priority = 9).await?;
    played.add("priority", urgent);
    Ok(())
}

async fn stop_what_runs(stage: &Stage, played: &mut Played) -> Result {
    for (what, words, takes_ms) in [
        ("cancel while running", "its process ended", 0),
        ("ignores SIGTERM", "killed after the grace of 1 s", 1_000),
    ] {
        let id = played.id(what).to_owned();
        let process = Identity::of(stage.process_of(&id).await?);
        stage.cancel(&id, "the demo says so").await?;
        let asked_at = Instant::now();
        stage.settled(&id).await?;
        let took = asked_at.elapsed().as_millis() >= takes_ms;
        played.saw(what, words, took && is_gone(process).await);
    }
    Ok(())
}

async fn kill_a_worker(stage: &mut Stage, played: &mut Played) -> Result {
    let id = stage.queue("killed worker", "doomed", SLEEPS, |_| {}).await?;
    let worker = stage.hire(&Cast { queue: "doomed", slots: "1", lease: "1s" })?;
    let process = Identity::of(stage.process_of(&id).await?);
    stage.kill(worker).await?;
    played.saw("killed worker", "its process died with it", is_gone(process).await);
    played.add("killed worker", id);
    Ok(())
}

/// Who had no identity was gone before it could be looked at.
async fn is_gone(process: Option<Identity>) -> bool {
    match process {
        Some(identity) => identity.ends().await,
        None => true,
    }
}

async fn look_at_the_output(stage: &Stage, played: &mut Played) -> Result {
    let events = stage.store.events(played.id("success with output").to_owned(), 0, 500).await?;
    let lines: Vec<&str> =
        events.iter().flat_map(|event| output_lines(&event.payload)).map(|(_, line)| line).collect();
    let words = format!("it said: {}", lines.join(", "));
    played.saw("success with output", words, lines == ["building", "shipped"]);
    Ok(())
}

async fn look_at_the_order(stage: &Stage, played: &mut Played) -> Result {
    let mut claims = Vec::new();
    for what in ["priority", "key sent twice"] {
        let events = stage.store.events(played.id(what).to_owned(), 0, 500).await?;
        claims.push(events.iter().find(|event| event.command == "claim").map(|event| event.position));
    }
    played.saw("priority", "queued last, taken first", claims[0] < claims[1]);
    Ok(())
}

async fn look_at_the_time(stage: &Stage, played: &mut Played) -> Result {
    let run = stage.run(played.id("scheduled")).await?;
    let waited = run.run.started_at.zip(run.schedule_at).is_some_and(|(start, planned)| start >= planned);
    played.saw("scheduled", "queued for 2 s later, not begun before", waited);
    Ok(())
}

async fn look_at_the_tries(stage: &Stage, played: &mut Played) -> Result {
    let events = stage.store.events(played.id("failure with retries").to_owned(), 0, 500).await?;
    let tries = 1 + events.iter().filter(|event| event.payload["try"].is_u64()).count();
    let waits: Vec<&str> =
        events.iter().map(|event| event.message.as_str()).filter(|it| it.starts_with("Retry ")).collect();
    let words = format!("{tries} tries; {}", waits.join("; "));
    played.saw("failure with retries", words, tries == 3 && waits.len() == 2);
    Ok(())
}
