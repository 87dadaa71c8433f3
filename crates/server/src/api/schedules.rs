//! Schedules. Each is a tenant's, as its executions are: nobody else sees them. Those without a tenant are the installation's.

use std::path::Path;

use serde_json::{Value, json};
use waypost_kernel::Catalog;
use waypost_kernel::tenant::{DEFAULT, check_given, local_name, tenant_of};
use waypost_store::{
    NewRun, ScheduleChange, ScheduleFilter, ScheduleSummary, ScopeRow, StoreError, Who, iso,
};
use waypost_worker::playbook::Playbooks;
use waypost_worker::playbook::known::{self, LeftOpen, NotKnown};
use waypost_worker::schedules::{self, Asked, Schedule, Scopes, View, What, note, shown, upcoming};

use super::executions;
use super::playbooks::by_name;
use super::requests::{
    ApplyingBody, BackfillBody, HistoryQuery, NextQuery, PausingBody, RemovingQuery, SchedulesQuery,
    TriggerBody,
};
use super::schedule_shapes::{ADDED, APPLIED, EXECUTIONS, PLAN_TIMES, SCHEDULE, SCHEDULE_SCOPES, SCHEDULES};
use super::{BODY_BYTES, Content, GET, Method, POST, Route, RouteResponse, asks, ok, plain, takes};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::{RequiredRole, Role};
use crate::problem::{FORBIDDEN, INVALID_INPUT, NOT_FOUND, OWN_SCHEDULE, Problem};

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/schedules",
        name: "listSchedules",
        description: "The tenant's schedules by name, page by page: when they fire, how the last one ended, lag, what was skipped.",
        responses: &[ok(&SCHEDULES)],
        ..asks!(GET, list, SchedulesQuery)
    },
    Route {
        path: "/v1/schedules/{schedule}",
        name: "getSchedule",
        description: "One schedule, with its next five plan times.",
        responses: &[ok(&SCHEDULE)],
        refuses: &[&NOT_FOUND],
        ..plain!(GET, show)
    },
    Route {
        method: Method::Put,
        path: "/v1/schedules/{schedule}",
        name: "applySchedule",
        description: "Adds a schedule of the tenant's own, stored as `TENANT/NAME`, or puts a new definition in place of the old one. A pause stays. \
                Without a tenant it is the installation's. It needs the role admin, \
                unless all that it does is to queue a run of a playbook that workers have.",
        required_role: RequiredRole::Operate,
        body_bytes: BODY_BYTES,
        responses: &[ok(&APPLIED)],
        refuses: &[&OWN_SCHEDULE],
        ..takes!(POST, apply, ApplyingBody)
    },
    Route {
        method: Method::Delete,
        path: "/v1/schedules/{schedule}",
        name: "removeSchedule",
        description: "Forgets a schedule. Its executions stay; those under way are asked to cancel, and plans that wait are dropped.",
        required_role: RequiredRole::Admin,
        responses: &[RouteResponse { status: 204, description: "it is gone", body: Content::Nothing }],
        refuses: &[&NOT_FOUND, &OWN_SCHEDULE],
        ..asks!(GET, remove, RemovingQuery)
    },
    Route {
        path: "/v1/schedules/{schedule}/pause",
        name: "pauseSchedule",
        description: "Lets nothing of it begin; a new definition leaves the pause in place. What is being executed goes on.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&SCHEDULE)],
        refuses: &[&NOT_FOUND],
        ..takes!(POST, pause, PausingBody)
    },
    Route {
        path: "/v1/schedules/{schedule}/resume",
        name: "resumeSchedule",
        description: "Goes on with the next plan. Those in between are counted.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&SCHEDULE)],
        refuses: &[&NOT_FOUND],
        ..takes!(POST, resume, PausingBody)
    },
    Route {
        path: "/v1/schedules/{schedule}/trigger",
        name: "triggerSchedule",
        description: "Executes it now: a plan of its own, marked as such.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&ADDED)],
        refuses: &[&NOT_FOUND],
        ..takes!(POST, trigger, TriggerBody)
    },
    Route {
        path: "/v1/schedules/{schedule}/backfill",
        name: "backfillSchedule",
        description: "Executes the plans of a range, or those named, that have no execution yet, or with `again` those that failed; marked as such.",
        required_role: RequiredRole::Operate,
        body_bytes: BODY_BYTES,
        responses: &[ok(&ADDED)],
        refuses: &[&NOT_FOUND],
        ..takes!(POST, backfill, BackfillBody)
    },
    Route {
        path: "/v1/schedules/{schedule}/next",
        name: "nextPlans",
        description: "The next plan times, in its time zone.",
        responses: &[ok(&PLAN_TIMES)],
        refuses: &[&NOT_FOUND],
        ..asks!(GET, next, NextQuery)
    },
    Route {
        path: "/v1/schedules/{schedule}/scopes",
        name: "listScopes",
        description: "Its scopes, and what came of their plans.",
        responses: &[ok(&SCHEDULE_SCOPES)],
        refuses: &[&NOT_FOUND],
        ..plain!(GET, scopes)
    },
    Route {
        path: "/v1/schedules/{schedule}/history",
        name: "scheduleHistory",
        description: "Its executions, the latest plan first, page by page.",
        responses: &[ok(&EXECUTIONS)],
        ..asks!(GET, history, HistoryQuery)
    },
];

