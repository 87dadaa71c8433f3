//! A schedule that queues a run of a playbook: pinned to its content, once for each plan, executed by who has it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use waypost_kernel::Catalog;
use waypost_store::{Filter, Ownership};
use waypost_worker::playbook::{Playbook, Playbooks};
use waypost_worker::schedules::{parse, stored};
use waypost_worker::{Options, Worker};

use super::stage::Stage;
use crate::support;

const ONCE: &str = "cron = \"0 0 1 1 *\"\nfirst = \"latest\"\n";
const RUN: &str = "run = { lifecycle = \"job\", playbook = \"backup.toml\", input = { shop = \"a\" } }";
const BACKUP: &str = r#"
name = "backup"
lifecycle = "job"
queue = "default"
priority = 7
concurrency_key = "backup-{{ inputs.shop }}"

[inputs.shop]
type = "string"

[[step]]
name = "dump"
exec = ["sh", "-c", "echo dumped >> done"]

[[step]]
name = "copy"
exec = ["sh", "-c", "echo copied >> done"]
"#;

fn stage() -> Stage {
    let stage = Stage::new();
    fs::write(stage.folder.path().join("backup.toml"), BACKUP).unwrap();
    stage
}

async fn jobs(stage: &Stage) -> Vec<Value> {
    let filter = Filter {
        tenant: "default".into(),
        lifecycle: Some("job".into()),
        limit: 100,
        include: waypost_store::Parts::ALL,
        ..Filter::default()
    };
    stage.store.runs(filter).await.unwrap().runs.iter().map(waypost_store::RunRow::object).collect()
}

async fn work(stage: &Stage, playbooks: Playbooks) {
    let options = Options { playbooks, slots: 1, guardian: Some(support::guardian()), ..Options::default() };
    Worker::new(stage.store.clone(), options).run_once().await.unwrap();
}

fn own(text: &str, folder: &Path) -> Playbooks {
    let mut playbook = Playbook::parse(text, &folder.join("backup.toml")).unwrap();
    playbook.folder = folder.to_owned();
    Playbooks::default().with(playbook)
}

// proves D10 and C3
#[tokio::test(flavor = "multi_thread")]
async fn a_playbooks_run_is_pinned_and_executed_by_who_has_that_content() {
    let stage = stage();
    let schedule = stage.apply(&format!("{ONCE}{RUN}")).await;
    // What changes after it was applied does not change what was asked for.
    fs::write(stage.folder.path().join("backup.toml"), "name = \"another\"").unwrap();
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    let run = stage.only().await;
    let playbook = Playbook::parse(BACKUP, Path::new("backup.toml")).unwrap();
    assert_eq!(run["playbook"], playbook.pin().as_str());
    assert_eq!(
        (&run["lifecycle"], &run["priority"], &run["concurrency_key"], &run["input"]),
        (&json!("job"), &json!(7), &json!("backup-a"), &json!({ "shop": "a" }))
    );
    assert_eq!(run["metadata"]["unattended"], true, "nobody is there to be asked");
    let plan = run["metadata"]["schedule"]["plan_time"].as_str().unwrap();
    assert_eq!(run["idempotency_key"], json!(format!("waypost:schedule:job:global:global:{plan}")));
    let steps = stage.store.items(run["run_id"].as_str().unwrap().into(), None).await.unwrap();
    assert_eq!(steps.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["dump", "copy"]);
    let folder = stage.folder.path();
    work(&stage, own(&BACKUP.replace("dumped", "other"), folder)).await;
    let left = stage.only().await;
    assert_eq!((&left["claimed_by"], &left["status"]), (&Value::Null, &json!("pending")));
    assert!(!folder.join("done").exists(), "another version leaves it alone");
    work(&stage, own(BACKUP, folder)).await;
    assert_eq!(stage.only().await["status"], "completed");
    assert_eq!(fs::read_to_string(folder.join("done")).unwrap(), "dumped\ncopied\n");
    let again = stored(&schedule.definition, folder, &Catalog::shipped().unwrap()).unwrap();
    assert_eq!(again.what, schedule.what, "the stored one needs no file");
}

