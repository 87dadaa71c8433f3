//! Reads a lifecycle file: TOML with the line of every word kept, so that a problem can name it.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, Problems, nearest};
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
const FILE_KEYS: [&str; 10] =
    ["name", "version", "kind", "ids", "initial", "items", "codes", "operations", "states", "transitions"];
const STATE_KEYS: [&str; 9] =
    ["phase", "outcome", "lease", "deadline", "on_stale", "max_take_overs", "ttl", "retry", "keep"];

type Entry<'a, 'i> = (&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

pub fn read(text: &str) -> Result<Draft, Problems> {
    let mut reader = Reader { text, problems: Vec::new() };
    if text.len() > MAX_FILE_BYTES {
        reader.problem(1, "too-large", "the file is larger than 256 KiB", "split it into several lifecycles");
        return Err(Problems(reader.problems));
    }
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let line = reader.line_at(error.span().map_or(0, |span| span.start));
            reader.problem(line, "syntax", error.message(), "mend the TOML at this line");
            return Err(Problems(reader.problems));
        }
    };
    match reader.draft(table.get_ref()) {
        Some(draft) if reader.problems.is_empty() => Ok(draft),
        _ => {
            reader.problems.sort_by_key(|problem| problem.line);
            Err(Problems(reader.problems))
        }
    }
}

/// Collects problems instead of stopping at the first: people mend a file in one go.
struct Reader<'t> {
    text: &'t str,
    problems: Vec<Problem>,
}

