//! The format of schedules, declared once: in `waypost.toml` or a file of their own.

use serde_json::Value;
use waypost_schema::{Document, Kind, Shape, needed, optional, render};

use crate::agents::{AGENT, AGENTS, DEFAULT_CHAT};
use crate::alerts::{ALERT, POLICY, SINK};
use crate::playbook::format::{
    ANYTHING, DURATION, ENV, ENV_ABOUT, EXEC, EXEC_ABOUT, HTTP, HTTP_ABOUT, MAX_FILE_BYTES, NAME, TEXT,
    TIMEZONE, list, map,
};
use crate::playbook::formats;
use crate::projection::PROJECTION;
use crate::retention::{self, RETENTION};
use crate::webhooks::{GITHUB, ON};

const MAX_IDS: usize = 10_000;

pub static FILE: Document = Document {
    shape: &FILE_KEYS,
    max_bytes: MAX_FILE_BYTES,
    too_large: "split it",
    syntax: &[("", "write key = value; texts stand between quotes, schedules begin with [[schedule]]")],
    at_the_end: &[],
};

pub static FILE_KEYS: Shape = Shape::of_file(
    "a file of schedules",
    &[
        optional("schedule", list(&Kind::Of(&SCHEDULE), 0, 1_000), "What happens when."),
        optional("retention", retention::KIND, "For how long settled runs are kept, by lifecycle."),
        optional("github", Kind::Of(&GITHUB), "Runs that a GitHub webhook starts."),
        optional("agent", list(&Kind::Of(&AGENT), 0, 1_000), "Agents."),
        optional("agents", Kind::Of(&AGENTS), "What holds for all agents."),
        optional("projection", Kind::Of(&PROJECTION), "Where the documents of runs are kept."),
        optional("alert", Kind::Of(&ALERT), "Who is told when something goes wrong."),
    ],
);

pub static SCHEDULE: Shape = Shape::of_file("a schedule", &[
        needed("name", NAME, "The job's name, unique."),
        optional("description", TEXT, "For people."),
        optional("cron", TEXT, "Minute, hour, day of the month, month, day of the week: `0 2 * * 1-5`."),
        optional("timezone", TIMEZONE, "Whose wall clock `cron` is about. Default: UTC."),
        optional("cadence", DURATION, "Instead of `cron`: a grid in UTC, in whole seconds."),
        optional("delay", TEXT, "With `cadence`: how long after its time a plan is due. Default: 0s."),
        optional(
            "first",
            Kind::Choice(&["latest", "next"]),
            "Without a history it begins with the latest plan, at once, or with the next. Default: latest with `cadence`, next with `cron`.",
        ),
        optional(
            "catch_up",
            Kind::Choice(&["latest_only", "every_plan"]),
            "Of plans that were missed, the latest alone or all. Default: latest_only.",
        ),
        optional("catch_up_window", DURATION, "With every_plan: none older than this. Default: 24h."),
        optional(
            "max_plans_per_tick",
            Kind::Integer(1, 1_000),
            "With every_plan and overlap = \"allow\": so many at once. Default: 3.",
        ),
        optional(
            "overlap",
            Kind::Choice(&["skip", "queue", "allow"]),
            "What becomes of a plan while an earlier one of its scope runs. Default: skip, with every_plan queue.",
        ),
        optional("max_lateness", TEXT, "Plans later than this are dropped and counted. Default: never."),
        optional("jitter", TEXT, "Each plan begins up to this much later. At most 1h. Default: 0s."),
        optional("run_timeout", DURATION, "How long an execution may take. Default: 25m."),
        optional("stale_timeout", DURATION, "Without a heartbeat for this long it is lost. Default: 30m."),
        optional("heartbeat", DURATION, "Between two signs of life, at most. Default: 30s."),
        optional("max_attempts", Kind::Integer(1, 100), "The first one counts. Default: 3."),
        optional(
            "backoff",
            list(&DURATION, 0, 100),
            "The waits between attempts; the last repeats; [] is no retry. Default: [\"1m\", \"5m\", \"15m\"].",
        ),
        optional("reentry", Kind::Boolean, "Whether a lost execution may be taken up again. Default: true."),
        optional(
            "scopes",
            Kind::Of(&SCOPES),
            "One execution for each of them. Default: { kind = \"global\" }.",
        ),
        optional(
            "secrets",
            map(&Kind::Format(&formats::REFERENCE), &formats::IDENTIFIERS, 50),
            "Secrets by name, as references.",
        ),
        optional("exec", EXEC, EXEC_ABOUT),
        optional("http", HTTP, HTTP_ABOUT),
        optional("env", ENV, ENV_ABOUT),
        optional("handler", NAME, "A handler written in Rust, by its name."),
        optional("run", Kind::Of(&RUN), "A run to queue."),
]).with_one_of(&["exec", "http", "handler", "run"]);

