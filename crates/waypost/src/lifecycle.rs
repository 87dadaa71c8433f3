//! `waypost lifecycle list|show|check|add`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};
use waypost_kernel::lifecycle::Kind;
use waypost_kernel::render::{json::json as as_json, markdown::markdown, mermaid::mermaid};
use waypost_kernel::text::terminal::plain;
use waypost_kernel::{Catalog, Lifecycle, Span};
use waypost_schema::Problem;
use waypost_store::{Retention, Store, StoreError};

use crate::output::{
    BAD_INPUT, Column, ERROR, Failed, Format, NOT_FOUND, Result, cells, fitted, pretty, print, print_list,
    table, width,
};
use crate::place::{Place, lifecycles};
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
        /// Files of lifecycles.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Check a lifecycle file of your own: line, rule and mend of what is wrong with it.
    #[command(
        after_help = "Examples:\n  waypost lifecycle check release.toml\n  waypost lifecycle check *.toml -o json"
    )]
    Check {
        /// Files of lifecycles.
        #[arg(required = true, value_name = "FILE")]
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
        Verb::List { output } => list(&there(place).await?, output),
        Verb::Show { name, output } => {
            show(there(place).await?, &name, output)?;
            if matches!(output, ShowFormat::Table) { say_retention(place, &name).await } else { Ok(()) }
        }
        Verb::Add { files, output } => add(&*place.open().await?, &files, output).await,
        Verb::Check { files, output } => check(&place.known_lifecycles().await?, &files, output),
    }
}

/// What is asked about is what is there: a server or database that is not reached is an error.
async fn there(place: &Place) -> Result<Catalog> {
    lifecycles(&*place.opened_to_read().await?.store()).await
}

/// One after the other, in the order in which they are named: a run's items come before it.
async fn add(store: &dyn Store, files: &[PathBuf], output: Format) -> Result {
    let mut added = Vec::new();
    for file in files {
        added.push(add_file(store, file).await?);
    }
    print_list(added.iter().map(|lifecycle| as_json(lifecycle)).collect(), output, || {
        let line = |it: &Arc<Lifecycle>| format!("{} {} is there: runs may use it", it.name, it.version);
        added.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

/// One file; what is wrong with it names it.
pub async fn add_file(store: &dyn Store, file: &Path) -> Result<Arc<Lifecycle>> {
    let answer = store.add_lifecycle(read(file)?, who(None)).await;
    answer.map_err(|error: StoreError| {
        let failed = Failed::from(error);
        Failed::new(failed.code, format!("{}: {}", file.display(), failed.message))
    })
}

fn list(catalog: &Catalog, output: Format) -> Result {
    // Runs first: items are parts of them.
    let mut found: Vec<&Arc<Lifecycle>> = catalog.iter().collect();
    found.sort_by_key(|lifecycle| lifecycle.kind == Kind::Item);
    let objects = found.iter().map(|lifecycle| as_json(lifecycle)).collect();
    print_list(objects, output, || {
        let texts = found.iter().map(|lifecycle| {
            let states: Vec<&str> = lifecycle.states.iter().map(|state| &*state.name).collect();
            let about = lifecycle.description.as_deref().unwrap_or_default();
            let name = lifecycle.name.to_string();
            vec![
                name,
                lifecycle.version.to_string(),
                kind(lifecycle).to_owned(),
                plain(about).into(),
                states.join(" "),
            ]
        });
        let texts: Vec<Vec<String>> = texts.collect();
        let fitted = fitted(&COLUMNS, &texts, width());
        let head: Vec<&str> = fitted.iter().map(|(at, _)| COLUMNS[*at].name).collect();
        let rows = texts.iter().map(|row| cells(fitted.iter().map(|(at, _)| row[*at].clone())));
        // Descriptions are read, not scanned: they have as many lines as they need.
        table(&head, rows)
    })
}

const COLUMNS: [Column; 5] = [
    Column { name: "name", rank: 0, least: None },
    Column { name: "version", rank: 3, least: None },
    Column { name: "kind", rank: 2, least: None },
    Column { name: "description", rank: 0, least: Some(30) },
    Column { name: "states", rank: 4, least: Some(30) },
];

fn show(mut catalog: Catalog, name: &str, output: ShowFormat) -> Result {
    let found =
        if name.ends_with(".toml") { load(&mut catalog, Path::new(name))? } else { named(&catalog, name)? };
    print(&match output {
        ShowFormat::Json => pretty(&as_json(&found)),
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
    Checked::of(catalog, file).0.map_err(|(failed, _)| failed)
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
    let checked: Vec<(&PathBuf, Checked)> =
        files.iter().map(|file| (file, Checked::of(&mut catalog.clone(), file))).collect();
    let objects = checked.iter().map(|(file, checked)| checked.object(file)).collect();
    print_list(objects, output, || {
        let sound = checked.iter().filter_map(|(file, checked)| {
            let lifecycle = checked.0.as_ref().ok()?;
            Some(format!(
                "{}: {} {} is sound: {} states, {} transitions",
                file.display(),
                lifecycle.name,
                lifecycle.version,
                lifecycle.states.len(),
                lifecycle.transitions.len()
            ))
        });
        sound.collect::<Vec<_>>().join("\n")
    })?;
    let bad: Vec<&Failed> = checked
        .iter()
        .filter_map(|(_, checked)| checked.0.as_ref().err())
        .map(|(failed, _)| failed)
        .collect();
    let Some(code) = bad.iter().map(|failed| failed.code).max() else { return Ok(()) };
    let messages: Vec<&str> = bad.iter().map(|failed| failed.message.as_str()).collect();
    Err(match output {
        Format::Table => Failed::new(code, messages.join("\n")),
        Format::Json | Format::Jsonl => {
            Failed::new(code, format!("{} of {} lifecycles have problems", bad.len(), files.len()))
        }
    })
}

/// A file that was looked at: the lifecycle, or what is wrong with it, in words and for programs.
struct Checked(std::result::Result<Arc<Lifecycle>, (Failed, Vec<Value>)>);

impl Checked {
    fn of(catalog: &mut Catalog, file: &Path) -> Checked {
        let text = match read(file) {
            Ok(text) => text,
            Err(failed) => {
                let problem = json!({ "file": file.display().to_string(), "message": failed.message });
                return Checked(Err((failed, vec![problem])));
            }
        };
        Checked(catalog.add(&text).map_err(|problems| {
            let problems = problems.in_file(file);
            let objects = problems.0.iter().map(Problem::to_json).collect();
            (Failed::new(BAD_INPUT, problems.to_string()), objects)
        }))
    }

    fn object(&self, file: &Path) -> Value {
        let file = file.display().to_string();
        match &self.0 {
            Ok(lifecycle) => {
                json!({ "file": file, "sound": true, "lifecycle": as_json(lifecycle), "problems": [] })
            }
            Err((_, problems)) => json!({ "file": file, "sound": false, "problems": problems }),
        }
    }
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
    let about = lifecycle.description.as_deref().map(|about| format!("{about}\n")).unwrap_or_default();
    format!(
        "{} {} ({})\n{about}\n{}\n\n{}",
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
