//! A run of a playbook that it brings along.

use std::path::Path;

use serde_json::{Value, json};
use waypost_kernel::Catalog;
use waypost_store::NewRun;
use waypost_worker::playbook::Playbook;
use waypost_worker::playbook::known::{LeftOpen, fill};

use crate::output::{BAD_INPUT, Failed, Result};

/// The playbook fills in what is left open: its queue, its priority, its steps. `typed` are inputs as a person types
/// them, beside those of `new`.
pub fn of_playbook(
    catalog: &Catalog,
    file: &Path,
    typed: &[(&str, &str)],
    new: NewRun,
    queue: Option<&str>,
    priority: Option<i16>,
) -> Result<(NewRun, Playbook)> {
    let bad = |message: String| Failed::new(BAD_INPUT, message);
    let playbook = Playbook::load_with(file, catalog).map_err(|problems| bad(problems.to_string()))?;
    let input = with_typed(&playbook, &new.input, typed);
    let open = LeftOpen { queue: queue.is_none(), priority: priority.is_none(), lifecycle: true };
    let started =
        fill(&playbook, catalog, NewRun { input, ..new }, open).map_err(|error| bad(error.to_string()))?;
    let carried = json!({ "playbook": { "file": playbook.file.to_string_lossy(), "text": playbook.text } });
    Ok((NewRun { carried: Some(carried), ..started }, playbook))
}

/// The inputs of a run, with those that a person typed read as the types that the playbook declares.
pub fn with_typed(playbook: &Playbook, given: &Value, typed: &[(&str, &str)]) -> Value {
    let mut given = if given.is_null() { json!({}) } else { given.clone() };
    if let Some(given) = given.as_object_mut() {
        let typed =
            typed.iter().map(|(name, text)| ((*name).to_owned(), playbook.input_from_text(name, text)));
        given.extend(typed);
    }
    given
}
