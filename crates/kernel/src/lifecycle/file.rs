//! A lifecycle file: its format, and what it says with the line of every word, so that a problem can name it.

use std::path::Path;

use waypost_schema::Kind::{Boolean, Choice, Format as Of, Integer, List, Map};
use waypost_schema::{
    Document, Format, FromNode, Kind as Value, Node, Problem, Problems, Report, Row, Shape, any_text,
    instead_of, needed, optional, quoted,
};

use super::{Actor, Actors, CancelFact, DecisionPart, Kind, OnStale, Outcome, Phase};
use crate::format::{DURATION, duration};
use crate::guard::Guard;
use crate::time::Span;

/// A value and the line that it stands on.
#[derive(Clone, Debug)]
pub struct At<T> {
    pub line: usize,
    pub value: T,
}

/// A file as written: every word known, nothing yet compared with anything else.
#[derive(Debug)]
pub struct Draft {
    pub name: At<String>,
    pub description: Option<At<String>>,
    pub version: At<i64>,
    pub kind: Kind,
    pub ids: Option<At<String>>,
    pub initial: At<Vec<At<String>>>,
    pub items: Vec<At<String>>,
    pub stops_run: Option<At<bool>>,
    pub projected: Option<At<bool>>,
    pub codes: Vec<(At<String>, At<String>)>,
    pub operations: Vec<(At<String>, Vec<At<String>>)>,
    pub decisions: Vec<(DecisionPart, At<String>)>,
    pub cancelled_metadata: Vec<(At<String>, At<CancelFact>)>,
    pub states: Vec<StateDraft>,
    pub transitions: Vec<TransitionDraft>,
}

#[derive(Debug)]
pub struct StateDraft {
    pub name: At<String>,
    pub phase: Phase,
    pub outcome: Option<At<Outcome>>,
    pub lease: Option<At<Span>>,
    pub deadline: Option<At<Span>>,
    pub on_stale: Option<At<OnStale>>,
    pub max_take_overs: Option<At<u32>>,
    pub ttl: Option<At<Span>>,
    pub retry: Option<At<bool>>,
    pub keep: Option<At<Span>>,
    pub follows: Vec<(At<String>, At<String>)>,
}

#[derive(Debug)]
pub struct TransitionDraft {
    pub line: usize,
    pub from: At<String>,
    pub command: At<String>,
    pub to: At<String>,
    pub by: Actors,
    pub guards: Vec<At<Guard>>,
}

/// A name; what it may look like depends on what it names.
static WORD: Format = Format { name: "a word", check: any_text, ..Format::TEXT };

/// Ends nothing if it is `never`.
static TTL: Format = Format {
    name: "a duration, or `never`",
    pattern: Some("^([0-9]+(ms|s|m|h|d)|never)$"),
    check: |text| if text == "never" { Ok(None) } else { duration(text) },
    ..DURATION
};

const WORDS: Value = List { of: &Of(&WORD), least: 0, most: usize::MAX };

static ROW: Row = Row {
    whose: "a transition is a row of five words",
    of: &Of(&WORD),
    least: 4,
    most: 5,
    rule: "row-shape",
    hint: r#"write ["from", "command", "to", "by", "guard"], with "" where there is no guard"#,
};

pub static STATE: Shape = Shape::of_file(
    "a state",
    &[
        needed("phase", Choice(&Phase::NAMES), "What the state means to the engine.")
            .like("draft, ready, held, parked or settled"),
        optional("outcome", Choice(&Outcome::NAMES), "How a settled run is counted."),
        optional("lease", Of(&DURATION), "How long a lease lasts when the claimer does not say."),
        optional("deadline", Of(&DURATION), "The holder must begin within this time of its claim."),
        optional("on_stale", Choice(&OnStale::NAMES), "What an expired lease means in a held state."),
        optional("max_take_overs", Integer(0, 100), "How often expired leases are taken over. Default: 5."),
        optional("ttl", Of(&TTL), "How long a run may wait here before the engine's `expire`."),
        optional("retry", Boolean, "A settled state that keeps a retry time while attempts remain."),
        optional(
            "keep",
            Of(&DURATION),
            "How long a settled run is kept. Default: 30d, 90d unless it succeeded.",
        ),
    ],
)
.with_others("on_", &Of(&WORD));