static SCOPES: Shape = Shape::of_file(
    "scopes",
    &[
        needed("kind", NAME, "What they are: `shop`; `global` for one alone."),
        optional("ids", list(&TEXT, 1, MAX_IDS), "Each by its id."),
        optional("sql", TEXT, "A query of Waypost's own database whose first column is the ids."),
        optional("http", HTTP, "A request that answers with a list of ids."),
        optional("handler", NAME, "A provider written in Rust, by its name."),
    ],
);

static RUN: Shape = Shape::of_file("a run", &[
        optional("lifecycle", NAME, "What it may become: deploy, job, agent, or your own. An agent's is its own."),
        optional("agent", NAME, "An agent, by its slug: it decides whether it takes a run, and what that does."),
        optional(
            "playbook",
            TEXT,
            "What to do: a file beside this one (`backup.toml`), whose content is pinned; or one that workers have, by its name.",
        ),
        optional(
            "exec",
            list(&TEXT, 1, 256),
            "Or a command that it carries.",
        ),
        optional("queue", NAME, "Default: default."),
        optional("priority", Kind::Integer(-1_000, 1_000), "Higher first. Default: 0."),
        optional("input", ANYTHING, "What it is given."),
        optional("brought", Kind::Of(&BROUGHT), "The playbook's content, filled in when it is read."),
]).with_one_of(&["playbook", "exec", "agent"]);

static BROUGHT: Shape = Shape::of_file(
    "a playbook that is brought along",
    &[needed("file", TEXT, "Where it was."), needed("text", TEXT, "What it said.")],
);

/// Rules beside those of playbooks.
pub const RULES: [(&str, &str); 7] = [
    ("bad-agent", "an agent has something to do"),
    ("bad-alert", "an alert's sink is one that can be told, and its thresholds fit together"),
    ("bad-cron", "a cron expression has five fields, and comes true"),
    ("bad-place", "an object store is a folder or a bucket"),
    ("bad-playbook", "a playbook that is named as a file is sound, and given what it takes"),
    ("bad-schedule", "times of a schedule fit together"),
    ("bad-scopes", "scopes say where they come from"),
];

/// JSON Schema (2020-12) of a file of schedules.
pub fn json_schema() -> Value {
    render::document("Waypost schedules", "What happens when.", &FILE_KEYS)
}

/// The page of all keys, in Markdown.
pub fn reference() -> String {
    let mut page = "# Keys of a schedule\n".to_owned();
    render::section(&mut page, "`[[schedule]]`", &SCHEDULE);
    render::section(&mut page, "`scopes`", &SCOPES);
    render::section(&mut page, "`run`", &RUN);
    render::section(&mut page, "`[retention.LIFECYCLE]`", &RETENTION);
    render::section(&mut page, "`[github]`", &GITHUB);
    render::section(&mut page, "`[[github.on]]`", &ON);
    render::section(&mut page, "`[[agent]]`", &AGENT);
    render::section(&mut page, "`[agents]`", &AGENTS);
    render::section(&mut page, "`[agents.chat]`", &DEFAULT_CHAT);
    render::section(&mut page, "`[projection]`", &PROJECTION);
    render::section(&mut page, "`[alert]`", &ALERT);
    render::section(&mut page, "`[[alert.sink]]`", &SINK);
    render::section(&mut page, "`[[alert.policy]]`", &POLICY);
    page.push_str(
        "\n## Rules\n\nBeside those of [playbooks](playbook.md):\n\n| rule | what it asks for |\n|---|---|\n",
    );
    for (rule, about) in RULES {
        page.push_str(&format!("| `{rule}` | {about} |\n"));
    }
    page
}
