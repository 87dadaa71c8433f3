//! The schema and its versions.

use std::fmt::Write;

use tokio_postgres::Client;
use waypost_kernel::Lifecycle;
use waypost_kernel::lifecycle::{Catalog, SHIPPED};
use waypost_kernel::render::postgres as render;

use crate::columns::with_labels;
use crate::postgres::link::address::Address;
use crate::postgres::link::fault::{Fault, Result};
use crate::postgres::link::open::connect;
use crate::postgres::sql::args;
use crate::postgres::tables::functions;
use crate::seam::error::StoreError;

/// What each version adds, by name; the number is the place in the list, from one on.
const VERSIONS: &[Version] = &[Version { name: "tables, guards, verbs", script: first }];

/// Stands before a statement of the engine's that writes what no hand may.
const OWN_WRITE: &str = "-- own write\n";

struct Version {
    name: &'static str,
    script: fn() -> String,
}

/// "waypost": whoever changes the schema or adds a lifecycle has this advisory lock.
pub const LOCK: i64 = 0x77_61_79_70_6f_73_74;
const BEGIN: &str = "BEGIN; SET LOCAL lock_timeout = '10s'";
/// Only if something is missing there: to change a trigger takes a lock on all runs.
const LIST_MOVES: &str = "SELECT waypost.list_moves() WHERE EXISTS (SELECT 1 FROM waypost.lifecycle_moves m JOIN pg_trigger t ON t.tgname = 'runs_move'
  AND t.tgrelid = 'waypost.runs'::regclass WHERE m.guards = 0 AND m.src_code IS NOT NULL
  AND position((m.events * 100000000::bigint + m.src_code * 10000 + m.dst_code)::text IN pg_get_triggerdef(t.oid)) = 0)";

const TABLE: &str = "CREATE SCHEMA IF NOT EXISTS waypost;
CREATE TABLE IF NOT EXISTS waypost.migrations(version int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());";

/// A database's version and the one that this binary brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub found: u32,
    pub known: u32,
    /// There is nothing of Waypost's yet.
    pub is_missing: bool,
}

impl Versions {
    pub fn is_empty(self) -> bool {
        self.is_missing
    }

    /// Whether a store can work with it.
    pub fn check(self) -> Result<(), StoreError> {
        let Versions { found, known, .. } = self;
        match found {
            _ if found < known => Err(StoreError::Unusable(format!(
                "its schema is of version {found}, this binary needs {known}: run `waypost migrate`"
            ))),
            _ if found > known => Err(StoreError::Unusable(format!(
                "it was written by a newer waypost (schema {found}, this one knows {known}): upgrade this binary"
            ))),
            _ => Ok(()),
        }
    }
}

pub async fn status(url: &str) -> Result<Versions, StoreError> {
    let (client, _hears) = connect(&Address::read(url)?).await.map_err(Fault::into_error)?;
    versions(&client).await.map_err(Fault::into_error)
}

/// Brings a database up to date; says which versions were added.
pub async fn migrate(url: &str) -> Result<Vec<u32>, StoreError> {
    let (client, _hears) = connect(&Address::read(url)?).await.map_err(Fault::into_error)?;
    up(&client).await.map_err(Fault::into_error)
}

/// All versions as one script, for those who run such things by hand.
pub fn migration_sql() -> String {
    let mut out = format!("{TABLE}\n");
    for (at, Version { name, script }) in VERSIONS.iter().enumerate() {
        let version = at + 1;
        let _ = writeln!(
            out,
            "-- Version {version}: {name}\nBEGIN;\n{}\nINSERT INTO waypost.migrations(version, name) VALUES ({version}, '{name}');\nCOMMIT;",
            script()
        );
    }
    out
}

pub async fn versions(client: &Client) -> Result<Versions> {
    let known = VERSIONS.len() as u32;
    // Read as rows: a name that this session has looked up in vain may be remembered as missing.
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname = 'waypost' AND c.relname = 'migrations')";
    let row = client.query_typed_one(sql, &[]).await?;
    if !row.try_get::<_, bool>(0)? {
        return Ok(Versions { found: 0, known, is_missing: true });
    }
    let row = client.query_typed_one("SELECT coalesce(max(version), 0) FROM waypost.migrations", &[]).await?;
    Ok(Versions { found: row.try_get::<_, i32>(0)?.unsigned_abs(), known, is_missing: false })
}

/// A transaction for each version, with a lock that ends with it: the session may be a pooler's, and keeps nothing.
pub async fn up(client: &Client) -> Result<Vec<u32>> {
    let mut added = Vec::new();
    loop {
        let began = client.batch_execute(BEGIN).await;
        let next = match began {
            Ok(()) => next(client).await,
            Err(error) => Err(error.into()),
        };
        match next {
            Ok(version) => client.batch_execute("COMMIT").await.map(|()| added.extend(version))?,
            Err(fault) => {
                let _ = client.batch_execute("ROLLBACK").await;
                return Err(fault);
            }
        }
        if matches!(next, Ok(None)) {
            return Ok(added);
        }
    }
}

