//! `waypost schedule …`: one file per kind of verb.

mod ask;
mod look;
mod work;

use std::path::PathBuf;

use clap::Subcommand;

use crate::output::{Format, Result};
use crate::place::{Place, own_stored};

pub use work::with_schedules;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Check files of schedules and store what they say. A pause stays.
    #[command(
        after_help = "Examples:\n  waypost schedule apply waypost.toml\n  waypost schedule apply jobs/*.toml --check\n  waypost schedule apply jobs/*.toml --prune"
    )]
    Apply {
        /// Files of schedules.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Only say what is wrong with them, and what --prune would remove.
        #[arg(long)]
        check: bool,
        /// Remove the tenant's schedules that the files do not have: those that were applied, and those of a file of some process's own
        /// that nobody fires any more.
        #[arg(long)]
        prune: bool,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Schedules: when they fire, how the last one ended, what was skipped.
    #[command(after_help = "Examples:\n  waypost schedule list\n  waypost schedule list -o json")]
    List {
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// One schedule: when it fires and who does it, what came of its plans, and the latest of them.
    #[command(after_help = "Examples:\n  waypost schedule show nightly-backup")]
    Show {
        /// The schedule.
        #[arg(value_name = "NAME")]
        name: String,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// The next plan times of a schedule, in its time zone.
    #[command(after_help = "Examples:\n  waypost schedule next nightly-backup --count 10")]
    Next {
        /// The schedule.
        #[arg(value_name = "NAME")]
        name: String,
        /// How many.
        #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
        count: u16,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Let nothing begin. What is being executed goes on.
    #[command(after_help = "Examples:\n  waypost schedule pause nightly-backup --reason 'database upgrade'")]
    Pause {
        /// The schedule.
        #[arg(value_name = "NAME")]
        name: String,
        /// Shown with the schedule.
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
    /// Go on with the next plan. What was planned meanwhile is counted as skipped.
    Resume {
        /// The schedule.
        #[arg(value_name = "NAME")]
        name: String,
        /// Kept in the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Execute it now: a plan of its own, marked as such.
    #[command(after_help = "Examples:\n  waypost schedule trigger rollup --scope shop-1")]
    Trigger {
        /// The schedule.
        #[arg(value_name = "NAME")]
        name: String,
        /// Of these scopes alone.
        #[arg(long = "scope", value_name = "ID")]
        scopes: Vec<String>,
        /// Kept in the audit log.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Execute the plans of a range that have no execution yet, marked as such.
    #[command(
        after_help = "Examples:\n  waypost schedule backfill rollup --from 2026-02-14 --to 2026-02-15\n  waypost schedule backfill rollup --from 2026-02-14T00:00:00Z \\\n    --to 2026-02-15T00:00:00Z --again"
    )]
    Backfill {
        /// The schedule.
        #[arg(value_name = "NAME")]
        name: String,
        /// From this instant on, or from the beginning of this day in the schedule's time zone.
        #[arg(long, value_name = "TIME|DATE")]
        from: String,
        /// Up to this instant, or to the end of this day.
        #[arg(long, value_name = "TIME|DATE")]
        to: String,
        /// Those that failed for good, too: once more, with as many attempts as the schedule gives.
        #[arg(long)]
        again: bool,
        /// Of these scopes alone.
        #[arg(long = "scope", value_name = "ID")]
        scopes: Vec<String>,
        /// Kept in the audit log.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Executions, the latest plan first.
    #[command(after_help = "Examples:\n  waypost schedule history nightly-backup --limit 5 -o json")]
    History {
        /// Of this schedule alone.
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// Of this scope alone.
        #[arg(long = "scope", value_name = "ID")]
        scope: Option<String>,
        /// How many at most.
        #[arg(long, default_value_t = 20, value_name = "COUNT")]
        limit: usize,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Forget a schedule. Its history stays; what is being executed is asked to cancel.
    #[command(visible_alias = "rm")]
    Remove {
        /// The schedule.
        #[arg(value_name = "NAME")]
        name: String,
        /// Kept in the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Fire schedules until told to stop: those of a file, and with --allow-commands those that were applied.
    #[command(
        after_help = "Any number of these may run beside each other.\n\nExamples:\n  waypost schedule run\n  waypost schedule run --file jobs.toml --allow-commands"
    )]
    Run(work::Flags),
}

pub async fn run(place: &Place, verb: Verb) -> Result<u8> {
    if let Verb::Run(flags) = verb {
        return work::run(place.only_database("firing schedules").await?, flags).await;
    }
    let opened = match &verb {
        Verb::Apply { check: false, files, .. } => {
            place.opened_after(async |empty| ask::sound(&*empty.store(), files).await.map(|_| ())).await?
        }
        _ => place.opened_to_read().await?,
    };
    let store = opened.store();
    let stored = |name: &str| own_stored("schedule", name);
    match verb {
        Verb::Apply { files, check, prune, output } => {
            ask::apply(&*store, &files, (check, prune), output).await
        }
        Verb::Show { name, output } => look::show(&*store, &stored(&name)?, output).await,
        Verb::List { output } => look::list(&*store, output).await,
        Verb::Next { name, count, output } => look::next(&*store, &stored(&name)?, count, output).await,
        Verb::Pause { name, reason } => ask::pause(&*store, &stored(&name)?, reason).await,
        Verb::Resume { name, reason } => ask::resume(&*store, &stored(&name)?, reason).await,
        Verb::Trigger { name, scopes, reason } => {
            ask::trigger(&*store, &stored(&name)?, scopes, reason).await
        }
        Verb::Backfill { name, from, to, again, scopes, reason } => {
            ask::backfill(&*store, &stored(&name)?, (&from, &to), scopes, again, reason).await
        }
        Verb::History { name, scope, limit, output } => {
            let name = name.as_deref().map(stored).transpose()?;
            look::history(&*store, name, scope, limit, output).await
        }
        Verb::Remove { name, reason } => ask::remove(&*store, &stored(&name)?, reason).await,
        Verb::Run(_) => Ok(()),
    }
    .map(|()| 0)
}
