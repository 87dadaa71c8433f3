//! What may be asked: bodies and queries, each a shape and the struct that it becomes.

use serde_json::{Map, Value};
use waypost_kernel::item::Role;
use waypost_kernel::request::Level;
use waypost_kernel::{Actor, Time};
use waypost_schema::{Field, FromNode, Kind, Node, Shape, Takes, joined, needed, requests};
use waypost_store::{MAX_MANUAL, MAX_TOKEN_SPAN, ROLES};
use waypost_worker::agents::TRIGGERS;

use super::kinds::{
    COUNT, KEY, LEASE, LONG, LeaseToken, Limit, MS, NAME, PAGE, REASON, ROLE, TIME, TOKEN, WAIT, list,
};

pub const MOST_OF_A_BATCH: usize = 1_000;

const TOKEN_TEXT: &str = "The lease's token, as the claim gave it.";
const LIMIT_TEXT: &str = "How many at most; 50 if left out.";
const BY_TEXT: &str = "Whom the request is made for.";
const WORKER_TEXT: &str = "The worker's name.";
const AUDIT_TEXT: &str = "Kept in the audit log.";
const START_TEXT: &str = "Whether the work begins with the claim, where the lifecycle has a state for runs that were claimed and not \
     begun. Without it the first event begins it.";
const EACH_TEXT: &str = "Entries, each of which is answered by itself.";
const SOURCE_TEXT: &str = "With each lifecycle as a file.";

