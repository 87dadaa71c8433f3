//! A look at a server and its database: nothing is changed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::timeout;
use tokio_postgres::{Client, Row};

use crate::postgres::link::address::Address;
use crate::postgres::link::fault::{Fault, Result};
use crate::postgres::link::tls::Check;
use crate::postgres::link::{open, pooler};
use crate::postgres::schema;
use crate::seam::doctor::Finding;
use crate::seam::error::StoreError;

const OLDEST_SERVER: i32 = 150_000;
/// Triggers that have to be on.
const GUARDS: &[&str] = &[
    "runs_move",
    "runs_birth",
    "runs_born",
    "runs_own",
    "runs_beside",
    "runs_keep",
    "runs_leave",
    "events_told",
    "events_keep",
    "events_leave",
    "items_move",
    "items_birth",
    "items_born",
    "items_own",
    "items_kept",
    "items_leave",
    "executions_own",
    "executions_leave",
    "lifecycles_stay",
    "lifecycle_states_stay",
    "lifecycle_moves_stay",
    "lifecycle_transitions_stay",
];
pub(super) const TRIGGERS_ON: &str = "SELECT t.tgname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid \
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'waypost' AND NOT t.tgisinternal AND t.tgenabled = 'O'";

/// Of those that are on, which are missing.
pub(super) fn guards_off(on: &[String]) -> Vec<&'static str> {
    GUARDS.iter().copied().filter(|name| !on.iter().any(|it| it == name)).collect()
}

const ROLES: [&str; 3] = ["waypost_client", "waypost_worker", "waypost_admin"];
/// Of a hot table: more dead rows than this share, and more than this many, slow every claim.
const DEAD_SHARE: f64 = 0.3;
const DEAD_ROWS: i64 = 1_000_000;
/// A snapshot that is open for longer keeps dead rows from being cleaned up.
const OLD_SNAPSHOT_S: f64 = 300.0;
const SKEW_MS: i64 = 2_000;
const PATIENCE: Duration = Duration::from_secs(2);

pub async fn doctor(url: &str) -> Result<Vec<Finding>, StoreError> {
    look(&Address::read(url)?).await.map_err(Fault::into_error)
}

async fn look(address: &Address) -> Result<Vec<Finding>> {
    let (client, _hears) = open::connect(address).await?;
    let mut found = vec![version(&client).await?, encryption(address)];
    let versions = schema::versions(&client).await?;
    found.push(match versions.check() {
        Ok(()) => Finding::ok("schema", format!("version {}", versions.found)),
        Err(_) if versions.is_empty() => {
            Finding::error("schema", "there is none in this database", "run: waypost migrate")
        }
        Err(error) => Finding::error("schema", format!("version {}", versions.found), error.to_string()),
    });
    settings(&client, &mut found).await?;
    roles(&client, &mut found).await?;
    found.push(clock(&client).await?);
    listen(address, &mut found).await?;
    connections(&client, &mut found).await?;
    if versions.check().is_ok() {
        indexes(&client, &mut found).await?;
        triggers(&client, &mut found).await?;
        tables(&client, &mut found).await?;
        moved_clock(&client, &mut found).await?;
    }
    snapshots(&client, &mut found).await?;
    Ok(found)
}

async fn version(client: &Client) -> Result<Finding> {
    let row =
        one(client, "SELECT current_setting('server_version_num')::int4, current_setting('server_version')")
            .await?;
    let (number, text): (i32, String) = (get(&row, 0)?, get(&row, 1)?);
    Ok(if number >= OLDEST_SERVER {
        Finding::ok("version", format!("PostgreSQL {text}"))
    } else {
        Finding::error("version", format!("PostgreSQL {text}"), "use PostgreSQL 15 or later")
    })
}

/// Of the way to what answers, which may be a pooler.
fn encryption(address: &Address) -> Finding {
    let checked = match address.tls.check {
        Check::Nothing => "whose certificate it is was not looked at: sslmode=verify-full does",
        Check::Issuer => "the certificate's issuer is known",
        Check::Name => "the certificate's issuer and name are right",
    };
    match address.tls.agreed() {
        Some(agreed) => Finding::ok("encryption", format!("{agreed}; {checked}")),
        None if address.is_local() => Finding::ok("encryption", "none, on this machine"),
        None => Finding::warning(
            "encryption",
            "none: passwords and runs go over the network as they are",
            "switch ssl on at the server, and use sslmode=verify-full with its issuer's certificate as sslrootcert",
        ),
    }
}

