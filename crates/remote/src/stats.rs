//! Figures.

use serde_json::Value;
use waypost_kernel::{Outcome, Span};
use waypost_store::{Ended, Holder, Result, Stats, parse_time};

use super::RemoteStore;
use super::ask::{Ask, part};

impl RemoteStore {
    pub(crate) async fn stats(&self, tenant: Option<String>) -> Result<Stats> {
        let answer = Ask::get("/v1/stats").of_only(tenant.as_deref()).send(self).await?;
        let ended = answer["ended"].as_array().into_iter().flatten().map(ended);
        Ok(Stats { ended: ended.collect() })
    }

    pub(crate) async fn holders(&self, tenant: Option<String>) -> Result<Vec<Holder>> {
        let holder = |object: &Value| {
            Some(Holder {
                worker: object["worker"].as_str()?.to_owned(),
                tenant: object["tenant"].as_str()?.to_owned(),
                held: object["held"].as_u64().filter(|held| *held > 0)?,
                stale_after: parse_time(object["stale_after"].as_str()?)?,
            })
        };
        let mut holders = Vec::new();
        let mut path = "/v1/workers".to_owned();
        loop {
            let answer = Ask::get(path).of_only(tenant.as_deref()).send(self).await?;
            holders.extend(answer["workers"].as_array().into_iter().flatten().filter_map(holder));
            let Some(next) = answer["next_cursor"].as_str() else { return Ok(holders) };
            path = format!("/v1/workers?cursor={}", part(next));
        }
    }
}

/// The mean is all that is told of the durations: it stands for one run.
fn ended(object: &Value) -> Ended {
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let mean = object["mean_duration_ms"].as_i64();
    Ended {
        lifecycle: text("lifecycle"),
        status: text("status"),
        outcome: Outcome::ALL.into_iter().find(|known| object["outcome"] == known.name()),
        in_24h: object["in_24h"].as_u64().unwrap_or_default(),
        in_7d: object["in_7d"].as_u64().unwrap_or_default(),
        begun: u64::from(mean.is_some()),
        took: Span::from_ms(mean.unwrap_or_default()),
    }
}