/// Adds the next version. If there is none, lifecycles that came by themselves get into the guard's list.
async fn next(client: &Client) -> Result<Option<u32>> {
    client.execute_typed("SELECT pg_advisory_xact_lock($1)", args![LOCK]).await?;
    let found = versions(client).await?.found;
    let Some(Version { name, script }) = VERSIONS.get(found as usize) else {
        client.batch_execute(LIST_MOVES).await?;
        return Ok(None);
    };
    let version = found + 1;
    let noted = format!("INSERT INTO waypost.migrations(version, name) VALUES ({version}, '{name}');");
    client.batch_execute(&format!("{TABLE}\n{}\n{noted}", script())).await?;
    Ok(Some(version))
}

fn first() -> String {
    let mut out = String::from(include_str!("schema.sql"));
    out.push_str(include_str!("schedules.sql"));
    out.push_str(include_str!("beside.sql"));
    out.push_str(include_str!("children.sql"));
    out.push_str(&guards());
    out.push_str(&crate::rules::details::sql());
    out.push_str(&include_str!("write.sql").replace("{settings}", functions::SETTINGS));
    out.push_str(include_str!("enter.sql"));
    out.push_str(&functions::save());
    out.push_str(&functions::insert());
    out.push_str(&functions::pick());
    out.push_str(include_str!("verbs_ops.sql"));
    out.push_str(&functions::save_one());
    out.push_str(&functions::insert_one());
    out.push_str(&with_labels(include_str!("by_hand.sql")));
    out.push_str(include_str!("by_hand_decisions.sql"));
    out.push_str(include_str!("by_hand_items.sql"));
    out.push_str(include_str!("verbs_born.sql"));
    out.push_str(include_str!("ops/tenants.sql"));
    out.push_str(include_str!("ops/ops.sql"));
    out.push_str(include_str!("admin.sql"));
    out.push_str(include_str!("ops/jobs.sql"));
    out.push_str(include_str!("ops/job_moves.sql"));
    out.push_str(include_str!("ops/job_parts.sql"));
    out.push_str(include_str!("ops/cron.sql"));
    out.push_str(include_str!("ops/rules.sql"));
    let own = include_str!("own.sql").replace("{own_writes}", &own_writes(&out));
    out.push_str(&own);
    let catalog = Catalog::shipped().unwrap_or_default();
    for (name, source) in SHIPPED {
        if let Some(lifecycle) = catalog.latest(name) {
            out.push_str(&definition(lifecycle, source));
        }
    }
    out.push_str("SELECT waypost.list_moves();\n");
    out.push_str(include_str!("roles.sql"));
    out
}

/// Whether the statement at work is one of the engine's own writes to a table, by its text: as the server tells it, without the variables
/// that take its results.
fn own_writes(script: &str) -> String {
    let ends = [";", "INTO v_", "INTO it"];
    let text = |marked: &'_ str| {
        let end = ends.iter().filter_map(|end| marked.find(end)).min().unwrap_or(marked.len());
        marked[..end].trim().to_owned()
    };
    let texts: Vec<String> = script.split(OWN_WRITE).skip(1).map(text).collect();
    let branch = |table: &str| {
        let (inserts, updates) = (format!("INTO waypost.{table}("), format!("UPDATE waypost.{table} "));
        let own = texts.iter().filter(|text| text.contains(&inserts) || text.contains(&updates));
        // Told apart by how they begin: a long text is compared only with the one that it may be.
        let is_at_work = |text: &String| {
            let begins = &text[..text.len().min(100)];
            format!(
                "starts_with(v_stack, v_begin || $own${begins}$own$) AND starts_with(v_stack, v_begin || $own${text}$own$)"
            )
        };
        let own: Vec<String> = own.map(is_at_work).collect();
        format!("  IF TG_TABLE_NAME = '{table}' THEN\n    v_own := {};\n  END IF;", own.join("\n      OR "))
    };
    ["runs", "events", "items", "executions"].map(branch).join("\n")
}

/// The guards, with the kernel's conditions in them.
fn guards() -> String {
    let text = include_str!("guards.sql").replace("{items_stay}", &render::items_stay());
    let fill = |text: String, (name, means): (&str, String)| text.replace(&format!("{{{name}}}"), &means);
    render::conditions().into_iter().fold(text, fill)
}

/// A lifecycle as rows, with the text that it comes from.
pub fn definition(lifecycle: &Lifecycle, source: &str) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    format!(
        "{}UPDATE waypost.lifecycles SET source = {} WHERE name = {} AND version = {};\n",
        render::definition(lifecycle),
        quoted(source),
        quoted(&lifecycle.name),
        lifecycle.version
    )
}
