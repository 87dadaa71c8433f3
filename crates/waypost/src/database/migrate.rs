//! `waypost migrate`: brings a database's schema up to date. Forward only.

use std::cmp::Ordering;

use clap::Args;
use serde_json::json;
use waypost_store::postgres::{self, Versions};
use waypost_store::sqlite::{SqliteStore, put_guards_back};

use crate::output::{Format, Result, cells, print_list, table};
use crate::place::{Database, Place};

#[derive(Debug, Args)]
#[command(
    after_help = "Several at once are safe: they take turns. It gives up when others hold the tables for long; run it again.\n\nExamples:\n  waypost migrate --database-url postgres://me@db/app\n  waypost migrate --status\n  waypost migrate --sql > waypost.sql"
)]
pub struct Flags {
    /// Say what is there and what is missing; change nothing.
    #[arg(long, conflicts_with = "sql")]
    status: bool,
    /// Print the statements for PostgreSQL; change nothing and need no database.
    #[arg(long)]
    sql: bool,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub async fn run(place: &Place, flags: Flags) -> Result {
    if flags.sql {
        anstream::print!("{}", postgres::migration_sql());
        return Ok(());
    }
    // The embedded one is brought up to date whenever it is opened.
    let (versions, added) = match place.own_database("migrate")? {
        Database::Sqlite(file) if flags.status && !file.exists() => {
            return say("missing", None, &[], flags.output);
        }
        Database::Sqlite(file) => {
            SqliteStore::open(&file)?;
            if !flags.status {
                put_guards_back(&file)?;
            }
            return say("current", None, &[], flags.output);
        }
        Database::Postgres(url) if flags.status => (postgres::status(&url).await?, Vec::new()),
        Database::Postgres(url) => {
            let added = postgres::migrate(&url).await?;
            (postgres::status(&url).await?, added)
        }
    };
    let state = match versions.found.cmp(&versions.known) {
        _ if versions.is_empty() => "missing",
        Ordering::Less => "older than this binary's",
        Ordering::Equal => "current",
        Ordering::Greater => "newer than this binary's",
    };
    say(state, Some(versions), &added, flags.output)
}

fn say(state: &str, versions: Option<Versions>, added: &[u32], output: Format) -> Result {
    let (found, known) = (versions.map(|it| it.found), versions.map(|it| it.known));
    let row = json!({ "schema": state, "version": found, "known": known, "added": added });
    print_list(vec![row], output, || {
        let text = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        let added: Vec<String> = added.iter().map(u32::to_string).collect();
        let line = cells([state.to_owned(), text(found), text(known), added.join(", ")]);
        table(&["schema", "version", "this binary's", "added now"], [line])
    })
}
