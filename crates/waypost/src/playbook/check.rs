//! `waypost playbook check`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use waypost_kernel::Catalog;
use waypost_worker::playbook::{Playbook, Problem, Problems};

use crate::output::{BAD_INPUT, ERROR, Failed, Format, NOT_FOUND, Result, print_list};

pub fn catalog(known: Catalog, own: &[PathBuf]) -> Result<Catalog> {
    let mut catalog = known;
    for file in own {
        let shown = file.display();
        let code = if file.exists() { ERROR } else { NOT_FOUND };
        let text =
            fs::read_to_string(file).map_err(|error| Failed::new(code, format!("{shown}: {error}")))?;
        catalog.add(&text).map_err(|problems| Failed::new(BAD_INPUT, format!("{shown}: {problems}")))?;
    }
    Ok(catalog)
}

/// Checks every file before it fails, so that one run shows all that is to be mended.
pub fn check(files: &[PathBuf], catalog: &Catalog, output: Format) -> Result {
    let checked: Vec<(&PathBuf, std::result::Result<Playbook, Problems>)> =
        files.iter().map(|file| (file, Playbook::load_with(file, catalog))).collect();
    let objects = checked.iter().map(|(file, result)| object(file, result)).collect();
    print_list(objects, output, || {
        let sound = checked.iter().filter_map(|(file, result)| result.as_ref().ok().map(|it| (file, it)));
        sound.map(|(file, playbook)| in_words(file, playbook)).collect::<Vec<_>>().join("\n")
    })?;
    let bad: Vec<&Problems> = checked.iter().filter_map(|(_, result)| result.as_ref().err()).collect();
    let Some(code) = bad.iter().map(|problems| code_of(problems)).max() else { return Ok(()) };
    let message = match output {
        Format::Table => bad.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        Format::Json | Format::Jsonl => format!("{} of {} playbooks have problems", bad.len(), files.len()),
    };
    Err(Failed::new(code, message))
}

fn code_of(problems: &Problems) -> u8 {
    let is_missing = |problem: &Problem| problem.rule == "unreadable" && !problem.file.exists();
    if problems.0.iter().any(is_missing) { NOT_FOUND } else { BAD_INPUT }
}

fn object(file: &Path, result: &std::result::Result<Playbook, Problems>) -> Value {
    let file = file.display().to_string();
    match result {
        Ok(playbook) => json!({
            "file": file,
            "sound": true,
            "name": playbook.name,
            "lifecycle": playbook.lifecycle,
            "hash": playbook.hash.to_string(),
            "inputs": playbook.inputs.iter().map(|input| input.name.clone()).collect::<Vec<_>>(),
            "steps": playbook.steps.iter().map(|step| step.key.clone()).collect::<Vec<_>>(),
            "problems": [],
        }),
        Err(problems) => json!({
            "file": file,
            "sound": false,
            "problems": problems.0.iter().map(Problem::to_json).collect::<Vec<_>>(),
        }),
    }
}

fn in_words(file: &Path, playbook: &Playbook) -> String {
    let parts = match (&playbook.rule, playbook.steps.len(), playbook.cleanups.len()) {
        (Some(_), _, _) => "a bulk change".to_owned(),
        (None, steps, 0) => counted(steps, "step"),
        (None, steps, cleanups) => format!("{}, {}", counted(steps, "step"), counted(cleanups, "cleanup")),
    };
    format!(
        "{}: {}@{} is sound: {parts}, lifecycle {}",
        file.display(),
        playbook.name,
        playbook.hash.short(),
        playbook.lifecycle
    )
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
