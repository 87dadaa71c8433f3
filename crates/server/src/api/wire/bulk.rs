//! What may be asked about many runs at once, and what is answered.

use waypost_kernel::Time;
use waypost_schema::{Kind, Shape, needed, optional, requests};

use super::kinds::{COUNT, MS, NAME, REASON, TIME, list};
use super::requests::NEEDS;
use super::shapes::shapes;

/// Runs that one operation may name; a filter may mean any number.
pub const MOST_IDS: usize = 10_000;
pub const MOST_BUCKETS: i64 = 200;

requests! {
    RUN_FILTER "RunFilter" RunFilterBody {
        optional lifecycle: Option<String> = NAME, "Runs of this lifecycle.";
        optional status: Option<String> = NAME, "Runs in this state.";
        optional queue: Option<String> = NAME, "Runs of this queue.";
        optional playbook: Option<String> = NAME, "Runs of the playbook of this name.";
        optional needs: Option<String> = NEEDS, "Runs that nobody works any more (`worker`), or that wait for a person (`person`).";
        optional q: Option<String> = NAME, "Runs with this in their id, correlation id or metadata.";
        optional since: Option<Time> = TIME, "Runs that came in at this time or later.";
        optional until: Option<Time> = TIME, "Runs that came in before this; those that come in after the request are never meant.";
    }
    NEW_OPERATION "NewOperation" NewOperationBody {
        needed command: String = NAME, "A command that a lifecycle declares: `cancel`, `retry`. A run that refuses it is told of, and the others are asked.";
        optional filter: Option<RunFilterBody> = Kind::Of(&RUN_FILTER), "Which runs: those that fit all of it when it is their turn. It names something.";
        optional ids: Option<Vec<String>> = Kind::List { of: &NAME, least: 1, most: MOST_IDS }, "Which runs, by their whole ids, in place of a filter.";
        optional expected: Option<u64> = COUNT, "With a filter: how many runs have to fit now, or nothing is done (409).";
        optional reason: Option<String> = REASON, "Kept in each run's log, with the operation's id; at most 900 characters.";
        optional force: bool = Kind::Boolean, "Whether to go on where a guard asks for force.";
        optional by: Option<String> = NAME, "Whom the request is made for.";
    }
    ACTIVITY_QUERY "ActivityQuery" ActivityQuery {
        optional lifecycle: Option<String> = NAME, "Only runs of this lifecycle.";
        optional status: Option<String> = NAME, "Only runs in this state.";
        optional queue: Option<String> = NAME, "Only runs of this queue.";
        optional playbook: Option<String> = NAME, "Only runs of the playbook of this name.";
        optional needs: Option<String> = NEEDS, "Only runs that nobody works any more (`worker`), or that wait for a person (`person`).";
        optional q: Option<String> = NAME, "Only runs with this in their id, correlation id or metadata.";
        optional since: Option<Time> = TIME, "Only runs that came in at this time or later: buckets begin then.";
        optional until: Option<Time> = TIME, "Only runs that came in before this: buckets end then.";
        optional window_ms: Option<i64> = MS, "How far back buckets go, whenever runs came in. Without this and `since` they begin with the oldest run.";
        optional buckets: Option<u32> = Kind::Integer(1, MOST_BUCKETS), "How many buckets; 48 if left out.";
    }
}

shapes! {
    BUCKET "ActivityBucket" [
        needed("at", TIME, "When it begins."),
        needed("came_in", COUNT, "Runs that came in."),
        needed("ended", COUNT, "Runs that ended."),
        needed("by", Kind::Object, "Of those that came in, how many have which outcome now, or are in which phase."),
    ];
    DURATION "Durations" [
        needed("count", COUNT, "How many runs they are of: those that began and ended."),
        optional("p50_ms", COUNT, "Half of them took no longer."),
        optional("p95_ms", COUNT, "95 of 100 took no longer."),
    ];
    ENDED_AS "ActivityEnded" [
        needed("lifecycle", NAME, "The lifecycle of these runs."),
        needed("status", NAME, "The state that they ended in."),
        optional("outcome", NAME, "What that means."),
        needed("count", COUNT, "How many they are."),
        optional("mean_duration_ms", COUNT, "How long they took on average, of those that began."),
    ];
    OF_LIFECYCLE "ActivityOfLifecycle" [
        needed("lifecycle", NAME, "The lifecycle's name."),
        needed("by", Kind::Object, "How many of its runs have which outcome, or are in which phase."),
        needed("came_in", list(&COUNT, MOST_BUCKETS as usize), "Runs that came in, by bucket."),
        needed("duration", Kind::Of(&DURATION), "How long those took that ended within the buckets."),
    ];
    ACTIVITY "Activity" [
        needed("from", TIME, "When the first bucket begins."),
        needed("until", TIME, "When the last one ends."),
        needed("bucket_ms", COUNT, "How long each of them is."),
        needed("runs", COUNT, "How many runs these figures are of."),
        needed("one_in", COUNT, "How many runs each stands for that was looked at: counts are estimates if it is more than 1. At most 1,000 are looked at, whether they fit or not."),
        optional("cut_at", TIME, "Runs that came in before this were not looked at. Null: it is of all of them."),
        needed("buckets", list(&Kind::Of(&BUCKET), MOST_BUCKETS as usize), "In the order of time."),
        needed("duration", Kind::Of(&DURATION), "How long those took that ended within the buckets."),
        needed("ended", list(&Kind::Of(&ENDED_AS), 10_000), "What ended within the buckets, by lifecycle and status."),
        optional("success_rate", Kind::Any, "Runs that succeeded, of those that ended by themselves within the buckets; from 0 to 1."),
        needed("lifecycles", list(&Kind::Of(&OF_LIFECYCLE), 10_000), "By name."),
    ];
}