requests! {
    NEW_ITEM "NewItem" NewItemBody {
        needed kind: String = NAME, "One of the lifecycle's kinds of items.";
        needed key: String = NAME, "The item's key, unique in its run and kind.";
        optional name: Option<String> = NAME, "The item's name for people; the key if left out.";
        optional status: Option<String> = NAME, "The item's first state; the kind's first if left out.";
        optional max_retries: Option<u32> = Kind::Integer(0, 1_000), "How often a failed try is repeated; 3 if left out.";
        optional reruns: bool = Kind::Boolean, "Whether the item runs again on resume.";
        optional role: Role = ROLE, "What the item's failure means to the run; `step` if left out.";
        optional details: Map<String, Value> = Kind::Object, "An object that is kept beside the item.";
        optional copied: bool = Kind::Boolean, "Whether the item is the copy of the one of this kind and key in the run that `retry_of` names, with its state and output: that one is done or was skipped, and its run has ended.";
    }
    NEW_RUN "NewRun" NewRunBody {
        optional lifecycle: Option<String> = NAME, "The name of a lifecycle that the server knows; of a run with a playbook its own, and so no other.";
        optional version: Option<u32> = Kind::Integer(1, u32::MAX as i64), "The lifecycle's version; the latest if left out.";
        optional status: Option<String> = NAME, "One of the lifecycle's initial states; the first if left out.";
        optional title: Option<String> = KEY, "What the run is, for people.";
        optional playbook: Option<String> = KEY, "What is to be done: a playbook that the server or a worker has, by its name or as `NAME@HASH`. Lifecycle, queue, priority, key, inputs and steps are the playbook's own where they are left out.";
        optional unknown_playbook: bool = Kind::Boolean, "Whether a name that nobody has yet is taken: the run waits for a worker that has it.";
        optional queue: Option<String> = NAME, "The queue that workers take the run from; the playbook's, or `default`, if left out.";
        optional input: Option<Value> = Kind::Any, "Handed to the handler; at most 1 MiB.";
        optional metadata: Map<String, Value> = Kind::Object, "Shown with the run; at most 1 MiB.";
        optional details: Map<String, Value> = Kind::Object, "Kept beside the run; no part of what the idempotency key stands for.";
        optional priority: Option<i16> = Kind::Integer(-32_768, 32_767), "Runs of a higher priority come first; 0 if left out.";
        optional schedule_at: Option<Time> = TIME, "When the run may be taken at the earliest.";
        optional ttl_ms: Option<i64> = MS, "The run ends by itself if nobody takes it within this time.";
        optional concurrency_key: Option<String> = KEY, "Runs with the same key are held one at a time.";
        optional correlation_id: Option<String> = KEY, "The caller's own name for the run.";
        optional idempotency_key: Option<String> = KEY, "As the header `Idempotency-Key`; if both are there, they are the same.";
        optional parent_run_id: Option<String> = NAME, "The run that this one belongs to.";
        optional retry_of: Option<String> = NAME, "The run that this one repeats. The targets of a bulk change are not gathered by themselves then: `replay` does that.";
        optional max_attempts: Option<u32> = Kind::Integer(1, 1_000), "How often the run may be claimed; 1 if left out.";
        optional reentrant: bool = Kind::Boolean, "Whether a stale execution may be taken up again.";
        optional items: Vec<NewItemBody> = list(&Kind::Of(&NEW_ITEM), 100_000), "Steps or targets that are known already. Beside a playbook that is known they are its own steps, or copies of them.";
        optional embedded: Option<Value> = Kind::Object, "A command that the run brings along: `command`, its words; `directory`, `env`, `timeout_ms` and `retries` of it. Needs the role admin.";
        optional carried: Option<Value> = Kind::Object, "Deprecated: the old name of `embedded`.";
        optional asked: Option<String> = KEY, "What the idempotency key stands for, in the caller's own words, if that is not this body: a client that fills in by itself what a playbook says tells here what it was asked for.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    KNOWN_RUN "KnownRun" KnownRunBody {
        needed idempotency_key: String = KEY, "The key that may have made a run.";
        needed asked: String = KEY, "As `asked` of the request that made it.";
    }
    REPLAY "Replay" ReplayBody {
        optional from: Option<String> = NAME, "The step to go on from, by its key or its name. It and what waits for it run again; what else is done stays so, with its output.";
        optional failed: bool = Kind::Boolean, "Whether to do again only what did not complete, and what a cleanup undid.";
        optional input: Option<Map<String, Value>> = Kind::Object, "Members of the input that are to be others; only without `from` and `failed`.";
        optional idempotency_key: Option<String> = KEY, "As the header `Idempotency-Key`; if both are there, they are the same.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    OFFERED "OfferedPlaybook" OfferedBody {
        needed name: String = NAME, "The playbook's name; of a handler that is compiled into the worker, the handler's.";
        optional file: Option<String> = Kind::Text(4_096), "Where the playbook is on the worker's machine.";
        optional text: Option<String> = Kind::Text(1_048_576), "The playbook: TOML. Left out of a handler.";
    }
    OFFERING "Offering" OfferingBody {
        needed playbooks: Vec<OfferedBody> = list(&Kind::Of(&OFFERED), MOST_OF_A_BATCH), "What the worker has.";
        needed by: String = NAME, WORKER_TEXT;
    }
    NEW_RUNS "NewRuns" NewRunsBody {
        needed runs: Vec<NewRunBody> = list(&Kind::Of(&NEW_RUN), MOST_OF_A_BATCH), "Runs to start; each is answered by itself.";
    }
    COMMAND "Command" CommandBody {
        optional reason: Option<String> = REASON, "Kept in the log; at most 1,024 characters.";
        optional force: bool = Kind::Boolean, "Whether to go on where a guard asks for force.";
        optional resolutions: Map<String, Value> = Kind::Object, "What was decided, by host or whatever else blocked the run. Decisions about some of them are kept, and the run goes on waiting for the others.";
        optional graceful: bool = Kind::Boolean, "Whether the step that is under way is finished first.";
        optional targets: Option<Vec<String>> = list(&NAME, 100_000), "Keys of the items that the command is about.";
        optional actor "as": Option<Actor> = Kind::Choice(&["client", "operator"]), "As whom to ask; operator if left out, a client may do less.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    CLAIMING_COMMAND "ClaimingCommand" ClaimingCommandBody {
        needed command: CommandBody = Kind::Of(&COMMAND), "What the command is given with.";
        needed worker: String = NAME, "A name that is never used again.";
        optional lease_ms: Option<i64> = LEASE, "How long the lease lasts without a heartbeat.";
        optional start: bool = Kind::Boolean, START_TEXT;
    }
    CLAIM "Claim" ClaimBody {
        needed worker: String = NAME, "A name that is never used again: host, process and something random.";
        optional queues: Option<Vec<String>> = list(&NAME, 100), "Queues to take runs from; `default` if left out.";
        optional lifecycles: Vec<String> = list(&NAME, 100), "Lifecycles whose runs are taken; any if left out.";
        optional playbooks: Option<Vec<String>> = list(&NAME, 10_000), "Playbooks that this worker has, as runs name them; runs of others are left alone.";
        optional embedded: Option<bool> = Kind::Boolean, "Whether this worker executes what runs bring along. Without this and `playbooks` any run may come.";
        optional carried: Option<bool> = Kind::Boolean, "Deprecated: the old name of `embedded`.";
        optional limit: Option<usize> = Kind::Integer(1, 100), "How many runs at most; 1 if left out.";
        optional max_bytes: Option<usize> = Kind::Integer(1, 1 << 30), "About how much the runs may take in memory; the first one always comes. A server has a bound of its own.";
        optional wait_ms: Option<i64> = WAIT, "How long to wait for work.";
        optional lease_ms: Option<i64> = LEASE, "How long a lease lasts without a heartbeat.";
        optional start: bool = Kind::Boolean, START_TEXT;
        optional idempotency_key: Option<String> = KEY, "A claim that is sent again with the same key, because its answer was lost, gives the same runs and tokens while their leases last.";
    }
    NEW_CLAIMED_RUN "NewClaimedRun" NewClaimedRunBody {
        needed run: NewRunBody = Kind::Of(&NEW_RUN), "The run to start.";
        needed worker: String = NAME, "A name that is never used again.";
        optional lease_ms: Option<i64> = LEASE, "How long the lease lasts without a heartbeat.";
        optional start: bool = Kind::Boolean, START_TEXT;
    }
    CLAIM_ONE "ClaimOne" ClaimOneBody {
        needed worker: String = NAME, "A name that is never used again.";
        optional lease_ms: Option<i64> = LEASE, "How long the lease lasts without a heartbeat.";
        optional start: bool = Kind::Boolean, START_TEXT;
    }
    WORKER_REPORT "WorkerReport" WorkerBody {
        needed name: String = NAME, "The worker's name, as its claims have it.";
        optional queues: Vec<String> = list(&NAME, 1_000), "Queues that the worker takes runs from.";
        optional lifecycles: Vec<String> = list(&NAME, 1_000), "Lifecycles whose runs are taken; any if left out.";
        optional playbooks: Option<Vec<String>> = list(&KEY, 20_000), "Playbooks that the worker has, as runs name them.";
        optional embedded: Option<bool> = Kind::Boolean, "Whether the worker executes what runs bring along. Without this and `playbooks` it takes any run.";
        optional only: Option<String> = NAME, "The one run that the worker is for, if it takes no other.";
        optional slots: Option<u64> = Kind::Integer(1, 1_000_000), "How many runs the worker works at once; 1 if left out.";
        optional version: Option<String> = NAME, "The version of the worker's program.";
    }
    HEARTBEAT "Heartbeat" LeaseBody {
        needed lease_token: LeaseToken = TOKEN, TOKEN_TEXT;
    }
    RELEASE "Release" ReleaseBody {
        needed lease_token: LeaseToken = TOKEN, TOKEN_TEXT;
        optional until: Option<Time> = TIME, "Nobody takes the run before.";
        optional reason: Option<String> = Kind::Choice(&["window", "retry", "timeout"]), "What the run waits for; `retry` if left out, `timeout` if its time is over before.";
    }
    NEW_EVENT "NewEvent" NewEventBody {
        needed lease_token: LeaseToken = TOKEN, TOKEN_TEXT;
        optional level: Option<Level> = Kind::Choice(&["debug", "info", "warn", "error"]), "How important the event is; info if left out.";
        needed message: String = LONG, "What happened, for people. What is too long is cut, never refused.";
        optional payload: Option<Value> = Kind::Any, "What happened, for programs.";
        optional key: Option<String> = KEY, "A second event with the same key is the first one.";
        optional once: Option<String> = Kind::Choice(&["window", "never"]), "How a repeat is known without a key: `window` (same words within 10 s; the default) or `never`.";
        optional metadata: Map<String, Value> = Kind::Object, "Merged into the run's metadata.";
        optional details: Map<String, Value> = Kind::Object, "Merged into the run's details.";
        optional by: Option<String> = LONG, WORKER_TEXT;
    }
    ITEM_WRITE "ItemWrite" ItemWriteBody {
        needed kind: String = NAME, "One of the lifecycle's kinds of items.";
        optional name: Option<String> = NAME, "The item's name for people; names the item where there is no key.";
        optional key: Option<String> = NAME, "The item's key, unique in its run and kind; the name if left out.";
        optional max_retries: Option<u32> = Kind::Integer(0, 1_000), "Of a new item: how often a failed try is repeated; 3 if left out.";
        optional reruns: bool = Kind::Boolean, "Of a new item: whether it runs again on resume.";
        optional role: Role = ROLE, "Of a new item: what its failure means to the run; `step` if left out.";
        needed status: String = NAME, "The state that the item should be in.";
        optional command: Option<String> = NAME, "Which command leads to that state, where several do.";
        optional progress: Option<u8> = Kind::Integer(0, 100), "How far the item is, in percent.";
        optional output: Option<Value> = Kind::Any, "What the item gave.";
        optional details: Map<String, Value> = Kind::Object, "Merged into the item's details.";
        optional error_code: Option<String> = LONG, "Why the item failed, as a code.";
        optional error_msg: Option<String> = LONG, "Why the item failed, in words.";
        optional retry_in_ms: Option<i64> = MS, "When the item is tried next.";
        optional answered: bool = Kind::Boolean, "Whether the outside gave an answer, whatever it was.";
        optional try_no: Option<u64> = COUNT, "Which try this is about.";
    }
    ITEM_WRITES "ItemWrites" ItemWritesBody {
        needed lease_token: LeaseToken = TOKEN, TOKEN_TEXT;
        needed items: Vec<ItemWriteBody> = list(&Kind::Of(&ITEM_WRITE), 10_000), "Items to add or move: all, or none.";
        optional by: Option<String> = LONG, WORKER_TEXT;
    }
    FINISH "Finish" FinishBody {
        needed lease_token: LeaseToken = TOKEN, TOKEN_TEXT;
        needed status: String = NAME, "The state to end in, as the lifecycle names it.";
        optional error_code: Option<String> = LONG, "Why the run failed, as a code.";
        optional error_msg: Option<String> = LONG, "Why the run failed, in words.";
        optional reason: Option<String> = LONG, "Why the run pauses or stops.";
        optional retry_in_ms: Option<i64> = MS, "When a state that can be retried should be.";
        optional goes_on_at: Option<Time> = TIME, "Of a run that parks: when it goes on by itself if no person has let it.";
        optional metadata: Map<String, Value> = Kind::Object, "Merged into the run's metadata.";
        optional details: Map<String, Value> = Kind::Object, "Merged into the run's details.";
        optional items: Vec<ItemWriteBody> = list(&Kind::Of(&ITEM_WRITE), 10_000), "The items' last moves, written with the end: all, or nothing.";
        optional by: Option<String> = LONG, WORKER_TEXT;
    }
    HEARTBEATS "Heartbeats" HeartbeatsBody {
        needed leases: Vec<OfRun<LeaseBody>> = list(&Kind::Of(&HEARTBEAT_OF_RUN), MOST_OF_A_BATCH), EACH_TEXT;
    }
    EVENTS_OF_RUNS "EventsOfRuns" EventsOfRunsBody {
        needed events: Vec<OfRun<NewEventBody>> = list(&Kind::Of(&EVENT_OF_RUN), MOST_OF_A_BATCH), EACH_TEXT;
    }
    FINISHES "Finishes" FinishesBody {
        needed finishes: Vec<OfRun<FinishBody>> = list(&Kind::Of(&FINISH_OF_RUN), MOST_OF_A_BATCH), EACH_TEXT;
    }
    PAUSING "Pausing" PausingBody {
        optional reason: Option<String> = REASON, "Kept with what is paused; at most 1,024 characters.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    SILENCE "Silence" SilenceBody {
        needed lasts_ms: i64 = Kind::Integer(1, 30 * 86_400_000), "For how long nobody is told.";
        optional subject: Option<String> = NAME, "The destination that it is about; all of the alert's if left out.";
        optional reason: Option<String> = REASON, "Kept with the alert and in the audit log; at most 1,024 characters.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    UNSILENCE "Unsilence" UnsilenceBody {
        optional subject: Option<String> = NAME, "The destination that it is about.";
        optional reason: Option<String> = REASON, "Kept in the audit log; at most 1,024 characters.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    ALERT_TEST "AlertTest" AlertTestBody {
        optional sink: Option<String> = NAME, "The sink to tell; all of the server's if left out.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    AGENT_RUN "AgentRun" AgentRunBody {
        needed agent_slug: String = NAME, "The agent.";
        optional trigger: Option<String> = Kind::Choice(&TRIGGERS), "Who or what asks; `manual` if left out.";
        optional input: Option<Value> = Kind::Object, "Handed to the agent's playbook.";
        optional correlation_id "correlationId": Option<String> = Kind::Text(200), "The caller's own name for the run: the same again is the same run.";
    }
    AGENT_DEFINITION "AgentDefinition" AgentBody {
        optional playbook: Option<String> = NAME, "What its runs do: a playbook that the server or a worker has, by its name; the four default steps if left out.";
        optional concurrency: Option<u32> = Kind::Integer(1, 1_000), "Runs at once; 1 if left out.";
        optional enabled: Option<bool> = Kind::Boolean, "Whether it takes runs; true if left out.";
        optional reason: Option<String> = REASON, AUDIT_TEXT;
        optional by: Option<String> = NAME, BY_TEXT;
    }
    LIMITING "Limiting" LimitingBody {
        optional at_most: Option<u32> = Kind::Integer(0, u32::MAX as i64), "How many runs may be held at once; null removes the limit.";
        optional reason: Option<String> = REASON, AUDIT_TEXT;
        optional by: Option<String> = NAME, BY_TEXT;
    }
    NEW_LIFECYCLE "NewLifecycle" NewLifecycleBody {
        needed source: String = Kind::Text(1_048_576), "A lifecycle file: TOML.";
    }
    NEW_TOKEN "NewToken" NewTokenBody {
        needed name: String = NAME, "Whom the log names when this token is used.";
        needed role: String = Kind::Choice(&ROLES), "What the token may do.";
        optional tenant: Option<String> = NAME, "The tenant whose runs the token sees; the caller's own if left out, `*` is all of them.";
        optional expires_in_ms: Option<i64> = Kind::Integer(1, MAX_TOKEN_SPAN.ms()), "The token counts no longer than this from now on; until it is revoked if left out.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    REVOKING "Revoking" RevokingBody {
        optional reason: Option<String> = REASON, AUDIT_TEXT;
        optional by: Option<String> = NAME, BY_TEXT;
    }
    APPLYING "Applying" ApplyingBody {
        needed definition: Map<String, Value> = Kind::Object, "The keys of a `[[schedule]]`, as in the reference.";
        optional folder: Option<String> = Kind::Text(4_096), "Where the schedule's commands run; `/` if left out.";
        optional unknown_playbook: bool = Kind::Boolean, "Whether `run.playbook` may name one that nobody has yet.";
        optional reason: Option<String> = REASON, AUDIT_TEXT;
        optional by: Option<String> = NAME, BY_TEXT;
    }
    TRIGGER "Trigger" TriggerBody {
        optional scopes: Vec<String> = list(&NAME, MAX_MANUAL), "Scopes that it is about; all if left out.";
        optional reason: Option<String> = REASON, AUDIT_TEXT;
        optional by: Option<String> = NAME, BY_TEXT;
    }
    BACKFILL "Backfill" BackfillBody {
        optional from: Option<Time> = TIME, "The first plan time of a range.";
        optional to: Option<Time> = TIME, "The last plan time of a range; not ahead of now.";
        optional plan_times: Option<Vec<Time>> = list(&TIME, MAX_MANUAL), "Plan times, instead of a range.";
        optional again: bool = Kind::Boolean, "Whether plans that failed for good are executed once more.";
        optional scopes: Vec<String> = list(&NAME, MAX_MANUAL), "Scopes that it is about; all if left out.";
        optional reason: Option<String> = REASON, AUDIT_TEXT;
        optional by: Option<String> = NAME, BY_TEXT;
    }
}

