//! `waypost lifecycle list|show|check|add`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Subcommand, ValueEnum};
use waypost_kernel::lifecycle::Kind;
use waypost_kernel::render::{json::json, markdown::markdown, mermaid::mermaid};
use waypost_kernel::{Catalog, Lifecycle, Span};
use waypost_store::{Retention, Store, StoreError};

use crate::output::{
    BAD_INPUT, ERROR, Failed, Format, NOT_FOUND, Result, cells, pretty, print, print_list, table,
};
use crate::place::Place;
use crate::run::who;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// All lifecycles that the tenant may use: those that are shipped, and those that were added.
    #[command(after_help = "Examples:\n  waypost lifecycle list\n  waypost lifecycle list -o json")]
    List {
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// One lifecycle: its states and who may move a run from where to where.
    #[command(
        after_help = "Examples:\n  waypost lifecycle show deploy\n  waypost lifecycle show rule -o mermaid\n  waypost lifecycle show ./release.toml -o markdown"
    )]
    Show {
        /// A name from `lifecycle list`, or a file.
        name: String,
        #[arg(short, long, value_enum, default_value_t = ShowFormat::Table)]
        output: ShowFormat,
    },
    /// Add lifecycles, or versions of them, that runs may use from now on. With --tenant they are that tenant's own.
    #[command(
        after_help = "Examples:\n  waypost lifecycle add release.toml\n  waypost lifecycle add release.toml --tenant shop"
    )]
    Add {
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Check a lifecycle file of your own: line, rule and mend of what is wrong with it.
    #[command(
        after_help = "Examples:\n  waypost lifecycle check release.toml\n  waypost lifecycle check *.toml -o json"
    )]
    Check {
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ShowFormat {
    Table,
    Json,
    Mermaid,
    Markdown,
}

pub async fn run(place: &Place, verb: Verb) -> Result {
    match verb {
        Verb::List { output } => list(&place.known_lifecycles().await?, output),
        Verb::Show { name, output } => {
            show(place.known_lifecycles().await?, &name, output)?;
            if matches!(output, ShowFormat::Table) { say_retention(place, &name).await } else { Ok(()) }
        }
        Verb::Add { files, output } => add(&*place.open().await?, &files, output).await,
        Verb::Check { files, output } => check(&place.known_lifecycles().await?, &files, output),
    }
}

/// One after the other, in the order in which they are named: a run's items come before it.
async fn add(store: &dyn Store, files: &[PathBuf], output: Format) -> Result {
    let mut added = Vec::new();
    for file in files {
        let answer = store.add_lifecycle(read(file)?, who(None)).await;
        let named = |error: StoreError| {
            let failed = Failed::from(error);
            Failed::new(failed.code, format!("{}: {}", file.display(), failed.message))
        };
        added.push(answer.map_err(named)?);
    }
    print_list(added.iter().map(|lifecycle| json(lifecycle)).collect(), output, || {
        let line = |it: &Arc<Lifecycle>| format!("{} {} is there: runs may use it", it.name, it.version);
        added.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

fn list(catalog: &Catalog, output: Format) -> Result {
    // Runs first: items are parts of them.
    let mut found: Vec<&Arc<Lifecycle>> = catalog.iter().collect();
    found.sort_by_key(|lifecycle| lifecycle.kind == Kind::Item);
    let objects = found.iter().map(|lifecycle| json(lifecycle)).collect();
    print_list(objects, output, || {
        let rows = found.iter().map(|lifecycle| {
            let states: Vec<&str> = lifecycle.states.iter().map(|state| &*state.name).collect();
            cells([
                lifecycle.name.to_string(),
                lifecycle.version.to_string(),
                kind(lifecycle).to_owned(),
                states.join(" "),
            ])
        });
        table(&["name", "version", "kind", "states"], rows)
    })
}

fn show(mut catalog: Catalog, name: &str, output: ShowFormat) -> Result {
    let found =
        if name.ends_with(".toml") { load(&mut catalog, Path::new(name))? } else { named(&catalog, name)? };
    print(&match output {
        ShowFormat::Json => pretty(&json(&found)),
        ShowFormat::Mermaid => mermaid(&found),
        ShowFormat::Markdown => markdown(&found),
        ShowFormat::Table => as_tables(&found),
    })
}

/// What `waypost.toml` says of it, where there is a database to look.
async fn say_retention(place: &Place, name: &str) -> Result {
    let Some(database) = place.existing_database().await? else { return Ok(()) };
    let Some(rule) = database.retention(Some(name.to_owned())).await?.pop() else { return Ok(()) };
    print(&format!("\nkept as waypost.toml says: {}", kept(&rule)))
}

/// `success 7d, failure as the lifecycle says`.
pub fn kept(rule: &Retention) -> String {
    let span = |kept: Option<Span>| kept.map_or("as the lifecycle says".to_owned(), |kept| kept.to_string());
    format!("success {}, failure {}", span(rule.success), span(rule.failure))
}

fn named(catalog: &Catalog, name: &str) -> Result<Arc<Lifecycle>> {
    catalog.latest(name).cloned().ok_or_else(|| {
        let known: Vec<&str> = catalog.iter().map(|lifecycle| &*lifecycle.name).collect();
        let message = format!("there is no lifecycle {name:?}; there are: {}", known.join(", "));
        Failed::new(NOT_FOUND, message)
    })
}

fn load(catalog: &mut Catalog, file: &Path) -> Result<Arc<Lifecycle>> {
    let text = read(file)?;
    catalog.add(&text).map_err(|problems| Failed::new(BAD_INPUT, problems.in_file(file).to_string()))
}

fn read(file: &Path) -> Result<String> {
    let code = if file.exists() { ERROR } else { NOT_FOUND };
    let bytes = fs::read(file).map_err(|error| Failed::new(code, format!("{}: {error}", file.display())))?;
    String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|it| **it == b'\n')
            .count();
        let message = format!("{}:{line}: not UTF-8 text [syntax]\n  save the file as UTF-8", file.display());
        Failed::new(BAD_INPUT, message)
    })
}

/// Checks every file before it fails, so that one run shows all that is to be mended.
fn check(catalog: &Catalog, files: &[PathBuf], output: Format) -> Result {
    let mut found = Vec::new();
    let mut bad = Vec::new();
    for file in files {
        match load(&mut catalog.clone(), file) {
            Ok(lifecycle) => found.push((file, lifecycle)),
            Err(failed) => bad.push(failed),
        }
    }
    let objects = found.iter().map(|(_, lifecycle)| json(lifecycle)).collect();
    print_list(objects, output, || {
        let sound = found.iter().map(|(file, lifecycle)| {
            format!(
                "{}: {} {} is sound: {} states, {} transitions",
                file.display(),
                lifecycle.name,
                lifecycle.version,
                lifecycle.states.len(),
                lifecycle.transitions.len()
            )
        });
        sound.collect::<Vec<_>>().join("\n")
    })?;
    let Some(code) = bad.iter().map(|failed| failed.code).max() else { return Ok(()) };
    let messages: Vec<String> = bad.into_iter().map(|failed| failed.message).collect();
    Err(Failed::new(code, messages.join("\n")))
}

fn as_tables(lifecycle: &Lifecycle) -> String {
    let states = lifecycle.states.iter().map(|state| {
        let declares = waypost_kernel::render::json::attributes(lifecycle, state);
        let declares: Vec<String> = declares
            .into_iter()
            .map(|(key, value)| format!("{key}={}", value.to_string().trim_matches('"')))
            .collect();
        cells([state.name.to_string(), state.phase.name().to_owned(), declares.join(" ")])
    });
    let rows = lifecycle.transitions.iter().map(|row| {
        let guards: Vec<&str> = row.guards.iter().map(|guard| guard.name()).collect();
        cells([
            lifecycle.state(row.from).name.to_string(),
            row.command.to_string(),
            lifecycle.state(row.to).name.to_string(),
            row.by.to_string(),
            guards.join(", "),
        ])
    });
    format!(
        "{} {} ({})\n\n{}\n\n{}",
        lifecycle.name,
        lifecycle.version,
        kind(lifecycle),
        table(&["state", "phase", "declares"], states),
        table(&["from", "command", "to", "by", "guard"], rows)
    )
}

fn kind(lifecycle: &Lifecycle) -> &'static str {
    match lifecycle.kind {
        Kind::Run => "run",
        Kind::Item => "item",
    }
}