async fn settings(client: &Client, found: &mut Vec<Finding>) -> Result<()> {
    let asked = [
        ("fsync", "on", "a crash of the machine may lose answered commits: set fsync = on"),
        ("full_page_writes", "on", "a crash may damage pages: set full_page_writes = on"),
        ("autovacuum", "on", "dead rows are never cleaned up: set autovacuum = on"),
    ];
    for (name, wanted, advice) in asked {
        let value: String = get(&one(client, &format!("SELECT current_setting('{name}')")).await?, 0)?;
        if value != wanted {
            found.push(Finding::error("settings", format!("{name} = {value}"), advice));
        }
    }
    let commit: String = get(&one(client, "SELECT current_setting('synchronous_commit')").await?, 0)?;
    found.push(if commit == "off" {
        Finding::error(
            "settings",
            "synchronous_commit = off",
            "an answer would not mean that a commit is on disk: set it to on",
        )
    } else {
        Finding::ok("settings", format!("synchronous_commit = {commit}"))
    });
    Ok(())
}

async fn roles(client: &Client, found: &mut Vec<Finding>) -> Result<()> {
    let rows = all(client, "SELECT rolname::text FROM pg_roles WHERE rolname LIKE 'waypost\\_%'").await?;
    let known: Vec<String> = rows.iter().map(|row| get(row, 0)).collect::<Result<_>>()?;
    let missing: Vec<&str> = ROLES.into_iter().filter(|role| !known.iter().any(|it| it == role)).collect();
    found.push(if missing.is_empty() {
        Finding::ok("roles", ROLES.join(", "))
    } else {
        let advice =
            "run waypost migrate as a user with CREATEROLE; until then only the owner may use the schema";
        Finding::warning("roles", format!("missing: {}", missing.join(", ")), advice)
    });
    Ok(())
}

