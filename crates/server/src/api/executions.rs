//! Executions of schedules: one for each job, scope and plan time.

use serde_json::{Map, Value, json};
use waypost_store::{ExecutionFilter, ExecutionRow, StoreError};

use super::schedule_shapes::{EXECUTION, EXECUTIONS, EXECUTIONS_QUERY};
use super::schedules::check_tenant;
use super::{GET, Route, ok};
use crate::answer::{self, Answer, Result};
use crate::call::Call;
use crate::problem::NOT_FOUND;
use crate::shape::Fields;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/executions",
        name: "listExecutions",
        about: "Executions of all schedules, the latest plan first, page by page.",
        query: EXECUTIONS_QUERY,
        gives: &[ok(&EXECUTIONS)],
        run: |call| Box::pin(list(call)),
        ..GET
    },
    Route {
        path: "/v1/executions/{run_id}",
        name: "getExecution",
        about: "One execution, by the id of its run.",
        gives: &[ok(&EXECUTION)],
        refuses: &[&NOT_FOUND],
        run: |call| Box::pin(show(call)),
        ..GET
    },
];

async fn list(call: Call) -> Result {
    page(&call, "/v1/executions", call.query.text("schedule")).await
}

pub async fn page(call: &Call, path: &str, schedule: Option<String>) -> Result {
    check_tenant(call)?;
    let query = &call.query;
    let filter = ExecutionFilter {
        schedule,
        kind: query.text("scope_kind"),
        id: query.text("scope_id"),
        status: query.text("status"),
        run_id: None,
        limit: query.integer("limit").unwrap_or(50) as usize,
        cursor: query.text("cursor"),
    };
    let page = call.store().executions(filter).await?;
    let objects: Vec<Value> = page.executions.iter().map(|row| object(call, row)).collect();
    let answer = answer::json(200, &json!({ "executions": objects, "next_cursor": page.next }));
    Ok(linked(answer, path, query, page.next.as_deref()))
}

fn object(call: &Call, row: &ExecutionRow) -> Value {
    let mut object = row.object();
    object["run"] = row.run.as_ref().map_or(Value::Null, |run| call.show(run));
    object
}

async fn show(call: Call) -> Result {
    let run_id = call.path("run_id");
    // As of any run of another tenant, nothing is said of it.
    check_tenant(&call).map_err(|_| StoreError::NotFound { what: "execution", id: run_id.clone() })?;
    let filter = ExecutionFilter { run_id: Some(run_id.clone()), limit: 1, ..ExecutionFilter::default() };
    let found = call.store().executions(filter).await?.executions.pop();
    let row = found.ok_or(StoreError::NotFound { what: "execution", id: run_id })?;
    Ok(answer::json(200, &object(&call, &row)))
}

pub fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// With the way to the next page.
pub fn linked(answer: Answer, path: &str, query: &Fields, next: Option<&str>) -> Answer {
    let Some(next) = next else { return answer };
    let mut pairs: Map<String, Value> = query.0.clone();
    pairs.insert("cursor".into(), next.into());
    let pairs = pairs.iter().map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", encoded(&text))
    });
    let pairs = pairs.collect::<Vec<_>>().join("&");
    answer::with(answer, "link", &format!("<{path}?{pairs}>; rel=\"next\""))
}
