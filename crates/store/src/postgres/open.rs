//! Connections to a server.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

use super::fault::{Fault, Result};
use crate::error::StoreError;

const CONNECT: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(10);

/// The words of an address, `postgres://…` or `host=… user=…`, with what every connection of ours has.
pub fn config(url: &str) -> Result<Config, StoreError> {
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        StoreError::Unusable(format!("not the address of a PostgreSQL database: {cause}"))
    })?;
    if config.get_application_name().is_none() {
        config.application_name("waypost");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    // A server that is gone without a word is noticed within a minute.
    config.keepalives_idle(Duration::from_secs(20)).keepalives_interval(Duration::from_secs(10));
    config.keepalives_retries(3).tcp_user_timeout(Duration::from_secs(45));
    Ok(config)
}

pub fn pool(config: &Config, size: usize) -> Result<Pool, StoreError> {
    let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let built = Pool::builder(manager_of(config, manager))
        .max_size(size)
        .wait_timeout(Some(WAIT))
        .create_timeout(Some(CONNECT))
        .runtime(Runtime::Tokio1)
        .build();
    built.map_err(|error| StoreError::Unavailable(error.to_string()))
}

/// Here, and in `connect`, TLS comes in.
fn manager_of(config: &Config, manager: ManagerConfig) -> Manager {
    Manager::from_config(config.clone(), NoTls, manager)
}

/// A connection outside the pools. What it hears (notifications) comes over the channel, which ends with it.
pub async fn connect(config: &Config) -> Result<(Client, mpsc::Receiver<()>)> {
    let (client, mut connection) = config.connect(NoTls).await.map_err(Fault::from)?;
    // One is as good as many: it says "look".
    let (heard, hears) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                let _ = heard.try_send(());
            }
        }
    });
    Ok((client, hears))
}

/// The same server, another database: of `postgres://user@host/name?options`, or of `host=… dbname=…`, where the last
/// word counts.
pub fn with_database(url: &str, name: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return format!("{url} dbname={name}") };
    let (place, options) =
        rest.split_once('?').map_or((rest, None), |(place, options)| (place, Some(options)));
    let authority = place.split('/').next().unwrap_or_default();
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    format!("{scheme}://{authority}/{name}{options}")
}
