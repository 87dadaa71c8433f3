//! Actions, ready to execute: a command or a request, and what every handler is told and answers, whichever
//! kind it is. Making them from a playbook is pure; executing them is not.

mod call;
mod exec;
pub mod http;
mod mask;
pub(crate) mod secrets;

use std::path::PathBuf;

use serde_json::Value;

pub use call::Call;
pub(crate) use call::OUTPUT;
pub use exec::{MAX_OUTCOME_BYTES, read_outcome};
pub use mask::Mask;
pub use secrets::find;

use crate::playbook::Sealed;

/// What a step executes, and what must be hidden of all that comes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    pub action: Action,
    pub mask: Mask,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Exec(Exec),
    Http(Box<Http>),
    /// Nothing is executed: this is what the step gives.
    Output(Value),
}

/// A command without a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// The program first.
    pub command: Vec<String>,
    pub folder: PathBuf,
    /// Beside the contract's own variables, see [`Call::environment`].
    pub env: Vec<(String, Sealed)>,
}

/// A request, not yet checked against where it may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, Sealed)>,
    pub body: Body,
    pub allow_private: bool,
    pub reads: Reads,
}

/// What an answer is taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// An Outcome, or what was to be fetched.
    #[default]
    Outcome,
    /// A chat completion, whose text may have to be JSON.
    Chat { is_json: bool },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    None,
    /// What a command reads on its standard input, see [`Call::envelope`].
    Envelope,
    Text(Sealed),
    Json(Sealed),
}

impl Action {
    /// For the event that begins a try. Arguments are shown, as process lists show them; secrets are never among them.
    pub fn in_words(&self) -> String {
        match self {
            Action::Exec(exec) => exec.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            Action::Http(request) => format!("{} {}", request.method, http::without_query(&request.url)),
            Action::Output(_) => "gives its output".to_owned(),
        }
    }
}

/// As one would type it into a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-+=./,:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_they_are_typed() {
        for (word, shown) in
            [("echo", "echo"), ("a b", "'a b'"), ("", "''"), ("it's", r"'it'\''s'"), ("$x", "'$x'")]
        {
            assert_eq!(quoted(word), shown);
        }
    }
}
