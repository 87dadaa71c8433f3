//! `waypost dlq …`: targets that have failed and wait for a person.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use waypost_kernel::text::terminal::plain;
use waypost_store::{DeadLetterFilter, Store, parse_time};
use waypost_worker::targets::dead_letters::{self, Acted, Chosen};

use crate::output::{Format, REFUSED, Result, cells, print, table_within, tell, width};
use crate::place::{Place, tenant};
use crate::run::ids::{find, short};
use crate::run::{age, user};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Failed targets by class: how many, the oldest, and what to do about them.
    Report {
        #[command(flatten)]
        which: Which,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Try failed targets again, in their runs.
    Retry(Retry),
    /// Give failed targets up. They stay failed, and no retry takes them along.
    Discard(Discard),
}

#[derive(Debug, Args)]
pub struct Which {
    /// Only those of this run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Only those that failed with this code, as `dlq report` names it.
    #[arg(long, value_name = "CODE")]
    class: Option<String>,
}

#[derive(Debug, Args)]
pub struct Chosing {
    #[command(flatten)]
    which: Which,
    /// Only this target of the run; may be given several times.
    #[arg(long = "target", value_name = "KEY", requires = "run")]
    targets: Vec<String>,
    /// All of them, of all runs.
    #[arg(long, conflicts_with_all = ["run", "class"], required_unless_present_any = ["run", "class"])]
    all: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Each run is taken up again as by `waypost run retry`. One that refuses is told of, and the others go on: exit code 5 then. Targets of a run that was cancelled are left out unless --run names it.\n\nExamples:\n  waypost dlq retry --class TIMEOUT\n  waypost dlq retry --run @1 --target sku-1\n  waypost dlq retry --all --reason 'the shop is back'"
)]
pub struct Retry {
    #[command(flatten)]
    chosing: Chosing,
    /// Why: kept in the log of each run.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is deleted: `run targets` shows them as before.\n\nExamples:\n  waypost dlq discard --class NOT_FOUND --reason 'no longer sold'\n  waypost dlq discard --run @1 --target sku-1 --reason 'by hand'"
)]
pub struct Discard {
    #[command(flatten)]
    chosing: Chosing,
    /// Why: kept beside each target, and in the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub async fn run(place: &Place, verb: Verb) -> Result<u8> {
    let opened = place.opened_to_read().await?;
    let store = opened.store();
    match verb {
        Verb::Report { which, output } => report(&*store, which, output).await.map(|()| 0),
        Verb::Retry(flags) => {
            let chosen = chosen(&*store, flags.chosing).await?;
            let acted = dead_letters::retry(&*store, &chosen, &user(), flags.reason.as_deref()).await?;
            tell_of(&acted, "retried", flags.output)
        }
        Verb::Discard(flags) => {
            let chosen = chosen(&*store, flags.chosing).await?;
            let acted = dead_letters::discard(&*store, &chosen, &user(), &flags.reason).await?;
            tell_of(&acted, "discarded", flags.output)
        }
    }
}

async fn run_of(store: &dyn Store, run: Option<String>) -> Result<Option<String>> {
    match run {
        Some(run) => Ok(Some(find(store, &run).await?.id().to_owned())),
        None => Ok(None),
    }
}

async fn chosen(store: &dyn Store, chosing: Chosing) -> Result<Chosen> {
    let Chosing { which, targets, .. } = chosing;
    Ok(Chosen {
        tenant: tenant().to_owned(),
        run_id: run_of(store, which.run).await?,
        code: which.class,
        keys: Some(targets).filter(|targets| !targets.is_empty()),
    })
}

async fn report(store: &dyn Store, which: Which, output: Format) -> Result {
    let run_id = run_of(store, which.run).await?;
    let filter = DeadLetterFilter { tenant: tenant().to_owned(), run_id, code: which.class };
    let report = dead_letters::report(store, filter).await?;
    if output != Format::Table {
        return print(&output.object(&report));
    }
    let now = store.now().await?;
    let rows = report["classes"].as_array().into_iter().flatten().map(|class| {
        let text = |name: &str| class[name].as_str().unwrap_or_default().to_owned();
        let oldest = class["oldest_at"].as_str().and_then(parse_time).map(|at| age(now - at));
        let sample = format!("{} {}: {}", short(&text("run_id")), text("key"), text("error_msg"));
        let row = [
            text("error_code"),
            class["count"].to_string(),
            oldest.unwrap_or_default(),
            sample,
            text("advice"),
        ];
        cells(row.map(|cell| plain(&cell).into_owned()))
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        tell("no target has failed");
        return Ok(());
    }
    print(&table_within(&["failed with", "targets", "oldest", "the oldest", "what to do"], rows, width()))
}

fn tell_of(acted: &[Acted], word: &str, output: Format) -> Result<u8> {
    let code = if acted.iter().any(|it| it.refused.is_some()) { REFUSED } else { 0 };
    let done: u64 = acted.iter().filter(|it| it.refused.is_none()).map(|it| it.targets).sum();
    if output != Format::Table {
        let runs: Vec<Value> = acted.iter().map(Acted::object).collect();
        print(&output.object(&json!({ "targets": done, "runs": runs })))?;
        return Ok(code);
    }
    for Acted { run_id, targets, refused } in acted {
        match refused {
            Some(why) => tell(&format!("{run_id}: {}", plain(why))),
            None => print(&format!("{run_id}: {targets} {word}"))?,
        }
    }
    if acted.is_empty() {
        tell(&format!("nothing was {word}: no failed target is meant by this"));
    }
    Ok(code)
}
