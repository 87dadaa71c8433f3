//! Figures.

use serde_json::Value;
use waypost_kernel::{Outcome, Span};
use waypost_store::{Ended, ForPeople, Holder, Result, Stats, parse_time};

use super::RemoteStore;
use super::ask::Ask;

impl RemoteStore {
    pub(crate) async fn stats(&self, tenant: Option<String>) -> Result<Stats> {
        let answer = Ask::get("/v1/stats").of_only(tenant.as_deref()).send(self).await?;
        let ended = answer["ended"].as_array().into_iter().flatten().map(ended);
        let for_people = |it: &Value| {
            Some(ForPeople {
                lifecycle: it["lifecycle"].as_str()?.to_owned(),
                status: it["status"].as_str()?.to_owned(),
                count: it["count"].as_u64()?,
            })
        };
        let for_people = answer["for_people"].as_array().into_iter().flatten().filter_map(for_people);
        Ok(Stats { ended: ended.collect(), for_people: for_people.collect() })
    }

    pub(crate) async fn holders(&self, tenant: Option<String>) -> Result<Vec<Holder>> {
        let holder = |object: &Value| {
            Some(Holder {
                worker: object["name"].as_str()?.to_owned(),
                tenant: object["tenant"].as_str()?.to_owned(),
                held: object["busy"].as_u64().filter(|held| *held > 0)?,
                stale_after: parse_time(object["stale_after"].as_str()?)?,
            })
        };
        let objects = self.worker_objects(tenant, "&by_tenant=true").await?;
        Ok(objects.iter().filter_map(holder).collect())
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