fn missing(name: String) -> Problem {
    StoreError::NotFound { what: "schedule", id: name }.into()
}

/// The stored name of the schedule that the path names. Another tenant's is not there.
fn named(call: &Call) -> Result<String> {
    let given = call.path("schedule");
    call.stored_name(&given).ok_or_else(|| missing(given))
}

/// Who asks. What is done to a tenant's schedule is in the tenant's audit log, whoever does it.
fn who_of(call: &Call, schedule: &str, by: Option<String>, reason: Option<String>) -> Who {
    Who { tenant: tenant_of(schedule).to_owned(), ..call.who(by, reason) }
}

async fn summary(call: &Call) -> Result<ScheduleSummary> {
    let name = named(call)?;
    call.store().schedules(ScheduleFilter::named(&name)).await?.pop().ok_or_else(|| missing(name))
}

async fn object(call: &Call) -> Result<Value> {
    let summary = summary(call).await?;
    let (now, catalog) = (call.store().now().await?, call.store().lifecycles().await?);
    Ok(View::of(summary, &catalog).object(now))
}

async fn list(call: Call, query: SchedulesQuery) -> Result {
    let limit = query.limit.0;
    let filter = ScheduleFilter {
        tenant: call.tenant(),
        after: query.cursor,
        limit: limit + 1,
        ..ScheduleFilter::default()
    };
    let mut found = call.store().schedules(filter).await?;
    // The store gives no more than a page, so the last full one is followed by an empty one.
    let more = found.len() > limit || found.len() == waypost_kernel::text::MAX_PAGE;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|it| it.row.name.clone());
    let (now, catalog) = (call.store().now().await?, call.store().lifecycles().await?);
    let objects: Vec<Value> = found.into_iter().map(|it| View::of(it, &catalog).object(now)).collect();
    let answer = answer::json(200, &json!({ "schedules": objects, "next_cursor": next }));
    Ok(executions::linked(&call, answer, "/v1/schedules", next.as_deref()))
}

async fn show(call: Call) -> Result {
    Ok(answer::json(200, &object(&call).await?))
}

async fn apply(call: Call, body: ApplyingBody) -> Result {
    let given = call.path("schedule");
    // A name with a slash is a tenant's: whoever is of one tenant names its own without it.
    let Some(name) = call.stored_name(&given) else {
        check_given("schedule", &given)
            .map_err(|error| Problem::field(&INVALID_INPUT, "schedule", &error.message))?;
        return Err(missing(given));
    };
    let mut definition = body.definition;
    definition.entry("name").or_insert_with(|| local_name(&name).into());
    let folder = body.folder.unwrap_or_else(|| "/".to_owned());
    let catalog = call.store().lifecycles().await?.of_tenant(tenant_of(&name));
    if let Some(run) = definition.get_mut("run") {
        pin(&call, (tenant_of(&name), &catalog), run, body.unknown_playbook).await?;
    }
    let read = schedules::stored(&Value::Object(definition), Path::new(&folder), &catalog);
    let wrong = |message: &str| Problem::field(&INVALID_INPUT, "definition", message);
    let schedule = read.map_err(|problems| wrong(&problems.to_string()))?;
    if schedule.name != name {
        return Err(wrong(&format!("its name is {:?}, not {name:?} as in the path", schedule.name)));
    }
    check_role(&call, &schedule)?;
    check_reach(&call, &schedule)?;
    let stored = call.store().schedules(ScheduleFilter::named(&name)).await?.pop();
    check_ours(&call, &name, stored.as_ref())?;
    let put = schedules::apply(call.store(), &schedule, who_of(&call, &name, body.by, body.reason)).await?;
    Ok(answer::json(200, &json!({ "result": put.name(), "schedule": object(&call).await? })))
}

