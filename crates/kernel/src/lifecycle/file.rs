//! Reads a lifecycle file: TOML with the line of every word kept, so that a problem can name it.

mod values;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, Problems, quoted};
use super::{Actor, Actors, Kind, OnStale, Outcome, Phase};
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
    pub version: At<i64>,
    pub kind: Kind,
    pub ids: Option<At<String>>,
    pub initial: At<Vec<At<String>>>,
    pub items: Vec<At<String>>,
    pub stops_run: Option<At<bool>>,
    pub codes: Vec<(At<String>, At<String>)>,
    pub operations: Vec<(At<String>, Vec<At<String>>)>,
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
    pub max_take_overs: Option<At<i64>>,
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

const MAX_FILE_BYTES: usize = 256 * 1024;
const FILE_KEYS: [&str; 11] = [
    "name",
    "version",
    "kind",
    "ids",
    "initial",
    "items",
    "stops_run",
    "codes",
    "operations",
    "states",
    "transitions",
];
pub const STATE_KEYS: [&str; 9] =
    ["phase", "outcome", "lease", "deadline", "on_stale", "max_take_overs", "ttl", "retry", "keep"];

type Entry<'a, 'i> = (&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

pub fn read(text: &str) -> Result<Draft, Problems> {
    let mut reader = Reader::new(text);
    if text.len() > MAX_FILE_BYTES {
        reader.problem(1, "too-large", "the file is larger than 256 KiB", "split it into several lifecycles");
        return Err(Problems::sorted(reader.problems));
    }
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let line = reader.line_at(error.span().map_or(0, |span| span.start));
            reader.problem(line, "syntax", error.message(), mend_of_syntax(error.message()));
            return Err(Problems::sorted(reader.problems));
        }
    };
    match reader.draft(table.get_ref()) {
        Some(draft) if reader.problems.is_empty() => Ok(draft),
        _ => Err(Problems::sorted(reader.problems)),
    }
}

/// The parser says what it expected; people want to know what to write.
fn mend_of_syntax(message: &str) -> &'static str {
    const MENDS: [(&str, &str); 8] = [
        ("duplicate key", "the key stands twice: remove one of the two"),
        ("recurs", "nest less deeply: a lifecycle needs tables of words and one list of rows"),
        ("escape", r"write \\ for a backslash, or put the text between single quotes"),
        (
            "visible",
            "close the text with its quote on the same line, and remove characters that cannot be seen",
        ),
        ("string", "close the text with the quote that opened it, on the same line"),
        ("array", "put a comma between the words of a row and after the row, and close each [ with a ]"),
        ("inline table", "close the { … } of the state, with a comma between its keys"),
        ("key with no value", "write key = value"),
    ];
    let known = MENDS.iter().find(|(part, _)| message.contains(part));
    known.map_or(
        "write key = value, or a row of words between [ and ]; texts stand between quotes",
        |(_, mend)| mend,
    )
}

/// Collects problems instead of stopping at the first: people mend a file in one go.
struct Reader {
    /// Where each line ends, so that the line of an offset is found without reading the file again.
    line_ends: Vec<usize>,
    problems: Vec<Problem>,
}

impl Reader {
    fn draft(&mut self, table: &DeTable<'_>) -> Option<Draft> {
        self.known_keys(table, &FILE_KEYS, "a lifecycle file");
        let states = self.required(table, "states").and_then(|value| self.table(value, "states"));
        let transitions = self.transitions(table, states);
        let name = self.required(table, "name").and_then(|value| self.word(value, "name"));
        let version = self.required(table, "version").and_then(|value| self.integer(value, "version"));
        let initial = self
            .required(table, "initial")
            .map(|value| At { line: self.line(value), value: self.words(value, "initial") });
        let kind = table
            .get("kind")
            .and_then(|value| self.choice(value, "kind", &[Kind::Run, Kind::Item], Kind::name));
        let mut state_drafts = Vec::new();
        for entry in states.into_iter().flatten().filter(|(name, _)| name.get_ref() != "transitions") {
            state_drafts.extend(self.state(entry));
        }
        let transitions = transitions.map(|value| self.rows(value)).unwrap_or_default();
        Some(Draft {
            kind: kind.map_or(Kind::Run, |kind| kind.value),
            ids: table.get("ids").and_then(|value| self.word(value, "ids")),
            items: table.get("items").map(|value| self.words(value, "items")).unwrap_or_default(),
            stops_run: table.get("stops_run").and_then(|value| self.boolean(value, "stops_run")),
            codes: self.pairs(table, "codes"),
            operations: self.operations(table),
            states: state_drafts,
            transitions,
            name: name?,
            version: version?,
            initial: initial?,
        })
    }

    /// Under `[states]` TOML counts what follows as a part of it: `transitions` may end that table.
    fn transitions<'a, 'i>(
        &mut self,
        table: &'a DeTable<'i>,
        states: Option<&'a DeTable<'i>>,
    ) -> Option<&'a Spanned<DeValue<'i>>> {
        let (above, below) = (table.get("transitions"), states.and_then(|states| states.get("transitions")));
        if let (Some(_), Some(second)) = (above, below) {
            let line = self.line(second);
            let mend = "keep one; as a state's name the word is taken";
            self.problem(line, "two-tables", "`transitions` stands twice, here under [states]", mend);
        }
        if above.is_none() && below.is_none() {
            let mend = "add transitions = [[from, command, to, by, guard], …]";
            self.problem(1, "missing-key", "`transitions` is missing", mend);
        }
        above.or(below)
    }

