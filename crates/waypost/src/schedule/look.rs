//! Verbs that only look.

use comfy_table::Cell;
use serde_json::json;
use waypost_kernel::Time;
use waypost_kernel::schedule::in_words;
use waypost_store::{ExecutionFilter, ScheduleFilter, Store, iso};
use waypost_worker::schedules::{View, find, note, shown, upcoming};

use crate::output::{Format, Result, cells, print, print_list, table};
use crate::place::tenant;
use crate::run::age;

const PAGE: usize = 500;

pub async fn list(store: &dyn Store, output: Format) -> Result {
    let (now, catalog) = (store.now().await?, store.lifecycles().await?);
    let mut all: Vec<View> = Vec::new();
    loop {
        let after = all.last().map(|view| view.summary.row.name.clone());
        let page = store
            .schedules(ScheduleFilter { tenant: Some(tenant().to_owned()), after, limit: PAGE, name: None })
            .await?;
        let is_last = page.len() < PAGE;
        all.extend(page.into_iter().map(|look| View::of(look, &catalog)));
        if is_last {
            break;
        }
    }
    let objects = all.iter().map(|view| view.object(now)).collect();
    print_list(objects, output, || as_table(&all, now))
}

fn as_table(all: &[View], now: Time) -> String {
    if all.is_empty() {
        return "there are no schedules: `waypost schedule apply FILE` adds some".into();
    }
    let rows = all.iter().map(|view| {
        let summary = &view.summary;
        let next = match (&summary.row.paused, view.timing()) {
            (Some(pause), _) => format!("paused by {} {}", pause.by, pause.reason),
            (None, Some(timing)) => {
                upcoming(timing, now, 1).first().map(|time| shown(timing, *time)).unwrap_or_default()
            }
            (None, None) => "not understood by this version".to_owned(),
        };
        cells([
            summary.row.name.clone(),
            view.timing().map(in_words).unwrap_or_default(),
            next,
            summary.last_status.clone().unwrap_or_default(),
            summary.lag(now).map(age).unwrap_or_default(),
            summary.stale.to_string(),
            summary.counts.skipped().to_string(),
            summary.counts.failed.to_string(),
        ])
    });
    table(&["schedule", "when", "next", "last", "lag", "stale", "skipped", "failed"], rows)
}

pub async fn next(store: &dyn Store, name: &str, count: u16, output: Format) -> Result {
    let (row, schedule) = find(store, name).await?;
    let now = store.now().await?;
    let timing = &schedule.policy.timing;
    let times = upcoming(timing, now, usize::from(count));
    let objects =
        times.iter().map(|time| json!({ "plan_time": iso(*time), "local": shown(timing, *time) })).collect();
    print_list(objects, output, || {
        let mut lines = vec![format!("{}: {}", row.name, in_words(timing))];
        lines.extend(times.iter().map(|time| format!("  {}", shown(timing, *time))));
        lines.extend(note(timing, now, &times).map(|note| format!("  {note}")));
        lines.extend(row.paused.as_ref().map(|pause| format!("  paused by {}: {}", pause.by, pause.reason)));
        lines.join("\n")
    })
}

pub async fn history(
    store: &dyn Store,
    name: Option<String>,
    scope: Option<String>,
    limit: usize,
    output: Format,
) -> Result {
    let filter = ExecutionFilter {
        tenant: Some(tenant().to_owned()),
        schedule: name.clone(),
        id: scope,
        limit,
        ..ExecutionFilter::default()
    };
    let all = store.executions(filter).await?.executions;
    // One that was removed still has its history.
    if let Some(name) = name.filter(|_| all.is_empty()) {
        find(store, &name).await?;
    }
    if all.is_empty() && output == Format::Table {
        return print("nothing was executed yet");
    }
    let objects = all.iter().map(waypost_store::ExecutionRow::object).collect();
    print_list(objects, output, || {
        let rows = all.iter().map(|it| {
            let run = it.run.as_ref();
            let failure = run.and_then(|run| run.run.failure.as_ref());
            vec![
                Cell::new(it.plan.to_string()),
                Cell::new(&it.schedule),
                Cell::new(format!("{}/{}", it.kind, it.id)),
                run.map_or_else(|| Cell::new("waits"), crate::output::status),
                Cell::new(it.attempt),
                Cell::new(it.manual.as_deref().unwrap_or_default()),
                Cell::new(failure.map(|it| format!("{}: {}", it.code, it.message)).unwrap_or_default()),
            ]
        });
        table(&["plan", "schedule", "scope", "status", "attempt", "by hand", "error"], rows)
    })
}
