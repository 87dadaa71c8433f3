//! Connections to a server.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client};

use super::address::{Address, CONNECT};
use super::fault::{Fault, Result};
use crate::seam::error::StoreError;

const WAIT: Duration = Duration::from_secs(10);

pub fn pool(address: &Address, size: usize) -> Result<Pool, StoreError> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(address.config.clone(), address.tls.clone(), recycling);
    let built = Pool::builder(manager)
        .max_size(size)
        .wait_timeout(Some(WAIT))
        .create_timeout(Some(CONNECT))
        .runtime(Runtime::Tokio1)
        .build();
    built.map_err(|error| StoreError::Unavailable(error.to_string()))
}

/// A connection outside the pools. What it hears (notifications) comes over the channel, which ends with it.
pub async fn connect(address: &Address) -> Result<(Client, mpsc::Receiver<()>)> {
    let (client, mut connection) = address.config.connect(address.tls.clone()).await.map_err(Fault::from)?;
    // Room for one: a notification only says "look", so that one is as good as many.
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
