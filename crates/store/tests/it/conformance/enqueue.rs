//! Runs come in.

use serde_json::json;
use waypost_kernel::Span;
use waypost_store::{Database, NewItem, NewRun};

use super::kit::*;

// proves D1 and X10
pub async fn a_new_run_is_what_was_asked_for(store: &dyn Database) {
    let now = store.now().await.unwrap();
    let (parent, before) = (put(store, deploy()).await, put(store, deploy()).await);
    let asked = NewRun {
        queue: "builds".into(),
        priority: 7,
        input: json!({"ref": "main"}),
        metadata: map(json!({"by": "push"})),
        details: map(json!({"note": "first"})),
        concurrency_key: Some("env:prod".into()),
        correlation_id: Some("corr-1".into()),
        idempotency_key: Some("key-1".into()),
        parent_run_id: Some(parent.id().into()),
        retry_of: Some(before.id().into()),
        title: Some("Build main".into()),
        playbook: Some("build".into()),
        carried: Some(json!({"command": ["true"]})),
        ..deploy()
    };
    let run = put(store, asked).await;
    let mut object = get(store, run.id()).await.object();
    object.as_object_mut().unwrap().remove("queue_position");
    assert_eq!(object, run.object());
    let expected = json!({
        "tenant": "default", "lifecycle": "deploy", "version": 1, "status": "queued", "phase": "ready",
        "outcome": null, "queue": "builds", "priority": 7, "attempt": 0, "max_attempts": 1, "take_overs": 0,
        "seq": 1, "claimed_by": null, "fence": 0, "stale_after": null, "started_at": null,
        "finished_at": null, "schedule_at": null, "expires_at": null, "concurrency_key": "env:prod",
        "correlation_id": "corr-1", "idempotency_key": "key-1", "parent_run_id": parent.id(),
        "retry_of": before.id(), "title": "Build main", "playbook": "build", "carried": {"command": ["true"]}, "error_code": null,
        "error_msg": null, "reason": null, "intent": null, "cancel_requested": false,
        "input": {"ref": "main"}, "metadata": {"by": "push"}, "details": {"note": "first"}, "items": {},
        "allowed": ["cancel"],
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&object[key], value, "{key}");
    }
    assert!(about(run.run.created_at - now, 0), "made at the database's time");
    assert_eq!(run.run.available_at, Some(run.run.created_at));
}

// proves D1
pub async fn ids_have_their_lifecycles_form(store: &dyn Database) {
    for (lifecycle, prefix) in [("deploy", "run-"), ("agent", "run_20"), ("rule", "rule-"), ("operation", "op-")] {
        let run = put(store, new(lifecycle)).await;
        assert!(run.id().starts_with(prefix), "{}", run.id());
        assert!(run.lifecycle.ids.as_ref().unwrap().matches(run.id()), "{}", run.id());
    }
    assert!(put(store, job(&["a"])).await.lifecycle.name.starts_with("job"));
}

// proves X4
pub async fn the_first_event_tells_of_the_birth(store: &dyn Database) {
    let metadata = map(json!({"commit": "3f2a"}));
    let run = put(store, NewRun { metadata, by: "hook".into(), ..deploy() }).await;
    let all = events(store, run.id()).await;
    assert_eq!(all.len(), 1);
    let first = &all[0];
    assert_eq!((first.seq, first.command.as_str(), first.to.as_str()), (1, "create", "queued"));
    assert_eq!((first.from.as_deref(), first.actor.as_str(), first.by.as_str()), (None, "client", "hook"));
    assert_eq!((first.level.as_str(), first.message.as_str()), ("info", "Run queued"));
    assert_eq!(first.payload["metadata"], json!({"commit": "3f2a"}));
    assert_eq!(first.at, run.run.created_at);
    let plain = put(store, deploy()).await;
    assert!(last_event(store, plain.id()).await.payload.get("metadata").is_none());
}

// proves X1
pub async fn an_unknown_lifecycle_is_refused_with_those_known(store: &dyn Database) {
    for name in ["", "dploy", "step", "deploy "] {
        let (field, message) = invalid(try_put(store, new(name)).await);
        assert_eq!(field, "lifecycle");
        for known in ["deploy", "agent", "cron", "job", "rule", "operation"] {
            assert!(message.contains(known), "{message}");
        }
    }
    let (field, _) = invalid(try_put(store, NewRun { version: Some(9), ..deploy() }).await);
    assert_eq!(field, "lifecycle");
}

pub async fn a_refused_entry_leaves_its_neighbours_alone(store: &dyn Database) {
    let answers = store.enqueue(vec![deploy(), new("nope"), deploy()]).await.unwrap();
    let codes: Vec<&str> = answers.iter().map(code).collect();
    assert_eq!(codes, ["OK", "INVALID_INPUT", "OK"]);
    assert_eq!(store.claim(wants("w1", 9)).await.unwrap().len(), 2);
    assert!(store.enqueue(Vec::new()).await.unwrap().is_empty());
}

