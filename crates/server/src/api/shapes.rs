//! Objects of the API. The store makes the answers' (`object()`); a test holds them to these.

use waypost_kernel::item::Role;
use waypost_kernel::text::{MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_PAGE};
use waypost_store::ROLES;

use crate::shape::{Field, Kind, Shape, needed, optional};

pub const NAME: Kind = Kind::Text(MAX_NAME_BYTES);
pub const KEY: Kind = Kind::Text(MAX_KEY_BYTES);
pub const LONG: Kind = Kind::Text(4 * 1024 * 1024);
pub const COUNT: Kind = Kind::Integer(0, i64::MAX);
/// A year of milliseconds.
pub const MS: Kind = Kind::Integer(0, 366 * 86_400_000);
pub const ROLE: Kind = Kind::Choice(&[Role::Step.name(), Role::Optional.name(), Role::Cleanup.name()]);
pub const TOKEN: Field = needed("lease_token", Kind::Hex(32), "The lease's token, as the claim gave it.");
pub const START: Field = optional(
    "start",
    Kind::Boolean,
    "Whether the work begins with the claim, where the lifecycle has a state for runs that were claimed and not begun. \
     Without it the first event begins it.",
);
pub const MOST_OF_A_BATCH: usize = 1_000;

pub const LIMIT: Field =
    optional("limit", Kind::Integer(1, MAX_PAGE as i64), "How many at most; 50 if left out.");