pub static DECISIONS: Shape = Shape::of_file(
    "the decisions of a lifecycle",
    &[
        needed("waiting", Of(&WORD), "The member of details that is true while decisions are missing."),
        needed("asked", Of(&WORD), "The member that says, by subject, what is to be decided."),
        needed("given", Of(&WORD), "The member that says, by subject, what was decided."),
        optional("asked_count", Of(&WORD), "The member that counts the subjects."),
        optional("critical_count", Of(&WORD), "The member that counts what is critical."),
    ],
);

pub static LIFECYCLE: Shape = Shape::of_file(
    "a lifecycle file",
    &[
        needed("name", Of(&WORD), "What runs name.").like(r#""deploy""#),
        optional("description", Of(&WORD), "What runs of it are, for people who choose one."),
        needed("version", Integer(i64::MIN, i64::MAX), "Runs keep the one that they began with.").like("1"),
        optional("kind", Choice(&Kind::NAMES), "Whether it is one of runs or of their items. Default: run."),
        optional("ids", Of(&WORD), "What ids of runs look like."),
        needed("initial", WORDS, "Where a run may start; the first is the default.").like(r#"["queued"]"#),
        optional("items", WORDS, "The lifecycles of a run's items."),
        optional("stops_run", Boolean, "Of items: one that fails ends its run's course. Default: false."),
        optional(
            "projected",
            Boolean,
            "Its runs are written to the object store as `status.json` and its neighbours. Default: false.",
        ),
        optional(
            "codes",
            Map { of: &Of(&WORD), keys: None, most: usize::MAX },
            "The error code that each command leaves behind.",
        ),
        optional(
            "operations",
            Map { of: &WORDS, keys: None, most: usize::MAX },
            "Commands that a run of their own carries out, and from which states.",
        ),
        optional(
            "decisions",
            Value::Of(&DECISIONS),
            "What pauses ask people to decide: where in a run's details it stands.",
        ),
        optional(
            "cancelled_metadata",
            Map { of: &Choice(&CancelFact::NAMES), keys: None, most: 16 },
            "What the metadata say of a run that the engine cancels because its lease ran out.",
        ),
        needed(
            "states",
            Map { of: &Value::Of(&STATE), keys: None, most: usize::MAX },
            "A line for each state.",
        )
        .like("{ … }, or the table [states]"),
        needed(
            "transitions",
            List { of: &Value::Row(&ROW), least: 0, most: usize::MAX },
            "Who may move a run from where to where.",
        )
        .like("[[from, command, to, by, guard], …]"),
    ],
);

static FILE: Document = Document {
    shape: &LIFECYCLE,
    max_bytes: 256 * 1024,
    too_large: "split it into several lifecycles",
    syntax: &[
        ("recurs", "nest less deeply: a lifecycle needs tables of words and one list of rows"),
        ("array", "put a comma between the words of a row and after the row, and close each [ with a ]"),
        ("inline table", "close the { … } of the state, with a comma between its keys"),
        ("", "write key = value, or a row of words between [ and ]; texts stand between quotes"),
    ],
    at_the_end: &[
        ("states", "transitions"),
        ("decisions", "transitions"),
        ("cancelled_metadata", "transitions"),
    ],
};

/// What the file says, and what is wrong with its words: a file that has the parts of a lifecycle is looked at further, so that
/// everything is told at once.
pub fn read(text: &str) -> Result<(Draft, Vec<Problem>), Problems> {
    let (root, mut report) = FILE.read(text, Path::new(""))?;
    let count = |key: &str| root.get(key).map_or(0, |node| node.entries().len().max(node.items().len()));
    // Of a state that cannot be read, every row that names it would be told as another mistake.
    let is_whole = |draft: &Draft| {
        draft.states.len() == count("states") && draft.transitions.len() == count("transitions")
    };
    match (draft(&root, &mut report), report.done(())) {
        (Some(draft), Ok(())) => Ok((draft, Vec::new())),
        (Some(draft), Err(problems)) if is_whole(&draft) => Ok((draft, problems.0)),
        (_, Err(problems)) => Err(problems),
        // What is missing was told, so that there is no such file.
        (None, Ok(())) => {
            Err(Problems::one(Path::new(""), 1, "missing-key", "the file is incomplete", "add what it lacks"))
        }
    }
}

fn draft(root: &Node, report: &mut Report) -> Option<Draft> {
    let words = |key: &str| root.get(key).map(words).unwrap_or_default();
    let states = root.get("states").map(Node::entries).unwrap_or_default();
    let rows = root.get("transitions").map(Node::items).unwrap_or_default();
    let transitions: Vec<_> = rows.iter().filter_map(|row| transition(row, report)).collect();
    Some(Draft {
        name: of(root, "name")?,
        description: of(root, "description"),
        version: of(root, "version")?,
        kind: root.of("kind").unwrap_or(Kind::Run),
        ids: of(root, "ids"),
        initial: At { line: root.get("initial")?.line, value: words("initial") },
        items: words("items"),
        stops_run: of(root, "stops_run"),
        projected: of(root, "projected"),
        codes: named(root, "codes").filter_map(|(name, code)| Some((name, at(code)?))).collect(),
        operations: named(root, "operations").map(|(name, states)| (name, self::words(states))).collect(),
        decisions: decisions(root),
        cancelled_metadata: named(root, "cancelled_metadata")
            .filter_map(|(name, fact)| Some((name, at(fact)?)))
            .collect(),
        states: states.iter().filter_map(|(name, node)| state(name, node)).collect(),
        transitions,
    })
}

fn decisions(root: &Node) -> Vec<(DecisionPart, At<String>)> {
    let Some(table) = root.get("decisions") else { return Vec::new() };
    let parts = DecisionPart::ALL.into_iter();
    parts.filter_map(|part| Some((part, of(table, part.name())?))).collect()
}

fn state(name: &str, node: &Node) -> Option<StateDraft> {
    let follows = node.entries().iter().filter_map(|(key, to)| {
        let when = key.strip_prefix("on_").filter(|when| *when != "stale")?;
        Some((At { line: to.line, value: when.replace('_', "-") }, at(to)?))
    });
    Some(StateDraft {
        name: At { line: node.line, value: name.to_owned() },
        phase: node.of("phase")?,
        outcome: of(node, "outcome"),
        lease: of(node, "lease"),
        deadline: of(node, "deadline"),
        on_stale: of(node, "on_stale"),
        max_take_overs: of(node, "max_take_overs"),
        ttl: of(node, "ttl"),
        retry: of(node, "retry"),
        keep: of(node, "keep"),
        follows: follows.collect(),
    })
}

fn transition(row: &Node, report: &mut Report) -> Option<TransitionDraft> {
    let [from, command, to, by, guard @ ..] = row.items() else { return None };
    let mut actors = Actors::default();
    for actor in list(by, "actor", &Actor::ALL, Actor::name, report) {
        actors = actors.with(actor.value);
    }
    let guards = guard.first().map(|cell| list(cell, "guard", &Guard::ALL, Guard::name, report));
    Some(TransitionDraft {
        line: row.line,
        from: at(from)?,
        command: at(command)?,
        to: at(to)?,
        by: actors,
        guards: guards.unwrap_or_default(),
    })
}

/// A comma-separated cell, each word from a known list.
fn list<T: Copy>(
    cell: &Node,
    what: &str,
    known: &[T],
    name: fn(T) -> &'static str,
    report: &mut Report,
) -> Vec<At<T>> {
    let mut found = Vec::new();
    for word in cell.text().split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match known.iter().copied().find(|candidate| name(*candidate) == word) {
            Some(value) => found.push(At { line: cell.line, value }),
            None => {
                let names: Vec<&str> = known.iter().map(|candidate| name(*candidate)).collect();
                let message = format!("there is no {what} {}", quoted(word));
                report.of_node(cell, "unknown-word", &message, &instead_of(word, &names));
            }
        }
    }
    found
}

fn at<T: FromNode>(node: &Node) -> Option<At<T>> {
    Some(At { line: node.line, value: node.typed()? })
}

fn of<T: FromNode>(table: &Node, key: &str) -> Option<At<T>> {
    table.get(key).and_then(at)
}

fn words(list: &Node) -> Vec<At<String>> {
    list.items().iter().filter_map(at).collect()
}

fn named<'a>(root: &'a Node, key: &str) -> impl Iterator<Item = (At<String>, &'a Node)> {
    let entries = root.get(key).map(Node::entries).unwrap_or_default();
    entries.iter().map(|(name, node)| (At { line: node.line, value: name.clone() }, node))
}
