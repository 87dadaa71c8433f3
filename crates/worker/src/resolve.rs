//! What executes a run here, if anything may.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use waypost_kernel::{Catalog, Span};
use waypost_store::{PROPOSAL, RunRow};

use crate::actions::Exec;
use crate::handler::Handler;
use crate::interpret::EndNames;
use crate::options::Options;
use crate::playbook::{MAX_RETRIES, Playbook, Sealed, check_variable};

/// What a run is executed by, and on which terms.
pub(crate) struct Plan {
    pub work: Work,
    /// After the first try, within the claim.
    pub retries: u32,
    /// It is stopped then, and has failed.
    pub timeout: Option<Span>,
    /// A single try is stopped then, and the next one begins if there is one.
    pub try_timeout: Option<Span>,
    /// After a failure the run may be taken again then.
    pub retry_in: Option<Span>,
    pub end_names: EndNames,
}

pub(crate) enum Work {
    Playbook(Arc<Playbook>),
    Command(Carried),
    /// The one action of a playbook.
    Action(Arc<Playbook>),
    Handler(Arc<dyn Handler>),
    /// A command for many runs, which is in its input.
    Bulk,
    /// It is ours to execute, but nobody could.
    Unfit(String),
}

/// A command that the run brings along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    pub command: Vec<String>,
    pub directory: Option<PathBuf>,
    pub env: Vec<(String, String)>,
    /// After the first try.
    pub retries: u32,
    /// Of each try.
    pub timeout: Option<Span>,
}

impl Carried {
    pub fn exec(&self) -> Exec {
        let folder = self.directory.clone().unwrap_or_default();
        let env = self.env.iter().map(|(name, value)| (name.clone(), Sealed::new(value.clone())));
        Exec { command: self.command.clone(), folder, env: env.collect() }
    }
}

impl From<Work> for Plan {
    fn from(work: Work) -> Plan {
        let (retries, try_timeout) = match &work {
            Work::Command(carried) => (carried.retries, carried.timeout),
            Work::Action(playbook) => {
                playbook.steps.first().map_or((0, None), |step| (step.retries, step.timeout))
            }
            _ => (0, None),
        };
        Plan { work, retries, timeout: None, try_timeout, retry_in: None, end_names: EndNames::OfRun }
    }
}

/// Nothing: another worker's. `catalog` is for playbooks that runs bring along.
pub(crate) fn resolve(row: &RunRow, options: &Options, catalog: &Catalog) -> Option<Work> {
    let work = found(row, options, catalog)?;
    Some(match work {
        Work::Playbook(playbook) if &*row.lifecycle.name == PROPOSAL => applying(&playbook),
        work => work,
    })
}

/// A proposal names the playbook of the run that made it.
fn applying(playbook: &Playbook) -> Work {
    let without = || Work::Unfit(format!("the playbook {} has no [apply]", playbook.name));
    playbook.application().map_or_else(without, |application| Work::Action(Arc::new(application)))
}

fn found(row: &RunRow, options: &Options, catalog: &Catalog) -> Option<Work> {
    // The very content that the worker has itself needs nobody's leave.
    if let Some(own) = row.playbook.as_deref().and_then(|pin| options.playbooks.pinned(pin)) {
        return options.has_handlers_of(own).then(|| Work::Playbook(own.clone()));
    }
    if let Some(brought) = row.carried.as_ref().and_then(|carried| carried.get("playbook")) {
        if !options.may_run_command_of(row.id()) {
            return None;
        }
        let playbook = brought_along(brought, catalog);
        return Some(playbook.map_or_else(Work::Unfit, |playbook| Work::Playbook(Arc::new(playbook))));
    }
    if let Some(command) = row.carried.as_ref().and_then(|carried| carried.get("command")) {
        if !options.may_run_command_of(row.id()) {
            return None;
        }
        let carried = row.carried.as_ref().unwrap_or(&Value::Null);
        return Some(carried_of(command, carried).map_or_else(Work::Unfit, Work::Command));
    }
    let playbook = row.playbook.as_deref()?;
    let handler = || options.handlers.get(playbook).cloned().map(Work::Handler);
    let own = options.playbooks.get(playbook).filter(|own| options.has_handlers_of(own));
    own.map(|it| Work::Playbook(it.clone())).or_else(handler)
}

