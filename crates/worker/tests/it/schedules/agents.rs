//! Agents whose runs begin by themselves: `cron` of an agent is a schedule like any other.

use std::sync::Arc;

use serde_json::{Value, json};
use waypost_kernel::Catalog;
use waypost_store::{AgentChange, AgentWrite, Claim, Filter, FinishWrite, Parts, RunRow, Who};
use waypost_worker::loops::{Loop, Projector};
use waypost_worker::playbook::Playbook;
use waypost_worker::projection::Projection;
use waypost_worker::projection::objects::{Folder, Objects};
use waypost_worker::schedules::{apply, parse};

use super::stage::Stage;

const FILE: &str = r#"
[[agent]]
slug = "violin"
playbook = "archivist"
concurrency = 2
cron = "*/5 * * * *"
input = { prompt = "What is new?" }
"#;

const PLAYBOOK: &str = r#"
name = "archivist"
lifecycle = "agent"

[inputs.prompt]
type = "string"

[[step]]
name = "load-context"
exec = ["true"]
"#;

async fn stage(stage: Stage) -> Stage {
    let path = std::path::Path::new("waypost.toml");
    let schedules = parse(FILE, path, stage.folder.path(), &Catalog::shipped().unwrap()).unwrap();
    assert_eq!(schedules.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["agent-violin"]);
    let write = AgentWrite {
        slug: "violin".into(),
        playbook: Some("archivist".into()),
        concurrency: 2,
        ..AgentWrite::default()
    };
    stage.store.put_agents("default".into(), vec![write], None).await.unwrap();
    let playbook = Playbook::parse(PLAYBOOK, std::path::Path::new("archivist.toml")).unwrap();
    stage.store.offer_playbooks(vec![playbook.offered("default", "tests")]).await.unwrap();
    apply(&*stage.store, &schedules[0], Who::new("default", "tests", None)).await.unwrap();
    stage
}

async fn runs(stage: &Stage) -> Vec<RunRow> {
    let filter = Filter {
        tenant: "default".into(),
        lifecycle: Some("agent".into()),
        limit: 100,
        include: Parts::ALL,
        ..Filter::default()
    };
    let mut runs = stage.store.runs(filter).await.unwrap().runs;
    runs.reverse();
    runs
}

/// As its worker does: a plan whose run goes on keeps the next one waiting.
async fn finish_all(stage: &Stage, projector: &mut Projector) {
    projector.run_once().await.unwrap();
    let claim = Claim { worker: "w".into(), queues: vec!["agents".into()], limit: 10, ..Claim::default() };
    for claimed in stage.store.claim(claim).await.unwrap() {
        let finish = FinishWrite {
            run_id: claimed.run.id().to_owned(),
            token: Some(claimed.token),
            by: "w".into(),
            status: "completed".into(),
            ..FinishWrite::default()
        };
        stage.store.finish(vec![finish]).await.unwrap().remove(0).unwrap();
    }
    projector.run_once().await.unwrap();
}

async fn each_plan_is_one_run(stage: Stage) {
    let mut schedulers = Vec::new();
    for name in ["s1", "s2", "s3"] {
        schedulers.push(stage.scheduler(name).await);
    }
    let objects: Arc<dyn Objects> = Arc::new(Folder::new(&stage.folder.path().join("objects")));
    let projection = Arc::new(Projection::new(objects.clone()));
    let mut projector = Projector::new(stage.store.clone(), projection, "projector");
    for scheduler in &mut schedulers {
        stage.tick(scheduler).await;
    }
    let before = runs(&stage).await.len();
    finish_all(&stage, &mut projector).await;
    for plans in 1..=3 {
        stage.advance(300).await;
        // Looked at again and again, by all of them.
        for _ in 0..2 {
            for scheduler in &mut schedulers {
                stage.tick(scheduler).await;
            }
        }
        assert_eq!(runs(&stage).await.len(), before + plans, "one run for each plan");
        finish_all(&stage, &mut projector).await;
    }
    for row in runs(&stage).await {
        assert_eq!(row.concurrency_key.as_deref(), Some("agent/violin"));
        assert_eq!(row.input, json!({ "prompt": "What is new?" }).into());
        let stored = objects.read(&format!("runs/{}/status.json", row.id())).await.unwrap().unwrap();
        let status: Value = serde_json::from_slice(&stored.bytes).unwrap();
        assert_eq!((&status["trigger"], &status["agent_slug"]), (&json!("cron"), &json!("violin")));
    }
    // One that takes no runs gets none by the clock either.
    let known = runs(&stage).await.len();
    let who = || Who::new("default", "ann", None);
    stage.store.change_agent(AgentChange::Pause("violin".into()), who()).await.unwrap();
    stage.advance(300).await;
    for scheduler in &mut schedulers {
        stage.tick(scheduler).await;
    }
    assert_eq!(runs(&stage).await.len(), known, "it is paused");
    stage.store.change_agent(AgentChange::Resume("violin".into()), who()).await.unwrap();
    stage.advance(300).await;
    for scheduler in &mut schedulers {
        stage.tick(scheduler).await;
    }
    assert_eq!(runs(&stage).await.len(), known + 1);
}

// proves A1, A7, C11
#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_starts_one_run_of_an_agent_for_each_plan() {
    each_plan_is_one_run(stage(Stage::new()).await).await;
}

// proves A1, A7, C11
#[tokio::test(flavor = "multi_thread")]
async fn the_model_does_the_same() {
    each_plan_is_one_run(stage(Stage::model()).await).await;
}