// proves U12: a playbook's retries survive a worker, whoever starts its run
#[tokio::test(flavor = "multi_thread")]
async fn retries_of_a_scheduled_playbook_survive_its_worker() {
    let stage = stage();
    let text =
        BACKUP.replace("\"job\"", "\"deploy\"").replace("name = \"copy\"", "name = \"copy\"\nretries = 2");
    fs::write(stage.folder.path().join("backup.toml"), text).unwrap();
    stage.apply(&format!("{ONCE}{}", RUN.replace("\"job\"", "\"deploy\""))).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    assert_eq!(stage.only().await["max_attempts"], 3);
}

// proves D10 and C11
#[tokio::test(flavor = "multi_thread")]
async fn whoever_fires_it_again_queues_nothing_more() {
    let stage = stage();
    stage.apply(&format!("{ONCE}{RUN}")).await;
    let mine = || Ownership { carried: true, ..Default::default() };
    let mut schedulers = Vec::new();
    for name in ["s1", "s2", "s3"] {
        schedulers.push(stage.scheduler(name).await);
    }
    for scheduler in &mut schedulers {
        stage.tick(scheduler).await;
    }
    assert_eq!(jobs(&stage).await.len(), 1);
    // Looked at again and again, by others too, while nobody has taken it.
    for _ in 0..5 {
        stage.advance(6).await;
        for scheduler in &mut schedulers {
            stage.tick(scheduler).await;
        }
    }
    assert!(stage.store.due(mine(), 10).await.unwrap().executions.is_empty(), "it is its workers' to take");
    assert_eq!(jobs(&stage).await.len(), 1);
    // Failed for good, it is counted, and not queued a second time.
    let cancel = support::Shop::cancelling(jobs(&stage).await[0]["run_id"].as_str().unwrap());
    stage.store.command(cancel).await.unwrap();
    stage.advance(6).await;
    for scheduler in &mut schedulers {
        stage.tick(scheduler).await;
    }
    assert_eq!((jobs(&stage).await.len(), stage.scope().await.counts.failed), (1, 1));
}

#[test]
fn a_playbook_that_cannot_be_queued_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("backup.toml"), BACKUP).unwrap();
    fs::write(folder.path().join("bad.toml"), "name = 7").unwrap();
    let catalog = Catalog::shipped().unwrap();
    let judge = |run: &str| {
        let text = format!("[[schedule]]\nname = \"job\"\n{ONCE}run = {run}\n");
        parse(&text, Path::new("waypost.toml"), folder.path(), &catalog).map(Arc::new)
    };
    assert!(judge("{ lifecycle = \"job\", playbook = \"backup.toml\", input = { shop = \"a\" } }").is_ok());
    assert!(judge("{ lifecycle = \"job\", playbook = \"a-workers\" }").is_ok(), "whose workers have it");
    for (run, field, words) in [
        ("{ lifecycle = \"job\", playbook = \"none.toml\" }", "playbook", "cannot be read"),
        ("{ lifecycle = \"job\", playbook = \"bad.toml\" }", "playbook", "bad.toml:1"),
        ("{ lifecycle = \"deploy\", playbook = \"backup.toml\" }", "playbook", "one of `job`"),
        ("{ lifecycle = \"job\", playbook = \"backup.toml\" }", "playbook", "shop"),
        ("{ lifecycle = \"job\", playbook = \"backup.toml\", input = { shop = 1, x = 2 } }", "input", "x"),
    ] {
        let problems = judge(run).unwrap_err();
        let problem = &problems.0[0];
        assert_eq!((problem.rule, problem.line), ("bad-playbook", 5), "{problems}");
        assert_eq!(problem.field, format!("schedule[0].run.{field}"), "{problems}");
        assert!(problem.message.contains(words), "{problems}");
    }
}
