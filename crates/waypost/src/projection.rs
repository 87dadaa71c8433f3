//! `waypost projection`: what readers of the object store see of runs.

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use waypost_store::Database;
use waypost_worker::projection::Projection;

use crate::output::{BAD_INPUT, ERROR, Failed, Result, print, tell};
use crate::place::Place;
use crate::run::ids::find;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Write whatever of runs is missing, behind or damaged in the object store. Nothing there goes back.
    Rebuild(Rebuild),
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
#[command(
    after_help = "Where it writes: WAYPOST_OBJECT_STORE (file:///folder, s3://bucket/prefix); by default the folder `objects` beside a file of SQLite's.\n\nExamples:\n  waypost projection rebuild run_2026-02-14_080000_abc123\n  waypost projection rebuild --all"
)]
pub struct Rebuild {
    /// A run, by its id or the beginning of one.
    run: Option<String>,
    /// All runs that are there, of all tenants.
    #[arg(long)]
    all: bool,
}

/// Events of one look.
const PAGE: usize = 2_000;

pub async fn run(place: &Place, verb: Verb) -> Result {
    let Verb::Rebuild(Rebuild { run, .. }) = verb;
    let database = place.only_database("projection rebuild").await?;
    let Some(projection) = place.projection()? else {
        let message = "WAYPOST_OBJECT_STORE: name where the runs are written to: file:///path/to/folder, s3://bucket/prefix";
        return Err(Failed::new(BAD_INPUT, message));
    };
    match run {
        Some(id) => one(&*database, &projection, &id).await,
        None => all(&*database, &projection).await,
    }
}

async fn one(database: &dyn Database, projection: &Projection, id: &str) -> Result {
    let row = find(database, id).await?;
    if !row.lifecycle.projected {
        let message =
            format!("{}: a {} run is not written to the object store", row.id(), row.lifecycle.name);
        return Err(Failed::new(BAD_INPUT, message));
    }
    let shown = projection.rebuild(database, &row.tenant, row.id()).await?;
    print(&format!("{}: {} written to {}", row.id(), objects(shown.written), projection.name()))
}

async fn all(database: &dyn Database, projection: &Projection) -> Result {
    let (mut position, mut written, mut failed) = (0, 0, 0);
    let mut seen = BTreeSet::new();
    loop {
        let page = database.projected(position, PAGE).await?;
        for run in page.runs {
            if !seen.insert(run.run_id.clone()) {
                continue;
            }
            match projection.rebuild(database, &run.tenant, &run.run_id).await {
                Ok(shown) => written += shown.written,
                // One that cannot be written is no reason to leave out the others.
                Err(error) => {
                    failed += 1;
                    tell(&format!("{}: {error}", run.run_id));
                }
            }
        }
        if page.position == position {
            break;
        }
        position = page.position;
    }
    let runs = if seen.len() == 1 { "1 run".to_owned() } else { format!("{} runs", seen.len()) };
    print(&format!("{runs}: {} written to {}", objects(written), projection.name()))?;
    match failed {
        0 => Ok(()),
        _ => Err(Failed::new(ERROR, format!("{failed} of them could not be written"))),
    }
}

fn objects(count: usize) -> String {
    if count == 1 { "1 object".to_owned() } else { format!("{count} objects") }
}