/// Schedules of a server's own file are not changed from outside: a restart would bring them back, and until then nothing would
/// show that they are gone. The engine's own are refused by the store.
fn check_ours(call: &Call, name: &str, stored: Option<&ScheduleSummary>) -> Result<()> {
    let is_own = call.app.options.own_schedules.iter().any(|own| own == name);
    let message = if is_own || stored.is_some_and(|stored| !stored.row.carried) {
        format!("{name:?} is a schedule of a server's own file: change that file, or pause the schedule")
    } else {
        return Ok(());
    };
    Err(Problem::new(&OWN_SCHEDULE, message))
}

/// The version of a playbook that is known now, as `run start` pins it, if runs can be started so. `may_be_unknown`: a name that nobody
/// has yet stays as it is.
async fn pin(
    call: &Call,
    (tenant, catalog): (&str, &Catalog),
    run: &mut Value,
    may_be_unknown: bool,
) -> Result<()> {
    let brings =
        run["playbook"].as_str().is_none_or(|name| name.ends_with(".toml")) || run["exec"].is_array();
    let name = run["playbook"].as_str().filter(|_| !brings).map(str::to_owned);
    let Some(name) = name else { return Ok(()) };
    let wrong = |field: &str, message: &str| {
        Problem::field(&INVALID_INPUT, &format!("definition/run/{field}"), message)
    };
    let known = match known::find(call.store(), &Playbooks::default(), catalog, tenant, &name).await {
        Ok(known) => known,
        Err(NotKnown::Store(error)) => return Err(error.into()),
        Err(NotKnown::Unknown(_)) if may_be_unknown => return Ok(()),
        Err(NotKnown::Unknown(words)) => {
            let message = format!("{words}; `\"unknown_playbook\": true` takes a name that nobody has yet");
            return Err(wrong("playbook", &message));
        }
        Err(NotKnown::Unsound(words)) => return Err(wrong("playbook", &words)),
    };
    if let Some(playbook) = &known.playbook {
        let new = NewRun {
            lifecycle: run["lifecycle"].as_str().unwrap_or_default().to_owned(),
            input: run.get("input").cloned().unwrap_or_else(|| json!({})),
            ..NewRun::default()
        };
        let open = LeftOpen { queue: true, priority: true, lifecycle: new.lifecycle.is_empty() };
        known::fill(playbook, catalog, new, open)
            .map_err(|error| by_name::cannot_start(error).within("definition/run"))?;
    }
    if !known.offered.hash.is_empty() {
        run["playbook"] = format!("{}@{}", known.offered.name, known.offered.hash).into();
    }
    Ok(())
}

/// Applying must not be a way to execute code, to read the database, or to send its secrets somewhere.
fn check_role(call: &Call, schedule: &Schedule) -> Result<()> {
    let queues_only = matches!(&schedule.what, What::Run(run) if run.carried.is_none());
    let lists_only = matches!(schedule.scopes, Scopes::Global | Scopes::Listed { .. });
    if call.caller.role == Role::Admin || queues_only && lists_only {
        return Ok(());
    }
    let message = "definition: what it executes or asks for is brought along, and that needs a token with the role admin; \
                   an operator may apply run = { playbook = … } with scopes that are listed";
    Err(Problem::new(&FORBIDDEN, message).with("role", call.caller.role.name()))
}