pub(crate) fn brought_along(brought: &Value, catalog: &Catalog) -> Result<Playbook, String> {
    let text = |key: &str| brought[key].as_str().ok_or_else(|| format!("its playbook has no {key}"));
    let (file, text) = (text("file")?, text("text")?);
    Playbook::of_text(text, Path::new(file), catalog).map_err(|problems| problems.to_string())
}

/// What is wrong with a command that a run is to bring along: no worker could execute it.
pub fn check_command(carried: &Value) -> Result<(), String> {
    carried.get("command").map_or(Ok(()), |command| carried_of(command, carried).map(drop))
}

fn carried_of(command: &Value, carried: &Value) -> Result<Carried, String> {
    let words = command.as_array().into_iter().flatten().map(|word| word.as_str().map(str::to_owned));
    let retries = match &carried["retries"] {
        Value::Null => 0,
        given => given
            .as_i64()
            .filter(|retries| (0..=MAX_RETRIES).contains(retries))
            .ok_or_else(|| format!("its retries are {given}, and 0 to {MAX_RETRIES} are allowed"))?,
    };
    let timeout =
        match &carried["timeout_ms"] {
            Value::Null => None,
            given => {
                let ms = given.as_i64().filter(|ms| *ms > 0);
                Some(ms.ok_or_else(|| {
                    format!("its timeout_ms is {given}, and a whole number above 0 is allowed")
                })?)
            }
        };
    match words.collect::<Option<Vec<String>>>() {
        Some(words) if words.first().is_some_and(|program| !program.trim().is_empty()) => Ok(Carried {
            command: words,
            directory: carried["directory"].as_str().filter(|path| !path.is_empty()).map(PathBuf::from),
            env: variables(&carried["env"])?,
            retries: retries as u32,
            timeout: timeout.map(Span::from_ms),
        }),
        _ => Err("its command is not a list of words that begins with a program".to_owned()),
    }
}

fn variables(given: &Value) -> Result<Vec<(String, String)>, String> {
    if given.is_null() {
        return Ok(Vec::new());
    }
    let all = given.as_object().ok_or_else(|| format!("its env is {given}, and an object is allowed"))?;
    let variable = |(name, value): (&String, &Value)| {
        check_variable(name).map_err(|problem| format!("its env: {problem}"))?;
        let text = value.as_str().filter(|text| !text.contains('\0'));
        let text = text.ok_or_else(|| format!("its env: {name} is not a text"))?;
        Ok((name.clone(), text.to_owned()))
    };
    all.iter().map(variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn commands_are_read_with_their_folder_and_retries() {
        let read = |carried: Value| carried_of(&carried["command"].clone(), &carried);
        let carried = read(json!({
            "command": ["sh", "-c", ""], "directory": "/tmp", "retries": 2, "timeout_ms": 1500, "env": {"A": "b"},
        }));
        let expected = Carried {
            command: vec!["sh".into(), "-c".into(), String::new()],
            directory: Some("/tmp".into()),
            env: vec![("A".into(), "b".into())],
            retries: 2,
            timeout: Some(Span::from_ms(1_500)),
        };
        assert_eq!(carried, Ok(expected));
        assert_eq!(read(json!({"command": ["a"], "retries": 100})).map(|it| it.retries), Ok(100));
        for retries in [json!(101), json!(u64::MAX), json!(-1), json!(1.5), json!("2")] {
            let refused = read(json!({ "command": ["a"], "retries": retries })).map(|it| it.retries);
            let said = format!("its retries are {retries}, and 0 to 100 are allowed");
            assert_eq!(refused, Err(said));
        }
        for (field, unfit) in [
            ("timeout_ms", json!(0)),
            ("timeout_ms", json!("10m")),
            ("env", json!([])),
            ("env", json!({"A": 1})),
            ("env", json!({"A=B": "c"})),
            ("env", json!({"WAYPOST_RUN_ID": "forged"})),
        ] {
            let mut carried = json!({ "command": ["a"] });
            carried[field] = unfit.clone();
            assert!(read(carried).is_err_and(|problem| problem.contains(field)), "{field}: {unfit}");
        }
        for unfit in [json!([]), json!([""]), json!(["a", 1]), json!("rm"), json!(null)] {
            assert!(read(json!({ "command": unfit })).is_err(), "{unfit}");
        }
    }
}
