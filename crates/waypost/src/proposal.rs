//! `waypost proposal …`: what agents propose, and what people decide of it.

use clap::{Args, Subcommand};
use serde_json::Value;
use waypost_kernel::text::terminal::plain;
use waypost_store::{PROPOSAL, RunRow, Store, StoreError};
use waypost_worker::proposals::{self, Decision, NotDecided, Verdict};

use crate::output::{Failed, Format, NOT_FOUND, Result, cells, print, print_list, table};
use crate::place::{Place, tenant};
use crate::run::{age, user};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Proposals, the newest first.
    List {
        /// Only those in this state: pending, approved, applying, applied, failed, rejected, expired.
        #[arg(long)]
        status: Option<String>,
        /// How many at most.
        #[arg(long, default_value_t = 50)]
        limit: usize,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// One proposal: what it proposes, and who decided.
    Show {
        /// Its id, or a part of it that is no other's.
        #[arg(value_name = "ID")]
        id: String,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Approve proposals. Those whose playbook says how to apply them are applied by a worker.
    Approve(Decide),
    /// Reject proposals, with a note.
    Reject(Decide),
}

#[derive(Debug, Args)]
pub struct Decide {
    /// Their ids; at most 50.
    #[arg(value_name = "ID", required = true, num_args = 1..=proposals::MOST_AT_ONCE)]
    ids: Vec<String>,
    /// Why. Who rejects has to say so.
    #[arg(long, alias = "reason")]
    note: Option<String>,
    /// What the proposal's target is at now: refused if it was made for another revision.
    #[arg(long, value_name = "REVISION")]
    base_revision: Option<String>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub async fn run(place: &Place, verb: Verb) -> Result<u8> {
    match verb {
        Verb::List { status, limit, output } => {
            let store = place.opened_to_read().await?.store();
            check_status(&*store, status.as_deref()).await?;
            let page = proposals::of_status(&*store, tenant(), status, limit, None).await?;
            let now = store.now().await?;
            let objects = page.runs.iter().map(proposals::object).collect();
            print_list(objects, output, || as_table(&page.runs, now)).map(|()| 0)
        }
        Verb::Show { id, output } => {
            let store = place.opened_to_read().await?.store();
            let row = found(&*store, id).await?;
            let events = store.events(row.id().to_owned(), 0, 100).await?;
            let object = proposals::decided(&row, &events);
            let text = match output {
                Format::Table => shown(&object),
                format => format.object(&object),
            };
            print(&text).map(|()| 0)
        }
        Verb::Approve(flags) => decide(place, flags, Verdict::Approve).await,
        Verb::Reject(flags) => decide(place, flags, Verdict::Reject).await,
    }
}

/// A word that was typed wrongly must not look like an empty list.
async fn check_status(store: &dyn Store, status: Option<&str>) -> Result<()> {
    let Some(status) = status else { return Ok(()) };
    let catalog = store.lifecycles().await?;
    let known = catalog.latest(PROPOSAL).is_none_or(|it| it.state_named(status).is_some());
    match known {
        true => Ok(()),
        false => Err(StoreError::invalid("status", format!("{status:?} is no state of a proposal")).into()),
    }
}

async fn found(store: &dyn Store, id: String) -> Result<RunRow> {
    let row = store.run(tenant().to_owned(), id.clone()).await?;
    match &*row.lifecycle.name == PROPOSAL {
        true => Ok(row),
        false => Err(StoreError::NotFound { what: "proposal", id }.into()),
    }
}

/// Each by itself; the first that is refused gives the exit code, and the others are decided all the same.
async fn decide(place: &Place, flags: Decide, verdict: Verdict) -> Result<u8> {
    let store = place.opened_existing().await?.store();
    let mut objects = Vec::new();
    let mut refused = None;
    for id in flags.ids {
        let decision = Decision {
            tenant: tenant().to_owned(),
            id: id.clone(),
            verdict,
            note: flags.note.clone(),
            base_revision: flags.base_revision.clone(),
            if_seq: None,
            by: user(),
        };
        match proposals::decide(&*store, decision).await {
            Ok(row) if flags.output == Format::Table => print(&format!("{} is {}", row.id(), row.status()))?,
            Ok(row) => objects.push(proposals::object(&row)),
            Err(error) => {
                let failed = not_decided(error);
                match &refused {
                    None => refused = Some(failed),
                    Some(_) => eprintln!("{}: {}", plain(&id), plain(&failed.message)),
                }
            }
        }
    }
    if flags.output != Format::Table {
        print_list(objects, flags.output, String::new)?;
    }
    refused.map_or(Ok(0), Err)
}

fn not_decided(error: NotDecided) -> Failed {
    let words = error.to_string();
    match error {
        NotDecided::Unknown(_) => Failed::new(NOT_FOUND, words),
        NotDecided::Store(error) => error.into(),
    }
}

fn as_table(rows: &[RunRow], now: waypost_kernel::Time) -> String {
    if rows.is_empty() {
        return "no proposals".to_owned();
    }
    let rows = rows.iter().map(|row| {
        let of = |name: &str| row.metadata.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        cells([
            row.id().to_owned(),
            row.status().to_owned(),
            of("agent_slug"),
            row.title.clone().unwrap_or_default(),
            format!("{} ago", age(now - row.run.created_at)),
        ])
    });
    table(&["proposal", "status", "agent", "title", "made"], rows)
}

fn shown(object: &Value) -> String {
    let text = |name: &str| match &object[name] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let title = text("title").unwrap_or_default();
    let mut lines = vec![format!(
        "{}  {}  {title}",
        object["proposal_id"].as_str().unwrap_or_default(),
        object["status"].as_str().unwrap_or_default()
    )];
    for (label, name) in [
        ("made by", "agent_slug"),
        ("run", "run_id"),
        ("step", "step"),
        ("kind", "kind"),
        ("target", "target"),
        ("revision", "base_revision"),
        ("inbox", "inbox_id"),
        ("applied by", "applied_by"),
        ("expires", "expires_at"),
        ("decided by", "decided_by"),
        ("decided", "decided_at"),
        ("note", "note"),
        ("error", "error"),
    ] {
        lines.extend(text(name).map(|text| format!("{label:<11} {text}")));
    }
    let body = serde_json::to_string_pretty(&object["proposal"]).unwrap_or_default();
    lines.push(body);
    lines.join("\n")
}
