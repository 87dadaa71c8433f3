//! Playbooks: what to do, as one TOML file. Parsing, checking and rendering are pure; only [`Playbook::load`]
//! reads, and only the file itself.
//!
//! `format` declares the keys once, `formats` the forms of texts; the schema's reader checks a file against them and keeps every value's line, `build`
//! makes the typed playbook and checks what the form cannot say, `render` turns one step and a scope into an
//! action, `schema` renders the format for editors.

mod action;
pub(crate) mod build;
mod canonical;
pub(crate) mod format;
pub(crate) mod formats;
mod formula;
mod guardrails;
mod inputs;
pub mod known;
mod library;
mod preview;
mod problem;
mod render;
mod rule;
mod schema;
mod secret;
mod start;
mod template;
mod window;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use waypost_kernel::backoff::Backoff;
use waypost_kernel::{Catalog, Span};

pub use action::{ActionTemplate, BodyTemplate, ExecTemplate, HttpTemplate, JsonTemplate, Way};
pub use canonical::Hash;
pub use format::MAX_RETRIES;
pub use formats::check_variable;
pub use formula::Formula;
pub use guardrails::{Change, Guardrails, OnViolation, Violation};
pub use inputs::{Input, InputProblem, Type};
pub use library::Playbooks;
pub use preview::preview;
pub use problem::RULES;
pub use render::{Context, RenderError, Scope};
pub use rule::{Breaker, Fetch, Limit, Pace, Rate, Reconcile, Rule, Source, TargetAction, Targets};
pub use schema::{json_schema, reference};
pub use secret::{Needs, Reference, Sealed, Secrets};
pub use start::CannotStart;
pub use template::{Expression, Template};
pub(crate) use template::{Trouble, context_of};
pub use waypost_schema::{Problem, Problems};
pub use window::{Opening, Outside, Window};

/// A sound playbook.
#[derive(Clone, Debug, PartialEq)]
pub struct Playbook {
    pub name: String,
    pub lifecycle: String,
    pub description: Option<String>,
    /// Of its content without comments and layout.
    pub hash: Hash,
    pub file: PathBuf,
    /// As it was written, comments included.
    pub text: String,
    /// Commands run here, and relative files are found here.
    pub folder: PathBuf,
    pub inputs: Vec<Input>,
    /// It declares none, and takes whatever it is given.
    pub takes_any_input: bool,
    pub secrets: Vec<(String, Reference)>,
    pub steps: Vec<Step>,
    pub cleanups: Vec<Step>,
    pub queue: Option<String>,
    pub priority: i64,
    pub concurrency_key: Option<Template>,
    /// Steps of a run that may be under way at once.
    pub max_parallel: usize,
    /// Of a whole run.
    pub timeout: Option<Span>,
    pub window: Option<Window>,
    pub unattended: Unattended,
    /// What the run's details say from the beginning.
    pub details: Vec<(String, JsonTemplate)>,
    pub rule: Option<Rule>,
    /// Of an agent's: how what its runs propose is applied once somebody has approved it.
    pub apply: Option<Box<Step>>,
}

/// A step or a cleanup.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What templates and `after` call it: its id, or its name as written. Unique among the steps.
    pub key: String,
    pub name: Template,
    pub action: ActionTemplate,
    /// The places of the steps that it waits for.
    pub needs: Vec<usize>,
    /// The places of all that have ended before it begins, whose results it sees: also those that the others wait for.
    pub before: Vec<usize>,
    /// It asks a person instead.
    pub ask: Option<Ask>,
    pub for_each: Option<Expression>,
    /// Items of it that may be under way at once.
    pub parallel: usize,
    pub when: Option<Expression>,
    pub tasks: Tasks,
    /// What the run's details say while this is under way, and once it has ended.
    pub details: Vec<(String, JsonTemplate)>,
    /// Of one try.
    pub timeout: Option<Span>,
    /// After the first try.
    pub retries: u32,
    pub backoff: Backoff,
    pub continue_on_failure: bool,
    /// It is one of the playbook's cleanups.
    pub is_cleanup: bool,
    /// Of a cleanup: the key of the step that it undoes.
    pub after: Option<String>,
    pub line: usize,
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    pub question: Template,
    pub choices: Vec<String>,
    /// What is taken for the answer when nobody gives one in time, or nobody is there.
    pub on_timeout: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Tasks {
    #[default]
    None,
    Named(Vec<Template>),
    Given(Expression),
}

