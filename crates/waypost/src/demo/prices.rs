//! The last run: 500 prices of a simulated shop that throttles and refuses some, retried, rolled back in part and compared
//! with the shop.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::{Value, json};
use waypost_kernel::tenant::DEFAULT;
use waypost_simulate::Running;
use waypost_simulate::shop::{CatalogueFlags, FAULTS, Options, Settings, Shop};
use waypost_store::{CommandWrite, NewRun, RunRow};
use waypost_worker::playbook::Playbook;
use waypost_worker::targets::gather::gather;
use waypost_worker::targets::operation_of;
use waypost_worker::targets::source::Reader;

use super::acts::Act;
use super::stage::{Cast, Stage};
use crate::output::{ERROR, Failed, Result};
use crate::place::lifecycles;
use crate::run::start::brought::of_playbook;
use crate::run::user;

const WHAT: &str = "500 prices";
const PATH: &[&str] = &["PREVIEW", "QUEUED", "APPLYING", "PARTIAL", "APPLYING", "APPLIED"];
const PRODUCTS: u64 = 500;
/// Rolled back.
const SOME: u64 = 20;
/// Changed by others.
const DRIFTED: [u64; 2] = [100, 200];
const PLAYBOOK: &str = r#"name = "prices"
lifecycle = "rule"

[inputs.shop]
type = "string"

[targets]
csv = "prices.csv"
after = "{{ target.before|percent(10)|round(2) + 0.01 }}"

[apply]
http = { method = "PUT", url = "{{ inputs.shop }}/products/{{ target.id|urlencode }}", json = { price = "{{ target.after }}" }, allow_private = true }
parallel = 20

[limit]
rate = "1000/s"
burst = 60

[breaker]
after = 1000
"#;

pub async fn play(stage: &mut Stage, folder: &Path) -> Result<Act> {
    let shop = open().map_err(|error| Failed::new(ERROR, format!("the simulated shop: {error}")))?;
    let run = queued(stage, folder, &shop).await?;
    let run_id = run.id().to_owned();
    stage.hire(&Cast { queue: "prices", slots: "2", lease: "10s" })?;
    let partial = stage.settled(&run_id).await?;
    let refused = failed_of(&partial);
    shop.state().heal();
    command(stage, &run_id, "retry", None).await?;
    let whole = applied_after_retry(stage, &run_id).await?;
    let some = (1..=SOME).map(|id| id.to_string()).collect();
    let undone = operated(stage, &run_id, "rollback", Some(some)).await?;
    shop.state().drift_now(&DRIFTED);
    let compared = operated(stage, &run_id, "reconcile", None).await?;
    let throttled = shop.state().throttled();
    let (undone, found) = (&undone["rolledBack"], &compared["mismatches"]);
    let words = format!(
        "{throttled} × 429, {refused} refused and retried, {undone} rolled back, {found} found changed by others"
    );
    let is_so =
        throttled > 0 && refused > 0 && whole && *undone == json!(SOME) && *found == json!(DRIFTED.len());
    Ok(Act { what: WHAT, run_id, path: PATH, code: None, seen: Some((words, is_so)) })
}

/// Slower than the playbook thinks.
fn open() -> std::io::Result<Running<Shop>> {
    let mut settings = Settings { rate: 300.0, burst: 40.0, ..Settings::default() };
    settings.faults.set("permanent=4%", FAULTS).map_err(std::io::Error::other)?;
    let catalogue = CatalogueFlags { products: Some(PRODUCTS), free: Some(0.0), ..CatalogueFlags::default() };
    let shop = Shop::open(Options { catalogue, settings, ..Options::default() })?;
    shop.serve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

/// Its targets are gathered, and it is let loose.
async fn queued(stage: &Stage, folder: &Path, shop: &Running<Shop>) -> Result<RunRow> {
    let failed = |error: &dyn std::fmt::Display| Failed::new(ERROR, format!("the prices: {error}"));
    let folder = folder.join("prices");
    let mut rows = "id,before\n".to_owned();
    for id in 1..=PRODUCTS {
        let cents = shop.state().price_cents(id).unwrap_or_default();
        let _ = writeln!(rows, "{id},{}.{:02}", cents / 100, cents % 100);
    }
    let write = || {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("prices.csv"), &rows)?;
        std::fs::write(folder.join("prices.toml"), PLAYBOOK)
    };
    write().map_err(|error| failed(&error))?;
    let new = NewRun {
        input: json!({ "shop": shop.url() }),
        correlation_id: Some(WHAT.into()),
        title: Some(WHAT.into()),
        queue: "prices".into(),
        by: user(),
        ..NewRun::default()
    };
    let catalog = lifecycles(&*stage.store).await?;
    let (new, playbook) = of_playbook(&catalog, &folder.join("prices.toml"), &[], new, Some("prices"), None)?;
    let run = stage.store.enqueue(vec![new]).await?.remove(0)?.run;
    let playbook: &Playbook = &playbook;
    let Some(rule) = &playbook.rule else { return Err(failed(&"no bulk change")) };
    let reader = Reader::of_person(DEFAULT, run.id()).map_err(|error| failed(&error))?;
    let gathered = gather(&*stage.store, &run, (playbook, rule), &user(), reader).await;
    gathered.map_err(|error| failed(&error))?;
    command(stage, run.id(), "queue", None).await
}

async fn command(stage: &Stage, run_id: &str, name: &str, items: Option<Vec<String>>) -> Result<RunRow> {
    let write = CommandWrite {
        tenant: DEFAULT.into(),
        run_id: run_id.to_owned(),
        name: name.into(),
        by: user(),
        reason: Some("the demo says so".into()),
        items,
        ..CommandWrite::default()
    };
    Ok(stage.store.command(write).await?)
}

/// The report of an operation.
async fn operated(stage: &Stage, run_id: &str, name: &str, items: Option<Vec<String>>) -> Result<Value> {
    let run = command(stage, run_id, name, items).await?;
    let operation = operation_of(&*stage.store, &run).await?;
    let operation = operation.map(|operation| operation.id().to_owned()).unwrap_or_default();
    let ended = stage.settled(&operation).await?;
    Ok(ended.details.get("report").cloned().unwrap_or_default())
}

fn failed_of(run: &RunRow) -> u32 {
    let counted = run.lifecycle.items.first().zip(run.run.tallies.first());
    counted.map_or(0, |(kind, tally)| tally.counts(kind).failed)
}

/// A retry leaves the time of the first end: what counts is that none is open.
async fn applied_after_retry(stage: &Stage, run_id: &str) -> Result<bool> {
    let run = stage.rests(run_id).await?;
    Ok(failed_of(&run) == 0)
}
