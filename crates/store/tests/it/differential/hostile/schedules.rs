//! Schedules, their scopes and plans.

use serde_json::{Value, json};
use waypost_kernel::tenant::own_name;
use waypost_kernel::{Actor, Span, Time};
use waypost_store::{
    Begin, Birth, ExecutionFilter, Failed, Failing, Firing, ManualPlans, NewRun, Ownership, Pause,
    ScheduleChange, ScheduleFilter, ScheduleWrite, Who,
};
use waypost_testkit::Shorthand;

use super::{Asks, table};
use crate::conformance::kit::new;
use crate::differential::side::Side;

fn nightly() -> ScheduleWrite {
    ScheduleWrite {
        name: "nightly".into(),
        definition: json!({ "cron": "0 2 * * *" }),
        folder: "/srv".into(),
        hash: "hash".into(),
        timing: "0 2 * * *".into(),
        carried: true,
        kind: "global".into(),
        ids: Some(vec!["all".into()]),
    }
}

fn by_hand() -> ManualPlans {
    ManualPlans {
        schedule: "nightly".into(),
        kind: "global".into(),
        ids: vec!["all".into()],
        plans: Some(vec![Time::from_ms(1_771_000_000_000)]),
        again: false,
        how: "trigger".into(),
        by: "ann".into(),
    }
}

fn birth(key: String) -> Birth {
    let run = NewRun { by: "w1".into(), actor: Actor::Worker, idempotency_key: Some(key), ..new("cron") };
    Birth { run, lease: Some(Span::from_seconds(60)) }
}

impl Side {
    /// Put, looked at, and taken away again.
    async fn applied(&mut self, write: ScheduleWrite) -> Value {
        let name = write.name.clone();
        let put = self.store.put_schedule(write).await;
        let put = self.answer(put, |_, put| json!(put.name()));
        let rows = self.store.schedules(ScheduleFilter::named(&name)).await;
        let rows = self.answer(rows, |_, rows| {
            let seen = rows
                .iter()
                .map(|it| &it.row)
                .map(|it| json!([it.name, it.definition, it.folder, it.hash, it.timing]));
            seen.collect()
        });
        let scopes = self.store.scopes(name.clone()).await;
        let scopes = self.answer(scopes, |_, rows| rows.iter().map(|it| json!([it.kind, it.id])).collect());
        let removed = self.store.remove_schedule(name).await;
        json!([put, rows, scopes, self.answer(removed, |_, was_there| json!(was_there))])
    }

    /// With a schedule that is there.
    async fn with_nightly(&mut self) {
        self.store.put_schedule(nightly()).await.unwrap();
    }

    async fn rested(&mut self, name: String, by: String, reason: String) -> Value {
        self.with_nightly().await;
        let paused = self.store.pause_schedule(name, Some(Pause { by, reason, at: None })).await;
        self.answer(paused, |_, row| json!(row.paused.map(|pause| [pause.by, pause.reason])))
    }

    async fn listed_scopes(&mut self, schedule: String, kind: String, ids: Vec<String>) -> Value {
        self.with_nightly().await;
        let put = self.store.put_scopes(schedule, kind, ids).await;
        let put = self.answer(put, |_, ()| Value::Null);
        let rows = self.store.scopes("nightly".into()).await.unwrap();
        json!([put, rows.iter().map(|it| json!([it.kind, it.id, it.retired])).collect::<Vec<_>>()])
    }

    async fn added(&mut self, plans: ManualPlans) -> Value {
        self.with_nightly().await;
        let added = self.store.add_plans(plans).await;
        let added = self.answer(added, |_, count| json!(count));
        let filter = ExecutionFilter { limit: 500, ..ExecutionFilter::default() };
        let rows = self.store.executions(filter).await.unwrap().executions;
        let seen = rows.iter().map(|it| json!([it.schedule, it.kind, it.id, it.manual, it.by]));
        let seen = seen.collect::<Vec<_>>();
        self.store.remove_schedule("nightly".into()).await.unwrap();
        json!([added, seen])
    }

