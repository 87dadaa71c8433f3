//! `waypost doctor`: looks at the database, changes nothing, and says what to do about what it finds.

use clap::Args;
use waypost_store::doctor::{Finding, Health};
use waypost_store::{postgres, sqlite};

use crate::lifecycle::kept;
use crate::output::{ERROR, Format, Result, cells, print_list, table};
use crate::place::{Database, Place};

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 1 if there is an error, 0 if all is well or there are only warnings.\n\nExamples:\n  waypost doctor\n  waypost doctor --database-url postgres://me@db/app -o json"
)]
pub struct Flags {
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub async fn run(place: &Place, flags: Flags) -> Result<u8> {
    let found = match place.own_database("doctor")? {
        Database::Sqlite(file) => sqlite::doctor(&file)?,
        Database::Postgres(url) => postgres::doctor(&url).await?,
    };
    let mut found = found;
    // Opening one without tables would make them.
    let has_tables = found.iter().any(|it| it.what == "schema" && it.health == Health::Ok);
    if has_tables && let Some(database) = place.existing_database().await? {
        let rules = database.retention(None).await?;
        let rules: Vec<String> =
            rules.iter().map(|rule| format!("{}: {}", rule.lifecycle, kept(rule))).collect();
        let words = if rules.is_empty() { "as the lifecycles say".to_owned() } else { rules.join("; ") };
        found.push(Finding::ok("retention", words));
    }
    let worst = found.iter().map(|finding| finding.health).max();
    print_list(found.iter().map(Finding::object).collect(), flags.output, || as_table(&found))?;
    Ok(if worst == Some(Health::Error) { ERROR } else { 0 })
}

fn as_table(found: &[Finding]) -> String {
    let lines = found.iter().map(|finding| {
        let advice = finding.advice.clone().unwrap_or_default();
        cells([finding.health.name().to_owned(), finding.what.to_owned(), finding.found.clone(), advice])
    });
    table(&["health", "what", "found", "what to do"], lines)
}