/// The same under its name and under the one that it had before.
macro_rules! requiring_cleanup {
    ($($constant:ident $name:literal $body:ident $required:ident;)+) => {
        requests! {$(
            $constant $name $body {
                needed lease_token: LeaseToken = TOKEN, TOKEN_TEXT;
                needed $required: bool = Kind::Boolean, "Whether the run requires cleanup from now on.";
                optional failing_status: Option<String> = NAME, "The state that the run goes to once the cleanup is done.";
                optional error_code: Option<String> = LONG, "Why the run failed, as a code.";
                optional error_msg: Option<String> = LONG, "Why the run failed, in words.";
                optional by: Option<String> = LONG, WORKER_TEXT;
            }
        )+}
    };
}

requiring_cleanup! {
    REQUIRE_CLEANUP "RequireCleanup" RequireCleanupBody required;
    OWE "Owe" OweBody owes;
}

pub const NEEDS: Kind = Kind::Choice(&["worker", "person"]);

/// The filter that a query or a body asks for, of the caller's tenant.
macro_rules! filter_of {
    ($call:ident, $asked:ident) => {
        waypost_store::Filter {
            tenant: $call.caller.tenant.clone(),
            lifecycle: $asked.lifecycle,
            status: $asked.status,
            queue: $asked.queue,
            playbook: $asked.playbook,
            needs: $asked.needs.as_deref().map(|needs| match needs {
                "worker" => waypost_store::Needs::Worker,
                _ => waypost_store::Needs::Person,
            }),
            text: $asked.q,
            since: $asked.since,
            until: $asked.until,
            ..waypost_store::Filter::default()
        }
    };
}
pub(crate) use filter_of;

