//! The tables, read from text. Nothing here looks at `lifecycles/*.toml`.

use waypost_kernel::{Actor, Outcome, Phase, Span};

/// What a run or an item may do, as its seed says it.
#[derive(Debug, Default)]
pub struct Table {
    pub name: &'static str,
    pub states: Vec<State>,
    pub initial: Vec<&'static str>,
    pub items: Vec<Table>,
    pub operations: Vec<(&'static str, Vec<&'static str>)>,
    pub codes: Vec<(&'static str, &'static str)>,
    pub legal: Vec<Row>,
    pub with_run: Vec<(&'static str, &'static str, &'static str)>,
    /// States in which an item that must not fail ends its run's course.
    pub ends_course: Vec<&'static str>,
    pub forbidden: Vec<(&'static str, &'static str)>,
}

#[derive(Debug)]
pub struct State {
    pub name: &'static str,
    pub phase: Phase,
    pub outcome: Option<Outcome>,
    pub lease: Option<Span>,
    /// Heartbeats do not extend it.
    pub fixed: bool,
    pub stale: &'static str,
}

/// One legal move for one actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub from: &'static str,
    pub to: &'static str,
    pub who: Actor,
    pub how: &'static str,
    pub when: Vec<&'static str>,
}

pub const RUNS: [(&str, &str); 8] = [
    ("deploy", include_str!("tables/deploy.txt")),
    ("agent", include_str!("tables/agent.txt")),
    ("cron", include_str!("tables/cron.txt")),
    ("job", include_str!("tables/job.txt")),
    ("rule", include_str!("tables/rule.txt")),
    ("operation", include_str!("tables/operation.txt")),
    ("proposal", include_str!("tables/proposal.txt")),
    ("inbox", include_str!("tables/inbox.txt")),
];

pub const ITEMS: [(&str, &str); 3] = [
    ("step", include_str!("tables/step.txt")),
    ("task", include_str!("tables/task.txt")),
    ("target", include_str!("tables/target.txt")),
];

impl Table {
    pub fn named(name: &str) -> Table {
        let found = RUNS.iter().chain(&ITEMS).find(|(known, _)| *known == name);
        let (name, text) = found.unwrap_or_else(|| panic!("no table {name}"));
        let mut table = Table { name, ..Table::default() };
        let mut section = "";
        for line in text.lines().map(|line| line.split('#').next().unwrap_or("").trim_end()) {
            if line.is_empty() {
                continue;
            }
            match line.strip_prefix('[') {
                Some(head) => section = head.split(']').next().unwrap_or(""),
                None => table.read(section, &line.split('|').map(str::trim).collect::<Vec<_>>()),
            }
        }
        table
    }

    fn read(&mut self, section: &str, cells: &[&'static str]) {
        let list = |cell: &'static str| cell.split(',').map(str::trim).filter(|word| !word.is_empty());
        match section {
            "states" => self.states.push(State::read(cells)),
            "initial" => self.initial.push(cells[0]),
            "items" => self.items.push(Table::named(cells[0])),
            "operations" => self.operations.push((cells[0], list(cells[1]).collect())),
            "codes" => self.codes.push((cells[0], cells[1])),
            "legal" => {
                let [from, to, who, how] = [cells[0], cells[1], cells[2], cells[3]];
                let when: Vec<&str> = cells.get(4).map(|cell| list(cell).collect()).unwrap_or_default();
                for who in list(who).map(actor) {
                    self.legal.push(Row { from, to, who, how, when: when.clone() });
                }
            }
            "with the run" => self.with_run.push((cells[0], cells[1], cells[2])),
            "ends the course" => self.ends_course.push(cells[0]),
            "forbidden" => self.forbidden.push((cells[0], cells[1])),
            other => panic!("{}: no section {other}", self.name),
        }
    }

    pub fn state(&self, name: &str) -> &State {
        let found = self.states.iter().find(|state| state.name == name);
        found.unwrap_or_else(|| panic!("{} has no state {name}", self.name))
    }

    pub fn has(&self, name: &str) -> bool {
        self.states.iter().any(|state| state.name == name)
    }

    pub fn phase(&self, name: &str) -> Phase {
        self.state(name).phase
    }

    pub fn from<'a>(&'a self, from: &'a str) -> impl Iterator<Item = &'a Row> {
        self.legal.iter().filter(move |row| row.from == from)
    }

    pub fn code(&self, how: &str) -> Option<&'static str> {
        self.codes.iter().find(|(of, _)| *of == how).map(|(_, code)| *code)
    }

    /// Where an item goes when its run does something.
    pub fn follow(&self, state: &str, when: &str) -> Option<&'static str> {
        self.with_run.iter().find(|(from, on, _)| *from == state && *on == when).map(|(_, _, to)| *to)
    }

    pub fn is_forbidden(&self, from: &str, to: &str) -> bool {
        self.forbidden.iter().any(|(f, t)| *f == from && (*t == to || *t == "*"))
    }
}

impl Row {
    /// An operator may do whatever a client may.
    pub fn is_for(&self, actor: Actor) -> bool {
        self.who == actor || self.who == Actor::Client && actor == Actor::Operator
    }
}

impl State {
    fn read(cells: &[&'static str]) -> State {
        let cell = |at: usize| cells.get(at).copied().filter(|cell| !cell.is_empty());
        let phase = Phase::ALL.into_iter().find(|phase| phase.name() == cells[1]);
        let lease = cell(3).map(|text| text.split(' ').next().unwrap_or(text));
        State {
            name: cells[0],
            phase: phase.unwrap_or_else(|| panic!("no phase {}", cells[1])),
            outcome: cell(2)
                .map(|name| Outcome::ALL.into_iter().find(|outcome| outcome.name() == name).unwrap()),
            lease: lease.map(|text| Span::parse(text).unwrap()),
            fixed: cell(3).is_some_and(|text| text.ends_with("fixed")),
            stale: cell(4).unwrap_or(""),
        }
    }
}

fn actor(name: &str) -> Actor {
    let found = Actor::ALL.into_iter().find(|actor| actor.name() == name);
    found.unwrap_or_else(|| panic!("no actor {name}"))
}
