//! The format of a playbook, declared once: the reader checks files against it, and the JSON Schema for
//! editors and the reference's table of keys are rendered from it.

/// What a value may be.
#[derive(Debug)]
pub enum Kind {
    /// A name: letters, digits, `_` and `-`.
    Name,
    Text,
    /// Of a file, relative to the playbook's.
    Path,
    /// Text with `{{ expressions }}`.
    Template,
    /// One expression without braces.
    Expression,
    Duration,
    Whole {
        at_least: i64,
        at_most: i64,
    },
    /// Zero or more.
    Number,
    Boolean,
    Choice(&'static [&'static str]),
    /// `22:00`
    Clock,
    Timezone,
    /// `env:NAME` or `file:/path`
    Reference,
    /// `2/s`
    Rate,
    /// A JSON pointer.
    Pointer,
    /// Any value; its texts are templates.
    Json,
    /// Any value as it is.
    Anything,
    List {
        of: &'static Kind,
        at_least: usize,
        at_most: usize,
    },
    /// A list of names, or one expression that gives it.
    Names,
    /// Names of the user's own choice.
    Map {
        of: &'static Kind,
        keys: Keys,
        at_most: usize,
    },
    Table(&'static Shape),
    Tables {
        of: &'static Shape,
        at_most: usize,
    },
}

/// What the names of a map may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// As templates write it: letters, digits and `_`.
    Identifier,
    Variable,
    Header,
}

#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub needed: bool,
    pub about: &'static str,
}

#[derive(Debug)]
pub struct Shape {
    /// As a message says it: "a step has no key …".
    pub whose: &'static str,
    pub keys: &'static [Key],
    /// Exactly one of these is there.
    pub one_of: &'static [&'static str],
}

impl Shape {
    pub fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }
}

pub(crate) const fn key(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key { name, kind, needed: false, about }
}

pub(crate) const fn needed(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key { name, kind, needed: true, about }
}

