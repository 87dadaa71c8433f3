//! `waypost alert …`: what is wrong, who is told, and who is not for a while.

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::Value;
use waypost_kernel::alert::{POLICIES, Status};
use waypost_kernel::{Span, Time};
use waypost_store::{AlertRow, DEFAULT_TENANT, SilenceAlert};
use waypost_worker::alerts::{self, Alerts, Tested};

use crate::output::{BAD_INPUT, ERROR, Failed, Format, Result, cells, print, print_list, table};
use crate::place::{FILE, Place, named_tenant, tenant};
use crate::run::{age, user, who};
use crate::worker::duration;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Alerts that have been bad: whether they fire, what is wrong, and what each sink was told.
    #[command(
        after_help = "Without --tenant, all tenants' alerts. Policies and sinks stand in waypost.toml: [[alert.policy]], [[alert.sink]].\n\nExamples:\n  waypost alert list\n  waypost alert list --firing -o json"
    )]
    List {
        /// Only those that fire.
        #[arg(long)]
        firing: bool,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Tell the sinks of waypost.toml, or of the server, that nothing is wrong: to see whether notices arrive.
    #[command(after_help = "Examples:\n  waypost alert test\n  waypost alert test --sink slack")]
    Test {
        /// Only this sink.
        #[arg(long, value_name = "NAME")]
        sink: Option<String>,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Let nobody be told that an alert fires, for a while.
    #[command(
        after_help = "Examples:\n  waypost alert silence dlq-backlog --for 2h --reason 'known, ticket 12'\n  waypost alert silence 429-burst --destination shop.example\n  waypost alert silence dlq-backlog --off"
    )]
    Silence(Silence),
}

#[derive(Debug, Args)]
pub struct Silence {
    /// The alert: low-success-rate, critical-success-rate, dlq-backlog, dlq-critical, 429-burst or breaker-open.
    #[arg(value_name = "ALERT", value_parser = clap::builder::PossibleValuesParser::new(POLICIES.map(|policy| policy.name)))]
    alert: String,
    /// Only of this destination.
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// For how long; at most 30d.
    #[arg(long = "for", default_value = "1h", value_name = "DURATION", value_parser = duration)]
    lasts: std::time::Duration,
    /// Tell people again.
    #[arg(long, conflicts_with = "lasts")]
    off: bool,
    /// Shown with the alert, and kept in the audit log.
    #[arg(long)]
    reason: Option<String>,
}

fn loaded() -> Result<Alerts> {
    let file = Path::new(FILE);
    if !file.exists() {
        return Ok(Alerts::default());
    }
    alerts::load(file).map_err(|problems| Failed::new(BAD_INPUT, problems.to_string()))
}

/// What `waypost.toml` says. A secret that cannot be read is told of now, not when something fires.
pub fn declared() -> Result<Alerts> {
    let alerts = loaded()?;
    for sink in &alerts.sinks {
        sink.check().map_err(|error| Failed::new(BAD_INPUT, format!("{FILE}: {error}")))?;
    }
    Ok(alerts)
}

/// The same for processes beside a server, which need not have its secrets: sinks that cannot be told from here are left to others.
pub fn declared_here() -> Result<Alerts> {
    let mut alerts = loaded()?;
    alerts.sinks.retain(|sink| sink.check().is_ok());
    Ok(alerts)
}

pub async fn run(place: &Place, verb: Verb) -> Result<u8> {
    match verb {
        Verb::List { firing, output } => list(place, firing, output).await.map(|()| 0),
        Verb::Test { sink, output } => test(place, sink, output).await,
        Verb::Silence(flags) => silence(place, flags).await.map(|()| 0),
    }
}

async fn list(place: &Place, firing: bool, output: Format) -> Result {
    let store = place.opened_to_read().await?.store();
    let mut rows = store.alerts(named_tenant().map(str::to_owned)).await?;
    rows.retain(|row| !firing || row.condition.status == Status::Firing);
    let now = store.now().await?;
    let objects = rows.iter().map(AlertRow::object).collect();
    print_list(objects, output, || as_table(&rows, now))
}