    fn state(&mut self, (name, value): Entry<'_, '_>) -> Option<StateDraft> {
        let name = At { line: self.line(name), value: name.get_ref().to_string() };
        let table = self.table(value, &format!("state {}", quoted(&name.value)))?;
        for key in table.keys() {
            if !key.get_ref().starts_with("on_") {
                self.known_key(key, &STATE_KEYS, "a state");
            }
        }
        let Some(phase) = table.get("phase") else {
            let message = format!("state {} has no phase", quoted(&name.value));
            let mend = "add phase = draft, ready, held, parked or settled";
            self.problem(name.line, "missing-key", &message, mend);
            return None;
        };
        let phase = self.choice(phase, "phase", &Phase::ALL, Phase::name)?.value;
        let mut follows = Vec::new();
        for (key, value) in table {
            if let Some(when) = key.get_ref().strip_prefix("on_").filter(|when| *when != "stale") {
                let when = At { line: self.line(key), value: when.replace('_', "-") };
                follows.extend(self.word(value, key.get_ref()).map(|to| (when, to)));
            }
        }
        let ttl = table.get("ttl").filter(|it| it.get_ref().as_str() != Some("never"));
        Some(StateDraft {
            phase,
            outcome: table
                .get("outcome")
                .and_then(|it| self.choice(it, "outcome", &Outcome::ALL, Outcome::name)),
            lease: table.get("lease").and_then(|it| self.span(it, "lease")),
            deadline: table.get("deadline").and_then(|it| self.span(it, "deadline")),
            on_stale: table
                .get("on_stale")
                .and_then(|it| self.choice(it, "on_stale", &OnStale::ALL, OnStale::name)),
            max_take_overs: table.get("max_take_overs").and_then(|it| self.integer(it, "max_take_overs")),
            ttl: ttl.and_then(|it| self.span(it, "ttl")),
            retry: table.get("retry").and_then(|it| self.boolean(it, "retry")),
            keep: table.get("keep").and_then(|it| self.span(it, "keep")),
            follows,
            name,
        })
    }

    fn rows(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<TransitionDraft> {
        let Some(rows) = value.get_ref().as_array() else {
            self.wrong_type::<()>(value, "transitions", "a list of rows");
            return Vec::new();
        };
        rows.iter().filter_map(|row| self.row(row)).collect()
    }

    fn row(&mut self, value: &Spanned<DeValue<'_>>) -> Option<TransitionDraft> {
        let line = self.line(value);
        let found = match value.get_ref().as_array() {
            Some(cells) if (4..=5).contains(&cells.len()) => {
                let words = cells.iter().map(|cell| self.word(cell, "a cell of a transition"));
                // A cell of another type was told already.
                words.collect::<Vec<_>>().into_iter().collect::<Option<Vec<At<String>>>>()?
            }
            _ => Vec::new(),
        };
        let [from, command, to, by, guards @ ..] = found.as_slice() else {
            let found = value.get_ref().as_array().map(|cells| cells.len());
            let found = found.map_or("no row".to_owned(), |cells| format!("a row of {cells}"));
            let mend = r#"write ["from", "command", "to", "by", "guard"], with "" where there is no guard"#;
            self.problem(
                line,
                "row-shape",
                &format!("a transition is a row of five words, not {found}"),
                mend,
            );
            return None;
        };
        let mut actors = Actors::default();
        for actor in self.list(by, "actor", &Actor::ALL, Actor::name) {
            actors = actors.with(actor.value);
        }
        let guards =
            guards.first().map(|cell| self.list(cell, "guard", &Guard::ALL, Guard::name)).unwrap_or_default();
        Some(TransitionDraft {
            line,
            from: from.clone(),
            command: command.clone(),
            to: to.clone(),
            by: actors,
            guards,
        })
    }

    fn operations(&mut self, table: &DeTable<'_>) -> Vec<(At<String>, Vec<At<String>>)> {
        let Some(value) = table.get("operations") else { return Vec::new() };
        let Some(operations) = self.table(value, "operations") else { return Vec::new() };
        let mut found = Vec::new();
        for (command, states) in operations {
            let command = At { line: self.line(command), value: command.get_ref().to_string() };
            found.push((command, self.words(states, "operations")));
        }
        found
    }

    fn pairs(&mut self, table: &DeTable<'_>, key: &str) -> Vec<(At<String>, At<String>)> {
        let Some(value) = table.get(key) else { return Vec::new() };
        let Some(pairs) = self.table(value, key) else { return Vec::new() };
        let mut found = Vec::new();
        for (name, value) in pairs {
            let name = At { line: self.line(name), value: name.get_ref().to_string() };
            found.extend(self.word(value, key).map(|value| (name, value)));
        }
        found
    }
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Run => "run",
            Kind::Item => "item",
        }
    }
}
