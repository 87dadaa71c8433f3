//! Plans of schedules, asked for by hand: one shop is rolled up, another one fails. The third schedule shows when it would fire.

use std::path::Path;

use waypost_store::{ExecutionFilter, Store};
use waypost_worker::schedules::{Asked, Schedule, add_plans, load};

use super::acts::Act;
use super::stage::Stage;
use crate::output::{ERROR, Failed, Result};
use crate::place::lifecycles;
use crate::run::who;

const ROLLUP: &str = "rollup";
const SCHEDULES: &str = include_str!("schedules.toml");
const SUCCEEDS: &[&str] = &["RUNNING", "SUCCESS"];
const FAILS: &[&str] = &["RUNNING", "FAILED"];

/// What the demo's own process fires.
pub async fn schedules(store: &dyn Store, folder: &Path) -> Result<Vec<Schedule>> {
    let file = folder.join("schedules.toml");
    std::fs::write(&file, SCHEDULES)
        .map_err(|error| Failed::new(ERROR, format!("the schedules: {error}")))?;
    let loaded = load(&file, &lifecycles(store).await?);
    loaded.map_err(|problems| Failed::new(ERROR, problems.to_string()))
}

pub async fn play(stage: &Stage) -> Result<Vec<Act>> {
    let who = who(Some("the demo says so".into()));
    add_plans(&*stage.store, ROLLUP, Asked::Now, Vec::new(), false, who).await?;
    let told = [
        ("schedule", "violins", SUCCEEDS, None),
        ("schedule that fails", "cellos", FAILS, Some("handler_error")),
    ];
    let mut acts = Vec::new();
    for (what, scope, path, code) in told {
        let run_id = stage.execution_of(&filter(scope)).await?;
        stage.settled(&run_id).await?;
        acts.push(Act { what, run_id, path, code, seen: None });
    }
    Ok(acts)
}

fn filter(scope: &str) -> ExecutionFilter {
    ExecutionFilter {
        schedule: Some(ROLLUP.into()),
        id: Some(scope.to_owned()),
        limit: 1,
        ..ExecutionFilter::default()
    }
}
