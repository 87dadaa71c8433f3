//! Proposals as front ends see them.

use serde_json::{Map, Value, json};
use waypost_kernel::Phase;
use waypost_store::{
    APPROVE, EventRow, Filter, INBOX, PROPOSAL, Page, Parts, REJECT, RunRow, Stats, Store, iso,
};

/// Those of one state, or of all, the newest first.
pub async fn of_status(
    store: &dyn Store,
    tenant: &str,
    status: Option<String>,
    limit: usize,
    cursor: Option<String>,
) -> waypost_store::Result<Page> {
    let filter = Filter {
        tenant: tenant.to_owned(),
        lifecycle: Some(PROPOSAL.to_owned()),
        status,
        limit,
        cursor,
        include: Parts { input: true, metadata: true, ..Parts::NONE },
        ..Filter::default()
    };
    store.runs(filter).await
}

pub fn object(row: &RunRow) -> Value {
    let of = |name: &str| row.metadata.get(name).cloned().unwrap_or(Value::Null);
    let is_pending = row.phase() == Phase::Draft;
    json!({
        "proposal_id": row.id(),
        "tenant": row.tenant,
        "status": row.status(),
        "run_id": of("run_id"),
        "agent_slug": of("agent_slug"),
        "step": of("step"),
        "number": of("number"),
        "title": row.title,
        "kind": of("kind"),
        "target": of("target"),
        "base_revision": of("base_revision"),
        "proposal": row.input.get("proposal").cloned().unwrap_or(Value::Null),
        "inbox_id": of(waypost_store::INBOX_ID),
        "applied_by": row.playbook,
        "created_at": iso(row.run.created_at),
        "expires_at": row.run.expires_at.filter(|_| is_pending).map(iso),
        "finished_at": row.run.finished_at.map(iso),
        "note": row.run.reason.as_deref().filter(|_| !is_pending),
        "error": row.run.failure.as_ref().map(|it| format!("{}: {}", it.code, it.message)),
        "seq": row.run.seq,
        "decided_by": null,
        "decided_at": null,
    })
}

/// The same with who decided, of its events.
pub fn decided(row: &RunRow, events: &[EventRow]) -> Value {
    let mut object = object(row);
    let last = events.iter().rfind(|event| [APPROVE, REJECT].contains(&event.command.as_str()));
    if let Some(note) = last.and_then(|event| event.payload["reason"].as_str()) {
        object["note"] = json!(note);
    }
    object["decided_by"] = json!(last.map(|event| &event.by));
    object["decided_at"] = json!(last.map(|event| iso(event.at)));
    object
}

/// How many entries wait, and what became of others within seven days; the same of proposals.
pub fn inbox_stats(stats: &Stats, states: impl Fn(&str) -> Vec<String>) -> Value {
    let counts = |lifecycle: &str| {
        let count = |status: &str| {
            let waiting =
                stats.for_people.iter().filter(|it| it.lifecycle == lifecycle && it.status == status);
            let ended = stats.ended.iter().filter(|it| it.lifecycle == lifecycle && it.status == status);
            waiting.map(|it| it.count).sum::<u64>() + ended.map(|it| it.in_7d).sum::<u64>()
        };
        Map::from_iter(states(lifecycle).into_iter().map(|status| {
            let count = count(&status);
            (status, json!(count))
        }))
    };
    let mut object = counts(INBOX);
    object.insert("proposals".to_owned(), Value::Object(counts(PROPOSAL)));
    Value::Object(object)
}