    async fn fired(&mut self, firing: Firing) -> Value {
        self.with_nightly().await;
        let fired = self.store.fire(vec![firing]).await;
        self.answer(fired, |side, mut each| {
            side.answer(each.remove(0), |_, begun| json!(begun.map(|begun| begun.len())))
        })
    }

    async fn begun_by_hand(&mut self, begin: impl FnOnce(Begin) -> Begin) -> Value {
        self.with_nightly().await;
        let ManualPlans { schedule, kind, .. } = by_hand();
        let (id, plan) = ("all".to_owned(), Time::from_ms(1_771_000_000_000));
        let one = Begin { schedule, kind, id, plan, birth: birth("k".into()), by: "w1".into(), alone: false };
        let begun = self.store.begin(begin(one)).await;
        self.answer(begun, |_, begun| json!(begun.is_some()))
    }

    async fn failed(&mut self, schedule: String, what: Failing) -> Value {
        self.with_nightly().await;
        let failed = Failed { schedule, what, wake_at: Time::from_ms(1) };
        let put_off = self.store.put_off(vec![failed]).await;
        self.answer(put_off, |_, ()| Value::Null)
    }

    async fn executed(&mut self, filter: ExecutionFilter) -> Value {
        let found = self.store.executions(ExecutionFilter { limit: 5, ..filter }).await;
        self.answer(found, |_, page| json!(page.executions.len()))
    }

    async fn looked_at(&mut self, filter: ScheduleFilter) -> Value {
        let found = self.store.schedules(ScheduleFilter { limit: 5, ..filter }).await;
        self.answer(found, |_, looks| json!(looks.len()))
    }
}

fn firing() -> Firing {
    Firing { schedule: "nightly".into(), kind: "global".into(), id: "all".into(), ..Firing::default() }
}

pub fn asks() -> Asks {
    [of_definitions(), of_plans()].concat()
}

fn of_definitions() -> Asks {
    table! {
        "schedule name": |side, text| side.applied(ScheduleWrite { name: text, ..nightly() }).await;
        "schedule tenant": |side, text| {
            let write = ScheduleWrite { name: own_name(&text, "nightly"), ..nightly() };
            let put = side.store.change_schedule(ScheduleChange::Put(write), Who::new(&text, "ann", None)).await;
            let put = side.answer(put, |_, put| json!(put.name()));
            let seen = side.looked_at(ScheduleFilter { tenant: Some(text.clone()), ..ScheduleFilter::default() }).await;
            let remove = ScheduleChange::Remove(own_name(&text, "nightly"));
            let removed = side.store.change_schedule(remove, Who::new(&text, "ann", None)).await;
            let removed = side.answer(removed, |_, removed| json!(removed.name()));
            json!([put, seen, removed])
        };
        "schedule definition": |side, text| side.applied(ScheduleWrite { definition: json!({ "exec": [text] }), ..nightly() }).await;
        "schedule folder": |side, text| side.applied(ScheduleWrite { folder: text, ..nightly() }).await;
        "schedule hash": |side, text| side.applied(ScheduleWrite { hash: text, ..nightly() }).await;
        "schedule timing": |side, text| side.applied(ScheduleWrite { timing: text, ..nightly() }).await;
        "schedule kind": |side, text| side.applied(ScheduleWrite { kind: text, ..nightly() }).await;
        "schedule scope": |side, text| side.applied(ScheduleWrite { ids: Some(vec![text]), ..nightly() }).await;
        "pause schedule": |side, text| side.rested(text, "ann".into(), "why".into()).await;
        "pause schedule by": |side, text| side.rested("nightly".into(), text, "why".into()).await;
        "pause schedule reason": |side, text| side.rested("nightly".into(), "ann".into(), text).await;
        "resume schedule": |side, text| {
            let resumed = side.store.pause_schedule(text, None).await;
            side.answer(resumed, |_, row| json!(row.name))
        };
        "scopes of": |side, text| side.listed_scopes(text, "global".into(), vec!["all".into()]).await;
        "scopes kind": |side, text| side.listed_scopes("nightly".into(), text, vec!["all".into()]).await;
        "scopes id": |side, text| side.listed_scopes("nightly".into(), "global".into(), vec![text]).await;
        "look at schedule": |side, text| side.looked_at(ScheduleFilter { name: Some(text), ..ScheduleFilter::default() }).await;
        "look after schedule": |side, text| {
            side.looked_at(ScheduleFilter { after: Some(format!("z{text}")), ..ScheduleFilter::default() }).await
        };
        "due hashes": |side, text| {
            let mine = Ownership { hashes: vec![format!("no {text}")], except: vec![text], ..Ownership::default() };
            let due = side.store.due(mine, 5).await;
            side.answer(due, |_, due| json!(due.scopes.len() + due.executions.len()))
        };
    }
}