/// Leases count by the server's clock; a worker's own only tells it when to give up.
async fn clock(client: &Client) -> Result<Finding> {
    let row = one(client, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8").await?;
    let theirs: i64 = get(&row, 0)?;
    let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    let apart = (theirs - ours).abs();
    Ok(if apart <= SKEW_MS {
        Finding::ok("clock", format!("{apart} ms apart"))
    } else {
        Finding::warning(
            "clock",
            format!("{apart} ms apart"),
            "leases still hold, but times in logs will not match: run NTP on both machines",
        )
    })
}

/// Through a transaction pooler a LISTEN is heard by nobody. Else it is tried: another connection notifies.
async fn listen(address: &Address, found: &mut Vec<Finding>) -> Result<()> {
    let (listener, mut hears) = open::connect(address).await?;
    let (other, _) = open::connect(address).await?;
    let is_pooled = pooler::is_between(&listener, &other).await?;
    if is_pooled {
        let name = pooler::name(address).await;
        found.push(Finding::ok("pooler", format!("{name}: sessions are given out per transaction")));
    } else {
        listener.batch_execute("LISTEN waypost").await?;
        other.batch_execute("NOTIFY waypost").await?;
    }
    let heard = !is_pooled && timeout(PATIENCE, hears.recv()).await.is_ok_and(|sound| sound.is_some());
    found.push(if heard {
        Finding::ok("listen", "wake-ups arrive")
    } else {
        Finding::warning(
            "listen",
            if is_pooled { "wake-ups do not pass through the pooler" } else { "wake-ups do not arrive" },
            "nothing is lost, workers poll; for pickups within milliseconds give workers a direct address",
        )
    });
    Ok(())
}

async fn connections(client: &Client, found: &mut Vec<Finding>) -> Result<()> {
    let sql = "SELECT count(*)::int8, current_setting('max_connections')::int8 FROM pg_stat_activity WHERE backend_type = 'client backend'";
    let row = one(client, sql).await?;
    let (used, most): (i64, i64) = (get(&row, 0)?, get(&row, 1)?);
    let text = format!("{used} of {most} in use");
    found.push(if used * 10 >= most * 9 {
        Finding::warning("connections", text, "raise max_connections, or put a pooler in between")
    } else {
        Finding::ok("connections", text)
    });
    Ok(())
}

/// Compared with what the schema's own text makes.
async fn indexes(client: &Client, found: &mut Vec<Finding>) -> Result<()> {
    let sql = "SELECT c.relname::text, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
               JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'waypost'";
    let mut valid = Vec::new();
    for row in all(client, sql).await? {
        if get::<bool>(&row, 1)? {
            valid.push(get::<String>(&row, 0)?);
        }
    }
    let expected = declared_indexes();
    let missing: Vec<&str> =
        expected.iter().map(String::as_str).filter(|name| !valid.iter().any(|it| it == name)).collect();
    found.push(if missing.is_empty() {
        Finding::ok("indexes", format!("{} of {}", expected.len(), expected.len()))
    } else {
        Finding::error(
            "indexes",
            format!("missing or invalid: {}", missing.join(", ")),
            "make them again; `waypost migrate --sql` prints how",
        )
    });
    Ok(())
}

/// By the names in the schema's own text.
fn declared_indexes() -> Vec<String> {
    let sql = schema::migration_sql();
    let after = |line: &str| {
        let rest =
            line.strip_prefix("CREATE UNIQUE INDEX ").or_else(|| line.strip_prefix("CREATE INDEX "))?;
        let (name, table) = rest.split_once(" ON ")?;
        table.starts_with("waypost.").then(|| name.to_owned())
    };
    sql.lines().filter_map(after).collect()
}

async fn triggers(client: &Client, found: &mut Vec<Finding>) -> Result<()> {
    let on: Vec<String> =
        all(client, TRIGGERS_ON).await?.iter().map(|row| get(row, 0)).collect::<Result<_>>()?;
    let missing = guards_off(&on);
    found.push(if missing.is_empty() {
        Finding::ok("guards", "in force")
    } else {
        Finding::error(
            "guards",
            format!("off or missing: {}", missing.join(", ")),
            "ALTER TABLE … ENABLE TRIGGER, then run waypost verify",
        )
    });
    Ok(())
}

async fn tables(client: &Client, found: &mut Vec<Finding>) -> Result<()> {
    let sql = "SELECT relname::text, n_live_tup, n_dead_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables \
               WHERE schemaname = 'waypost' AND relname IN ('runs', 'ready', 'watch', 'events', 'items') ORDER BY relname";
    for row in all(client, sql).await? {
        let (name, live, dead, size): (String, i64, i64, i64) =
            (get(&row, 0)?, get(&row, 1)?, get(&row, 2)?, get(&row, 3)?);
        let text = format!("{name}: {live} rows, {dead} dead, {} MiB", size >> 20);
        let bloated = dead > DEAD_ROWS && dead as f64 > live as f64 * DEAD_SHARE;
        found.push(if bloated {
            let advice = format!("look for old snapshots below; then VACUUM waypost.{name}");
            Finding::warning("tables", text, advice)
        } else {
            Finding::ok("tables", text)
        });
    }
    Ok(())
}

async fn moved_clock(client: &Client, found: &mut Vec<Finding>) -> Result<()> {
    let rows = all(client, "SELECT ahead::text FROM waypost.clock").await?;
    if let Some(row) = rows.first() {
        let ahead: String = get(row, 0)?;
        let advice = "that is for tests and demonstrations; in earnest: DELETE FROM waypost.clock";
        found.push(Finding::warning("clock", format!("moved ahead by {ahead}"), advice));
    }
    Ok(())
}

async fn snapshots(client: &Client, found: &mut Vec<Finding>) -> Result<()> {
    let sql = "SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::float8, coalesce(application_name, '') FROM pg_stat_activity \
               WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY xact_start LIMIT 1";
    let rows = all(client, sql).await?;
    let Some(row) = rows.first() else {
        found.push(Finding::ok("snapshots", "none is old"));
        return Ok(());
    };
    let (pid, age, name): (i32, Option<f64>, String) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
    let age = age.unwrap_or_default();
    found.push(if age < OLD_SNAPSHOT_S {
        Finding::ok("snapshots", format!("the oldest is {age:.0} s old"))
    } else {
        Finding::warning(
            "snapshots",
            format!("process {pid} ({name}) has one open for {age:.0} s: nothing that died since can be cleaned up"),
            format!("end that transaction, or: SELECT pg_terminate_backend({pid})"),
        )
    });
    Ok(())
}

async fn one(client: &Client, sql: &str) -> Result<Row> {
    Ok(client.query_typed_one(sql, &[]).await?)
}

async fn all(client: &Client, sql: &str) -> Result<Vec<Row>> {
    Ok(client.query_typed(sql, &[]).await?)
}

fn get<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, at: usize) -> Result<T> {
    Ok(row.try_get(at)?)
}
