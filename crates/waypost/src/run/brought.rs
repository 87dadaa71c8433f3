//! A run of a playbook that it brings along.

use std::path::Path;

use serde_json::{Map, Value, json};
use waypost_store::{NewRun, Store};
use waypost_worker::playbook::{CannotStart, Playbook};

use crate::output::{BAD_INPUT, ERROR, Failed, Result};
use crate::place::lifecycles;

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
    let catalog = lifecycles(store).await?;
    let bad = |message: String| Failed::new(BAD_INPUT, message);
    let playbook = Playbook::load_with(file, &catalog).map_err(|problems| bad(problems.to_string()))?;
    let given = with_typed(&playbook, &new.input, typed);
    let started = playbook.new_run(&catalog, &given).map_err(|error| match error {
        CannotStart::BulkChange => bad(format!("{}: {error}", file.display())),
        error => bad(error.to_string()),
    })?;
    let text = std::fs::read_to_string(&playbook.file)
        .map_err(|error| Failed::new(ERROR, format!("{}: {error}", file.display())))?;
    Ok(NewRun {
        queue: queue.unwrap_or(started.queue),
        priority: priority.unwrap_or(started.priority),
        concurrency_key: new.concurrency_key.or(started.concurrency_key),
        carried: Some(json!({ "playbook": { "file": playbook.file.to_string_lossy(), "text": text } })),
        lifecycle: started.lifecycle,
        playbook: started.playbook,
        items: started.items,
        input: started.input,
        ..new
    })
}

/// The inputs of a run, as the playbook declares them.
pub fn accepted(playbook: &Playbook, given: &Value, typed: &[(&str, &str)]) -> Result<Map<String, Value>> {
    playbook.accept(&with_typed(playbook, given, typed)).map_err(|problems| {
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failed::new(BAD_INPUT, told.join("\n"))
    })
}

fn with_typed(playbook: &Playbook, given: &Value, typed: &[(&str, &str)]) -> Value {
    let mut given = if given.is_null() { json!({}) } else { given.clone() };
    if let Some(given) = given.as_object_mut() {
        let typed =
            typed.iter().map(|(name, text)| ((*name).to_owned(), playbook.input_from_text(name, text)));
        given.extend(typed);
    }
    given
}
