//! A run of a playbook that it brings along.

use std::path::Path;

use serde_json::{Map, Value, json};
use waypost_store::{NewRun, Store};
use waypost_worker::first_steps;
use waypost_worker::playbook::{Playbook, Scope};

use crate::output::{BAD_INPUT, ERROR, Failed, Result};

/// The playbook fills in what is left open: its queue, its priority, its steps. `typed` are inputs as a person types
/// them, beside those of `new`.
pub async fn of_playbook(
    store: &dyn Store,
    file: &Path,
    typed: &[(&str, &str)],
    new: NewRun,
    queue: Option<String>,
    priority: Option<i16>,
) -> Result<NewRun> {
    let catalog = store.lifecycles().await?;
    let bad = |message: String| Failed::new(BAD_INPUT, message);
    let playbook = Playbook::load_with(file, &catalog).map_err(|problems| bad(problems.to_string()))?;
    if playbook.rule.is_some() {
        return Err(bad(format!("{}: bulk changes cannot be started yet", file.display())));
    }
    let inputs = accepted(&playbook, &new.input, typed)?;
    let scope = Scope { inputs: inputs.clone(), ..Scope::default() };
    let key =
        playbook.concurrency_key_for(&playbook.context(&scope)).map_err(|error| bad(error.to_string()))?;
    let Some(lifecycle) = catalog.latest(&playbook.lifecycle) else {
        return Err(bad(format!("there is no lifecycle {:?}", playbook.lifecycle)));
    };
    let text = std::fs::read_to_string(&playbook.file)
        .map_err(|error| Failed::new(ERROR, format!("{}: {error}", file.display())))?;
    Ok(NewRun {
        lifecycle: playbook.lifecycle.clone(),
        queue: queue.or_else(|| playbook.queue.clone()).unwrap_or_else(|| new.queue.clone()),
        priority: priority.unwrap_or_else(|| i16::try_from(playbook.priority).unwrap_or_default()),
        concurrency_key: new.concurrency_key.or(key),
        playbook: Some(playbook.pin()),
        carried: Some(json!({ "playbook": { "file": playbook.file.to_string_lossy(), "text": text } })),
        items: first_steps(&playbook, lifecycle, &inputs),
        input: Value::Object(inputs),
        ..new
    })
}

/// The inputs of a run, as the playbook declares them.
pub fn accepted(playbook: &Playbook, given: &Value, typed: &[(&str, &str)]) -> Result<Map<String, Value>> {
    let mut given = given.clone();
    if given.is_null() {
        given = json!({});
    }
    if let Some(given) = given.as_object_mut() {
        let typed =
            typed.iter().map(|(name, text)| ((*name).to_owned(), playbook.input_from_text(name, text)));
        given.extend(typed);
    }
    playbook.accept(&given).map_err(|problems| {
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failed::new(BAD_INPUT, told.join("\n"))
    })
}
