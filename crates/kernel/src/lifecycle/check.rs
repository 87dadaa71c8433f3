//! From a file as written to a lifecycle that means something: names resolved, then every rule checked.

use std::sync::Arc;

use waypost_schema::{Problem, Problems, instead_of, nearest, quoted};

use super::file::{At, Draft, STATE, StateDraft, TransitionDraft};
use super::rules;
use super::{Catalog, Kind, Lifecycle, OnStale, Outcome, Phase, State, StateId, Transition};
use crate::id::IdFormat;
use crate::request::DECIDE;
use crate::tally::Tallies;
use crate::tenant::own_name;
use crate::text::MAX_NAME_BYTES;
use crate::time::Span;

const MAX_STATES: usize = 64;
const MAX_TRANSITIONS: usize = 512;
const DEFAULT_TAKE_OVERS: u32 = 5;
const KEEP_SUCCESS: Span = Span::from_seconds(30 * 86_400);
const KEEP_FAILURE: Span = Span::from_seconds(90 * 86_400);

/// Routes and events of the engine's own, which a lifecycle's command would shadow.
pub const RESERVED_COMMANDS: [&str; 15] = [
    "create",
    "note",
    "require-cleanup",
    "owe",
    "items",
    "events",
    "heartbeat",
    "renew",
    "finish",
    "release",
    "take-over",
    "operation",
    "replay",
    "targets",
    DECIDE,
];

/// A lifecycle whose names are resolved, with the lines it came from, for the rules to look at.
#[derive(Debug)]
pub struct Resolved {
    pub lifecycle: Lifecycle,
    pub state_lines: Vec<usize>,
    pub transition_lines: Vec<usize>,
    pub drafts: Vec<StateDraft>,
    pub initial_line: usize,
    pub operation_lines: Vec<usize>,
    pub decisions_line: usize,
}

/// `problems` were found in its words, `tenant` is whose lifecycle it is.
pub fn check(
    draft: Draft,
    mut problems: Vec<Problem>,
    catalog: &Catalog,
    tenant: &str,
) -> Result<Lifecycle, Problems> {
    let resolved = Resolver { draft: &draft, problems: &mut problems }.resolve(catalog, tenant);
    let lifecycle = resolved.map(|(lifecycle, operation_lines)| {
        let resolved = Resolved {
            lifecycle,
            state_lines: draft.states.iter().map(|state| state.name.line).collect(),
            transition_lines: draft.transitions.iter().map(|row| row.line).collect(),
            initial_line: draft.initial.line,
            operation_lines,
            decisions_line: draft.decisions.first().map_or(1, |(_, word)| word.line),
            drafts: draft.states,
        };
        // Of a table with gaps, what looks at rows would tell of the gaps and not of the file.
        let broken = if problems.is_empty() { rules::broken } else { rules::broken_alone };
        problems.extend(broken(&resolved));
        resolved.lifecycle
    });
    match lifecycle {
        Some(lifecycle) if problems.is_empty() => Ok(lifecycle),
        _ => Err(Problems::sorted(problems)),
    }
}

/// A text that is written into tables and files again.
fn on_one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

pub(super) struct Resolver<'a> {
    pub(super) draft: &'a Draft,
    problems: &'a mut Vec<Problem>,
}

