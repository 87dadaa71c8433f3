//! When runs came in and what became of them, by time: what charts are drawn from. Its cost is that of a sample, however many runs there are: of more
//! than that a part stands for all, spread over the whole time, and every count is an estimate.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use waypost_kernel::tenant::local_name;
use waypost_kernel::{Outcome, Span, Time};
use waypost_store::{Filter, Parts, Sample, SampledRun, iso};

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
    description: "How many runs came in and ended, by time, outcome and lifecycle, and how long they took. Of more than 1,000 runs a part is looked at, \
        spread over the whole time, and counts are estimates: `one_in` says how many runs each stands for. The engine's own runs are left out.",
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
    let until = filter.until.unwrap_or(now).min(now);
    let sample = sample(&call, &filter, window.map(|window| until - window)).await?;
    let oldest = sample.runs.last().map(|run| run.created_at);
    let from = filter.since.or(window.map(|window| until - window)).or(oldest).unwrap_or(until);
    let from = from.min(until - SHORTEST);
    let buckets = Buckets::new(from, until, query.buckets.unwrap_or(BUCKETS));
    Ok(answer::json(200, &buckets.object(&sample)))
}

/// So many are read to see whether these are all.
const FEW: usize = 100;

/// Few among many, which a sample would miss, are found by an index; all of them are told of.
async fn sample(call: &Call, filter: &Filter, reach: Option<Time>) -> Result<Sample> {
    let store = &call.app.store;
    if filter.lifecycle.is_some() || filter.needs.is_some() {
        let first = Filter { limit: FEW, cursor: None, include: Parts::NONE, ..filter.clone() };
        let page = store.runs(first).await?;
        if page.next.is_none() {
            let took = store.took(page.runs.clone()).await?;
            let runs = page.runs.iter().zip(took).map(|(row, took)| SampledRun {
                lifecycle: row.lifecycle.clone(),
                state: row.run.state,
                created_at: row.run.created_at,
                finished_at: row.run.finished_at,
                stands_for: 1,
                took,
            });
            return Ok(Sample { runs: runs.collect(), ..Sample::default() });
        }
    }
    Ok(store.sample(filter.clone(), call.app.options.sampled_runs, reach).await?)
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
        let (mut took, mut ended) = (Vec::new(), BTreeMap::new());
        for run in &sample.runs {
            let each = run.stands_for;
            let of = lifecycles.entry(local_name(&run.lifecycle.name).to_owned()).or_default();
            of.came_in.resize(self.count, 0);
            *of.by.entry(tone(run)).or_default() += each;
            if let Some(place) = self.of(run.created_at) {
                buckets[place].came_in += each;
                *buckets[place].by.entry(tone(run)).or_default() += each;
                of.came_in[place] += each;
            }
            if let Some(place) = run.finished_at.and_then(|end| self.of(end)) {
                buckets[place].ended += each;
                let span = run.took.map(|took| took.ms().max(0));
                took.extend(span);
                of.took.extend(span);
                let of_state: &mut Ended = ended.entry((&*run.lifecycle.name, run.status())).or_default();
                of_state.add(run, each);
            }
        }
        let each = |(place, bucket): (usize, &Bucket)| json!({ "at": iso(self.begin(place)), "came_in": bucket.came_in, "ended": bucket.ended, "by": bucket.by });
        let of = |(name, mut of): (String, OfLifecycle)| json!({ "lifecycle": name, "by": of.by, "came_in": of.came_in, "duration": durations(&mut of.took, sample.one_in) });
        json!({
            "from": iso(self.from),
            "until": iso(self.begin(self.count)),
            "bucket_ms": self.each.ms(),
            "runs": sample.runs.iter().map(|run| run.stands_for).sum::<u64>(),
            "cut_at": sample.cut_at.map(iso),
            "one_in": sample.one_in,
            "buckets": buckets.iter().enumerate().map(each).collect::<Vec<_>>(),
            "duration": durations(&mut took, sample.one_in),
            "ended": ended.iter().map(|(of, ended)| ended.object(*of)).collect::<Vec<_>>(),
            "success_rate": success_rate(ended.values()),
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

/// Runs of a lifecycle that ended in a state.
#[derive(Debug, Default)]
struct Ended {
    outcome: Option<Outcome>,
    count: u64,
    took_ms: Vec<i64>,
}

impl Ended {
    fn add(&mut self, run: &SampledRun, each: u64) {
        self.outcome = run.outcome();
        self.count += each;
        self.took_ms.extend(run.took.map(|took| took.ms().max(0)));
    }

    fn object(&self, (lifecycle, status): (&str, &str)) -> Value {
        let mean = self.took_ms.iter().sum::<i64>().checked_div(self.took_ms.len() as i64);
        json!({
            "lifecycle": lifecycle, "status": status, "outcome": self.outcome.map(Outcome::name), "count": self.count, "mean_duration_ms": mean,
        })
    }
}

/// Succeeded, of what ended by itself: what was cancelled or skipped says nothing.
fn success_rate<'e>(ended: impl Iterator<Item = &'e Ended>) -> Option<f64> {
    let (mut succeeded, mut all) = (0, 0);
    for it in ended {
        let counts = matches!(it.outcome, Some(Outcome::Succeeded | Outcome::Partial | Outcome::Failed));
        succeeded += if it.outcome == Some(Outcome::Succeeded) { it.count } else { 0 };
        all += if counts { it.count } else { 0 };
    }
    (all > 0).then(|| succeeded as f64 / all as f64)
}

/// Its outcome, or its phase while it has none.
fn tone(run: &SampledRun) -> &'static str {
    run.outcome().map_or(run.phase().name(), |outcome| outcome.name())
}

fn durations(took: &mut [i64], one_in: u64) -> Value {
    took.sort_unstable();
    let at = |percent: usize| took.get((took.len() * percent).div_ceil(100).saturating_sub(1));
    let mut object = Map::from_iter([("count".to_owned(), json!(took.len() as u64 * one_in))]);
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
        assert_eq!(durations(&mut [], 8), json!({ "count": 0, "p50_ms": null, "p95_ms": null }));
        assert_eq!(durations(&mut [5], 8), json!({ "count": 8, "p50_ms": 5, "p95_ms": 5 }));
        let mut many: Vec<i64> = (1..=100).rev().collect();
        assert_eq!(durations(&mut many, 1), json!({ "count": 100, "p50_ms": 50, "p95_ms": 95 }));
    }
}
