//! What is answered. The shapes of rows come from the store's tables of columns, which make the objects too; the others
//! a test holds to the objects.

use waypost_kernel::text::MAX_PAGE;
use waypost_schema::{Field, Kind, Shape, joined, needed, optional};
pub use waypost_store::wire::{EVENT, ITEM, KEY, LISTED_RUN, QUEUE, RUN};

use super::kinds::{COUNT, LONG, NAME, TIME, list};
use super::requests::MOST_OF_A_BATCH;

macro_rules! shapes {
    ($($constant:ident $name:literal [$($field:expr),+ $(,)?];)+) => {
        $(pub const $constant: Shape = Shape::of_api($name, &[$($field),+]);)+
    };
}
pub(super) use shapes;

shapes! {
    RUNS "Runs" [
        needed("runs", list(&Kind::Of(&LISTED_RUN), MAX_PAGE), "Runs, newest first; without the parts that `include` did not ask for."),
        optional("next_cursor", NAME, "What to ask `cursor` for the next page; null at the end."),
    ];
    EVENTS "Events" [needed("events", list(&Kind::Of(&EVENT), MAX_PAGE), "The run's events, in order.")];
    FEED "Feed" [
        needed("events", list(&Kind::Of(&EVENT), MAX_PAGE), "Events in the order of their commits."),
        needed("next_after", COUNT, "What to ask `after` next."),
    ];
    LAST "Last" [needed("last_position", COUNT, "Whoever reads from here on misses nothing that is committed from now on.")];
    ITEMS "Items" [needed("items", list(&Kind::Of(&ITEM), 1_000_000), "Items in the order in which they were added.")];
    ITEM_PAGE "ItemPage" [
        needed("items", list(&Kind::Of(&ITEM), MAX_PAGE), "Items in the order in which they were added."),
        optional("next_cursor", LONG, "What to ask `cursor` for the next page; null at the end."),
    ];
    MADE "Made" [
        needed("run_id", NAME, "The run's id."),
        needed("status", NAME, "The state that the run is in."),
        needed("replayed", Kind::Boolean, "Whether the idempotency key was known: then this is the run that it made."),
        optional("run", Kind::Any, "The run object, with `Waypost-Detail: engine`."),
    ];
    MADE_CLAIMED "MadeClaimed" [
        needed("run", Kind::Of(&RUN), "The run."),
        needed("replayed", Kind::Boolean, "Whether the idempotency key was known: then this is the run that it made."),
        optional("lease", Kind::Of(&LEASE), "The right to work on the run; null if it could not be claimed now."),
    ];
    COMMANDED_CLAIM "CommandedClaim" [
        needed("run", Kind::Of(&RUN), "The run after the command."),
        optional("lease", Kind::Of(&LEASE), "The right to work on the run; null if it could not be claimed now."),
    ];
    NOT_MADE "NotMade" [needed("error", Kind::Of(&PROBLEM), "Why no run was made.")];
    RECEIVED "Received" [
        needed("delivery", Kind::Text(200), "The delivery's id."),
        needed("result", Kind::Any, "What came of it: `started`, `known`, `pong`, or why no run was started."),
        needed("runs", list(&Kind::Of(&MADE), MOST_OF_A_BATCH), "The runs that it started, now or when it came first."),
    ];
    ALL_MADE "AllMade" [needed("runs", list(&Kind::Either(&[&MADE, &NOT_MADE]), MOST_OF_A_BATCH), "Answers in the order of the request.")];
    ALL_RENEWED "AllRenewed" [needed("leases", list(&Kind::Either(&[&RENEWED, &NOT_MADE]), MOST_OF_A_BATCH), "Answers in the order of the request.")];
    ALL_NOTED "AllNoted" [needed("events", list(&Kind::Either(&[&NOTED, &NOT_MADE]), MOST_OF_A_BATCH), "Answers in the order of the request.")];
    ENDED_RUN "EndedRun" [needed("run", Kind::Of(&LISTED_RUN), "The run after its end.")];
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
    QUEUES "Queues" [needed("queues", list(&Kind::Of(&QUEUE), 100_000), "Queues by name, then by tenant.")];
    KEYS "Keys" [
        needed("keys", list(&Kind::Of(&KEY), 500), "Concurrency keys, by key."),
        optional("next_cursor", LONG, "What to ask `cursor` for the next page; null at the end."),
    ];
    WORKER "Worker" [
        needed("name", NAME, "The worker's name."),
        needed("tenant", NAME, "The tenant whose runs the worker takes; `*` is all of them."),
        needed("queues", list(&NAME, 1_000), "Queues that the worker takes runs from."),
        needed("lifecycles", list(&NAME, 1_000), "Lifecycles whose runs the worker takes; any if there is none."),
        optional("playbooks", list(&NAME, 20_000), "Playbooks that the worker has; null if it takes any run."),
        optional("embedded", Kind::Boolean, "Whether the worker executes what runs bring along; null if it takes any run."),
        optional("only", NAME, "The one run that the worker is for, if it takes no other."),
        optional("slots", COUNT, "How many runs the worker works at once; null of one that never gave a sign of life."),
        needed("busy", COUNT, "How many runs the worker holds."),
        optional("stale_after", TIME, "When the first of the worker's leases ends."),
        optional("version", NAME, "The version of the worker's program; empty of one that is known by its claims alone."),
        optional("started_at", TIME, "When the worker gave its first sign of life."),
        optional("seen_at", TIME, "When the worker gave its last sign of life: it does not count after 45 seconds."),
    ];
    SHARED_WORKERS "SharedWorkers" [
        needed("workers", COUNT, "How many live."),
        needed("slots", COUNT, "Runs that they take at once, whosever these are."),
    ];
    WORKERS "Workers" [
        needed("workers", list(&Kind::Of(&WORKER), MAX_PAGE), "Workers by name."),
        optional("shared", Kind::Of(&SHARED_WORKERS), "Workers of all tenants, which take this tenant's runs too and are not named to it; null to who sees all tenants."),
        optional("next_cursor", LONG, "What to ask `cursor` for the next page; null at the end."),
    ];
    ENDED "Ended" [
        needed("lifecycle", NAME, "The lifecycle of these runs."),
        needed("status", NAME, "The state that these runs ended in."),
        optional("outcome", NAME, "How that state is counted."),
        needed("in_24h", COUNT, "How many ended within 24 hours."),
        needed("in_7d", COUNT, "How many ended within 7 days."),
        optional("mean_duration_ms", COUNT, "For how long they were worked, over all attempts: the mean of 7 days."),
    ];
    FOR_PEOPLE "ForPeople" [
        needed("lifecycle", NAME, "The lifecycle of these runs."),
        needed("status", NAME, "The state that these runs are in."),
        needed("count", COUNT, "How many there are."),
    ];
    STATS "Stats" [
        needed("for_people", list(&Kind::Of(&FOR_PEOPLE), 10_000), "Runs that wait for a person to decide, of each status the newest 20,000."),
        needed("queue_depth", COUNT, "Runs that wait and are due, in all queues."),
        optional("worker_utilisation", Kind::Any, "Slots in use, of those known; from 0 to 1."),
        optional("success_rate_24h", Kind::Any, "Runs that succeeded, of those that ended by themselves; from 0 to 1."),
        needed("ended", list(&Kind::Of(&ENDED), 10_000), "What settled within 7 days, of the newest 20,000 runs."),
        needed("queues", list(&Kind::Of(&QUEUE), 100_000), "Queues by name, then by tenant."),
    ];
    LIFECYCLE "Lifecycle" [
        needed("name", NAME, "The lifecycle's name."),
        needed("version", COUNT, "The lifecycle's version."),
        needed("kind", NAME, "Whether it is one of runs or of their items: run or item."),
        optional("ids", NAME, "What ids of its runs look like."),
        needed("initial", list(&NAME, 100), "States that a run may start in."),
        needed("items", list(&NAME, 100), "Kinds of items that its runs have."),
        optional("stops_run", Kind::Boolean, "Of a kind of items: whether one that fails ends its run's course."),
        optional("projected", Kind::Boolean, "Of a lifecycle of runs: whether they are written to the object store."),
        needed("codes", Kind::Object, "Failure codes of its commands."),
        needed("operations", Kind::Object, "From which states operations start."),
        optional("decisions", Kind::Object, "The members of a run's details in which decisions are asked for and given."),
        optional("description", LONG, "What runs of it are, for people who choose one."),
        needed("cancelled_metadata", Kind::Object, "What the metadata of a run say that the engine cancels because its lease ran out."),
        needed("states", list(&Kind::Object, 1_000), "The states, each with its phase."),
        needed("transitions", list(&Kind::Object, 10_000), "The moves: from, command, to, by, guards."),
        optional("source", LONG, "The lifecycle as a file, with `source=true`."),
    ];
    LIFECYCLES "Lifecycles" [needed("lifecycles", list(&Kind::Of(&LIFECYCLE), 10_000), "Every version of each lifecycle.")];
    AGENT_STARTED "AgentStarted" [
        needed("run_id", NAME, "The run's id."),
        needed("status", NAME, "The run's state: the first one, unless the run was there already."),
    ];
    RUN_STATUS "RunStatus" [
        needed("run_id", NAME, "The run's id."),
        needed("agent_slug", NAME, "The agent whose run it is."),
        needed("status", NAME, "The run's state."),
        needed("trigger", NAME, "Who or what asked for it: manual, cron, event."),
        optional("started_at", TIME, "When work began; in whole seconds."),
        optional("finished_at", TIME, "When it ended."),
        optional("current_step", NAME, "The step that is under way, or was last."),
        optional("steps_total", COUNT, "How many steps there are, once that is known."),
        needed("steps_completed", COUNT, "How many of them are done."),
        needed("proposals_created", list(&NAME, 100_000), "Ids of what the run proposes."),
        optional("error", LONG, "Why it failed: `CODE: message`."),
    ];
    AGENT_END "AgentEnd" [
        needed("run_id", NAME, "The run that ended."),
        needed("finished_at", TIME, "When it ended."),
        needed("failed", Kind::Boolean, "Whether it failed."),
    ];
    AGENT "Agent" [
        needed("slug", NAME, "What the agent is called."),
        needed("tenant", NAME, "Whose agent it is."),
        needed("state", NAME, "Whether it takes runs: active; or paused, error (its last three runs failed), archived."),
        optional("playbook", NAME, "What its runs do; null: the four default steps."),
        needed("concurrency", COUNT, "Runs at once."),
        needed("enabled", Kind::Boolean, "Whether its definition lets it take runs."),
        needed("failures", COUNT, "How many of its last runs failed one after the other."),
        needed("ends", list(&Kind::Of(&AGENT_END), 100), "Its last runs since it was reset, in the order in which they ended; those that were cancelled are left out."),
        optional("paused_by", NAME, "Who paused it."),
        optional("pause_reason", LONG, "Why it is paused."),
        optional("paused_at", TIME, "Since when it is paused."),
        optional("archived_at", TIME, "Since when it is archived."),
        optional("reset_at", TIME, "When its failures were forgotten."),
        needed("updated_at", TIME, "When it was last changed."),
    ];
    AGENTS "Agents" [needed("agents", list(&Kind::Of(&AGENT), 100_000), "Agents by slug, then by tenant.")];
    ALERT_DELIVERY "AlertDelivery" [
        needed("sink", NAME, "The sink's name."),
        needed("episode", COUNT, "The firing that it was told of."),
        needed("is_firing", Kind::Boolean, "Whether it was told that the alert fires; else that it is over."),
        optional("sent_at", TIME, "When the sink took it."),
        optional("next_at", TIME, "When it is tried again, if it was not taken."),
        needed("tries", COUNT, "How often it was tried."),
        optional("error", LONG, "Why it was not taken."),
    ];
    ALERT "Alert" [
        needed("tenant", NAME, "The tenant that it is about."),
        needed("name", NAME, "The name of its policy.").also(&["alert"]),
        needed("subject", LONG, "The destination that it is about; empty if it is about the tenant."),
        needed("severity", Kind::Choice(&["warning", "critical"]), "How bad it is."),
        needed("status", Kind::Choice(&["ok", "pending", "firing"]), "Whether it fires; pending: it is bad, and not yet for long enough."),
        needed("summary", LONG, "What is wrong, in words."),
        optional("value", Kind::Any, "The figure that was evaluated last: per cent, or a count."),
        needed("since", TIME, "Since when it has that status."),
        optional("well_since", TIME, "While it fires: since when the figure is well."),
        needed("episode", COUNT, "How often it has fired."),
        optional("fired_at", TIME, "When it fired last."),
        optional("resolved_at", TIME, "When that was over."),
        needed("evaluated_at", TIME, "When what stands here was found."),
        optional("silenced_until", TIME, "Until when nobody is told."),
        optional("silenced_by", LONG, "Who silenced it."),
        optional("silence_reason", LONG, "Why."),
        needed("deliveries", list(&Kind::Of(&ALERT_DELIVERY), 1_000), "What each sink was told last."),
    ];
    ALERTS "Alerts" [needed("alerts", list(&Kind::Of(&ALERT), 100_000), "Alerts by tenant, name and subject.")];
    ALERT_TESTED "AlertTested" [
        needed("sink", NAME, "The sink's name."),
        needed("kind", Kind::Choice(&["slack", "pagerduty", "alertmanager", "webhook"]), "What it understands."),
        needed("sent", Kind::Boolean, "Whether it took the notice."),
        optional("error", LONG, "Why it did not."),
    ];
    ALERTS_TESTED "AlertsTested" [needed("sinks", list(&Kind::Of(&ALERT_TESTED), 1_000), "What came of it at each sink.")];
    DRY_RUN "DryRun" [
        needed("dry_run", Kind::Boolean, "Always true: nothing was written."),
        optional("run_id", NAME, "The run that the idempotency key has made already: it would be the answer."),
        optional("playbook", LONG, "The playbook, pinned to its content."),
        needed("lifecycle", NAME, "The lifecycle that the run would move along."),
        optional("status", NAME, "The state that it would start in."),
        needed("queue", NAME, "The queue that workers would take it from."),
        needed("priority", Kind::Any, "Runs of a higher priority come first."),
        optional("concurrency_key", LONG, "Runs with the same key are held one at a time."),
        optional("schedule_at", TIME, "When it might be taken at the earliest."),
        optional("window", Kind::Any, "When its steps may begin, as the playbook says it."),
        needed("input", Kind::Any, "Its input, with the playbook's defaults."),
        needed("steps", Kind::Any, "Its steps and cleanups, in order, as far as they are known: what each does, and whose outputs it needs."),
    ];
    PLAYBOOKS "Playbooks" [needed("playbooks", list(&Kind::Of(&PLAYBOOK), 100_000), "Playbooks by name.")];
    TOKEN_ROW "Token" [
        needed("id", NAME, "The token's public half.").also(&["token_id"]),
        needed("name", NAME, "Whom the log names when the token is used."),
        needed("role", NAME, "What the token may do."),
        needed("tenant", NAME, "The tenant whose runs the token sees."),
        needed("created_at", TIME, "When the token was made."),
        needed("created_by", LONG, "Who made the token."),
        optional("expires_at", TIME, "When the token stops counting by itself."),
        optional("last_used_at", TIME, "When the token was last used, to within a minute."),
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

const PLAYBOOK_FIELDS: [Field; 9] = [
    needed("name", NAME, "The playbook's name."),
    optional(
        "lifecycle",
        NAME,
        "The lifecycle of its runs; null for a handler, of which only the name is known.",
    ),
    needed("hash", NAME, "The hash of its content, which runs pin."),
    optional("description", LONG, "What the playbook is for, for people."),
    needed("inputs", Kind::Any, "The inputs that the playbook takes."),
    needed("tenant", NAME, "Whose runs it is for; `*` is everybody's."),
    needed("file", LONG, "Where it is on the machine of whoever has it."),
    needed("by", NAME, "The process that offered it."),
    optional("offered_at", TIME, "When it became the latest version."),
];
const LISTED_FIELDS: [Field; 1] = [optional("text", LONG, "The playbook as a file, with `text=true`.")];
const SHOWN_FIELDS: [Field; 4] = [
    needed("text", LONG, "The playbook as a file."),
    optional("steps", Kind::Any, "Its steps and cleanups, in order: what each does."),
    optional("queue", NAME, "The queue of its runs; `default` if it names none."),
    optional("priority", Kind::Any, "The priority of its runs."),
];

pub const PLAYBOOK: Shape = Shape::of_api(
    "Playbook",
    &joined::<{ PLAYBOOK_FIELDS.len() + LISTED_FIELDS.len() }>(&PLAYBOOK_FIELDS, &LISTED_FIELDS),
);
pub const PLAYBOOK_SHOWN: Shape = Shape::of_api(
    "PlaybookShown",
    &joined::<{ PLAYBOOK_FIELDS.len() + SHOWN_FIELDS.len() }>(&PLAYBOOK_FIELDS, &SHOWN_FIELDS),
);
