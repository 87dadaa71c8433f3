//! The format of a playbook, declared once: the reader checks files against it, and the JSON Schema for
//! editors and the reference's table of keys are rendered from it.

use waypost_kernel::format::DURATION as A_DURATION;
use waypost_schema::{Document, Format, Keys, Kind, Shape, needed, optional};

use super::formats;

/// Texts of one form each.
pub(crate) const NAME: Kind = Kind::Format(&formats::NAME);
pub(crate) const TEXT: Kind = Kind::Format(&Format::TEXT);
pub(crate) const PATH: Kind = Kind::Format(&formats::PATH);
pub(crate) const TEMPLATE: Kind = Kind::Format(&formats::TEMPLATE);
pub(crate) const EXPRESSION: Kind = Kind::Format(&formats::EXPRESSION);
pub(crate) const DURATION: Kind = Kind::Format(&A_DURATION);
pub(crate) const TIMEZONE: Kind = Kind::Format(&formats::TIMEZONE);
const POINTER: Kind = Kind::Format(&formats::POINTER);
const RATE: Kind = Kind::Format(&formats::RATE);
const CHANGE: Kind = Kind::Format(&formats::CHANGE);
/// Any value; the texts of the first are templates.
pub(crate) const JSON: Kind = Kind::Parts("any value with templates");
pub(crate) const ANYTHING: Kind = Kind::Parts("any value");

pub(crate) const fn list(of: &'static Kind, least: usize, most: usize) -> Kind {
    Kind::List { of, least, most }
}

pub(crate) const fn map(of: &'static Kind, keys: &'static Keys, most: usize) -> Kind {
    Kind::Map { of, keys: Some(keys), most }
}

const DETAILS: Kind = map(&JSON, &formats::IDENTIFIERS, 50);

pub const MAX_FILE_BYTES: usize = 256 * 1024;

pub static FILE: Document = Document {
    shape: &PLAYBOOK,
    max_bytes: MAX_FILE_BYTES,
    too_large: "split it, or let a command read the long part",
    syntax: &[("", "write key = value; texts stand between quotes, steps begin with [[step]]")],
    at_the_end: &[],
};

