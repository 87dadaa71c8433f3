//! What is answered. The store makes the objects (`object()`); a test holds them to these shapes.

use waypost_kernel::lifecycle::Phase;
use waypost_kernel::text::MAX_PAGE;
use waypost_schema::{Kind, Shape, needed, optional};

use super::kinds::{COUNT, KEY, LONG, NAME, ROLE, TIME, by_name, list};
use super::requests::MOST_OF_A_BATCH;

macro_rules! shapes {
    ($($constant:ident $name:literal [$($field:expr),+ $(,)?];)+) => {
        $(pub const $constant: Shape = Shape::of_api($name, &[$($field),+]);)+
    };
}
pub(super) use shapes;

shapes! {
    RUN "Run" [
        needed("run_id", NAME, "The run's id."),
        needed("tenant", NAME, "The tenant that the run belongs to."),
        needed("lifecycle", NAME, "The state machine that the run moves along."),
        needed("version", COUNT, "The version of the lifecycle; a run keeps the one that it began with."),
        needed("status", NAME, "The state that the run is in, as its lifecycle names it."),
        needed("phase", Kind::Choice(&Phase::NAMES), "What the run's state means to the engine, whatever its lifecycle calls it."),
        optional("outcome", NAME, "How the run ended, whatever its lifecycle calls that."),
        needed("queue", NAME, "The queue that workers take the run from."),
        needed("priority", Kind::Integer(-32_768, 32_767), "Runs of a higher priority come first."),
        needed("attempt", COUNT, "How often the run was claimed."),
        needed("max_attempts", COUNT, "How often the run may be claimed."),
        needed("take_overs", COUNT, "How many expired leases were taken over since the last claim."),
        needed("seq", COUNT, "The number of the run's last event; its ETag."),
        optional("claimed_by", NAME, "The worker that holds the run."),
        needed("fence", COUNT, "A number that rises with every new holder."),
        optional("stale_after", TIME, "When the holder's lease ends."),
        needed("queued_at", TIME, "When the run came in."),
        optional("started_at", TIME, "When work on the run began."),
        optional("finished_at", TIME, "When the run was settled."),
        optional("schedule_at", TIME, "When the run may be taken at the earliest, as was asked for."),
        optional("available_at", TIME, "From when a worker may take the run."),
        optional("expires_at", TIME, "When the run's time to live ends."),
        optional("concurrency_key", KEY, "Runs with the same key are held one at a time."),
        optional("correlation_id", KEY, "The caller's own name for the run."),
        optional("idempotency_key", KEY, "The idempotency key that made the run."),
        optional("parent_run_id", NAME, "The run that this one belongs to."),
        optional("retry_of", NAME, "The run that this one repeats."),
        optional("playbook", KEY, "The playbook that says what is to be done."),
        optional("carried", Kind::Any, "A command that the run brings along: `embedded` of the request."),
        optional("error_code", NAME, "Why the run failed, as a code."),
        optional("error_msg", LONG, "Why the run failed, in words."),
        optional("reason", LONG, "Why the run is where it is, as a person or worker said."),
        optional("intent", NAME, "What people want of the worker that holds the run."),
        needed("cancel_requested", Kind::Boolean, "Whether a cancel was requested."),
        needed("input", Kind::Any, "What the run was started with."),
        needed("metadata", Kind::Object, "An object that is shown with the run."),
        needed("details", Kind::Object, "What the run's workers keep beside it."),
        needed("items", by_name(&by_name(&COUNT)), "The run's items, counted by kind and status."),
        needed("allowed", list(&NAME, 100), "Commands that a client or operator may give now.").also(&["command"]),
    ];
    EVENT "Event" [
        needed("event_id", NAME, "The event's id."),
        needed("position", COUNT, "The event's place among those of all runs; its id in the stream."),
        needed("run_id", NAME, "The run that the event is about."),
        needed("tenant", NAME, "The tenant that the run belongs to."),
        needed("lifecycle", NAME, "The run's lifecycle."),
        needed("seq", COUNT, "The event's number in its run: 1, 2, 3 and so on."),
        needed("at", TIME, "When it happened, by the database's clock."),
        needed("command", NAME, "What moved the run, or `note`."),
        optional("from", NAME, "The state before the event; null for the first."),
        needed("to", NAME, "The state after the event."),
        needed("actor", NAME, "What kind of caller asked for it: client, operator, worker or engine."),
        needed("by", LONG, "The name of who asked for it."),
        needed("level", NAME, "How important the event is: debug, info, warn or error."),
        needed("message", LONG, "What happened, for people."),
        needed("payload", Kind::Any, "What happened, for programs."),
    ];
    ITEM "Item" [
        needed("kind", NAME, "The item's kind: step, task, target, or what the lifecycle calls it."),
        needed("key", NAME, "The item's key, unique in its run and kind."),
        needed("name", NAME, "The item's name, for people."),
        needed("status", NAME, "The state that the item is in."),
        needed("attempts", COUNT, "How many retries were used, of `max_retries`."),
        needed("max_retries", COUNT, "How many retries the item may use."),
        needed("try_no", COUNT, "A number that rises after every known answer."),
        needed("progress", Kind::Integer(0, 100), "How far the item is, in percent."),
        optional("not_before", TIME, "When the item is tried next."),
        needed("discarded", Kind::Boolean, "Whether somebody gave the item up."),
        needed("role", ROLE, "What the item's failure means to the run: it ends its course (`step`), or not (`optional`); a `cleanup` begins whatever failed."),
        optional("error_code", NAME, "Why the item failed, as a code."),
        optional("error_msg", LONG, "Why the item failed, in words."),
        optional("started_at", TIME, "When work on the item began."),
        optional("finished_at", TIME, "When the item was settled."),
        optional("output", Kind::Any, "What the item gave."),
        needed("details", Kind::Object, "An object that is kept beside the item."),
    ];
    RUNS "Runs" [
        needed("runs", list(&Kind::Of(&RUN), MAX_PAGE), "Runs, newest first."),
        optional("next_cursor", NAME, "What to ask `cursor` for the next page; null at the end."),
    ];
    EVENTS "Events" [needed("events", list(&Kind::Of(&EVENT), MAX_PAGE), "The run's events, in order.")];
    FEED "Feed" [
        needed("events", list(&Kind::Of(&EVENT), MAX_PAGE), "Events in the order of their commits."),
        needed("next_after", COUNT, "What to ask `after` next."),
    ];
    LAST "Last" [needed("last_position", COUNT, "Whoever reads from here on misses nothing that is committed from now on.")];
    ITEMS "Items" [needed("items", list(&Kind::Of(&ITEM), 1_000_000), "Items in the order in which they were added.")];
    MADE "Made" [
        needed("run_id", NAME, "The run's id."),
        needed("status", NAME, "The state that the run is in."),
        needed("replayed", Kind::Boolean, "Whether the idempotency key was known: then this is the run that it made."),
        optional("run", Kind::Any, "The run object, with `Waypost-Detail: engine`."),
    ];
    NOT_MADE "NotMade" [needed("error", Kind::Of(&PROBLEM), "Why no run was made.")];
    ALL_MADE "AllMade" [needed("runs", list(&Kind::Either(&[&MADE, &NOT_MADE]), MOST_OF_A_BATCH), "Answers in the order of the request.")];
    ALL_RENEWED "AllRenewed" [needed("leases", list(&Kind::Either(&[&RENEWED, &NOT_MADE]), MOST_OF_A_BATCH), "Answers in the order of the request.")];
    ALL_NOTED "AllNoted" [needed("events", list(&Kind::Either(&[&NOTED, &NOT_MADE]), MOST_OF_A_BATCH), "Answers in the order of the request.")];
    ENDED_RUN "EndedRun" [needed("run", Kind::Of(&RUN), "The run after its end.")];
    ALL_ENDED "AllEnded" [needed("runs", list(&Kind::Either(&[&ENDED_RUN, &NOT_MADE]), MOST_OF_A_BATCH), "Answers in the order of the request.")];
    LEASE "Lease" [
        needed("token", NAME, "Proves who holds the run: every write needs it.").also(&["lease_token"]),
        needed("fence", COUNT, "A number for outside systems that can refuse an older one."),
        needed("expires_at", TIME, "When the lease ends, unless a heartbeat extends it."),
        needed("now", TIME, "The database's clock, to count from."),
    ];
    CLAIMED "Claimed" [
        needed("run", Kind::Of(&RUN), "The run to work on."),
        needed("lease", Kind::Of(&LEASE), "The right to work on the run."),
    ];
    CLAIMS "Claims" [needed("claims", list(&Kind::Of(&CLAIMED), 100), "Runs that were taken; none if nothing is due.")];
    RENEWED "Renewed" [
        needed("expires_at", TIME, "The lease's new end."),
        needed("now", TIME, "The database's clock, to count from."),
        needed("cancel_requested", Kind::Boolean, "Whether to stop, and finish as cancelled."),
        optional("intent", Kind::Choice(&["cancel", "pause", "fail"]), "What people want of the holder."),
        needed("graceful", Kind::Boolean, "Whether the cancel may wait for the step that is under way."),
    ];
    NOTED "Noted" [
        needed("event_id", NAME, "The id of this event, or of the first of its kind."),
        needed("seq", COUNT, "The event's number in its run."),
        needed("repeated", Kind::Boolean, "Whether the event was known already."),
    ];
    PAUSE "Pause" [
        needed("by", NAME, "Who asked for the pause."),
        needed("reason", LONG, "Why it is paused."),
        optional("at", TIME, "Since when it is paused."),
    ];
    QUEUE "Queue" [
        needed("queue", NAME, "The queue's name."),
        needed("ready", COUNT, "Runs that wait and are due."),
        needed("scheduled", COUNT, "Runs that wait for their time."),
        needed("held", COUNT, "Runs that are being worked."),
        optional("oldest_ready_at", TIME, "Since when the oldest waiting run is due."),
        optional("at_most", COUNT, "How many runs may be held at once."),
        optional("paused", Kind::Of(&PAUSE), "Why workers take nothing from the queue; null if they do."),
    ];
    QUEUES "Queues" [needed("queues", list(&Kind::Of(&QUEUE), 100_000), "Queues by name.")];
    WORKER "Worker" [
        needed("worker", NAME, "The worker's name."),
        needed("held", COUNT, "How many runs the worker holds."),
        optional("stale_after", TIME, "When the first of the worker's leases ends."),
        optional("seen_ms_ago", COUNT, "How long ago the worker asked this server for work."),
        optional("free", COUNT, "How many runs the worker asked for then."),
        needed("queues", list(&NAME, 100), "Queues that the worker asked for; empty if it asked another server."),
    ];
    WORKERS "Workers" [needed("workers", list(&Kind::Of(&WORKER), 100_000), "Who holds runs, or asked for some within 5 minutes.")];
    ENDED "Ended" [
        needed("lifecycle", NAME, "The lifecycle of these runs."),
        needed("status", NAME, "The state that these runs ended in."),
        optional("outcome", NAME, "How that state is counted."),
        needed("in_24h", COUNT, "How many ended within 24 hours."),
        needed("in_7d", COUNT, "How many ended within 7 days."),
        optional("mean_duration_ms", COUNT, "Their mean duration from start to end, within 7 days."),
    ];
    STATS "Stats" [
        needed("queue_depth", COUNT, "Runs that wait and are due, in all queues."),
        optional("worker_utilisation", Kind::Any, "Slots in use, of those known; from 0 to 1."),
        optional("success_rate_24h", Kind::Any, "Runs that succeeded, of those that ended by themselves; from 0 to 1."),
        needed("ended", list(&Kind::Of(&ENDED), 10_000), "What settled within 7 days, of the newest 200,000 runs."),
        needed("queues", list(&Kind::Of(&QUEUE), 100_000), "Queues by name."),
    ];
    LIFECYCLE "Lifecycle" [
        needed("name", NAME, "The lifecycle's name."),
        needed("version", COUNT, "The lifecycle's version."),
        needed("kind", NAME, "Whether it is one of runs or of their items: run or item."),
        optional("ids", NAME, "What ids of its runs look like."),
        needed("initial", list(&NAME, 100), "States that a run may start in."),
        needed("items", list(&NAME, 100), "Kinds of items that its runs have."),
        optional("stops_run", Kind::Boolean, "Of a kind of items: whether one that fails ends its run's course."),
        needed("codes", Kind::Object, "Failure codes of its commands."),
        needed("operations", Kind::Object, "From which states operations start."),
        optional("decisions", Kind::Object, "The members of a run's details in which decisions are asked for and given."),
        needed("cancelled_metadata", Kind::Object, "What the metadata of a run say that the engine cancels because its lease ran out."),
        needed("states", list(&Kind::Object, 1_000), "The states, each with its phase."),
        needed("transitions", list(&Kind::Object, 10_000), "The moves: from, command, to, by, guards."),
        optional("source", LONG, "The lifecycle as a file, with `source=true`."),
    ];
    LIFECYCLES "Lifecycles" [needed("lifecycles", list(&Kind::Of(&LIFECYCLE), 10_000), "Every version of each lifecycle.")];
    PLAYBOOK "Playbook" [
        needed("name", NAME, "The playbook's name."),
        needed("lifecycle", NAME, "The lifecycle of its runs."),
        needed("hash", NAME, "The hash of its content, which runs pin."),
        optional("description", LONG, "What the playbook is for, for people."),
        needed("inputs", Kind::Any, "The inputs that the playbook takes."),
    ];
    PLAYBOOKS "Playbooks" [needed("playbooks", list(&Kind::Of(&PLAYBOOK), 100_000), "Playbooks by name.")];
    TOKEN_ROW "Token" [
        needed("id", NAME, "The token's public half.").also(&["token_id"]),
        needed("name", NAME, "Whom the log names when the token is used."),
        needed("role", NAME, "What the token may do."),
        needed("tenant", NAME, "The tenant whose runs the token sees."),
        needed("created_at", TIME, "When the token was made."),
        needed("created_by", LONG, "Who made the token."),
        optional("revoked_at", TIME, "When the token was revoked."),
        optional("revoked_by", LONG, "Who revoked the token."),
    ];
    TOKEN_MADE "TokenMade" [
        needed("token", NAME, "The whole token: keep it, it is not shown again."),
        needed("row", Kind::Of(&TOKEN_ROW), "What is stored of the token."),
    ];
    TOKENS "Tokens" [needed("tokens", list(&Kind::Of(&TOKEN_ROW), 100_000), "Tokens, oldest first.")];
    AUDIT "Audit" [
        needed("number", COUNT, "The entry's number, which only rises."),
        needed("at", TIME, "When it was done, by the database's clock."),
        needed("tenant", NAME, "The tenant that it was done in."),
        needed("by", LONG, "Who did it."),
        needed("action", NAME, "What was done."),
        needed("subject", LONG, "The run, queue, schedule or token that it was done to."),
        optional("reason", LONG, "Why it was done, as was said."),
    ];
    AUDITS "Audits" [needed("audit", list(&Kind::Of(&AUDIT), MAX_PAGE), "Entries, oldest first.")];
    CLOCK "Clock" [needed("now", TIME, "The database's clock, the only one that counts.")];
    HEALTH "Health" [
        needed("status", Kind::Choice(&["ok", "unavailable", "stopping"]), "Whether requests are answered."),
        optional("detail", LONG, "Why requests are not answered."),
    ];
    PROBLEM "Problem" [
        needed("type", NAME, "about:blank: the code says it."),
        needed("title", NAME, "The status in words."),
        needed("status", Kind::Integer(400, 599), "The HTTP status."),
        needed("detail", LONG, "What is wrong, and what to do."),
        needed("code", NAME, "Stable: branch on this."),
    ];
}