fn of_plans() -> Asks {
    table! {
        "plans of": |side, text| side.added(ManualPlans { schedule: text, ..by_hand() }).await;
        "plans kind": |side, text| side.added(ManualPlans { kind: text, ..by_hand() }).await;
        "plans id": |side, text| side.added(ManualPlans { ids: vec![text], ..by_hand() }).await;
        "plans how": |side, text| side.added(ManualPlans { how: text, ids: vec!["how".into()], ..by_hand() }).await;
        "plans by": |side, text| side.added(ManualPlans { by: text, ids: vec!["by".into()], ..by_hand() }).await;
        "fire schedule": |side, text| side.fired(Firing { schedule: text, ..firing() }).await;
        "fire kind": |side, text| side.fired(Firing { kind: text, ..firing() }).await;
        "fire id": |side, text| side.fired(Firing { id: text, ..firing() }).await;
        "fire key": |side, text| {
            let plans = vec![(Time::from_ms(1_771_000_001_000), birth(text))];
            side.fired(Firing { plans, id: "none".into(), ..firing() }).await
        };
        "begin schedule": |side, text| side.begun_by_hand(|it| Begin { schedule: text, ..it }).await;
        "begin kind": |side, text| side.begun_by_hand(|it| Begin { kind: text, ..it }).await;
        "begin id": |side, text| side.begun_by_hand(|it| Begin { id: text, ..it }).await;
        "begin by": |side, text| side.begun_by_hand(|it| Begin { by: text, ..it }).await;
        "put off schedule": |side, text| side.failed(text, Failing::Listing).await;
        "put off scope": |side, text| {
            side.failed("nightly".into(), Failing::Scope { kind: text.clone(), id: text }).await
        };
        "put off execution": |side, text| {
            let what = Failing::Execution { kind: text.clone(), id: text, plan: Time::from_ms(1) };
            side.failed("nightly".into(), what).await
        };
        "look again": |side, text| {
            let looked = side.store.wake_executions(vec![text]).await;
            side.answer(looked, |_, ()| Value::Null)
        };
        "executions of": |side, text| side.executed(ExecutionFilter { schedule: Some(format!("no {text}")), ..ExecutionFilter::default() }).await;
        "executions kind": |side, text| side.executed(ExecutionFilter { kind: Some(format!("no {text}")), ..ExecutionFilter::default() }).await;
        "executions id": |side, text| side.executed(ExecutionFilter { id: Some(format!("no {text}")), ..ExecutionFilter::default() }).await;
        "executions status": |side, text| side.executed(ExecutionFilter { status: Some(format!("no {text}")), ..ExecutionFilter::default() }).await;
        "executions run": |side, text| side.executed(ExecutionFilter { run_id: Some(format!("no {text}")), ..ExecutionFilter::default() }).await;
        "executions cursor": |side, text| side.executed(ExecutionFilter { cursor: Some(text), ..ExecutionFilter::default() }).await;
    }
}
