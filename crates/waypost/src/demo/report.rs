//! What happened, run by run, next to what was announced.

use std::sync::Arc;

use comfy_table::Cell;
use waypost_kernel::tenant::DEFAULT;
use waypost_store::{Database, RunRow, Store};

use super::acts::Act;
use crate::output::{Result, status, table};

const NEXT: &str = "Try next:
  waypost run start --wait -- echo hi
  waypost run start --wait --retries 2 -- ./deploy.sh staging
  waypost run list
  waypost lifecycle show deploy
  waypost verify";

pub struct Report {
    pub text: String,
    pub as_announced: bool,
}

pub async fn of(store: &dyn Database, acts: &[Act]) -> Result<Report> {
    let mut rows = Vec::new();
    let mut complaints = Vec::new();
    for (at, act) in acts.iter().enumerate() {
        let run = store.run(DEFAULT.into(), act.run_id.clone()).await?;
        let path = path(store, &run).await?;
        complaints.extend(complaint(act, &run, &path));
        rows.push(vec![
            Cell::new(at + 1),
            Cell::new(act.what),
            Cell::new(path.join(" → ")),
            status(&run),
            Cell::new(why(act, &run)),
        ]);
    }
    let verified = store.verify(Arc::new(|_, _| {})).await?;
    complaints.extend(verified.differences);
    let table = table(&["#", "what", "path", "result", "why"], rows);
    let verdict = if complaints.is_empty() {
        format!(
            "Every run ended as announced. verify: {} runs and {} events, the log and the rows agree.",
            verified.runs, verified.events
        )
    } else {
        format!("NOT as announced:\n  {}", complaints.join("\n  "))
    };
    Ok(Report { text: format!("{table}\n\n{verdict}\n\n{NEXT}"), as_announced: complaints.is_empty() })
}

async fn path(store: &dyn Store, run: &RunRow) -> Result<Vec<String>> {
    let mut path: Vec<String> = Vec::new();
    for event in store.events(run.id().to_owned(), 0, 500).await? {
        if path.last() != Some(&event.to) {
            path.push(event.to);
        }
    }
    Ok(path)
}

fn why(act: &Act, run: &RunRow) -> String {
    let failure = run.run.failure.as_ref().map(|failure| format!("{}: {}", failure.code, failure.message));
    let seen = act.seen.as_ref().filter(|(_, is_so)| *is_so).map(|(words, _)| words.clone());
    failure.into_iter().chain(seen).collect::<Vec<_>>().join("; ")
}

fn complaint(act: &Act, run: &RunRow, path: &[String]) -> Option<String> {
    let code = run.run.failure.as_ref().map(|failure| &*failure.code);
    let problem = if path != act.path {
        format!("went {}, announced {}", path.join(" → "), act.path.join(" → "))
    } else if code != act.code {
        format!("ended with {code:?}, announced {:?}", act.code)
    } else if let Some((words, false)) = &act.seen {
        format!("not seen: {words}")
    } else {
        return None;
    };
    Some(format!("{} ({}): {problem}", act.what, act.run_id))
}
