//! Which variables there are where a template stands, and what is wrong with one that is not.

use waypost_schema::{instead_of, quoted};

use super::Builder;
use crate::playbook::template::Named;
use waypost_schema::Node;

/// What `run` holds.
pub const RUN_KEYS: [&str; 12] = [
    "id",
    "attempt",
    "correlation_id",
    "details",
    "lifecycle",
    "metadata",
    "playbook",
    "priority",
    "queue",
    "resolutions",
    "tenant",
    "unattended",
];

/// What `steps.NAME` holds.
const STEP_KEYS: [&str; 7] = ["output", "ran", "ok", "total", "done", "ended", "percent"];

#[derive(Clone, Copy, Debug)]
pub struct Place {
    sees: Sees,
    has_item: bool,
    has_target: bool,
    has_page: bool,
    may_hold_secrets: bool,
}

/// Of which steps the results are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sees {
    None,
    /// Those that the step at this place waits for.
    BeforeStep(usize),
    /// Its own, too.
    WithStep(usize),
    /// A cleanup does.
    All,
}

impl Place {
    pub fn before_all_steps() -> Place {
        Place {
            sees: Sees::None,
            has_item: false,
            has_target: false,
            has_page: false,
            may_hold_secrets: false,
        }
    }

    /// `at`: its place among the steps; none for a cleanup.
    pub fn in_step(at: Option<usize>, has_item: bool) -> Place {
        Place { sees: at.map_or(Sees::All, Sees::BeforeStep), has_item, ..Place::before_all_steps() }
    }

    /// When the step has ended.
    pub fn and_itself(self) -> Place {
        match self.sees {
            Sees::BeforeStep(at) => Place { sees: Sees::WithStep(at), ..self },
            _ => self,
        }
    }

    pub fn with_target() -> Place {
        Place { has_target: true, ..Place::before_all_steps() }
    }

    /// In a request for targets, page by page.
    pub fn with_page() -> Place {
        Place { has_page: true, ..Place::before_all_steps() }
    }

    pub fn open_to_secrets(self) -> Place {
        Place { may_hold_secrets: true, ..self }
    }

    fn roots(self) -> Vec<&'static str> {
        let all = [
            ("inputs", true),
            ("secrets", self.may_hold_secrets),
            ("steps", !matches!(self.sees, Sees::None | Sees::BeforeStep(0))),
            ("item", self.has_item),
            ("target", self.has_target),
            ("page", self.has_page),
            ("run", true),
        ];
        all.into_iter().filter(|(_, is_here)| *is_here).map(|(name, _)| name).collect()
    }
}

const SECRET_MEND: &str = "put it into env, headers, json or body: everything else is stored and shown";

