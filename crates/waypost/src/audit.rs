//! `waypost audit`: what people did, and why.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use waypost_kernel::Time;
use waypost_kernel::text::MAX_PAGE;
use waypost_store::{AuditRow, parse_time};

use crate::output::{BAD_INPUT, Failed, Format, Result, cells, print_list, table};
use crate::place::{Place, named_tenant};
use crate::worker::duration;

#[derive(Debug, Args)]
#[command(
    after_help = "Cancels, approvals, retries, pauses, limits, schedules, tokens: kept for good, also after their run was pruned. Through a server it needs the role admin. Without --tenant, all tenants' that one sees.\n\nExamples:\n  waypost audit --since 24h\n  waypost audit --actor kim --action cancel\n  waypost audit --run run-0192 -o json"
)]
pub struct Flags {
    /// Only what was done since then: a time (2026-02-14T08:00:00Z), or a length of time (24h).
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what was done by this name, or by a token of this name.
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only what was done to the run with this id, or a beginning of it.
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Only this action: cancel, queue.pause, token.create, …
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// The newest so many.
    #[arg(long, default_value_t = 50, value_name = "COUNT", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    limit: usize,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub async fn run(place: &Place, flags: Flags) -> Result {
    let opened = place.opened_to_read().await?;
    let store = opened.store();
    let now = store.now().await?;
    let since = flags.since.as_deref().map(|text| instant(text, now)).transpose()?;
    let mut found: Vec<AuditRow> = Vec::new();
    let (mut after, limit) = (0, flags.limit);
    loop {
        let page = store.audits(named_tenant().map(str::to_owned), after, MAX_PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.number;
        found.extend(page.into_iter().filter(|row| flags.wants(row, since)));
        // The newest are wanted, and they come last.
        found.drain(..found.len().saturating_sub(limit));
    }
    let objects = found.iter().map(AuditRow::object).collect();
    print_list(objects, flags.output, || as_table(&found))
}

/// A time, or so long ago.
fn instant(text: &str, now: Time) -> Result<Time> {
    let ago = || duration(text).ok().map(|ago| now - waypost_kernel::Span::from_ms(ago.as_millis() as i64));
    parse_time(text).or_else(ago).ok_or_else(|| {
        let message = format!("since: {text:?} is no time; write 2026-02-14T08:00:00Z, or 24h");
        Failed::new(BAD_INPUT, message)
    })
}

impl Flags {
    fn wants(&self, row: &AuditRow, since: Option<Time>) -> bool {
        // Whoever uses a token is named `TOKEN/NAME`.
        let is_actor = |actor: &String| row.by == *actor || row.by.split('/').any(|part| part == actor);
        since.is_none_or(|since| row.at >= since)
            && self.actor.as_ref().is_none_or(is_actor)
            && self.action.as_ref().is_none_or(|action| *action == row.action)
            && self.run.as_ref().is_none_or(|run| row.subject.starts_with(run.as_str()))
    }
}

fn as_table(rows: &[AuditRow]) -> String {
    if rows.is_empty() {
        return "nothing was done by people, as far as was asked for".to_owned();
    }
    let line = |row: &AuditRow| {
        let reason = row.reason.clone().unwrap_or_default();
        cells([waypost_store::iso(row.at), row.by.clone(), row.action.clone(), row.subject.clone(), reason])
    };
    table(&["at", "by", "action", "subject", "reason"], rows.iter().map(line))
}
