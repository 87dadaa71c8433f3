//! When runs came in and what became of them, by time: what charts are drawn from. Its cost is that of a sample, however many runs there are.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use waypost_kernel::tenant::local_name;
use waypost_kernel::{Span, Time};
use waypost_store::{Filter, Sample, SampledRun, iso};

use super::requests::filter_of;
use super::runs::check_filter;
use super::wire::bulk::{ACTIVITY, ActivityQuery};
use super::{GET, Route, asks, ok};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::problem::{INVALID_QUERY, Problem};

const BUCKETS: u32 = 48;
/// Of a window that would have no length.
const SHORTEST: Span = Span::from_seconds(60);

pub const ROUTES: &[Route] = &[Route {
    path: "/v1/activity",
    name: "getActivity",
    description: "How many runs came in and ended, by time, outcome and lifecycle, and how long they took. It is of the newest 20,000 runs: \
        `cut_at` says how far back that is. The engine's own runs are left out.",
    responses: &[ok(&ACTIVITY)],
    ..asks!(GET, show, ActivityQuery)
}];

async fn show(call: Call, query: ActivityQuery) -> Result {
    let filter: Filter = filter_of!(call, query);
    check_filter(&call, &filter).await?;
    let now = call.store().now().await?;
    let window = query.window_ms.map(Span::from_ms);
    if filter.since.zip(filter.until).is_some_and(|(since, until)| since >= until) {
        return Err(Problem::field(&INVALID_QUERY, "until", "is not after since"));
    }
    let sample = call.app.store.sample(filter.clone(), call.app.options.sampled_runs).await?;
    let until = filter.until.unwrap_or(now).min(now);
    let oldest = sample.runs.last().map(|run| run.created_at);
    let from = filter.since.or(window.map(|window| until - window)).or(oldest).unwrap_or(until);
    let from = from.min(until - SHORTEST);
    let buckets = Buckets::new(from, until, query.buckets.unwrap_or(BUCKETS));
    Ok(answer::json(200, &buckets.object(&sample)))
}

struct Buckets {
    from: Time,
    each: Span,
    count: usize,
}

impl Buckets {
    fn new(from: Time, until: Time, count: u32) -> Buckets {
        // What comes in now is in the last one.
        let ms = (until - from).ms() / i64::from(count.max(1)) + 1;
        Buckets { from, each: Span::from_ms(ms), count: count as usize }
    }

    fn of(&self, at: Time) -> Option<usize> {
        let since = (at - self.from).ms();
        let place = usize::try_from(since.div_euclid(self.each.ms())).ok()?;
        (place < self.count).then_some(place)
    }

    fn begin(&self, place: usize) -> Time {
        self.from + Span::from_ms(self.each.ms() * place as i64)
    }

    fn object(&self, sample: &Sample) -> Value {
        let mut buckets = vec![Bucket::default(); self.count];
        let mut lifecycles: BTreeMap<String, OfLifecycle> = BTreeMap::new();
        let mut took = Vec::new();
        for run in &sample.runs {
            let of = lifecycles.entry(local_name(&run.lifecycle.name).to_owned()).or_default();
            of.came_in.resize(self.count, 0);
            *of.by.entry(tone(run)).or_default() += 1;
            if let Some(place) = self.of(run.created_at) {
                buckets[place].came_in += 1;
                *buckets[place].by.entry(tone(run)).or_default() += 1;
                of.came_in[place] += 1;
            }
            if let Some(place) = run.finished_at.and_then(|end| self.of(end)) {
                buckets[place].ended += 1;
                let span = run.took.map(|took| took.ms().max(0));
                took.extend(span);
                of.took.extend(span);
            }
        }
        let each = |(place, bucket): (usize, &Bucket)| json!({ "at": iso(self.begin(place)), "came_in": bucket.came_in, "ended": bucket.ended, "by": bucket.by });
        let of = |(name, mut of): (String, OfLifecycle)| json!({ "lifecycle": name, "by": of.by, "came_in": of.came_in, "duration": durations(&mut of.took) });
        json!({
            "from": iso(self.from),
            "until": iso(self.begin(self.count)),
            "bucket_ms": self.each.ms(),
            "runs": sample.runs.len(),
            "cut_at": sample.cut_at.map(iso),
            "buckets": buckets.iter().enumerate().map(each).collect::<Vec<_>>(),
            "duration": durations(&mut took),
            "lifecycles": lifecycles.into_iter().map(of).collect::<Vec<_>>(),
        })
    }
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    came_in: u64,
    ended: u64,
    by: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Default)]
struct OfLifecycle {
    by: BTreeMap<&'static str, u64>,
    came_in: Vec<u64>,
    took: Vec<i64>,
}

/// Its outcome, or its phase while it has none.
fn tone(run: &SampledRun) -> &'static str {
    run.outcome().map_or(run.phase().name(), |outcome| outcome.name())
}

fn durations(took: &mut [i64]) -> Value {
    took.sort_unstable();
    let at = |percent: usize| took.get((took.len() * percent).div_ceil(100).saturating_sub(1));
    let mut object = Map::from_iter([("count".to_owned(), json!(took.len()))]);
    object.insert("p50_ms".to_owned(), json!(at(50)));
    object.insert("p95_ms".to_owned(), json!(at(95)));
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_their_window_and_nothing_else() {
        let from = Time::from_ms(1_000_000);
        for (ms, count) in [(60_000, 48), (1, 1), (7, 200), (86_400_000, 24)] {
            let buckets = Buckets::new(from, from + Span::from_ms(ms), count);
            assert_eq!(buckets.of(from), Some(0));
            assert!(buckets.of(from + Span::from_ms(ms)).is_some(), "{ms}: what comes in now is in the last");
            assert_eq!(buckets.of(from - Span::from_ms(1)), None);
            assert_eq!(buckets.of(buckets.begin(count as usize)), None);
        }
    }

    #[test]
    fn percentiles_are_of_what_there_is() {
        assert_eq!(durations(&mut []), json!({ "count": 0, "p50_ms": null, "p95_ms": null }));
        assert_eq!(durations(&mut [5]), json!({ "count": 1, "p50_ms": 5, "p95_ms": 5 }));
        let mut many: Vec<i64> = (1..=100).rev().collect();
        assert_eq!(durations(&mut many), json!({ "count": 100, "p50_ms": 50, "p95_ms": 95 }));
    }
}
