//! What is wrong with a playbook: file, line, field, the rule that it breaks, and how to mend it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// A person mends these first; the list of a file that is no playbook at all would be endless.
const MAX_PROBLEMS: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub file: PathBuf,
    pub line: usize,
    /// As in `step[0].http.url`; empty for the file as a whole.
    pub field: String,
    /// A stable name, one of [`Problem::RULES`].
    pub rule: &'static str,
    pub message: String,
    pub mend: String,
}

/// At least one problem, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problem {
    /// Every rule that a playbook can break, with what it asks for: the reference's table.
    pub const RULES: [(&'static str, &'static str); 44] = [
        ("unreadable", "a playbook can be read"),
        ("too-large", "a playbook has at most 256 KiB"),
        ("syntax", "a playbook is TOML in UTF-8"),
        ("too-many-problems", "at most 100 problems are told at once"),
        ("missing-key", "what has to be there is there"),
        ("unknown-key", "no key but those of the format"),
        ("wrong-type", "a text where a text belongs, and so on"),
        ("unknown-word", "a key with a list of words has one of them"),
        ("empty", "a text that has to say something does"),
        ("bad-text", "a text has no NUL character"),
        ("too-long", "texts and lists have limits"),
        ("bad-name", "names are made of the characters that their place allows"),
        ("bad-duration", "a length of time is a whole number above 0 and ms, s, m, h or d"),
        ("bad-number", "a number is in its range"),
        ("bad-clock", "a time of day is HH:MM, 00:00 to 23:59"),
        ("bad-timezone", "a time zone is one of the IANA database"),
        ("bad-rate", "a rate is a number per s, m or h, such as 2/s"),
        ("bad-pointer", "a JSON pointer is empty or begins with /"),
        ("bad-reference", "a secret is a reference: env:NAME or file:/path"),
        ("bad-default", "a default has its input's type"),
        ("default-and-required", "an input with a default is not required"),
        ("secret-input", "a secret input is a text, given as a reference"),
        ("duplicate-name", "no two things of a kind share a name"),
        ("unknown-lifecycle", "the lifecycle is known"),
        ("lifecycle-without-items", "the lifecycle has what the playbook has: steps or targets"),
        ("nothing-to-do", "a playbook has steps or targets"),
        ("steps-and-targets", "a playbook has steps or targets, not both"),
        ("section-alone", "sections that only mean something together stand together"),
        ("one-action", "of the ways to do a thing, exactly one is given"),
        ("misplaced-key", "a key stands where it means something"),
        ("bad-command", "a command begins with a program that the file names"),
        ("shell-template", "what a shell interprets is not made from templates"),
        ("bad-variable", "an environment variable has a name, and not one of Waypost's own"),
        ("bad-header", "a header has a name and a value that HTTP allows, and is not Waypost's own"),
        ("bad-url", "a URL is one of a web server, and holds no credentials"),
        ("two-bodies", "a request has one body"),
        ("bad-backoff", "there are as many waits as retries, or fewer"),
        ("bad-window", "a maintenance window is open at some time"),
        ("unknown-step", "every step that is named is in the file"),
        ("later-step", "a step sees the results of earlier steps only"),
        ("template-syntax", "a template is text with {{ expressions }}"),
        ("unknown-variable", "every variable is known where it is used"),
        ("unknown-filter", "filters and tests are those of the list"),
        ("secret-exposed", "a secret goes into env, headers and bodies, and nowhere else"),
    ];

    pub fn to_json(&self) -> Value {
        json!({
            "file": self.file.display().to_string(),
            "line": self.line,
            "field": self.field,
            "rule": self.rule,
            "message": self.message,
            "mend": self.mend,
        })
    }
}

impl Problems {
    pub(crate) fn one(file: &Path, line: usize, rule: &'static str, message: &str, mend: &str) -> Problems {
        Problems(vec![Problem {
            file: file.to_owned(),
            line,
            field: String::new(),
            rule,
            message: message.to_owned(),
            mend: mend.to_owned(),
        }])
    }

    /// In the order of the file, and no more than a person wants to read.
    pub(crate) fn sorted(mut problems: Vec<Problem>) -> Problems {
        problems.sort_by_key(|problem| problem.line);
        let more = problems.len().saturating_sub(MAX_PROBLEMS);
        problems.truncate(MAX_PROBLEMS);
        if let Some(last) = problems.last().filter(|_| more > 0).cloned() {
            problems.push(Problem {
                field: String::new(),
                rule: "too-many-problems",
                message: format!("{more} further problems are not shown"),
                mend: "mend these first".into(),
                ..last
            });
        }
        Problems(problems)
    }
}

/// `update.toml:7: …`, which editors and terminals make a link of.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file.display(), self.line)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "{} [{}]\n  {}", self.message, self.rule, self.mend)
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
