//! Lifecycles and schedules of tenants: each its own, by the same names, and nobody else's.

use serde_json::json;
use waypost_kernel::lifecycle::SHIPPED;
use waypost_kernel::{Actor, Span};
use waypost_store::{
    Begun, Birth, Claim, Database, ExecutionFilter, Filter, Firing, ItemFilter, ManualPlans, NewRun, Ownership,
    ScheduleChange, ScheduleChanged, ScheduleFilter, ScheduleWrite, SchedulerSign, Who,
};

use super::kit::*;
use super::schedules::{every, minute};

fn who(tenant: &str) -> Who {
    Who::new(tenant, "ann", None)
}

fn of(tenant: &str, lifecycle: &str) -> NewRun {
    NewRun { tenant: tenant.into(), ..new(lifecycle) }
}

/// A shipped lifecycle by another name, with a lease by which it is known again.
fn like_deploy(name: &str, version: u32, lease: &str) -> String {
    let (_, deploy) = SHIPPED.into_iter().find(|(name, _)| *name == "deploy").unwrap();
    let text = deploy.replacen("name    = \"deploy\"", &format!("name = \"{name}\""), 1);
    let text = text.replacen("version = 1", &format!("version = {version}"), 1);
    assert!(text.contains("lease = \"60s\""), "{text}");
    text.replace("lease = \"60s\"", &format!("lease = \"{lease}\""))
}

// proves U14
pub async fn lifecycles_of_two_tenants_have_one_name_and_version(store: &dyn Database) {
    for (tenant, lease) in [("shop", "100s"), ("bank", "200s")] {
        let added = store.add_lifecycle(like_deploy("release", 1, lease), who(tenant)).await.unwrap();
        assert_eq!((&*added.name, added.version), (format!("{tenant}/release").as_str(), 1));
        let again = store.add_lifecycle(like_deploy("release", 1, lease), who(tenant)).await.unwrap();
        assert_eq!(again, added, "the same again changes nothing");
    }
    let other = store.add_lifecycle(like_deploy("release", 1, "300s"), who("shop")).await;
    assert_eq!(invalid(other).0, "lifecycle", "a version means one thing");
    for (tenant, seconds) in [("shop", 100), ("bank", 200)] {
        let run = put(store, of(tenant, "release")).await;
        assert_eq!((&*run.lifecycle.name, run.tenant.as_str()), (&*format!("{tenant}/release"), tenant));
        assert_eq!(run.object()["lifecycle"], format!("{tenant}/release"));
        let wants = Claim {
            tenant: Some(tenant.into()),
            lifecycles: vec!["release".into()],
            lease: None,
            start: true,
            ..wants("w1", 1)
        };
        let claimed = store.claim(wants).await.unwrap().remove(0);
        assert_eq!(claimed.run.id(), run.id());
let running = claimed.run.lifecycle.state_named("running").unwrap();
        let lease = claimed.run.lifecycle.state(running).lease;
        assert_eq!(lease, Some(Span::from_seconds(seconds)), "{tenant}: its own");
        finish(store, &claimed, "success").await.unwrap();
    }
    let message = invalid(try_put(store, of("mill", "release")).await).1;
    assert!(!message.contains("shop") && !message.contains("bank"), "others' are not told of: {message}");
    assert_eq!(invalid(try_put(store, new("release")).await).0, "lifecycle", "nor has the default tenant one");
    for foreign in ["bank/release", "/release"] {
        assert_eq!(invalid(try_put(store, of("shop", foreign)).await).0, "lifecycle", "{foreign}");
    }
    put(store, of("shop", "shop/release")).await;
}

