//! `waypost migrate`: brings a database's schema up to date. Forward only.

use clap::Args;
use serde_json::json;
use waypost_store::postgres::{self, Schema};
use waypost_store::sqlite::SqliteStore;

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
    let (schema, did) = match place.database()? {
        // The embedded one is brought up to date whenever it is opened.
        Database::Sqlite(file) => {
            SqliteStore::open(&file)?;
            (Schema::Current(1), "up to date")
        }
        Database::Postgres(url) if flags.status => (postgres::status(&url).await?, "looked at"),
        Database::Postgres(url) => (postgres::migrate(&url).await?, "up to date"),
    };
    let (state, version) = match schema {
        Schema::Missing => ("missing", None),
        Schema::Older(version) => ("older than this binary's", Some(version)),
        Schema::Current(version) => ("current", Some(version)),
        Schema::Newer(version) => ("newer than this binary's", Some(version)),
    };
    let row = json!({ "schema": state, "version": version, "knows": postgres::VERSION, "did": did });
    print_list(vec![row], flags.output, || {
        let version = version.map(|version| version.to_string()).unwrap_or_default();
        table(&["schema", "version", "this binary knows"], [cells([state.to_owned(), version, postgres::VERSION.to_string()])].into_iter())
    })
}