const ACTION: &[&str] = &["exec", "http"];
pub const TYPES: &[&str] = &["string", "number", "boolean", "list", "object"];
pub const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
pub const WEEKDAYS: &[&str] = &["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
pub const MAX_RETRIES: i64 = 100;

pub(crate) const EXEC: Kind = Kind::List { of: &Kind::Template, at_least: 1, at_most: 256 };
pub(crate) const HTTP: Kind = Kind::Table(&HTTP_SHAPE);
pub(crate) const ENV: Kind = Kind::Map { of: &Kind::Template, keys: Keys::Variable, at_most: 100 };
const BACKOFF: Kind = Kind::List { of: &Kind::Duration, at_least: 1, at_most: 100 };
const RETRIES: Kind = Kind::Whole { at_least: 0, at_most: MAX_RETRIES };

pub(crate) const EXEC_ABOUT: &str = "The command as a list of words, without a shell. A relative program is relative to this file, and the command runs in this file's folder.";
pub(crate) const HTTP_ABOUT: &str = "The request to send.";
pub(crate) const ENV_ABOUT: &str = "Environment variables of the command; secrets may stand here.";
const TIMEOUT_ABOUT: &str = "How long one try may take.";
const RETRIES_ABOUT: &str = "How often a failed try is repeated. Default: as many as `backoff` has, or 0.";
const BACKOFF_ABOUT: &str = "The waits between tries; the last repeats. Default: [\"1s\", \"2s\", \"4s\"].";
const FOR_EACH_ABOUT: &str = "An expression that gives a list: once for each `item` of it.";
const WHEN_ABOUT: &str = "An expression: skipped unless it is true.";

pub static PLAYBOOK: Shape = Shape {
    whose: "a playbook",
    keys: &[
        needed("name", Kind::Name, "What runs ask for."),
        needed(
            "lifecycle",
            Kind::Name,
            "What a run of it may become: job, deploy, agent, rule, or your own.",
        ),
        key("description", Kind::Text, "For people."),
        key(
            "inputs",
            Kind::Map { of: &Kind::Table(&INPUT), keys: Keys::Identifier, at_most: 100 },
            "What a run is given, by name. Without any it takes whatever it is given.",
        ),
        key(
            "secrets",
            Kind::Map { of: &Kind::Reference, keys: Keys::Identifier, at_most: 50 },
            "Secrets by name, as references that the worker resolves just before it needs them.",
        ),
        key("step", Kind::Tables { of: &STEP, at_most: 200 }, "What to do, in order."),
        key(
            "cleanup",
            Kind::Tables { of: &CLEANUP, at_most: 50 },
            "What to do at the end, whatever the end is: success, pause, failure, cancel.",
        ),
        key("queue", Kind::Name, "The queue of its runs. Default: default."),
        key("priority", Kind::Whole { at_least: -1_000, at_most: 1_000 }, "Higher first. Default: 0."),
        key("concurrency_key", Kind::Template, "Runs with the same key follow each other."),
        key("timeout", Kind::Duration, "How long a run may take in all, waiting for people not counted."),
        key("window", Kind::Table(&WINDOW), "When steps may begin."),
        key(
            "unattended",
            Kind::Choice(&["skip", "fail"]),
            "What a scheduled run does with what would pause it, since nobody is there. Default: fail.",
        ),
        key("targets", Kind::Table(&TARGETS), "What a bulk change is about."),
        key("apply", Kind::Table(&APPLY), "How one target is changed."),
        key(
            "fetch",
            Kind::Table(&FETCH),
            "How one target's present value is read. Default: by GET where [apply] writes over http.",
        ),
        key("rollback", Kind::Table(&APPLY), "How one target's change is taken back."),
        key("limit", Kind::Table(&LIMIT), "How fast the destination may be called."),
        key("breaker", Kind::Table(&BREAKER), "When to leave the destination alone for a while."),
        key("reconcile", Kind::Table(&RECONCILE), "When to look whether changes are still in place."),
    ],
    one_of: &[],
};

static INPUT: Shape = Shape {
    whose: "an input",
    keys: &[
        needed("type", Kind::Choice(TYPES), "What kind of value it is."),
        key("default", Kind::Anything, "The value if none is given."),
        key("required", Kind::Boolean, "Whether it must be given. Default: true without a default."),
        key("description", Kind::Text, "For people."),
        key(
            "secret",
            Kind::Boolean,
            "It is given as a reference (env:WAYPOST_SECRET_…) and never stored as a value.",
        ),
    ],
    one_of: &[],
};

static STEP: Shape = Shape {
    whose: "a step",
    keys: &[
        needed("name", Kind::Template, "What people see."),
        key("id", Kind::Name, "What templates and `after` call it, if not by its name."),
        key("exec", EXEC, EXEC_ABOUT),
        key("http", HTTP, HTTP_ABOUT),
        key("env", ENV, ENV_ABOUT),
        key("for_each", Kind::Expression, FOR_EACH_ABOUT),
        key("when", Kind::Expression, WHEN_ABOUT),
        key("tasks", Kind::Names, "Its parts by name, whose progress is shown."),
        key("timeout", Kind::Duration, TIMEOUT_ABOUT),
        key("retries", RETRIES, RETRIES_ABOUT),
        key("backoff", BACKOFF, BACKOFF_ABOUT),
        key("continue_on_failure", Kind::Boolean, "Go on with what follows when this fails. Default: false."),
    ],
    one_of: ACTION,
};

static CLEANUP: Shape = Shape {
    whose: "a cleanup",
    keys: &[
        needed("name", Kind::Template, "What people see."),
        key(
            "after",
            Kind::Text,
            "The step that it undoes: it runs only if that step ran, and makes that step run again after a resume.",
        ),
        key("exec", EXEC, EXEC_ABOUT),
        key("http", HTTP, HTTP_ABOUT),
        key("env", ENV, ENV_ABOUT),
        key("for_each", Kind::Expression, FOR_EACH_ABOUT),
        key("when", Kind::Expression, WHEN_ABOUT),
        key("timeout", Kind::Duration, TIMEOUT_ABOUT),
        key("retries", RETRIES, RETRIES_ABOUT),
        key("backoff", BACKOFF, BACKOFF_ABOUT),
    ],
    one_of: ACTION,
};

static HTTP_SHAPE: Shape = Shape {
    whose: "an http action",
    keys: &[
        key("method", Kind::Choice(METHODS), "Default: POST."),
        needed("url", Kind::Template, "https://…, or http:// with allow_private."),
        key(
            "headers",
            Kind::Map { of: &Kind::Template, keys: Keys::Header, at_most: 50 },
            "Further headers; secrets may stand here.",
        ),
        key(
            "json",
            Kind::Json,
            "The body as JSON; secrets may stand here. Default for POST, PUT and PATCH: what a command reads on its input.",
        ),
        key("body", Kind::Template, "The body as text instead; secrets may stand here."),
        key("allow_private", Kind::Boolean, "It may call http:// and addresses of private networks."),
    ],
    one_of: &[],
};

static WINDOW: Shape = Shape {
    whose: "a window",
    keys: &[
        key(
            "weekdays",
            Kind::List { of: &Kind::Choice(WEEKDAYS), at_least: 1, at_most: 7 },
            "The days on which it opens. Default: every day.",
        ),
        needed("from", Kind::Clock, "When it opens, on the wall clock."),
        needed("to", Kind::Clock, "When it closes; on the next day if that is not later than `from`."),
        key("timezone", Kind::Timezone, "Whose wall clock. Default: UTC."),
        key(
            "outside",
            Kind::Choice(&["wait", "fail"]),
            "What becomes of a step that is due while it is closed. Default: wait.",
        ),
    ],
    one_of: &[],
};

static TARGETS: Shape = Shape {
    whose: "[targets]",
    keys: &[
        key("csv", Kind::Path, "A file with a header line: id,before,after,…"),
        key("jsonl", Kind::Path, "A file with one JSON object per line."),
        key("http", HTTP, "A request that answers with a list of objects."),
        key("exec", EXEC, "A command that prints one JSON object per line."),
        key("env", ENV, ENV_ABOUT),
        key("timeout", Kind::Duration, TIMEOUT_ABOUT),
    ],
    one_of: &["csv", "jsonl", "http", "exec"],
};

static APPLY: Shape = Shape {
    whose: "this section",
    keys: &[
        key("exec", EXEC, EXEC_ABOUT),
        key("http", HTTP, HTTP_ABOUT),
        key("env", ENV, ENV_ABOUT),
        key("timeout", Kind::Duration, TIMEOUT_ABOUT),
        key("retries", RETRIES, "How often a failed try is repeated. Default: 3."),
    ],
    one_of: ACTION,
};

static FETCH: Shape = Shape {
    whose: "[fetch]",
    keys: &[
        key("exec", EXEC, EXEC_ABOUT),
        key("http", HTTP, HTTP_ABOUT),
        key("env", ENV, ENV_ABOUT),
        key("timeout", Kind::Duration, TIMEOUT_ABOUT),
        key("retries", RETRIES, "How often a failed try is repeated. Default: 3."),
        key(
            "value",
            Kind::Pointer,
            "Where the value stands in the answer, as a JSON pointer. Default: the whole answer.",
        ),
    ],
    one_of: ACTION,
};

static LIMIT: Shape = Shape {
    whose: "[limit]",
    keys: &[
        needed("rate", Kind::Rate, "Calls per time, such as 2/s or 100/m."),
        key(
            "burst",
            Kind::Whole { at_least: 1, at_most: 100_000 },
            "Calls at once after a rest. Default: 1.",
        ),
    ],
    one_of: &[],
};

static BREAKER: Shape = Shape {
    whose: "[breaker]",
    keys: &[
        needed("after", Kind::Whole { at_least: 1, at_most: 10_000 }, "Refusals in a row that it takes."),
        needed("pause", Kind::Duration, "How long no call is made then."),
    ],
    one_of: &[],
};

static RECONCILE: Shape = Shape {
    whose: "[reconcile]",
    keys: &[
        key(
            "after",
            Kind::List { of: &Kind::Duration, at_least: 1, at_most: 20 },
            "How long after the run to look, each time.",
        ),
        key("daily_for", Kind::Duration, "For how long to look every day after that."),
        key("tolerance", Kind::Table(&TOLERANCE), "Which differences are none."),
    ],
    one_of: &[],
};

static TOLERANCE: Shape = Shape {
    whose: "a tolerance",
    keys: &[
        key("amount", Kind::Number, "In the value's own unit. Default: 0."),
        key("percent", Kind::Number, "Of the value. Default: 0."),
    ],
    one_of: &[],
};