fn as_table(rows: &[AlertRow], now: Time) -> String {
    if rows.is_empty() {
        return "no alerts".to_owned();
    }
    let has_tenants = rows.iter().any(|row| row.tenant != DEFAULT_TENANT);
    let listed = rows.iter().map(|row| {
        let silenced = row.silence.as_ref().filter(|silence| silence.until > now);
        let status = match silenced {
            Some(silence) => {
                format!("{}, silenced for {}", row.condition.status.name(), age(silence.until - now))
            }
            None => row.condition.status.name().to_owned(),
        };
        let figures = [
            row.name.clone(),
            row.subject.clone(),
            row.severity().name().to_owned(),
            status,
            age(now - row.condition.since),
            told(row),
            row.summary.clone(),
        ];
        cells(has_tenants.then(|| row.tenant.clone()).into_iter().chain(figures))
    });
    let names = ["tenant", "alert", "destination", "severity", "status", "for", "told", "summary"];
    table(&names[usize::from(!has_tenants)..], listed)
}

/// Which sinks know of what it is now.
fn told(row: &AlertRow) -> String {
    let is_firing = row.condition.status == Status::Firing;
    let current = row
        .deliveries
        .iter()
        .filter(|(_, it)| it.episode == row.condition.episode && it.is_firing == is_firing);
    let told = current.map(|(sink, it)| match (&it.sent_at, &it.error) {
        (Some(_), _) => sink.clone(),
        (None, Some(_)) => format!("{sink} (failed)"),
        (None, None) => format!("{sink} (under way)"),
    });
    told.collect::<Vec<_>>().join(", ")
}

async fn test(place: &Place, sink: Option<String>, output: Format) -> Result<u8> {
    let objects: Vec<Value> = match place.server() {
        Some(url) => place.open_server(url).await?.test_alerts(tenant(), sink.as_deref(), &user()).await?,
        None => {
            // What is tried here needs no database.
            let elapsed =
                std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let now = Time::from_ms(elapsed.as_millis().try_into().unwrap_or(i64::MAX));
            let alerts = declared()?;
            let tested = alerts.test(sink.as_deref(), tenant(), now).await;
            let tested = tested.ok_or_else(|| {
                Failed::new(
                    BAD_INPUT,
                    format!("sink: {}", alerts.no_sink(sink.as_deref().unwrap_or_default())),
                )
            })?;
            tested.iter().map(Tested::object).collect()
        }
    };
    let failed = objects.iter().any(|object| object["sent"] != true);
    let rows = objects.clone();
    print_list(objects, output, || {
        if rows.is_empty() {
            return "no sinks: declare one as [[alert.sink]] in waypost.toml".to_owned();
        }
        let text = |object: &Value, name: &str| object[name].as_str().unwrap_or_default().to_owned();
        let listed = rows.iter().map(|object| {
            let came = if object["sent"] == true { "sent".to_owned() } else { text(object, "error") };
            cells([text(object, "sink"), text(object, "kind"), came])
        });
        table(&["sink", "kind", "result"], listed)
    })?;
    Ok(if failed { ERROR } else { 0 })
}

async fn silence(place: &Place, flags: Silence) -> Result {
    let store = place.opened_existing().await?.store();
    let lasts = Span::from_ms(flags.lasts.as_millis().try_into().unwrap_or(i64::MAX));
    let ask = SilenceAlert {
        name: flags.alert,
        subject: flags.destination.unwrap_or_default(),
        lasts: (!flags.off).then_some(lasts),
    };
    let row = store.silence_alert(ask.clone(), who(flags.reason)).await?;
    let about = ask.about();
    print(&match &row.silence {
        Some(silence) => format!("{about}: nobody is told until {}", waypost_store::iso(silence.until)),
        None => format!("{about}: people are told again"),
    })
}