/// What a scheduled run does with what would pause it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unattended {
    Skip,
    #[default]
    Fail,
}

impl Step {
    /// The one step of what is no playbook of its own: a schedule's action.
    pub(crate) fn only(key: &str, action: ActionTemplate) -> Step {
        Step {
            is_cleanup: false,
            key: key.to_owned(),
            name: Template::default(),
            action,
            needs: Vec::new(),
            before: Vec::new(),
            ask: None,
            for_each: None,
            parallel: 1,
            when: None,
            tasks: Tasks::None,
            details: Vec::new(),
            timeout: None,
            retries: 0,
            backoff: Backoff::step(),
            continue_on_failure: false,
            after: None,
            line: 1,
        }
    }
}

impl Playbook {
    /// What a run does that applies a proposal: one action, and no steps, since a step that failed would be its end.
    pub(crate) fn application(&self) -> Option<Playbook> {
        let step = self.apply.as_deref()?.clone();
        Some(Playbook {
            steps: vec![step],
            cleanups: Vec::new(),
            inputs: Vec::new(),
            takes_any_input: true,
            concurrency_key: None,
            window: None,
            details: Vec::new(),
            apply: None,
            ..self.clone()
        })
    }

    /// Reads and checks a file, with the shipped lifecycles.
    pub fn load(path: &Path) -> Result<Playbook, Problems> {
        Playbook::load_with(path, shipped(path)?)
    }

    pub fn load_with(path: &Path, catalog: &Catalog) -> Result<Playbook, Problems> {
        let text = text_of(path)?;
        let mut playbook = Playbook::parse_with(&text, path, catalog)?;
        if let Ok(file) = std::path::absolute(path) {
            playbook.folder = file.parent().unwrap_or(Path::new("/")).to_owned();
            playbook.file = file;
        }
        Ok(playbook)
    }

    /// Checks a text, with the shipped lifecycles; `path` is for messages and for what is relative to it.
    pub fn parse(text: &str, path: &Path) -> Result<Playbook, Problems> {
        Playbook::parse_with(text, path, shipped(path)?)
    }

    /// All problems at once.
    pub fn parse_with(text: &str, path: &Path, catalog: &Catalog) -> Result<Playbook, Problems> {
        let (root, report) = format::FILE.read(text, path)?;
        let playbook = build::build(&root, report, path, catalog)?;
        Ok(Playbook { text: text.to_owned(), ..playbook })
    }

    /// One whose text is at hand, though its file may have changed or be elsewhere; what is relative is so to where it was.
    pub fn of_text(text: &str, file: &Path, catalog: &Catalog) -> Result<Playbook, Problems> {
        let playbook = Playbook::parse_with(text, file, catalog)?;
        let folder = file.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Playbook { file: file.to_owned(), folder, ..playbook })
    }

    /// What a run keeps, so that it is executed by this very content: `update@3f2a…`, in full.
    pub fn pin(&self) -> String {
        format!("{}@{}", self.name, self.hash)
    }

    pub fn step(&self, key: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.key == key)
    }
}

/// Read once: many files may be checked.
static SHIPPED: LazyLock<Result<Catalog, String>> =
    LazyLock::new(|| Catalog::shipped().map_err(|problems| problems.to_string()));

fn shipped(path: &Path) -> Result<&'static Catalog, Problems> {
    SHIPPED.as_ref().map_err(|problems| Problems::one(path, 1, "unknown-lifecycle", problems, "report this"))
}

/// The text of a file of playbooks or schedules; no more of it than one that is too large.
pub(crate) fn text_of(path: &Path) -> Result<String, Problems> {
    let limit = format::MAX_FILE_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| std::io::Read::read_to_end(&mut std::io::Read::take(file, limit), &mut bytes));
    read.map_err(|error| {
        let hint = "name a file that exists and that you may read";
        Problems::one(path, 1, "unreadable", &format!("the file cannot be read: {error}"), hint)
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Problems::one(path, line, "syntax", "this is not UTF-8 text", "save the file as UTF-8")
    })
}