macro_rules! shapes {
    ($($(#[$about:meta])* $constant:ident $name:literal [$($field:expr),+ $(,)?];)+) => {
        $($(#[$about])* pub const $constant: Shape = Shape { name: $name, fields: &[$($field),+] };)+
    };
}

shapes! {
    RUN "Run" [
        needed("run_id", NAME, "Its id."),
        needed("tenant", NAME, "Whose it is."),
        needed("lifecycle", NAME, "The state machine that it moves along."),
        needed("version", COUNT, "Of the lifecycle; a run keeps the one that it was born with."),
        needed("status", NAME, "The state that it is in."),
        needed("phase", Kind::Choice(&["draft", "ready", "held", "parked", "settled"]), "What that means to the engine."),
        optional("outcome", NAME, "How it ended, whatever its lifecycle calls that."),
        needed("queue", NAME, "Where workers find it."),
        needed("priority", Kind::Integer(-32_768, 32_767), "Higher comes first."),
        needed("attempt", COUNT, "How often it was claimed."),
        needed("max_attempts", COUNT, "How often it may be."),
        needed("take_overs", COUNT, "Expired leases that were taken over since."),
        needed("seq", COUNT, "The number of its last event; its ETag."),
        optional("claimed_by", NAME, "Who holds it."),
        needed("fence", COUNT, "Rises with every new holder."),
        optional("stale_after", Kind::Time, "When its lease ends."),
        needed("queued_at", Kind::Time, "When it came in."),
        optional("started_at", Kind::Time, "When work on it began."),
        optional("finished_at", Kind::Time, "When it was settled."),
        optional("schedule_at", Kind::Time, "Not to be taken before."),
        optional("available_at", Kind::Time, "From when a worker may take it."),
        optional("expires_at", Kind::Time, "When its time to live ends."),
        optional("concurrency_key", KEY, "Runs with the same key are held one at a time."),
        optional("correlation_id", KEY, "The caller's own name for it."),
        optional("idempotency_key", KEY, "The key that made it."),
        optional("parent_run_id", NAME, "The run that it belongs to."),
        optional("retry_of", NAME, "The run that it repeats."),
        optional("playbook", KEY, "What is to be done."),
        optional("carried", Kind::Any, "A command that it brings along."),
        optional("error_code", NAME, "Why it failed."),
        optional("error_msg", LONG, "The same in words."),
        optional("reason", LONG, "Why it is where it is, as a person or worker said."),
        optional("intent", NAME, "What is wanted of its holder."),
        needed("cancel_requested", Kind::Boolean, "That is a cancel."),
        needed("input", Kind::Any, "What it was started with."),
        needed("metadata", Kind::Object, "Shown with it."),
        needed("details", Kind::Object, "What its workers keep beside it."),
        needed("items", Kind::MapOf(&Kind::MapOf(&COUNT)), "Its parts, counted by kind and status."),
        needed("allowed", Kind::List(&NAME, 100), "Commands that a client or operator may give now."),
    ];
    EVENT "Event" [
        needed("event_id", NAME, "Its id."),
        needed("position", COUNT, "Its place among all runs' events; the id in the stream."),
        needed("run_id", NAME, "Whose event it is."),
        needed("tenant", NAME, "Whose run that is."),
        needed("lifecycle", NAME, "Of that run."),
        needed("seq", COUNT, "Its number in the run: 1, 2, 3 and so on."),
        needed("at", Kind::Time, "By the database's clock."),
        needed("command", NAME, "What moved the run, or `note`."),
        optional("from", NAME, "The state before; null for the first."),
        needed("to", NAME, "The state after."),
        needed("actor", NAME, "client, operator, worker or engine."),
        needed("by", LONG, "Who that was."),
        needed("level", NAME, "debug, info, warn or error."),
        needed("message", LONG, "For people."),
        needed("payload", Kind::Any, "For programs."),
    ];
    ITEM "Item" [
        needed("kind", NAME, "step, task, target, or what the lifecycle calls it."),
        needed("key", NAME, "Unique in its run and kind."),
        needed("name", NAME, "For people."),
        needed("status", NAME, "The state that it is in."),
        needed("attempts", COUNT, "Retries used of the present budget."),
        needed("max_retries", COUNT, "That budget."),
        needed("try_no", COUNT, "Rises after every known answer."),
        needed("progress", Kind::Integer(0, 100), "In percent."),
        optional("not_before", Kind::Time, "When it is tried next."),
        needed("discarded", Kind::Boolean, "Somebody gave it up."),
        needed("role", ROLE, "What its failure means to the run: it ends its course (`step`), or not (`optional`); a `cleanup` begins whatever failed."),
        optional("error_code", NAME, "Why it failed."),
        optional("error_msg", LONG, "The same in words."),
        optional("started_at", Kind::Time, "When work on it began."),
        optional("finished_at", Kind::Time, "When it was settled."),
        optional("output", Kind::Any, "What it gave."),
        needed("details", Kind::Object, "What is kept beside it."),
    ];
    RUNS "Runs" [
        needed("runs", Kind::List(&Kind::Of(&RUN), MAX_PAGE), "Newest first."),
        optional("next_cursor", NAME, "For the next page; null at the end."),
    ];
    EVENTS "Events" [needed("events", Kind::List(&Kind::Of(&EVENT), MAX_PAGE), "In order.")];
    FEED "Feed" [
        needed("events", Kind::List(&Kind::Of(&EVENT), MAX_PAGE), "In the order of their commits."),
        needed("next_after", COUNT, "What to ask `after` next."),
    ];
    LAST "Last" [needed("last_position", COUNT, "Whoever reads from here on misses nothing that is committed from now on.")];
    ITEMS "Items" [needed("items", Kind::List(&Kind::Of(&ITEM), 1_000_000), "In the order in which they were added.")];
    NEW_ITEM "NewItem" [
        needed("kind", NAME, "One of the lifecycle's kinds."),
        needed("key", NAME, "Unique in its run and kind."),
        optional("name", NAME, "For people; the key if left out."),
        optional("status", NAME, "Its first state; the kind's first if left out."),
        optional("max_retries", Kind::Integer(0, 1_000), "3 if left out."),
        optional("reruns", Kind::Boolean, "It runs again on resume."),
        optional("role", ROLE, "What its failure means to the run; `step` if left out."),
        optional("details", Kind::Object, "Kept beside it."),
    ];
    NEW_RUN "NewRun" [
        needed("lifecycle", NAME, "The name of one that the server knows."),
        optional("version", Kind::Integer(1, u32::MAX as i64), "The latest if left out."),
        optional("status", NAME, "One of its initial states; the first if left out."),
        optional("playbook", KEY, "What is to be done: one that a worker has."),
        optional("queue", NAME, "`default` if left out."),
        optional("input", Kind::Any, "Handed to the handler; at most 1 MiB."),
        optional("metadata", Kind::Object, "Shown with the run; at most 1 MiB."),
        optional("details", Kind::Object, "Kept beside it; no part of what the idempotency key stands for."),
        optional("priority", Kind::Integer(-32_768, 32_767), "Higher comes first."),
        optional("schedule_at", Kind::Time, "Not to be taken before."),
        optional("ttl_ms", MS, "It ends by itself if nobody takes it within this time."),
        optional("concurrency_key", KEY, "Runs with the same key are held one at a time."),
        optional("correlation_id", KEY, "The caller's own name for it."),
        optional("idempotency_key", KEY, "As the header; the header wins."),
        optional("parent_run_id", NAME, "The run that it belongs to."),
        optional("retry_of", NAME, "The run that it repeats."),
        optional("max_attempts", Kind::Integer(1, 1_000), "1 if left out."),
        optional("reentrant", Kind::Boolean, "A stale execution may be taken up again."),
        optional("items", Kind::List(&Kind::Of(&NEW_ITEM), 100_000), "Steps or targets that are known already."),
        optional("carried", Kind::Object, "A command that it brings along; needs the role admin."),
        optional("by", NAME, "Whom the request is made for."),
    ];
    NEW_RUNS "NewRuns" [needed("runs", Kind::List(&Kind::Of(&NEW_RUN), MOST_OF_A_BATCH), "Each is answered by itself.")];
    MADE "Made" [
        needed("run_id", NAME, "Its id."),
        needed("status", NAME, "The state that it is in."),
        needed("replayed", Kind::Boolean, "The key was known: this is the run that it made."),
        optional("run", Kind::Any, "The run object, with `Waypost-Detail: engine`."),
    ];
    NOT_MADE "NotMade" [needed("error", Kind::Of(&PROBLEM), "Why.")];
    ALL_MADE "AllMade" [needed("runs", Kind::List(&Kind::Either(&[&MADE, &NOT_MADE]), MOST_OF_A_BATCH), "In the order of the request.")];
    COMMAND "Command" [
        optional("reason", Kind::Text(8_192), "Kept in the log; at most 1,024 characters."),
        optional("force", Kind::Boolean, "Where a guard asks for it."),
        optional("resolved", Kind::Boolean, "What stood in the way is dealt with."),
        optional("resolutions", Kind::Object, "What was decided, by host or whatever else blocked the run."),
        optional("graceful", Kind::Boolean, "After the step that is under way, not at once."),
        optional("targets", Kind::List(&NAME, 100_000), "Keys of the items that it is about."),
        optional("as", Kind::Choice(&["client", "operator"]), "operator if left out; a client may do less."),
        optional("by", NAME, "Whom the request is made for."),
    ];
    CLAIM "Claim" [
        needed("worker", NAME, "A name that is never used again: host, process and something random."),
        optional("queues", Kind::List(&NAME, 100), "`default` if left out."),
        optional("lifecycles", Kind::List(&NAME, 100), "Any if left out."),
        optional("playbooks", Kind::List(&NAME, 10_000), "Those that this worker has, as runs name them; runs of others are left alone."),
        optional("carried", Kind::Boolean, "Whether it executes what runs bring along. Without this and `playbooks` any run may come."),
        optional("limit", Kind::Integer(1, 100), "1 if left out."),
        optional("wait_ms", Kind::Integer(0, 60_000), "How long to wait for work."),
        optional("lease_ms", Kind::Integer(1_000, 86_400_000), "How long a lease lasts without a heartbeat."),
        START,
    ];
    CLAIM_ONE "ClaimOne" [
        needed("worker", NAME, "A name that is never used again."),
        optional("lease_ms", Kind::Integer(1_000, 86_400_000), "How long the lease lasts without a heartbeat."),
        START,
    ];
    LEASE "Lease" [
        needed("token", NAME, "Proves who holds the run: every write needs it."),
        needed("fence", COUNT, "For outside systems that can refuse an older one."),
        needed("expires_at", Kind::Time, "Unless a heartbeat extends it."),
        needed("now", Kind::Time, "The database's clock, to count from."),
    ];
    CLAIMED "Claimed" [
        needed("run", Kind::Of(&RUN), "What to work on."),
        needed("lease", Kind::Of(&LEASE), "The right to."),
    ];
    CLAIMS "Claims" [needed("claims", Kind::List(&Kind::Of(&CLAIMED), 100), "None: nothing is due.")];
    HEARTBEAT "Heartbeat" [TOKEN];
    RENEWED "Renewed" [
        needed("expires_at", Kind::Time, "The lease's new end."),
        needed("now", Kind::Time, "The database's clock."),
        needed("cancel_requested", Kind::Boolean, "Stop, and finish as cancelled."),
        optional("intent", Kind::Choice(&["cancel", "pause", "fail"]), "What is wanted of the holder."),
        needed("graceful", Kind::Boolean, "The cancel may wait for the step that is under way."),
    ];
    NEW_EVENT "NewEvent" [
        TOKEN,
        optional("level", Kind::Choice(&["debug", "info", "warn", "error"]), "info if left out."),
        needed("message", LONG, "For people. What is too long is cut, never refused."),
        optional("payload", Kind::Any, "For programs."),
        optional("key", KEY, "A second event with the same key is the first one."),
        optional("once", Kind::Choice(&["window", "never"]), "How a repeat is known without a key: `window` (same words within 10 s; the default) or `never`."),
        optional("metadata", Kind::Object, "Merged into the run's."),
        optional("details", Kind::Object, "Merged into the run's."),
        optional("by", LONG, "The worker's name."),
    ];
    NOTED "Noted" [
        needed("event_id", NAME, "Of this event, or of the first of its kind."),
        needed("seq", COUNT, "Its number in the run."),
        needed("repeated", Kind::Boolean, "It was known already."),
    ];
    FINISH "Finish" [
        TOKEN,
        needed("status", NAME, "The state to end in, as the lifecycle names it."),
        optional("error_code", LONG, "Why it failed."),
        optional("error_msg", LONG, "The same in words."),
        optional("reason", LONG, "Why it pauses or stops."),
        optional("retry_in_ms", MS, "When a state that can be retried should be."),
        optional("metadata", Kind::Object, "Merged into the run's."),
        optional("details", Kind::Object, "Merged into the run's."),
        optional("items", Kind::List(&Kind::Of(&ITEM_WRITE), 10_000), "Its items' last moves, written with the end: all, or nothing."),
        optional("by", LONG, "The worker's name."),
    ];
    HEARTBEATS "Heartbeats" [
        needed("leases", Kind::List(&Kind::Of(&HEARTBEAT_OF_RUN), MOST_OF_A_BATCH), "Each is answered by itself."),
    ];
    ALL_RENEWED "AllRenewed" [
        needed("leases", Kind::List(&Kind::Either(&[&RENEWED, &NOT_MADE]), MOST_OF_A_BATCH), "In the order of the request."),
    ];
    EVENTS_OF_RUNS "EventsOfRuns" [
        needed("events", Kind::List(&Kind::Of(&EVENT_OF_RUN), MOST_OF_A_BATCH), "Each is answered by itself."),
    ];
    ALL_NOTED "AllNoted" [
        needed("events", Kind::List(&Kind::Either(&[&NOTED, &NOT_MADE]), MOST_OF_A_BATCH), "In the order of the request."),
    ];
    FINISHES "Finishes" [
        needed("finishes", Kind::List(&Kind::Of(&FINISH_OF_RUN), MOST_OF_A_BATCH), "Each is answered by itself."),
    ];
    ENDED_RUN "EndedRun" [needed("run", Kind::Of(&RUN), "The run after its end.")];
    ALL_ENDED "AllEnded" [
        needed("runs", Kind::List(&Kind::Either(&[&ENDED_RUN, &NOT_MADE]), MOST_OF_A_BATCH), "In the order of the request."),
    ];
    OWE "Owe" [
        TOKEN,
        needed("owes", Kind::Boolean, "From now on it owes its cleanup, or no longer does."),
        optional("failing_status", NAME, "Where it goes once the cleanup is done."),
        optional("error_code", LONG, "Why."),
        optional("error_msg", LONG, "The same in words."),
        optional("by", LONG, "The worker's name."),
    ];
    ITEM_WRITE "ItemWrite" [
        needed("kind", NAME, "One of the lifecycle's kinds."),
        optional("name", NAME, "For people; names the item where there is no key."),
        optional("key", NAME, "Unique in its run and kind; the name if left out."),
        optional("max_retries", Kind::Integer(0, 1_000), "Of a new item; 3 if left out."),
        optional("reruns", Kind::Boolean, "Of a new item: it runs again on resume."),
        optional("role", ROLE, "Of a new item: what its failure means to the run; `step` if left out."),
        needed("status", NAME, "The state that it should be in."),
        optional("command", NAME, "Which command leads there, where several do."),
        optional("progress", Kind::Integer(0, 100), "In percent."),
        optional("output", Kind::Any, "What it gave."),
        optional("details", Kind::Object, "Merged into the item's."),
        optional("error_code", LONG, "Why it failed."),
        optional("error_msg", LONG, "The same in words."),
        optional("retry_in_ms", MS, "When it is tried next."),
        optional("answered", Kind::Boolean, "The outside gave an answer, whatever it was."),
        optional("try_no", COUNT, "Which try this is about."),
    ];
    ITEM_WRITES "ItemWrites" [
        TOKEN,
        needed("items", Kind::List(&Kind::Of(&ITEM_WRITE), 10_000), "All are moved, or none."),
        optional("by", LONG, "The worker's name."),
    ];
    PAUSE "Pause" [
        needed("by", NAME, "Who paused it."),
        needed("reason", LONG, "Why."),
        optional("at", Kind::Time, "When."),
    ];
    QUEUE "Queue" [
        needed("queue", NAME, "Its name."),
        needed("ready", COUNT, "Runs that wait and are due."),
        needed("scheduled", COUNT, "Runs that wait for their time."),
        needed("held", COUNT, "Runs that are being worked."),
        optional("oldest_ready_at", Kind::Time, "Since when the oldest is due."),
        optional("at_most", COUNT, "How many may be held at once."),
        optional("paused", Kind::Of(&PAUSE), "Workers take nothing from it."),
    ];
    QUEUES "Queues" [needed("queues", Kind::List(&Kind::Of(&QUEUE), 100_000), "By name.")];
    PAUSING "Pausing" [
        optional("reason", Kind::Text(8_192), "Kept with the queue; at most 1,024 characters."),
        optional("by", NAME, "Whom the request is made for."),
    ];
    LIMITING "Limiting" [
        optional("at_most", Kind::Integer(0, u32::MAX as i64), "How many may be held at once; null removes the limit."),
        optional("reason", Kind::Text(8_192), "Kept in the audit log."),
        optional("by", NAME, "Whom the request is made for."),
    ];
    WORKER "Worker" [
        needed("worker", NAME, "Its name."),
        needed("held", COUNT, "Runs that it holds."),
        optional("stale_after", Kind::Time, "Of its leases, the one that ends first."),
        optional("seen_ms_ago", COUNT, "When it last asked this server for work."),
        optional("free", COUNT, "How many it asked for then."),
        needed("queues", Kind::List(&NAME, 100), "Those it asked for; empty if it asked another server."),
    ];
    WORKERS "Workers" [needed("workers", Kind::List(&Kind::Of(&WORKER), 100_000), "Who holds runs, or asked for some within 5 minutes.")];
    ENDED "Ended" [
        needed("lifecycle", NAME, "Of these runs."),
        needed("status", NAME, "The state that they ended in."),
        optional("outcome", NAME, "What that means."),
        needed("in_24h", COUNT, "How many within 24 hours."),
        needed("in_7d", COUNT, "How many within 7 days."),
        optional("mean_duration_ms", COUNT, "From start to end, within 7 days."),
    ];
    STATS "Stats" [
        needed("queue_depth", COUNT, "Runs that wait and are due, in all queues."),
        optional("worker_utilisation", Kind::Any, "Slots in use, of those known; from 0 to 1."),
        optional("success_rate_24h", Kind::Any, "Succeeded, of what ended by itself; from 0 to 1."),
        needed("ended", Kind::List(&Kind::Of(&ENDED), 10_000), "What settled within 7 days, of the newest 200,000 runs."),
        needed("queues", Kind::List(&Kind::Of(&QUEUE), 100_000), "By name."),
    ];
    LIFECYCLE "Lifecycle" [
        needed("name", NAME, "Its name."),
        needed("version", COUNT, "Its version."),
        needed("kind", NAME, "run or item."),
        optional("ids", NAME, "What its runs' ids look like."),
        needed("initial", Kind::List(&NAME, 100), "Where a run may start."),
        needed("items", Kind::List(&NAME, 100), "Kinds of items that its runs have."),
        optional("stops_run", Kind::Boolean, "Of a kind of items: one that fails ends its run's course."),
        needed("codes", Kind::Object, "Failure codes of its commands."),
        needed("operations", Kind::Object, "From which states operations start."),
        needed("states", Kind::List(&Kind::Object, 1_000), "Each with its phase."),
        needed("transitions", Kind::List(&Kind::Object, 10_000), "From, command, to, by, guards."),
        optional("source", LONG, "The same as a lifecycle file, with `source=true`."),
    ];
    LIFECYCLES "Lifecycles" [needed("lifecycles", Kind::List(&Kind::Of(&LIFECYCLE), 10_000), "Every version of each.")];
    NEW_LIFECYCLE "NewLifecycle" [needed("source", Kind::Text(1_048_576), "A lifecycle file: TOML.")];
    PLAYBOOK "Playbook" [
        needed("name", NAME, "Its name."),
        needed("lifecycle", NAME, "Of its runs."),
        needed("hash", NAME, "Of its content: runs pin it."),
        optional("description", LONG, "For people."),
        needed("inputs", Kind::Any, "What it takes."),
    ];
    PLAYBOOKS "Playbooks" [needed("playbooks", Kind::List(&Kind::Of(&PLAYBOOK), 100_000), "By name.")];
    NEW_TOKEN "NewToken" [
        needed("name", NAME, "Whom the log names."),
        needed("role", Kind::Choice(&ROLES), "What it may do."),
        optional("tenant", NAME, "The caller's own if left out; `*` is all of them."),
        optional("by", NAME, "Whom the request is made for."),
    ];
    TOKEN_ROW "Token" [
        needed("id", NAME, "Its public half."),
        needed("name", NAME, "Whom the log names."),
        needed("role", NAME, "What it may do."),
        needed("tenant", NAME, "Whose runs it sees."),
        needed("created_at", Kind::Time, "When it was made."),
        needed("created_by", LONG, "By whom."),
        optional("revoked_at", Kind::Time, "When it was revoked."),
        optional("revoked_by", LONG, "By whom."),
    ];
    TOKEN_MADE "TokenMade" [
        needed("token", NAME, "The whole token: keep it, it is not shown again."),
        needed("row", Kind::Of(&TOKEN_ROW), "What is stored of it."),
    ];
    TOKENS "Tokens" [needed("tokens", Kind::List(&Kind::Of(&TOKEN_ROW), 100_000), "Oldest first.")];
    REVOKING "Revoking" [
        optional("reason", Kind::Text(8_192), "Kept in the audit log."),
        optional("by", NAME, "Whom the request is made for."),
    ];
    AUDIT "Audit" [
        needed("number", COUNT, "It only rises."),
        needed("at", Kind::Time, "By the database's clock."),
        needed("tenant", NAME, "Whose thing it was."),
        needed("by", LONG, "Who did it."),
        needed("action", NAME, "What."),
        needed("subject", LONG, "To what."),
        optional("reason", LONG, "Why."),
    ];
    AUDITS "Audits" [needed("audit", Kind::List(&Kind::Of(&AUDIT), MAX_PAGE), "Oldest first.")];
    CLOCK "Clock" [needed("now", Kind::Time, "The database's clock, the only one that counts.")];
    HEALTH "Health" [
        needed("status", Kind::Choice(&["ok", "unavailable", "stopping"]), "Whether requests are answered."),
        optional("detail", LONG, "Why not."),
    ];
    PROBLEM "Problem" [
        needed("type", NAME, "about:blank: the code says it."),
        needed("title", NAME, "The status in words."),
        needed("status", Kind::Integer(400, 599), "The HTTP status."),
        needed("detail", LONG, "What is wrong, and what to do."),
        needed("code", NAME, "Stable: branch on this."),
    ];
}

const RUN_ID: Field = needed("run_id", NAME, "The run that this is about.");

/// Of one run among others: the same fields, and which run.
const fn of_run<const N: usize>(fields: &[Field]) -> [Field; N] {
    let mut all = [RUN_ID; N];
    let mut at = 1;
    while at < N {
        all[at] = fields[at - 1];
        at += 1;
    }
    all
}

pub const HEARTBEAT_OF_RUN: Shape =
    Shape { name: "HeartbeatOfRun", fields: &of_run::<{ HEARTBEAT.fields.len() + 1 }>(HEARTBEAT.fields) };
pub const EVENT_OF_RUN: Shape =
    Shape { name: "EventOfRun", fields: &of_run::<{ NEW_EVENT.fields.len() + 1 }>(NEW_EVENT.fields) };
pub const FINISH_OF_RUN: Shape =
    Shape { name: "FinishOfRun", fields: &of_run::<{ FINISH.fields.len() + 1 }>(FINISH.fields) };
