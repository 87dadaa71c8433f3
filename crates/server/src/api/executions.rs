//! Executions of schedules: one for each job, scope and plan time.

use serde_json::{Value, json};
use waypost_store::{ExecutionFilter, ExecutionRow, StoreError};

use super::requests::{ExecutionsQuery, HistoryQuery};
use super::schedule_shapes::{EXECUTION, EXECUTIONS};
use super::{GET, Route, asks, ok, plain};
use crate::answer::{self, Answer, Result};
use crate::call::Call;
use crate::problem::NOT_FOUND;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/executions",
        name: "listExecutions",
        description: "Executions of all schedules of the tenant, the latest plan first, page by page.",
        responses: &[ok(&EXECUTIONS)],
        ..asks!(GET, list, ExecutionsQuery)
    },
    Route {
        path: "/v1/executions/{run_id}",
        name: "getExecution",
        description: "One execution, by the id of its run.",
        responses: &[ok(&EXECUTION)],
        refuses: &[&NOT_FOUND],
        ..plain!(GET, show)
    },
];

async fn list(call: Call, query: ExecutionsQuery) -> Result {
    let ExecutionsQuery { schedule, scope_kind, scope_id, status, limit, cursor } = query;
    let query = HistoryQuery { scope_kind, scope_id, status, limit, cursor };
    // Of another tenant's there are none to see.
    let schedule = schedule.map(|given| call.stored_name(&given).unwrap_or(given));
    page(&call, "/v1/executions", schedule, query).await
}

pub async fn page(call: &Call, path: &str, schedule: Option<String>, query: HistoryQuery) -> Result {
    let filter = ExecutionFilter {
        tenant: call.tenant(),
        schedule,
        kind: query.scope_kind,
        id: query.scope_id,
        status: query.status,
        run_id: None,
        limit: query.limit.0,
        cursor: query.cursor,
    };
    let _turn = call.page_turn().await;
    let page = call.store().executions(filter).await?;
    let objects: Vec<Value> = page.executions.iter().map(|row| object(call, row)).collect();
    let answer = answer::json(200, &json!({ "executions": objects, "next_cursor": page.next }));
    Ok(linked(call, answer, path, page.next.as_deref()))
}

fn object(call: &Call, row: &ExecutionRow) -> Value {
    let mut object = row.object();
    object["run"] = row.run.as_ref().map_or(Value::Null, |run| call.show(run));
    object
}

async fn show(call: Call) -> Result {
    let run_id = call.path("run_id");
    // As of any run of another tenant, nothing is said of it.
    let filter = ExecutionFilter {
        tenant: call.tenant(),
        run_id: Some(run_id.clone()),
        limit: 1,
        ..ExecutionFilter::default()
    };
    let found = call.store().executions(filter).await?.executions.pop();
    let row = found.ok_or(StoreError::NotFound { what: "execution", id: run_id })?;
    Ok(answer::json(200, &object(&call, &row)))
}

pub fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// With the way to the next page: the same list, from the cursor on.
pub fn linked(call: &Call, answer: Answer, path: &str, next: Option<&str>) -> Answer {
    let Some(next) = next else { return answer };
    let mut pairs = call.query.clone();
    pairs.insert("cursor".into(), next.into());
    let pairs = pairs.iter().map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", encoded(&text))
    });
    let pairs = pairs.collect::<Vec<_>>().join("&");
    answer::with(answer, "link", &format!("<{path}?{pairs}>; rel=\"next\""))
}
