//! The format of schedules, declared once: in `waypost.toml` or a file of their own.

use serde_json::Value;

use crate::playbook::format::{
    ENV, ENV_ABOUT, EXEC, EXEC_ABOUT, HTTP, HTTP_ABOUT, Keys, Kind, Shape, key, needed,
};
use crate::playbook::schema::{schema_of, section};

const MAX_IDS: usize = 10_000;

/// Other sections of `waypost.toml` are for others to read.
pub static FILE: Shape = Shape {
    whose: "a file of schedules",
    keys: &[
        key("schedule", Kind::Tables { of: &SCHEDULE, at_most: 1_000 }, "What happens when."),
        key("agent", Kind::Anything, "Agents; not read here."),
        key("http", Kind::Anything, "Where HTTP actions may go; not read here."),
    ],
    one_of: &[],
};

pub static SCHEDULE: Shape = Shape {
    whose: "a schedule",
    keys: &[
        needed("name", Kind::Name, "The job's name, unique."),
        key("description", Kind::Text, "For people."),
        key("cron", Kind::Text, "Minute, hour, day of the month, month, day of the week: `0 2 * * 1-5`."),
        key("timezone", Kind::Timezone, "Whose wall clock `cron` is about. Default: UTC."),
        key("cadence", Kind::Duration, "Instead of `cron`: a grid in UTC, in whole seconds."),
        key("delay", Kind::Text, "With `cadence`: how long after its time a plan is due. Default: 0s."),
        key(
            "catch_up",
            Kind::Choice(&["latest_only", "every_plan"]),
            "Of plans that were missed, the latest alone or all. Default: latest_only.",
        ),
        key("catch_up_window", Kind::Duration, "With every_plan: none older than this. Default: 24h."),
        key(
            "max_plans_per_tick",
            Kind::Whole { at_least: 1, at_most: 1_000 },
            "With every_plan and overlap = \"allow\": so many at once. Default: 3.",
        ),
        key(
            "overlap",
            Kind::Choice(&["skip", "queue", "allow"]),
            "What becomes of a plan while an earlier one of its scope runs. Default: skip, with every_plan queue.",
        ),
        key("max_lateness", Kind::Text, "Plans later than this are dropped and counted. Default: never."),
        key("jitter", Kind::Text, "Each plan begins up to this much later. At most 1h. Default: 0s."),
        key("run_timeout", Kind::Duration, "How long an execution may take. Default: 25m."),
        key("stale_timeout", Kind::Duration, "Without a heartbeat for this long it is lost. Default: 30m."),
        key("heartbeat", Kind::Duration, "Between two signs of life, at most. Default: 30s."),
        key("max_attempts", Kind::Whole { at_least: 1, at_most: 100 }, "The first one counts. Default: 3."),
        key(
            "backoff",
            Kind::List { of: &Kind::Duration, at_least: 0, at_most: 100 },
            "The waits between attempts; the last repeats; [] is no retry. Default: [\"1m\", \"5m\", \"15m\"].",
        ),
        key("reentry", Kind::Boolean, "Whether a lost execution may be taken up again. Default: true."),
        key(
            "scopes",
            Kind::Table(&SCOPES),
            "One execution for each of them. Default: { kind = \"global\" }.",
        ),
        key(
            "secrets",
            Kind::Map { of: &Kind::Reference, keys: Keys::Identifier, at_most: 50 },
            "Secrets by name, as references.",
        ),
        key("exec", EXEC, EXEC_ABOUT),
        key("http", HTTP, HTTP_ABOUT),
        key("env", ENV, ENV_ABOUT),
        key("handler", Kind::Name, "A handler written in Rust, by its name."),
        key("run", Kind::Table(&RUN), "A run to queue."),
    ],
    one_of: &["exec", "http", "handler", "run"],
};

static SCOPES: Shape = Shape {
    whose: "scopes",
    keys: &[
        needed("kind", Kind::Name, "What they are: `shop`; `global` for one alone."),
        key("ids", Kind::List { of: &Kind::Text, at_least: 1, at_most: MAX_IDS }, "Each by its id."),
        key("sql", Kind::Text, "A query of Waypost's own database whose first column is the ids."),
        key("http", HTTP, "A request that answers with a list of ids."),
        key("handler", Kind::Name, "A provider written in Rust, by its name."),
    ],
    one_of: &[],
};

static RUN: Shape = Shape {
    whose: "a run",
    keys: &[
        needed("lifecycle", Kind::Name, "What it may become: deploy, job, agent, or your own."),
        key(
            "playbook",
            Kind::Text,
            "What to do: a file beside this one (`backup.toml`), whose content is pinned; or one that workers have, by its name.",
        ),
        key(
            "exec",
            Kind::List { of: &Kind::Text, at_least: 1, at_most: 256 },
            "Or a command that it carries.",
        ),
        key("queue", Kind::Name, "Default: default."),
        key("priority", Kind::Whole { at_least: -1_000, at_most: 1_000 }, "Higher first. Default: 0."),
        key("input", Kind::Anything, "What it is given."),
        key("brought", Kind::Table(&BROUGHT), "The playbook's content, filled in when it is read."),
    ],
    one_of: &["playbook", "exec"],
};

static BROUGHT: Shape = Shape {
    whose: "a playbook that is brought along",
    keys: &[needed("file", Kind::Text, "Where it was."), needed("text", Kind::Text, "What it said.")],
    one_of: &[],
};

/// Rules beside those of playbooks.
pub const RULES: [(&str, &str); 4] = [
    ("bad-cron", "a cron expression has five fields, and comes true"),
    ("bad-playbook", "a playbook that is named as a file is sound, and given what it takes"),
    ("bad-schedule", "times of a schedule fit together"),
    ("bad-scopes", "scopes say where they come from"),
];

/// JSON Schema (2020-12) of a file of schedules.
pub fn json_schema() -> Value {
    schema_of("Waypost schedules", "What happens when.", &FILE)
}

/// The page of all keys, in Markdown.
pub fn reference() -> String {
    let mut page = "# Keys of a schedule\n".to_owned();
    section(&mut page, "`[[schedule]]`", &SCHEDULE);
    section(&mut page, "`scopes`", &SCOPES);
    section(&mut page, "`run`", &RUN);
    page.push_str(
        "\n## Rules\n\nBeside those of [playbooks](playbook.md):\n\n| rule | what it asks for |\n|---|---|\n",
    );
    for (rule, about) in RULES {
        page.push_str(&format!("| `{rule}` | {about} |\n"));
    }
    page
}