impl Builder<'_> {
    pub(super) fn variable(&mut self, node: &Node, named: &Named, place: &Place) {
        let path: Vec<&str> = named.path.iter().map(String::as_str).collect();
        let found = match path.as_slice() {
            ["inputs", rest @ ..] => self.input_named(rest.first().copied(), place),
            ["secrets", rest @ ..] => self.secret_named(rest.first().copied(), place),
            ["steps", rest @ ..] => self.step_named(rest, place),
            ["item", ..] if place.has_item => None,
            ["item", ..] => Some((
                "unknown-variable",
                "there is no `item` here".to_owned(),
                "add for_each = \"…\" to the step, or name an input".to_owned(),
            )),
            ["target", ..] if place.has_target => None,
            ["target", ..] => Some((
                "unknown-variable",
                "there is no `target` here".to_owned(),
                "use it in [apply], [fetch], [rollback] and `after` of [targets]".to_owned(),
            )),
            ["page", "next"] if place.has_page => None,
            ["page", ..] if place.has_page => Some((
                "unknown-variable",
                "of a page there is only `page.next`".to_owned(),
                "write page.next: what the page before said, nothing for the first one".to_owned(),
            )),
            ["run"] => None,
            ["run", key, ..] => (!RUN_KEYS.contains(key)).then(|| {
                let message = format!("a run has no {}", quoted(key));
                ("unknown-variable", message, instead_of(key, &RUN_KEYS))
            }),
            [root, ..] => Some(self.unknown_root(root, *place)),
            [] => None,
        };
        if let Some((rule, message, mend)) = found {
            self.report.add(node.line + named.line, &node.field, rule, &message, &mend);
        }
    }

    fn input_named(&self, name: Option<&str>, place: &Place) -> Option<(&'static str, String, String)> {
        // Chosen while it runs: secret inputs are not there then.
        let name = name?;
        match self.inputs.iter().find(|input| input.name == name) {
            Some(input) if input.secret && !place.may_hold_secrets => {
                let message = format!("the input {} is a secret", quoted(name));
                Some(("secret-exposed", message, SECRET_MEND.to_owned()))
            }
            Some(_) => None,
            // A file that declares none takes any.
            None if !self.declares_inputs => None,
            None => {
                let known: Vec<&str> = self.inputs.iter().map(|input| input.name.as_str()).collect();
                let mend = format!("{}; or declare it: [inputs.{name}]", instead_of(name, &known));
                Some(("unknown-variable", format!("there is no input {}", quoted(name)), mend))
            }
        }
    }

    fn secret_named(&self, name: Option<&str>, place: &Place) -> Option<(&'static str, String, String)> {
        if !place.may_hold_secrets {
            return Some((
                "secret-exposed",
                "a secret may not stand here".to_owned(),
                SECRET_MEND.to_owned(),
            ));
        }
        let known: Vec<&str> = self.secrets.iter().map(|(name, _)| name.as_str()).collect();
        let Some(name) = name else {
            let mend = "write secrets.NAME, so that it is known which one is meant".to_owned();
            return Some(("unknown-variable", "this means all secrets".to_owned(), mend));
        };
        (!known.contains(&name)).then(|| {
            let mend = match known.as_slice() {
                [] => format!("declare it: [secrets] {name} = \"env:NAME\""),
                known => instead_of(name, known),
            };
            ("unknown-variable", format!("there is no secret {}", quoted(name)), mend)
        })
    }

    fn step_named(&self, rest: &[&str], place: &Place) -> Option<(&'static str, String, String)> {
        if place.has_target {
            let mend = "name an input, the run or the target".to_owned();
            return Some(("unknown-variable", "there are no steps here".to_owned(), mend));
        }
        let (name, key) = (rest.first()?, rest.get(1));
        match self.steps.iter().position(|known| known == name) {
            None => {
                let message = format!("there is no step {}", quoted(name));
                Some(("unknown-step", message, self.instead_of_step(name)))
            }
            Some(at) if !self.sees(*place, at) => Some(self.not_seen(*place, at)),
            Some(_) => key.filter(|key| !STEP_KEYS.contains(key)).map(|key| {
                let message = format!("a step has no {}", quoted(key));
                let mend = format!("{}; a result is steps.NAME.output", instead_of(key, &STEP_KEYS));
                ("unknown-variable", message, mend)
            }),
        }
    }

    fn sees(&self, place: Place, at: usize) -> bool {
        match place.sees {
            Sees::None => false,
            Sees::BeforeStep(step) => self.needs.waits(step, at),
            Sees::WithStep(step) => step == at || self.needs.waits(step, at),
            Sees::All => true,
        }
    }

    /// What to do about a step that may not have ended yet.
    fn not_seen(&self, place: Place, at: usize) -> (&'static str, String, String) {
        let name = quoted(&self.steps[at]);
        let (Sees::BeforeStep(step) | Sees::WithStep(step)) = place.sees else {
            let mend = "name an input or the run".to_owned();
            return ("later-step", format!("the step {name} has not run yet here"), mend);
        };
        // Two that follow each other in the file as they do here need no more than another order.
        let own = &self.needs.own[step];
        let is_plain = own.iter().copied().eq(step.checked_sub(1)) && at >= step;
        if is_plain || at == step || self.needs.waits(at, step) {
            let mend = "move that step up, or this one down".to_owned();
            return ("later-step", format!("the step {name} has not run yet here"), mend);
        }
        let all: Vec<String> =
            own.iter().chain([&at]).map(|step| format!("{:?}", self.steps[*step])).collect();
        let message = format!("this step does not wait for {name}");
        ("later-step", message, format!("write needs = [{}]", all.join(", ")))
    }

    fn unknown_root(&self, root: &str, place: Place) -> (&'static str, String, String) {
        let message = format!("there is no variable {}", quoted(root));
        let mend = if self.inputs.iter().any(|input| input.name == root) {
            format!("write inputs.{root}")
        } else if self.steps.iter().any(|key| key == root) {
            format!("write steps.{root}.output")
        } else {
            instead_of(root, &place.roots())
        };
        ("unknown-variable", message, mend)
    }
}