impl<'t> Reader<'t> {
    fn draft(&mut self, table: &DeTable<'_>) -> Option<Draft> {
        self.known_keys(table, &FILE_KEYS, "a lifecycle file");
        let states = self.required(table, "states").and_then(|value| self.table(value, "states"));
        // Under `[states]` TOML counts what follows as a part of it: `transitions` may end that table.
        let transitions =
            table.get("transitions").or_else(|| states.and_then(|states| states.get("transitions")));
        if transitions.is_none() {
            self.problem(
                1,
                "missing-key",
                "`transitions` is missing",
                "add transitions = [[from, command, to, by, guard], …]",
            );
        }
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
            codes: self.pairs(table, "codes"),
            operations: self.operations(table),
            states: state_drafts,
            transitions,
            name: name?,
            version: version?,
            initial: initial?,
        })
    }

    fn state(&mut self, (name, value): Entry<'_, '_>) -> Option<StateDraft> {
        let name = At { line: self.line(name), value: name.get_ref().to_string() };
        let table = self.table(value, &format!("state `{}`", name.value))?;
        for key in table.keys() {
            if !key.get_ref().starts_with("on_") {
                self.known_key(key, &STATE_KEYS, "a state");
            }
        }
        let Some(phase) = table.get("phase") else {
            let message = format!("state `{}` has no phase", name.value);
            self.problem(
                name.line,
                "missing-key",
                &message,
                "add phase = draft, ready, held, parked or settled",
            );
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
            ttl: table
                .get("ttl")
                .filter(|it| it.get_ref().as_str() != Some("never"))
                .and_then(|it| self.span(it, "ttl")),
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
        let cells: Vec<At<String>> = match value.get_ref().as_array() {
            Some(cells) if (4..=5).contains(&cells.len()) => {
                cells.iter().filter_map(|cell| self.word(cell, "a cell of a transition")).collect()
            }
            _ => Vec::new(),
        };
        let [from, command, to, by, guards @ ..] = cells.as_slice() else {
            let mend = r#"write ["from", "command", "to", "by", "guard"], with "" where there is no guard"#;
            self.problem(line, "row-shape", "a transition is a row of five words", mend);
            return None;
        };
        let mut actors = Actors::default();
        for actor in self.list(by, "by", &Actor::ALL, Actor::name) {
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

    /// A comma-separated cell, each word from a known list.
    fn list<T: Copy>(
        &mut self,
        cell: &At<String>,
        what: &str,
        known: &[T],
        name: fn(T) -> &'static str,
    ) -> Vec<At<T>> {
        let words = cell.value.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.filter_map(|word| self.known_word(cell.line, word, what, known, name)).collect()
    }

    fn choice<T: Copy>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        what: &str,
        known: &[T],
        name: fn(T) -> &'static str,
    ) -> Option<At<T>> {
        let word = self.word(value, what)?;
        self.known_word(word.line, &word.value, what, known, name)
    }

    fn known_word<T: Copy>(
        &mut self,
        line: usize,
        word: &str,
        what: &str,
        known: &[T],
        name: fn(T) -> &'static str,
    ) -> Option<At<T>> {
        if let Some(value) = known.iter().copied().find(|candidate| name(*candidate) == word) {
            return Some(At { line, value });
        }
        let names: Vec<&str> = known.iter().map(|candidate| name(*candidate)).collect();
        let mend = match nearest(word, names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`? Allowed: {}", names.join(", ")),
            None => format!("allowed: {}", names.join(", ")),
        };
        self.problem(line, "unknown-word", &format!("`{}` is no {what}", word.escape_debug()), &mend);
        None
    }

    fn word(&mut self, value: &Spanned<DeValue<'_>>, what: &str) -> Option<At<String>> {
        let line = self.line(value);
        let word = value.get_ref().as_str().map(|word| At { line, value: word.to_owned() });
        word.or_else(|| self.wrong_type(value, what, "a string"))
    }

    fn words(&mut self, value: &Spanned<DeValue<'_>>, what: &str) -> Vec<At<String>> {
        let Some(list) = value.get_ref().as_array() else {
            self.wrong_type::<()>(value, what, "a list of strings");
            return Vec::new();
        };
        list.iter().filter_map(|item| self.word(item, what)).collect()
    }

    fn integer(&mut self, value: &Spanned<DeValue<'_>>, what: &str) -> Option<At<i64>> {
        let line = self.line(value);
        let parsed = value.get_ref().as_integer();
        let parsed = parsed.and_then(|it| i64::from_str_radix(it.as_str(), it.radix()).ok());
        parsed.map(|value| At { line, value }).or_else(|| self.wrong_type(value, what, "a whole number"))
    }

    fn boolean(&mut self, value: &Spanned<DeValue<'_>>, what: &str) -> Option<At<bool>> {
        let line = self.line(value);
        let parsed = value.get_ref().as_bool().map(|value| At { line, value });
        parsed.or_else(|| self.wrong_type(value, what, "true or false"))
    }

    fn span(&mut self, value: &Spanned<DeValue<'_>>, what: &str) -> Option<At<Span>> {
        let word = self.word(value, what)?;
        match Span::parse(&word.value) {
            Some(span) if span > Span::ZERO => Some(At { line: word.line, value: span }),
            _ => {
                let message = format!("{what} = `{}` is no length of time", word.value.escape_debug());
                self.problem(
                    word.line,
                    "bad-duration",
                    &message,
                    "write a whole number and a unit: 500ms, 60s, 5m, 24h, 7d",
                );
                None
            }
        }
    }

    fn table<'a, 'i>(&mut self, value: &'a Spanned<DeValue<'i>>, what: &str) -> Option<&'a DeTable<'i>> {
        value.get_ref().as_table().or_else(|| self.wrong_type(value, what, "a table"))
    }

    fn required<'a, 'i>(&mut self, table: &'a DeTable<'i>, key: &str) -> Option<&'a Spanned<DeValue<'i>>> {
        if !table.contains_key(key) {
            self.problem(1, "missing-key", &format!("`{key}` is missing"), &format!("add {key} = …"));
        }
        table.get(key)
    }

    fn known_keys(&mut self, table: &DeTable<'_>, known: &[&str], whose: &str) {
        for key in table.keys() {
            self.known_key(key, known, whose);
        }
    }

    fn known_key(&mut self, key: &Spanned<std::borrow::Cow<'_, str>>, known: &[&str], whose: &str) {
        let name = key.get_ref().as_ref();
        if !known.contains(&name) {
            let mend = match nearest(name, known.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`? Allowed: {}", known.join(", ")),
                None => format!("allowed: {}", known.join(", ")),
            };
            let line = self.line(key);
            self.problem(
                line,
                "unknown-key",
                &format!("{whose} has no key `{}`", name.escape_debug()),
                &mend,
            );
        }
    }

    fn wrong_type<T>(&mut self, value: &Spanned<DeValue<'_>>, what: &str, wanted: &str) -> Option<T> {
        let message = format!("{what} is {}, not {wanted}", value.get_ref().type_str());
        let line = self.line(value);
        self.problem(line, "wrong-type", &message, &format!("write {wanted}"));
        None
    }

    fn line<T>(&self, value: &Spanned<T>) -> usize {
        self.line_at(value.span().start)
    }

    fn line_at(&self, offset: usize) -> usize {
        let end = offset.min(self.text.len());
        1 + self.text.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count()
    }

    fn problem(&mut self, line: usize, rule: &'static str, message: &str, mend: &str) {
        self.problems.push(Problem { line, rule, message: message.to_owned(), mend: mend.to_owned() });
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