/// What reaches the whole installation is not a tenant's: a query reads everybody's rows, and the engine's own handlers prune
/// everybody's runs.
fn check_reach(call: &Call, schedule: &Schedule) -> Result<()> {
    let asks_the_database = matches!(schedule.scopes, Scopes::Sql { .. });
    let is_engines = matches!(&schedule.what, What::Handler(name) if name.starts_with("waypost."));
    let is_tenants = tenant_of(&schedule.name) != DEFAULT && !call.caller.may_name_any;
    if !is_tenants || !(asks_the_database || is_engines) {
        return Ok(());
    }
    let message = "definition: scopes by sql and handlers of the engine's own reach all tenants, and that needs a token of all \
                   tenants; allowed: scopes with ids, http or handler";
    Err(Problem::new(&FORBIDDEN, message))
}

/// What the engine does for everybody is held up or begun by admins alone.
fn check_installations(call: &Call, name: &str) -> Result<()> {
    if !name.starts_with("waypost.") || call.caller.role == Role::Admin {
        return Ok(());
    }
    let message = format!("schedule: {name} is the installation's: that needs a token with the role admin");
    Err(Problem::new(&FORBIDDEN, message))
}

async fn remove(call: Call, query: RemovingQuery) -> Result {
    let name = named(&call)?;
    // What is left of a file that has it no longer may be removed.
    check_ours(&call, &name, None)?;
    let who = who_of(&call, &name, query.by, query.reason);
    call.store().change_schedule(ScheduleChange::Remove(name), who).await?;
    Ok(answer::empty(204))
}

async fn pause(call: Call, body: PausingBody) -> Result {
    changed(call, ScheduleChange::Pause, body).await
}

async fn resume(call: Call, body: PausingBody) -> Result {
    changed(call, ScheduleChange::Resume, body).await
}

async fn changed(call: Call, change: fn(String) -> ScheduleChange, body: PausingBody) -> Result {
    let name = named(&call)?;
    check_installations(&call, &name)?;
    let who = who_of(&call, &name, body.by, body.reason);
    call.store().change_schedule(change(name), who).await?;
    Ok(answer::json(200, &object(&call).await?))
}

async fn trigger(call: Call, body: TriggerBody) -> Result {
    add_plans(call, Asked::Now, false, body).await
}

async fn backfill(call: Call, body: BackfillBody) -> Result {
    let asked = match (body.plan_times, body.from, body.to) {
        (Some(times), None, None) => Asked::Times(times),
        (None, Some(from), Some(to)) => Asked::Range(from, to),
        _ => {
            let message = "is missing; allowed: from and to, or plan_times";
            return Err(Problem::field(&INVALID_INPUT, "from", message));
        }
    };
    let of = TriggerBody { scopes: body.scopes, reason: body.reason, by: body.by };
    add_plans(call, asked, body.again, of).await
}

async fn add_plans(call: Call, asked: Asked, again: bool, of: TriggerBody) -> Result {
    let name = named(&call)?;
    check_installations(&call, &name)?;
    let who = who_of(&call, &name, of.by, of.reason);
    let added = schedules::add_plans(call.store(), &name, asked, of.scopes, again, who).await?;
    let stored = call.store().schedules(ScheduleFilter::named(&name)).await?.pop();
    let is_fired = stored.is_none_or(|stored| stored.fired_by > 0);
    let hint = "nobody fires this schedule now: a server, or `waypost schedule run`, executes the plans once it is there";
    let hint = (added > 0 && !is_fired).then_some(hint);
    Ok(answer::json(200, &json!({ "added": added, "hint": hint })))
}

async fn next(call: Call, query: NextQuery) -> Result {
    let (_, schedule) = schedules::find(call.store(), &named(&call)?).await?;
    let now = call.store().now().await?;
    let timing = &schedule.policy.timing;
    let times = upcoming(timing, now, query.count.unwrap_or(5));
    let plan = |time| json!({ "plan_time": iso(time), "local": shown(timing, time) });
    let plans: Vec<Value> = times.iter().map(|time| plan(*time)).collect();
    Ok(answer::json(200, &json!({ "next": plans, "clock_change": note(timing, now, &times) })))
}

async fn scopes(call: Call) -> Result {
    let scopes = call.store().scopes(named(&call)?).await?;
    let objects: Vec<Value> = scopes.iter().map(ScopeRow::object).collect();
    Ok(answer::json(200, &json!({ "scopes": objects })))
}

async fn history(call: Call, query: HistoryQuery) -> Result {
    let name = named(&call)?;
    let path = format!("/v1/schedules/{}/history", executions::encoded(&name));
    executions::page(&call, &path, Some(name), query).await
}