const ACTION: &[&str] = &["exec", "http"];
const STEP_ACTION: &[&str] = &["exec", "http", "chat", "output", "ask"];
pub const TYPES: &[&str] = &["string", "number", "boolean", "list", "object"];
pub const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
pub const WEEKDAYS: &[&str] = &["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// Tries beyond this are a loop, not a retry.
pub const MAX_RETRIES: i64 = 100;
/// Each is a process or a request of the one worker.
const MAX_PARALLEL: i64 = 100;
pub const DEFAULT_PARALLEL: usize = 4;

pub(crate) const EXEC: Kind = list(&TEMPLATE, 1, 256);
pub(crate) const HTTP: Kind = Kind::Of(&HTTP_SHAPE);
pub(crate) const ENV: Kind = map(&TEMPLATE, &formats::VARIABLES, 100);
const TASKS: Kind = Kind::TextOrList {
    text: &EXPRESSION,
    list: &list(&TEMPLATE, 1, 100),
    name: "a list of names, or an expression",
};
const BACKOFF: Kind = list(&DURATION, 1, 100);
const RETRIES: Kind = Kind::Integer(0, MAX_RETRIES);
const PARALLEL: Kind = Kind::Integer(1, MAX_PARALLEL);

pub(crate) const EXEC_ABOUT: &str = "The command as a list of words, without a shell. A relative program is relative to this file, and the command runs in this file's folder.";
pub(crate) const HTTP_ABOUT: &str = "The request to send.";
pub(crate) const ENV_ABOUT: &str = "Environment variables of the command; secrets may stand here.";
const TIMEOUT_ABOUT: &str = "How long one try may take.";
const RETRIES_ABOUT: &str = "How often a failed try is repeated. Default: as many as `backoff` has, or 0.";
const BACKOFF_ABOUT: &str = "The waits between tries; the last repeats. Default: [\"1s\", \"2s\", \"4s\"].";
const FOR_EACH_ABOUT: &str = "An expression that gives a list: once for each `item` of it.";
const PARALLEL_ABOUT: &str = "How many items of `for_each` may be under way at once, within the playbook's `max_parallel`. Default: 1.";
const WHEN_ABOUT: &str = "An expression: skipped unless it is true.";

pub static PLAYBOOK: Shape = Shape::of_file(
    "a playbook",
    &[
        needed("name", NAME, "What runs ask for."),
        needed("lifecycle", NAME, "What a run of it may become: job, deploy, agent, rule, or your own."),
        optional("description", TEXT, "For people."),
        optional(
            "inputs",
            map(&Kind::Of(&INPUT), &formats::IDENTIFIERS, 100),
            "What a run is given, by name. Without any it takes whatever it is given.",
        ),
        optional(
            "secrets",
            map(&Kind::Format(&formats::REFERENCE), &formats::IDENTIFIERS, 50),
            "Secrets by name, as references that the worker resolves just before it needs them.",
        ),
        optional(
            "step",
            list(&Kind::Of(&STEP), 0, 200),
            "What to do, in order, or as far as `needs` lets them at once.",
        ),
        optional(
            "cleanup",
            list(&Kind::Of(&CLEANUP), 0, 50),
            "What to do at the end, whatever the end is: success, pause, failure, cancel.",
        ),
        optional("queue", NAME, "The queue of its runs. Default: default."),
        optional("priority", Kind::Integer(-1_000, 1_000), "Higher first. Default: 0."),
        optional("concurrency_key", TEMPLATE, "Runs with the same key follow each other."),
        optional("timeout", DURATION, "How long a run may take in all, waiting for people not counted."),
        optional(
            "max_parallel",
            PARALLEL,
            "How many steps of a run may be under way at once, items of `for_each` included. Default: 4.",
        ),
        optional("window", Kind::Of(&WINDOW), "When steps may begin."),
        optional(
            "details",
            DETAILS,
            "Told in the run's details when work begins; what comes to nothing is left out.",
        ),
        optional(
            "unattended",
            Kind::Choice(&["skip", "fail"]),
            "What a scheduled run does with what would pause it, since nobody is there. Default: fail.",
        ),
        optional("targets", Kind::Of(&TARGETS), "What a bulk change is about."),
        optional(
            "apply",
            Kind::Of(&APPLY),
            "How one target is changed; of an agent's playbook, how a proposal is applied once it is approved: templates see `inputs.proposal`.",
        ),
        optional(
            "fetch",
            Kind::Of(&FETCH),
            "How one target's present value is read. Default: by GET where [apply] writes over http.",
        ),
        optional(
            "rollback",
            Kind::Of(&ROLLBACK),
            "How one target's change is taken back. Default: as [apply], with the value of before.",
        ),
        optional("limit", Kind::Of(&LIMIT), "How fast the destination may be called."),
        optional("breaker", Kind::Of(&BREAKER), "When to leave the destination alone for a while."),
        optional(
            "guardrails",
            Kind::Of(&GUARDRAILS),
            "Which changes are not made, whatever the targets say.",
        ),
        optional("reconcile", Kind::Of(&RECONCILE), "When to look whether changes are still in place."),
    ],
);

static INPUT: Shape = Shape::of_file(
    "an input",
    &[
        needed("type", Kind::Choice(TYPES), "What kind of value it is."),
        optional("default", ANYTHING, "The value if none is given."),
        optional("required", Kind::Boolean, "Whether it must be given. Default: true without a default."),
        optional("description", TEXT, "For people."),
        optional(
            "secret",
            Kind::Boolean,
            "It is given as a reference (env:WAYPOST_SECRET_…) and never stored as a value.",
        ),
    ],
);

static STEP: Shape = Shape::of_file(
    "a step",
    &[
        needed("name", TEMPLATE, "What people see."),
        optional("id", NAME, "What templates, `needs` and `after` call it, if not by its name."),
        optional(
            "needs",
            list(&TEXT, 0, 200),
            "The steps that it waits for, and sees the results of, by id or name; [] is none. Default: the step before it.",
        ),
        optional("exec", EXEC, EXEC_ABOUT),
        optional("http", HTTP, HTTP_ABOUT),
        optional("chat", Kind::Of(&CHAT), "A language model to ask. Its words, and the tokens that they cost, are the step's output: `answer`, `model`, `finish_reason`, `usage`."),
        optional("output", JSON, "What the step gives, without anything being executed; texts are templates."),
        optional("ask", TEMPLATE, "A question to a person. The run waits for the answer in no worker's slot; it is the step's output: `choice`, `by`, `reason`, `at`."),
        optional("choices", list(&TEXT, 1, 20), "What may be answered. Default: [\"yes\", \"no\"]."),
        optional("on_timeout", TEXT, "The choice that is taken when nobody answers within `timeout`, and by a run that nobody watches. Default: the step fails."),
        optional("env", ENV, ENV_ABOUT),
        optional("for_each", EXPRESSION, FOR_EACH_ABOUT),
        optional("parallel", PARALLEL, PARALLEL_ABOUT),
        optional("when", EXPRESSION, WHEN_ABOUT),
        optional("tasks", TASKS, "Its parts by name, whose progress is shown."),
        optional(
            "details",
            DETAILS,
            "Told in the run's details when it begins, and again when it has ended.",
        ),
        optional("timeout", DURATION, "How long one try may take, or how long an answer is waited for."),
        optional("retries", RETRIES, RETRIES_ABOUT),
        optional("backoff", BACKOFF, BACKOFF_ABOUT),
        optional(
            "continue_on_failure",
            Kind::Boolean,
            "Go on with what follows when this fails. Default: false.",
        ),
    ],
)
.with_one_of(STEP_ACTION);

static CLEANUP: Shape = Shape::of_file("a cleanup", &[
        needed("name", TEMPLATE, "What people see."),
        optional("id", NAME, "What the log calls it, if not by its name."),
        optional(
            "after",
            TEXT,
            "The step that it undoes: it runs only if that step ran, and makes that step run again after a resume.",
        ),
        optional("exec", EXEC, EXEC_ABOUT),
        optional("http", HTTP, HTTP_ABOUT),
        optional("env", ENV, ENV_ABOUT),
        optional("for_each", EXPRESSION, FOR_EACH_ABOUT),
        optional("parallel", PARALLEL, PARALLEL_ABOUT),
        optional("when", EXPRESSION, WHEN_ABOUT),
        optional("timeout", DURATION, TIMEOUT_ABOUT),
        optional("retries", RETRIES, RETRIES_ABOUT),
        optional("backoff", BACKOFF, BACKOFF_ABOUT),
]).with_one_of(ACTION);

static HTTP_SHAPE: Shape = Shape::of_file(
    "an http action",
    &[
        optional("method", Kind::Choice(METHODS), "Default: POST."),
        needed("url", TEMPLATE, "https://…, or http:// with allow_private."),
        optional(
            "headers",
            map(&TEMPLATE, &formats::HEADERS, 50),
            "Further headers; secrets may stand here.",
        ),
        optional(
            "json",
            JSON,
            "The body as JSON; secrets may stand here. Default for POST, PUT and PATCH: what a command reads on its input.",
        ),
        optional("body", TEMPLATE, "The body as text instead; secrets may stand here."),
        optional("allow_private", Kind::Boolean, "It may call http:// and addresses of private networks."),
    ],
);

pub(crate) static CHAT: Shape = Shape::of_file(
    "a chat",
    &[
        needed(
            "url",
            TEMPLATE,
            "Where an OpenAI-compatible API is: `https://api.example.com/v1`, without `/chat/completions`.",
        ),
        needed("model", TEMPLATE, "The model's name."),
        optional("key", TEMPLATE, "The API's key: `{{ secrets.NAME }}`."),
        optional("system", TEMPLATE, "What the model is told before the prompt."),
        needed("prompt", TEMPLATE, "What it is asked."),
        optional(
            "json",
            Kind::Boolean,
            "The answer is JSON; its `proposals` and `artifacts` are the step's. Default: false.",
        ),
        optional("temperature", Kind::Number, "As the API takes it."),
        optional("max_tokens", Kind::Integer(1, 10_000_000), "As the API takes it."),
        optional("allow_private", Kind::Boolean, "It may call http:// and addresses of private networks."),
    ],
);

static WINDOW: Shape = Shape::of_file(
    "a window",
    &[
        optional(
            "weekdays",
            list(&Kind::Choice(WEEKDAYS), 1, 7),
            "The days on which it opens. Default: every day.",
        ),
        needed("from", Kind::Format(&formats::CLOCK), "When it opens, on the wall clock."),
        needed(
            "to",
            Kind::Format(&formats::CLOCK),
            "When it closes; on the next day if that is not later than `from`.",
        ),
        optional("timezone", TIMEZONE, "Whose wall clock. Default: UTC."),
        optional(
            "outside",
            Kind::Choice(&["wait", "fail"]),
            "What becomes of a step that is due while it is closed. Default: wait.",
        ),
    ],
);

static TARGETS: Shape = Shape::of_file(
    "[targets]",
    &[
        optional("csv", PATH, "A file with a header line: id,before,after,…"),
        optional("jsonl", PATH, "A file with one JSON object per line."),
        optional("http", HTTP, "A request that answers with a list of objects, page by page."),
        optional("exec", EXEC, "A command that prints one JSON object per line."),
        optional("env", ENV, ENV_ABOUT),
        optional("timeout", DURATION, "How long a page, or the command, may take. Default: 30s, 1h."),
        optional(
            "list",
            POINTER,
            "Where the list stands in the answer, as a JSON pointer. Default: the answer is the list, or has one list.",
        ),
        optional(
            "next",
            POINTER,
            "Where the answer says what comes next, as a JSON pointer: a URL of the same server, or what `page.next` is then. Default: the header `Link`.",
        ),
        optional("id", NAME, "The column or member that names a target. Default: id."),
        optional("before", NAME, "The column or member with the present value. Default: before."),
        optional(
            "after",
            TEMPLATE,
            "What computes the new value, on exact decimals: {{ target.before * 1.1 }}. Default: the column or member `after`.",
        ),
        optional(
            "valid_for",
            DURATION,
            "How long after it was gathered a preview may be queued without force. Default: 24h.",
        ),
    ],
)
.with_one_of(&["csv", "jsonl", "http", "exec"]);

const TARGET_ACTION: &[&str] = &["exec", "http", "shopify", "handler"];
const SHOPIFY_ABOUT: &str = "Shopify's Admin GraphQL: the target is a variant, its value the price.";
const TARGET_RETRIES_ABOUT: &str = "How often a failed try is repeated. Default: 3.";

static SHOPIFY: Shape = Shape::of_file(
    "a shopify action",
    &[
        needed("shop", TEMPLATE, "Where the shop is: https://NAME.myshopify.com."),
        needed("token", TEMPLATE, "The access token of the Admin API: a secret."),
        optional("version", NAME, "Of the Admin API. Default: 2025-07."),
        optional("product", NAME, "The member of a target that names its product. Default: product_id."),
        optional("variant", NAME, "The member of a target that names the variant. Default: id."),
        optional("allow_private", Kind::Boolean, "It may call http:// and addresses of private networks."),
    ],
);

static APPLY: Shape = Shape::of_file(
    "[apply]",
    &[
        optional("exec", EXEC, EXEC_ABOUT),
        optional("http", HTTP, HTTP_ABOUT),
        optional("shopify", Kind::Of(&SHOPIFY), SHOPIFY_ABOUT),
        optional("handler", NAME, "A handler that is compiled into the worker, by its name."),
        optional("env", ENV, ENV_ABOUT),
        optional("timeout", DURATION, TIMEOUT_ABOUT),
        optional("retries", RETRIES, TARGET_RETRIES_ABOUT),
        optional("parallel", PARALLEL, "How many targets of a run are changed at once. Default: 5."),
    ],
)
.with_one_of(TARGET_ACTION);

static ROLLBACK: Shape = Shape::of_file(
    "[rollback]",
    &[
        optional("exec", EXEC, EXEC_ABOUT),
        optional("http", HTTP, HTTP_ABOUT),
        optional("shopify", Kind::Of(&SHOPIFY), SHOPIFY_ABOUT),
        optional("handler", NAME, "A handler that is compiled into the worker, by its name."),
        optional("env", ENV, ENV_ABOUT),
        optional("timeout", DURATION, TIMEOUT_ABOUT),
        optional("retries", RETRIES, TARGET_RETRIES_ABOUT),
    ],
)
.with_one_of(TARGET_ACTION);

static FETCH: Shape = Shape::of_file(
    "[fetch]",
    &[
        optional("exec", EXEC, EXEC_ABOUT),
        optional("http", HTTP, HTTP_ABOUT),
        optional("shopify", Kind::Of(&SHOPIFY), SHOPIFY_ABOUT),
        optional("handler", NAME, "A handler that is compiled into the worker, by its name."),
        optional("env", ENV, ENV_ABOUT),
        optional("timeout", DURATION, TIMEOUT_ABOUT),
        optional("retries", RETRIES, TARGET_RETRIES_ABOUT),
        optional(
            "value",
            POINTER,
            "Where the value stands in the answer, as a JSON pointer. Default: the whole answer.",
        ),
    ],
)
.with_one_of(TARGET_ACTION);

static LIMIT: Shape = Shape::of_file(
    "[limit]",
    &[
        optional("rate", RATE, "Calls per time, such as 2/s or 100/m."),
        optional("burst", Kind::Integer(1, 100_000), "Calls at once after a rest. Default: 1."),
        optional("cost", Kind::Of(&COST), "Points instead of calls, as GraphQL counts them; what the answers say corrects it."),
        optional(
            "give_up_after",
            DURATION,
            "How long a target waits for the limit in all before it has failed with RATE_LIMIT. Default: 1h.",
        ),
        optional(
            "destination",
            TEMPLATE,
            "Whose limit it is: rules with the same one share it. Default: the host that is called, or the playbook's name.",
        ),
    ],
)
.with_one_of(&["rate", "cost"]);

static COST: Shape = Shape::of_file(
    "a cost",
    &[
        optional("call", Kind::Integer(1, 1_000_000), "Points of one call. Default: 10."),
        optional("rate", RATE, "Points that come back per time. Default: 100/s."),
        optional("burst", Kind::Integer(1, 10_000_000), "Points after a rest. Default: 2000."),
    ],
);

static BREAKER: Shape = Shape::of_file(
    "[breaker]",
    &[
        optional(
            "after",
            Kind::Integer(1, 10_000),
            "It opens at more refusals (429) in a row than this. Default: 5.",
        ),
        optional("pause", DURATION, "How long no call is made then. Default: 60s."),
    ],
);

static GUARDRAILS: Shape = Shape::of_file(
    "[guardrails]",
    &[
        optional("floor", Kind::Number, "The least value; 0 is one."),
        optional("ceiling", Kind::Number, "The largest value; 0 is one."),
        optional("max_rise", CHANGE, "How much a value may rise: a share, \"20%\", or an amount, \"5.00\"."),
        optional("max_fall", CHANGE, "How much a value may fall, likewise."),
        optional("per_day", Kind::Integer(0, 1_000_000), "How often a target may change on one day."),
        optional("timezone", TIMEZONE, "Whose midnight begins that day. Default: UTC."),
        optional(
            "on_violation",
            Kind::Choice(&["fail", "stop"]),
            "What a target past a guardrail does: it fails with GUARDRAIL, or it stops the run before anything is changed. Default: fail.",
        ),
    ],
);

static RECONCILE: Shape = Shape::of_file(
    "[reconcile]",
    &[
        optional(
            "after",
            list(&DURATION, 0, 20),
            "How long after the run to look, each time. Default: 5m and 1h if daily_for is absent too; an empty list: not by itself.",
        ),
        optional(
            "daily_for",
            DURATION,
            "For how long to look every day after that. Default: 30d if after is absent too.",
        ),
        optional("tolerance", Kind::Of(&TOLERANCE), "Which differences are none: a mismatch is beyond both."),
        optional(
            "on_mismatch",
            Kind::Choice(&["report", "retry"]),
            "What a mismatch leads to: it is told of, or a new run changes the target again. Default: report.",
        ),
    ],
);

static TOLERANCE: Shape = Shape::of_file(
    "a tolerance",
    &[
        optional("amount", Kind::Number, "In the value's own unit. Default: 0."),
        optional("percent", Kind::Number, "Of the value. Default: 0."),
    ],
);