requests! {
    RUNS_QUERY "RunsQuery" RunsQuery {
        optional lifecycle: Option<String> = NAME, "Only runs of this lifecycle.";
        optional status: Option<String> = NAME, "Only runs in this state.";
        optional queue: Option<String> = NAME, "Only runs of this queue.";
        optional parent_run_id: Option<String> = NAME, "Only children of this run: its operations, for example.";
        optional playbook: Option<String> = NAME, "Only runs of the playbook of this name, whatever its content was.";
        optional since: Option<Time> = TIME, "Only runs that came in at this time or later.";
        optional until: Option<Time> = TIME, "Only runs that came in before this.";
        optional needs: Option<String> = NEEDS, "Only runs that are held and that nobody works any more (`worker`), or that wait for a person to decide (`person`).";
        optional q: Option<String> = NAME, "Only runs with this in their id, correlation id or metadata.";
        optional limit: Limit = PAGE, LIMIT_TEXT;
        optional cursor: Option<String> = NAME, "From `next_cursor` of the page before.";
        optional include: Option<String> = Kind::Text(100), "What else to show of each run, with commas: input, metadata, details, carried. A page has at most 4 MiB.";
    }
    WORKERS_QUERY "WorkersQuery" WorkersQuery {
        optional limit: Option<Limit> = PAGE, "How many at most; 500 if left out.";
        optional cursor: Option<String> = Kind::Text(1_024), "From `next_cursor` of the page before.";
        optional by_tenant: bool = Kind::Boolean, "Only who holds runs, with a row for each tenant whose runs one holds.";
    }
    KEYS_QUERY "KeysQuery" KeysQuery {
        optional limit: Limit = PAGE, LIMIT_TEXT;
        optional cursor: Option<String> = Kind::Text(1_024), "From `next_cursor` of the page before.";
    }
    EVENTS_QUERY "EventsQuery" EventsQuery {
        optional after: Option<u64> = COUNT, "Only events after this seq.";
        optional wait_ms: Option<i64> = WAIT, "If there is none yet, how long to wait for one.";
        optional limit: Limit = PAGE, LIMIT_TEXT;
    }
    ITEMS_QUERY "ItemsQuery" ItemsQuery {
        optional kind: Option<String> = NAME, "Only items of this kind.";
        optional key: Option<String> = NAME, "Only items with this key.";
        optional status: Option<String> = NAME, "Only items in this state.";
        optional error_code: Option<String> = NAME, "Only items that failed with this code.";
        optional limit: Option<Limit> = PAGE, "How many at most; 500 if left out.";
        optional cursor: Option<String> = Kind::Text(4_096), "From `next_cursor` of the page before.";
    }
    CHANGES_QUERY "ChangesQuery" ChangesQuery {
        optional wait_ms: Option<i64> = WAIT, "How long to wait at most; 1000 if left out.";
    }
    FEED_QUERY "FeedQuery" FeedQuery {
        optional after: Option<u64> = COUNT, "Only events after this position.";
        optional limit: Limit = PAGE, LIMIT_TEXT;
    }
    STREAM_QUERY "StreamQuery" StreamQuery {
        optional run: Option<String> = NAME, "Only events of this run.";
        optional lifecycle: Option<String> = NAME, "Only events of runs of this lifecycle.";
        optional topics: Option<String> = Kind::Text(500), "Only these topics, with commas: run.status.changed, run.items.changed, run.noted.";
        optional after: Option<u64> = COUNT, "From this position on; from now on if left out.";
        optional last_event_id: Option<u64> = COUNT, "As the header `Last-Event-ID`, for the first time.";
    }
    LIFECYCLES_QUERY "LifecyclesQuery" LifecyclesQuery {
        optional name: Option<String> = NAME, "Only versions of this lifecycle.";
        optional source: bool = Kind::Boolean, SOURCE_TEXT;
    }
    PLAYBOOKS_QUERY "PlaybooksQuery" PlaybooksQuery {
        optional name: Option<String> = NAME, "Only versions of this playbook.";
        optional hash: Option<String> = NAME, "Only versions whose hash begins so.";
        optional versions: bool = Kind::Boolean, "Older versions too.";
        optional text: bool = Kind::Boolean, "With the text of each.";
    }
    LIFECYCLE_QUERY "LifecycleQuery" LifecycleQuery {
        optional source: bool = Kind::Boolean, SOURCE_TEXT;
    }
    AUDIT_QUERY "AuditQuery" AuditQuery {
        optional after: Option<u64> = COUNT, "Only entries after this number.";
        optional latest: bool = Kind::Boolean, "The newest first, in place of the oldest; `after` does not count then.";
        optional before: Option<u64> = COUNT, "With `latest`: only entries before this number.";
        optional limit: Limit = PAGE, LIMIT_TEXT;
    }
    REMOVING_QUERY "RemovingQuery" RemovingQuery {
        optional reason: Option<String> = REASON, AUDIT_TEXT;
        optional by: Option<String> = NAME, BY_TEXT;
    }
    SCHEDULES_QUERY "SchedulesQuery" SchedulesQuery {
        optional limit: Limit = PAGE, LIMIT_TEXT;
        optional cursor: Option<String> = Kind::Text(1_024), "From `next_cursor` of the page before.";
    }
    NEXT_QUERY "NextQuery" NextQuery {
        optional count: Option<usize> = Kind::Integer(1, 1_000), "How many plan times; 5 if left out.";
    }
    HISTORY_QUERY "HistoryQuery" HistoryQuery {
        optional scope_kind: Option<String> = NAME, "Only executions of this kind of scope.";
        optional scope_id: Option<String> = NAME, "Only executions of this scope.";
        optional status: Option<String> = NAME, "Only executions whose run is in this state.";
        optional limit: Limit = PAGE, LIMIT_TEXT;
        optional cursor: Option<String> = Kind::Text(4_096), "From `next_cursor` of the page before.";
    }
    EXECUTIONS_QUERY "ExecutionsQuery" ExecutionsQuery {
        optional schedule: Option<String> = NAME, "Only executions of this schedule.";
        optional scope_kind: Option<String> = NAME, "Only executions of this kind of scope.";
        optional scope_id: Option<String> = NAME, "Only executions of this scope.";
        optional status: Option<String> = NAME, "Only executions whose run is in this state.";
        optional limit: Limit = PAGE, LIMIT_TEXT;
        optional cursor: Option<String> = Kind::Text(4_096), "From `next_cursor` of the page before.";
    }
}

/// What is asked of one run among others: the same fields, and which run.
#[derive(Clone, Debug)]
pub struct OfRun<T> {
    pub run_id: String,
    pub body: T,
}

impl<T: FromNode> FromNode for OfRun<T> {
    const TAKES: Takes = Takes::Fields;

    fn from_node(mut node: Node) -> Option<OfRun<T>> {
        let run_id = String::from_node(node.remove(RUN_ID.name)?)?;
        Some(OfRun { run_id, body: T::from_node(node)? })
    }
}

const RUN_ID: Field = needed("run_id", NAME, "The run that this is about.");

macro_rules! of_run {
    ($name:literal, $shape:expr) => {
        Shape::of_api($name, &joined::<{ $shape.fields.len() + 1 }>(&[RUN_ID], $shape.fields))
    };
}

pub const HEARTBEAT_OF_RUN: Shape = of_run!("HeartbeatOfRun", HEARTBEAT);
pub const EVENT_OF_RUN: Shape = of_run!("EventOfRun", NEW_EVENT);
pub const FINISH_OF_RUN: Shape = of_run!("FinishOfRun", FINISH);