impl Resolver<'_> {
    fn resolve(mut self, catalog: &Catalog, tenant: &str) -> Option<(Lifecycle, Vec<usize>)> {
        let draft = self.draft;
        self.name(&draft.name, "the lifecycle's name", &LOWER);
        let name = self.own_name(tenant);
        if let Some(text) = draft.description.as_ref().filter(|text| text.value.trim().is_empty()) {
            let hint = "say what runs of it are, or remove the key";
            self.problem(text.line, "missing-key", "`description` is empty", hint);
        }
        if !(1..=i64::from(u16::MAX)).contains(&draft.version.value) {
            self.problem(
                draft.version.line,
                "bad-version",
                "the version is out of range",
                "count versions from 1 to 65535",
            );
        }
        if draft.states.is_empty()
            || draft.states.len() > MAX_STATES
            || draft.transitions.len() > MAX_TRANSITIONS
        {
            let message = format!(
                "there are {} states and {} transitions",
                draft.states.len(),
                draft.transitions.len()
            );
            self.problem(1, "size", &message, "a lifecycle has 1 to 64 states and at most 512 transitions");
            return None;
        }
        for state in &draft.states {
            self.name(&state.name, "a state's name", &WORD);
        }
        let ids = self.ids();
        self.item_keys();
        self.run_keys();
        self.once(&draft.initial.value, "initial");
        self.once(&draft.items, "items");
        let initial = draft.initial.value.iter().filter_map(|name| self.state_named(name)).collect();
        let transitions = draft.transitions.iter().filter_map(|row| self.transition(row)).collect();
        let items: Vec<_> = draft.items.iter().filter_map(|name| self.item_kind(name, catalog)).collect();
        let states = draft.states.iter().map(|state| self.state(state)).collect();
        let mut operations = Vec::new();
        let mut operation_lines = Vec::new();
        for (command, states) in &draft.operations {
            self.command(command);
            self.once(states, "an operation's list");
            let states = states.iter().filter_map(|state| self.state_named(state)).collect();
            operations.push((Arc::from(command.value.as_str()), states));
            operation_lines.push(command.line);
        }
        let lifecycle = Lifecycle {
            name,
            description: draft.description.as_ref().map(|text| on_one_line(&text.value).into()),
            version: u32::try_from(draft.version.value).unwrap_or(0),
            kind: draft.kind,
            ids,
            initial,
            states,
            transitions,
            no_items: Tallies::none(&items),
            items,
            stops_run: draft.stops_run.as_ref().is_some_and(|stops| stops.value),
            projected: draft.projected.as_ref().is_some_and(|projected| projected.value),
            codes: self.codes(),
            operations,
            decisions: self.decisions(),
            cancelled_metadata: self.cancelled_metadata(),
        };
        Some((lifecycle, operation_lines))
    }

    /// The name that it is stored under. With its version it fits into the audit log.
    fn own_name(&mut self, tenant: &str) -> Arc<str> {
        let name = own_name(tenant, &self.draft.name.value);
        if name.len() > MAX_NAME_BYTES - "@65535".len() {
            let message = format!("{} is {} bytes long", quoted(&name), name.len());
            self.problem(self.draft.name.line, "bad-name", &message, "shorten the name, or the tenant's");
        }
        name.into()
    }

    fn ids(&mut self) -> Option<IdFormat> {
        match (&self.draft.ids, self.draft.kind) {
            (Some(ids), Kind::Run) => match IdFormat::parse(&ids.value) {
                Ok(format) => return Some(format),
                Err(message) => {
                    self.problem(
                        ids.line,
                        "bad-ids",
                        &format!("`ids` {message}"),
                        r#"write for example ids = "run-{uuid7}""#,
                    );
                }
            },
            (None, Kind::Run) => {
                self.problem(1, "missing-key", "`ids` is missing", r#"add ids = "run-{uuid7}""#);
            }
            (_, Kind::Item) => {}
        }
        None
    }

    /// What belongs to a run: its items take part in it.
    fn item_keys(&mut self) {
        let draft = self.draft;
        let keys = [
            ("ids", draft.ids.as_ref().map(|ids| ids.line)),
            ("items", draft.items.first().map(|name| name.line)),
            ("projected", draft.projected.as_ref().map(|projected| projected.line)),
            ("codes", draft.codes.first().map(|(command, _)| command.line)),
            ("operations", draft.operations.first().map(|(command, _)| command.line)),
            ("decisions", draft.decisions.first().map(|(_, word)| word.line)),
            ("cancelled_metadata", draft.cancelled_metadata.first().map(|(member, _)| member.line)),
        ];
        for (key, line) in keys.into_iter().filter(|_| draft.kind == Kind::Item) {
            if let Some(line) = line {
                let message = format!("an item lifecycle has no `{key}`: that is its run's");
                self.problem(line, "item-key", &message, &format!("remove `{key}`, or kind = \"item\""));
            }
        }
    }

    /// What belongs to an item: a run has nobody's course to end.
    fn run_keys(&mut self) {
        if let Some(at) = self.draft.stops_run.as_ref().filter(|_| self.draft.kind == Kind::Run) {
            let message = "a run lifecycle has no `stops_run`: that is its items'";
            self.problem(at.line, "run-key", message, "remove `stops_run`, or add kind = \"item\"");
        }
    }

    fn once(&mut self, names: &[At<String>], list: &str) {
        for (at, name) in names.iter().enumerate() {
            if names[..at].iter().any(|earlier| earlier.value == name.value) {
                let message = format!("{list} names {} twice", quoted(&name.value));
                self.problem(name.line, "duplicate-name", &message, "leave one");
            }
        }
    }

    fn state(&mut self, draft: &StateDraft) -> State {
        let mut follows = Vec::new();
        for (when, to) in &draft.follows {
            if self.draft.kind == Kind::Run {
                let key = format!("on_{}", when.value.replace('-', "_"));
                let message = format!("a run's state has no key {}", quoted(&key));
                self.problem(when.line, "unknown-key", &message, &instead_of(&key, &STATE.names()));
                continue;
            }
            follows.extend(self.state_named(to).map(|to| (Arc::from(when.value.as_str()), to)));
        }
        let outcome = draft.outcome.as_ref().map(|outcome| outcome.value);
        let keep = match outcome {
            Some(Outcome::Succeeded) => Some(KEEP_SUCCESS),
            Some(_) => Some(KEEP_FAILURE),
            None => None,
        };
        State {
            name: draft.name.value.as_str().into(),
            phase: draft.phase,
            outcome,
            lease: draft.lease.as_ref().map(|at| at.value),
            deadline: draft.deadline.as_ref().map(|at| at.value),
            on_stale: draft.on_stale.as_ref().map(|at| at.value),
            max_take_overs: match (&draft.max_take_overs, &draft.on_stale) {
                (Some(count), _) => count.value,
                (None, Some(At { value: OnStale::TakeOver, .. })) => DEFAULT_TAKE_OVERS,
                (None, _) => 0,
            },
            ttl: draft.ttl.as_ref().map(|at| at.value),
            retry: draft.retry.as_ref().is_some_and(|at| at.value),
            keep: draft.keep.as_ref().map(|at| at.value).or(keep.filter(|_| draft.phase == Phase::Settled)),
            follows,
        }
    }

    fn transition(&mut self, row: &TransitionDraft) -> Option<Transition> {
        self.command(&row.command);
        if row.by.to_string().is_empty() {
            self.problem(
                row.line,
                "no-actor",
                "nobody may make this move",
                "name who: client, operator, worker, engine",
            );
        }
        let (from, to) = (self.state_named(&row.from), self.state_named(&row.to));
        Some(Transition {
            from: from?,
            command: row.command.value.as_str().into(),
            to: to?,
            by: row.by,
            guards: row.guards.iter().map(|guard| guard.value).collect(),
        })
    }

    fn item_kind(&mut self, name: &At<String>, catalog: &Catalog) -> Option<Arc<Lifecycle>> {
        let found = catalog.latest(&name.value).filter(|lifecycle| lifecycle.kind == Kind::Item);
        if found.is_none() {
            let known: Vec<&str> =
                catalog.iter().filter(|it| it.kind == Kind::Item).map(|it| &*it.name).collect();
            let message = format!("there is no item lifecycle {}", quoted(&name.value));
            self.problem(name.line, "unknown-item-kind", &message, &instead_of(&name.value, &known));
        }
        found.cloned()
    }

    fn codes(&mut self) -> Vec<(Arc<str>, Arc<str>)> {
        let mut codes = Vec::new();
        for (command, code) in &self.draft.codes {
            if !self.draft.transitions.iter().any(|row| row.command.value == command.value) {
                let message = format!("codes names {}, which no transition has", quoted(&command.value));
                let known: Vec<&str> =
                    self.draft.transitions.iter().map(|row| row.command.value.as_str()).collect();
                let mend = match nearest(&command.value, known) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "name a command of the table".to_owned(),
                };
                self.problem(command.line, "unknown-command", &message, &mend);
            }
            self.name(code, "an error code", &WORD);
            codes.push((command.value.as_str().into(), code.value.as_str().into()));
        }
        codes
    }

    fn state_named(&mut self, name: &At<String>) -> Option<StateId> {
        let found = self.draft.states.iter().position(|state| state.name.value == name.value);
        if found.is_none() {
            let known = self.draft.states.iter().map(|state| state.name.value.as_str());
            let known: Vec<&str> = known.filter(|name| is_state_name(name)).collect();
            let mend = match nearest(&name.value, known.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`? States: {}", known.join(", ")),
                None => format!("declare it under [states], or use one of: {}", known.join(", ")),
            };
            let message = format!("there is no state {}", quoted(&name.value));
            self.problem(name.line, "unknown-state", &message, &mend);
        }
        found.map(|at| StateId(at as u8))
    }

    fn command(&mut self, command: &At<String>) {
        self.name(command, "a command", &COMMAND);
        if RESERVED_COMMANDS.contains(&command.value.as_str()) {
            let message = format!("{} is a word of the engine's own", quoted(&command.value));
            self.problem(command.line, "reserved-word", &message, "choose another name for the command");
        }
    }

    fn name(&mut self, name: &At<String>, what: &str, shape: &Shape) {
        if !(shape.fits)(&name.value) {
            let message = format!("{what} cannot be {}", quoted(&name.value));
            self.problem(name.line, "bad-name", &message, shape.mend);
        }
    }

    /// A key of details or metadata.
    pub(super) fn key(&mut self, key: &At<String>, what: &str) {
        self.name(key, what, &WORD);
    }

    pub(super) fn problem(&mut self, line: usize, rule: &'static str, message: &str, hint: &str) {
        let (message, hint) = (message.to_owned(), hint.to_owned());
        self.problems.push(Problem { line, rule, message, hint, ..Problem::default() });
    }
}

/// What a name looks like. Lifecycles are parts of addresses and commands are, too: those are in lower case.
struct Shape {
    fits: fn(&str) -> bool,
    mend: &'static str,
}

const WORD: Shape = Shape {
    fits: is_state_name,
    mend: "begin with a letter, then letters, digits, `_` or `-`; at most 63 in all",
};
const LOWER: Shape = Shape {
    fits: is_lower_name,
    mend: "begin with a letter, then lower-case letters, digits, `_` or `-`; at most 63 in all",
};
const COMMAND: Shape = Shape {
    fits: is_command,
    mend: "begin with a letter, then lower-case letters, digits or `-`; at most 63 in all",
};

fn is_state_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn is_lower_name(name: &str) -> bool {
    is_state_name(name) && !name.chars().any(|c| c.is_ascii_uppercase())
}

fn is_command(name: &str) -> bool {
    is_lower_name(name) && !name.contains('_')
}
