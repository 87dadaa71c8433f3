//! What is wrong: the place, the rule that is broken, and how to mend it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::node::Node;
use crate::words::harmless;

/// A person mends these first; the list of a file that is something else altogether would be endless.
const MAX_PROBLEMS: usize = 100;
const MAX_MESSAGE_CHARS: usize = 240;
const MAX_HINT_CHARS: usize = 800;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// Empty: it came from no file.
    pub file: PathBuf,
    /// 0: it has no lines.
    pub line: usize,
    /// As in `step[0].http.url`, in a request `runs/3/queue`; empty for the whole.
    pub field: String,
    /// A stable name.
    pub rule: &'static str,
    pub message: String,
    pub hint: String,
}

/// At least one problem, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

/// What was found wrong with a file so far. All of it is collected instead of stopping at the first: people mend a file
/// in one go.
#[derive(Clone, Debug, Default)]
pub struct Report {
    file: PathBuf,
    last_line: usize,
    problems: Vec<Problem>,
}

impl Problem {
    pub fn to_json(&self) -> Value {
        json!({
            "file": self.file.display().to_string(),
            "line": self.line,
            "field": self.field,
            "rule": self.rule,
            "message": self.message,
            "mend": self.hint,
        })
    }
}

impl Problems {
    /// Of a file as a whole.
    pub fn one(file: &Path, line: usize, rule: &'static str, message: &str, hint: &str) -> Problems {
        let (message, hint) = (message.to_owned(), hint.to_owned());
        Problems(vec![Problem { file: file.to_owned(), line, field: String::new(), rule, message, hint }])
    }

    /// The same, of a text that is known to stand in a file.
    #[must_use]
    pub fn in_file(mut self, file: &Path) -> Problems {
        self.0.iter_mut().for_each(|problem| problem.file = file.to_owned());
        self
    }

    /// In the order of the file, and no more than a person wants to read.
    pub fn sorted(mut problems: Vec<Problem>) -> Problems {
        problems.sort_by_key(|problem| problem.line);
        let more = problems.len().saturating_sub(MAX_PROBLEMS);
        problems.truncate(MAX_PROBLEMS);
        if let Some(last) = problems.last().filter(|_| more > 0).cloned() {
            problems.push(Problem {
                field: String::new(),
                rule: "too-many-problems",
                message: format!("{more} further problems are not shown"),
                hint: "mend these first".into(),
                ..last
            });
        }
        Problems(problems)
    }
}

impl Report {
    pub(crate) fn new(file: &Path, last_line: usize) -> Report {
        Report { file: file.to_owned(), last_line, problems: Vec::new() }
    }

    pub fn add(&mut self, line: usize, field: &str, rule: &'static str, message: &str, hint: &str) {
        self.problems.push(Problem {
            file: self.file.clone(),
            line: line.min(self.last_line),
            field: field.to_owned(),
            rule,
            message: harmless(message, MAX_MESSAGE_CHARS),
            hint: harmless(hint, MAX_HINT_CHARS),
        });
    }

    pub fn of_node(&mut self, node: &Node, rule: &'static str, message: &str, hint: &str) {
        self.add(node.line, &node.field, rule, message, hint);
    }

    pub(crate) fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    pub(crate) fn count(&self) -> usize {
        self.problems.len()
    }

    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// What was made of the file, if nothing is wrong with it.
    pub fn done<T>(self, made: T) -> Result<T, Problems> {
        if self.problems.is_empty() { Ok(made) } else { Err(Problems::sorted(self.problems)) }
    }
}

/// `update.toml:7: …`, which editors and terminals make a link of.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.as_os_str().is_empty(), self.line) {
            (true, 0) => {}
            (true, line) => write!(f, "line {line}: ")?,
            (false, 0) => write!(f, "{}: ", self.file.display())?,
            (false, line) => write!(f, "{}:{line}: ", self.file.display())?,
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "{} [{}]\n  {}", self.message, self.rule, self.hint)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