// proves J1 and J2
pub async fn items_come_with_their_run(store: &dyn Database) {
    let scan = NewItem { name: "Scan hosts".into(), details: map(json!({"host": "h1"})), ..item("step", "scan") };
    let asked = NewRun { items: vec![scan, item("task", "t"), item("step", "update")], ..new("job") };
    let run = put(store, asked).await;
    assert_eq!(run.object()["items"], json!({"step": {"pending": 2}, "task": {"pending": 1}}));
    assert_eq!(items(store, run.id()).await, ["scan=pending", "update=pending", "t=pending"]);
    let rows = store.items(run.id().into(), Some("step".into())).await.unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[0].name.as_str(), rows[0].max_retries, rows[0].try_no), ("Scan hosts", 3, 1));
    assert_eq!(rows[0].details, map(json!({"host": "h1"})));
    assert_eq!(commands(store, run.id()).await, ["create"]);
}

// proves J2
pub async fn a_job_without_steps_gets_one_to_run(store: &dyn Database) {
    let run = put(store, new("job")).await;
    assert_eq!(items(store, run.id()).await, ["(run)=pending"]);
    assert!(claim(store, "w1").await.is_some());
    assert!(items(store, put(store, deploy()).await.id()).await.is_empty());
}

// proves R3
pub async fn a_bulk_change_without_targets_is_not_queued(store: &dyn Database) {
    let refused = refusal(try_put(store, rule(&[])).await);
    assert_eq!(refused.code.name(), "INVALID_TRANSITION");
    let preview = put(store, new("rule")).await;
    let refused = refusal(command(store, preview.id(), "queue").await);
    assert_eq!((refused.code.name(), &*refused.current), ("INVALID_TRANSITION", "PREVIEW"));
    assert_eq!(status(store, preview.id()).await, "PREVIEW");
}

// proves R1
pub async fn a_preview_is_queued_with_its_targets(store: &dyn Database) {
    let asked = NewRun { items: vec![item("target", "a"), item("target", "b")], ..new("rule") };
    let preview = put(store, asked).await;
    assert_eq!(preview.status(), "PREVIEW");
    assert!(claim(store, "w1").await.is_none(), "nobody may apply a preview");
    assert_eq!(code(&store.claim_run(preview.id().into(), "w1".into()).await), "INVALID_TRANSITION");
    let queued = command(store, preview.id(), "queue").await.unwrap();
    assert_eq!(queued.object()["items"], json!({"target": {"QUEUED": 2}}));
    assert_eq!(items(store, preview.id()).await, ["a=QUEUED", "b=QUEUED"]);
    assert!(claim(store, "w1").await.is_some());
    assert_eq!(put(store, rule(&["a"])).await.status(), "QUEUED");
    // Queued at once is both: what starts as if previewed follows.
    let asked = NewRun { status: Some("QUEUED".into()), items: vec![item("target", "c")], ..new("rule") };
    let queued = put(store, asked).await;
    assert_eq!(items(store, queued.id()).await, ["c=QUEUED"]);
    let claimed = store.claim_run(queued.id().into(), "w1".into()).await.unwrap();
    move_items(store, &claimed, "target", &[("c", "APPLYING")]).await.unwrap();
}

pub async fn items_of_unknown_kind_or_twice_are_refused(store: &dyn Database) {
    for items in [
        vec![item("stpe", "a")],
        vec![item("step", "a"), item("step", "a")],
        vec![NewItem { status: Some("nowhere".into()), ..item("step", "a") }],
        vec![NewItem { status: Some("running".into()), ..item("step", "a") }],
        vec![item("step", "")],
    ] {
        let asked = NewRun { items, ..new("job") };
        assert_eq!(code(&try_put(store, asked).await), "INVALID_INPUT");
    }
    assert_eq!(code(&try_put(store, NewRun { items: vec![item("target", "a")], ..deploy() }).await), "INVALID_INPUT");
    let same_key = NewRun { items: vec![item("step", "a"), item("task", "a")], ..new("job") };
    assert_eq!(code(&try_put(store, same_key).await), "OK");
}

// proves X2 and C1
pub async fn a_run_starts_only_where_it_may(store: &dyn Database) {
    for status in ["running", "success", "nowhere", ""] {
        let asked = NewRun { status: Some(status.into()), ..deploy() };
        assert_eq!(code(&try_put(store, asked).await), "INVALID_INPUT", "{status}");
    }
    // A plan is born held, which is for workers.
    assert_eq!(code(&try_put(store, new("cron")).await), "ACTOR_NOT_ALLOWED");
    assert!(store.runs(all_of(TENANT)).await.unwrap().runs.is_empty());
}

fn all_of(tenant: &str) -> waypost_store::Filter {
    waypost_store::Filter {
        tenant: tenant.into(),
        limit: 10,
        include: waypost_store::Parts::ALL,
        ..Default::default()
    }
}

// proves X11
pub async fn a_time_to_live_is_kept(store: &dyn Database) {
    let asked = NewRun { ttl: Some(Span::from_seconds(90)), ..deploy() };
    let run = put(store, asked).await;
    assert!(about(run.run.expires_at.unwrap() - run.run.created_at, 90));
    assert_eq!(put(store, deploy()).await.run.expires_at, None);
    let agent = put(store, new("agent")).await;
    assert!(about(agent.run.expires_at.unwrap() - agent.run.created_at, 60), "its state's own");
}