// proves U14
pub async fn a_tenants_own_lifecycle_stands_before_the_installations(store: &dyn Database) {
    store.add_lifecycle(like_deploy("deploy", 2, "100s"), who("shop")).await.unwrap();
    let named = async |new: NewRun| {
        let run = put(store, new).await;
        format!("{}@{}", run.lifecycle.name, run.lifecycle.version)
    };
    assert_eq!(named(of("shop", "deploy")).await, "shop/deploy@2");
    assert_eq!(named(NewRun { version: Some(1), ..of("shop", "deploy") }).await, "deploy@1");
    assert_eq!(named(of("shop", "/deploy")).await, "deploy@1", "the installation's alone");
    assert_eq!(named(of("bank", "deploy")).await, "deploy@1", "nobody else's has changed");
    assert_eq!(named(deploy()).await, "deploy@1");
    let listed = async |lifecycle: &str| {
        let filter = Filter { tenant: "shop".into(), lifecycle: Some(lifecycle.into()), limit: 10, ..Filter::default() };
        found(store, filter).await.iter().map(|run| run.lifecycle.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(listed("deploy").await, ["deploy", "deploy", "shop/deploy"], "whichever is meant by the name");
    assert_eq!(listed("shop/deploy").await, ["shop/deploy"]);
    assert_eq!(listed("/deploy").await, ["deploy", "deploy"]);
    assert!(listed("bank/deploy").await.is_empty());
    let audit = store.audits(Some("shop".into()), 0, 10).await.unwrap();
    assert_eq!((audit[0].action.as_str(), audit[0].subject.as_str()), ("lifecycle.add", "shop/deploy@2"));
}

/// A tenant's own kind of items is called by the tenant's name for it, or by the stored one.
pub async fn a_tenants_lifecycle_has_the_tenants_items(store: &dyn Database) {
    let (_, step) = SHIPPED.into_iter().find(|(name, _)| *name == "step").unwrap();
    store.add_lifecycle(like_deploy("before", 1, "100s"), who("shop")).await.unwrap();
    store.add_lifecycle(step.into(), who("shop")).await.unwrap();
    store.add_lifecycle(like_deploy("after", 1, "100s"), who("shop")).await.unwrap();
    for (lifecycle, kind) in [("before", "step"), ("after", "shop/step")] {
        let first = item("step", "a");
        put(store, NewRun { items: vec![first], ..of("shop", lifecycle) }).await;
        let claim = Claim { tenant: Some("shop".into()), start: true, ..wants("w1", 1) };
        let claimed = store.claim(claim).await.unwrap().remove(0);
        assert_eq!(&*claimed.run.lifecycle.items[0].name, kind);
        for (name, key) in [("step", "a"), (kind, "b"), ("step", "c")] {
            let moved = write_items(store, &claimed, vec![moving(name, key, "running")]).await.unwrap();
            assert_eq!((moved[0].kind.as_str(), moved[0].status.as_str()), (kind, "running"));
        }
        for name in ["step", kind] {
            let rows = store.items(claimed.run.id().to_owned(), Some(name.into())).await.unwrap();
            assert_eq!(rows.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
            let filter = ItemFilter { run_id: claimed.run.id().into(), kind: Some(name.into()), limit: 5, ..ItemFilter::default() };
            assert_eq!(store.item_page(filter).await.unwrap().items.len(), 3);
        }
        finish(store, &claimed, "success").await.unwrap();
    }
}

fn own(tenant: &str) -> ScheduleWrite {
    let write = every("1m", "backup", &["a"]);
    ScheduleWrite { name: format!("{tenant}/backup"), hash: format!("{tenant} {}", write.hash), ..write }
}

async fn apply(store: &dyn Database, tenant: &str) -> ScheduleChanged {
    store.change_schedule(ScheduleChange::Put(own(tenant)), who(tenant)).await.unwrap()
}

/// What there is of a tenant, or of all.
async fn named(store: &dyn Database, tenant: Option<&str>) -> Vec<String> {
    let filter = ScheduleFilter { tenant: tenant.map(Into::into), limit: 10, ..ScheduleFilter::default() };
    store.schedules(filter).await.unwrap().into_iter().map(|it| it.row.name).collect()
}

// proves U14 and C1
pub async fn schedules_of_two_tenants_have_one_name(store: &dyn Database) {
    store.change_schedule(ScheduleChange::Put(every("1m", "backup", &["a"])), "ann".into()).await.unwrap();
    for tenant in ["shop", "bank"] {
        assert_eq!(apply(store, tenant).await, ScheduleChanged::Added);
    }
    assert_eq!(named(store, None).await, ["backup", "bank/backup", "shop/backup"]);
    assert_eq!(named(store, Some("shop")).await, ["shop/backup"]);
    assert_eq!(named(store, Some("default")).await, ["backup"]);
    assert!(named(store, Some("sho")).await.is_empty() && named(store, Some("p")).await.is_empty());
    let due = store.due(Ownership { carried: true, ..Ownership::default() }, 100).await.unwrap();
    let mut told: Vec<&str> = due.scopes.iter().map(|it| it.schedule.as_str()).collect();
    told.sort_unstable();
    assert_eq!(told, ["backup", "bank/backup", "shop/backup"], "all alike");
    for (tenant, own) in [("shop", "shop/backup"), ("default", "backup")] {
        let by = Ownership { carried: true, tenant: Some(tenant.into()), ..Ownership::default() };
        let due = store.due(by, 100).await.unwrap();
        let told: Vec<&str> = due.scopes.iter().map(|it| it.schedule.as_str()).collect();
        assert_eq!(told, [own], "whoever works for one tenant fires for that one alone");
    }
    let of_shop = SchedulerSign { name: "s".into(), carried: true, tenant: Some("shop".into()), hashes: vec![] };
    store.scheduler_seen(of_shop).await.unwrap();
    let all = store.schedules(ScheduleFilter { limit: 10, ..ScheduleFilter::default() }).await.unwrap();
    assert_eq!(all.iter().map(|it| it.fired_by).collect::<Vec<_>>(), [0, 0, 1]);
    // The same job, scope and plan time, once in each tenant.
    let plan = minute(store).await;
    for schedule in ["backup", "shop/backup", "bank/backup"] {
        let firing = || firing(schedule, plan);
        let begun = store.fire(vec![firing()]).await.unwrap().remove(0).unwrap().unwrap();
        let [Begun::Held(_, claimed)] = begun.as_slice() else { panic!("{begun:?}") };
        let tenant = schedule.split_once('/').map_or("default", |(tenant, _)| tenant);
        assert_eq!(claimed.run.tenant, tenant);
        assert_eq!(&*claimed.run.lifecycle.name, "cron");
        let again = Firing { expected: Some(plan), through: Some(plan), ..firing() };
        let again = store.fire(vec![again]).await.unwrap().remove(0).unwrap().unwrap();
        assert!(again.is_empty(), "within a tenant it is one execution");
    }
    for (tenant, expected) in [("shop", "shop/backup"), ("bank", "bank/backup"), ("default", "backup")] {
        let filter = ExecutionFilter { tenant: Some(tenant.into()), limit: 10, ..ExecutionFilter::default() };
        let found = store.executions(filter).await.unwrap().executions;
        assert_eq!(found.iter().map(|it| it.schedule.as_str()).collect::<Vec<_>>(), [expected]);
        let run = found[0].run.as_ref().unwrap();
        assert_eq!(run.tenant, tenant);
        let filter = ExecutionFilter {
            tenant: Some("mill".into()),
            run_id: Some(run.id().to_owned()),
            limit: 1,
            ..ExecutionFilter::default()
        };
        assert!(store.executions(filter).await.unwrap().executions.is_empty(), "nobody else's");
    }
    let remove = ScheduleChange::Remove("shop/backup".into());
    store.change_schedule(remove, who("shop")).await.unwrap();
    assert_eq!(named(store, None).await, ["backup", "bank/backup"]);
    let asked = store.runs(Filter { tenant: "shop".into(), limit: 1, ..Filter::default() }).await.unwrap().runs;
    assert_eq!(asked[0].object()["cancel_requested"], json!(true), "what is under way goes with it");
    let audit = store.audits(Some("shop".into()), 0, 10).await.unwrap();
    let told: Vec<String> = audit.iter().map(|it| format!("{} {}", it.action, it.subject)).collect();
    assert_eq!(told, ["schedule.apply shop/backup", "schedule.remove shop/backup"]);
}

fn firing(schedule: &str, plan: waypost_kernel::Time) -> Firing {
    let run = NewRun {
        idempotency_key: Some(format!("schedule:{plan}")),
        by: "s1".into(),
        actor: Actor::Worker,
        max_attempts: 3,
        ..new("cron")
    };
    Firing {
        schedule: schedule.into(),
        kind: "shop".into(),
        id: "a".into(),
        through: Some(plan),
        wake_at: Some(plan + Span::from_seconds(60)),
        plans: vec![(plan, Birth { run, lease: Some(Span::from_seconds(600)) })],
        ..Firing::default()
    }
}

// proves U14
pub async fn another_tenants_schedule_is_not_there(store: &dyn Database) {
    apply(store, "shop").await;
    let name = || "shop/backup".to_owned();
    let plans = ManualPlans {
        schedule: name(),
        kind: "shop".into(),
        ids: vec!["a".into()],
        how: "trigger".into(),
        by: "ann".into(),
        ..ManualPlans::default()
    };
    for tenant in ["bank", "default", "shop/backup", "sho"] {
        for change in [
            ScheduleChange::Put(own("shop")),
            ScheduleChange::Remove(name()),
            ScheduleChange::Pause(name()),
            ScheduleChange::Resume(name()),
            ScheduleChange::Plan(plans.clone()),
        ] {
            let answer = store.change_schedule(change.clone(), who(tenant)).await;
            assert!(["NOT_FOUND", "INVALID_INPUT"].contains(&code(&answer)), "{tenant} {change:?} {answer:?}");
        }
    }
    assert_eq!(store.change_schedule(ScheduleChange::Plan(plans), who("shop")).await.unwrap(), ScheduleChanged::Planned(1));
}

// proves U14
pub async fn a_tenant_and_its_names_have_no_slash(store: &dyn Database) {
    assert_eq!(invalid(try_put(store, of("a/b", "deploy")).await).0, "tenant");
    for tenant in ["a/b", "", "/"] {
        let added = store.add_lifecycle(like_deploy("release", 1, "100s"), who(tenant)).await;
        assert!(added.is_err(), "{tenant:?}");
    }
    let name = like_deploy("a/b", 1, "100s");
    assert_eq!(invalid(store.add_lifecycle(name, who("shop")).await).0, "lifecycle");
    let write = ScheduleWrite { name: "shop/a/b".into(), ..own("shop") };
    let put = store.change_schedule(ScheduleChange::Put(write), who("shop")).await;
    assert_eq!(code(&put), "INVALID_INPUT");
    let write = ScheduleWrite { name: "default/a".into(), ..own("default") };
    assert!(store.change_schedule(ScheduleChange::Put(write), who("default")).await.is_err());
    let write = ScheduleWrite { name: "shop/waypost.prune".into(), ..own("shop") };
    assert!(store.change_schedule(ScheduleChange::Put(write), who("shop")).await.is_err(), "the engine's words");
    assert!(named(store, None).await.is_empty());
}
