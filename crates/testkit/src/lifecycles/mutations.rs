//! Files broken by machine in every place. Some of them happen to mean something.

#[derive(Clone, Debug)]
pub struct Mutation {
    pub what: String,
    pub text: String,
    /// Broken by construction; others may happen to mean something.
    pub must_fail: bool,
}

const TRUNCATE_EVERY_BYTES: usize = 11;

/// Of every one of these files, by name.
pub fn all<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Mutation> {
    let mut all = Vec::new();
    for (name, text) in files {
        let mut push = |what: String, text: String, must_fail: bool| {
            all.push(Mutation { what: format!("{name}: {what}"), text, must_fail });
        };
        truncated(text, &mut push);
        without_a_line(text, &mut push);
        rows(text, &mut push);
        states(text, &mut push);
        words(text, &mut push);
        types(text, &mut push);
    }
    all
}

/// Those of one file that may happen to mean something: its rows and states, changed.
pub fn twists(text: &str) -> Vec<Mutation> {
    let mut all = Vec::new();
    let mut push = |what: String, text: String, must_fail: bool| all.push(Mutation { what, text, must_fail });
    rows(text, &mut push);
    states(text, &mut push);
    all.retain(|mutation| !mutation.must_fail);
    all
}

type Push<'a> = dyn FnMut(String, String, bool) + 'a;

fn is_row(line: &str) -> bool {
    line.trim_start().starts_with("[\"")
}

fn with_line(text: &str, at: usize, new: &str) -> String {
    let lines = text.lines().enumerate().map(|(line, old)| if line == at { new } else { old });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// Without its last bracket a file has no table of transitions.
fn truncated(text: &str, push: &mut Push<'_>) {
    let end = text.rfind(']').expect("a file has a list");
    for at in (0..end).step_by(TRUNCATE_EVERY_BYTES).filter(|at| text.is_char_boundary(*at)) {
        push(format!("cut at byte {at}"), text[..at].to_owned(), true);
    }
}

fn without_a_line(text: &str, push: &mut Push<'_>) {
    let required = ["name ", "version ", "initial ", "[states]", "transitions "];
    for (at, line) in text.lines().enumerate() {
        let left: Vec<&str> =
            text.lines().enumerate().filter(|(other, _)| *other != at).map(|(_, line)| line).collect();
        let must_fail = required.iter().any(|key| line.starts_with(key)) || line == "]";
        push(format!("without line {}", at + 1), left.join("\n"), must_fail);
        push(format!("line {} twice", at + 1), with_line(text, at, &format!("{line}\n{line}")), is_row(line));
        push(format!("line {} and no more", at + 1), line.to_owned(), true);
    }
}

fn rows(text: &str, push: &mut Push<'_>) {
    for (at, line) in text.lines().enumerate().filter(|(_, line)| is_row(line)) {
        let row = line.trim().split("],").next().unwrap_or_default().trim_start_matches('[');
        let cells: Vec<&str> = row.split("\",").map(|cell| cell.trim().trim_matches('"')).collect();
        let [from, command, to, by, guard] = cells[..] else { continue };
        let mut mutate = |what: &str, row: &[&str], must_fail| {
            let row: Vec<String> = row.iter().map(|cell| format!("\"{cell}\"")).collect();
            let row = format!("  [{}],", row.join(", "));
            push(format!("line {}: {what}", at + 1), with_line(text, at, &row), must_fail);
        };
        mutate("as it is", &[from, command, to, by, guard], false);
        mutate("two columns less", &[from, command, to], true);
        mutate("a column more", &[from, command, to, by, guard, ""], true);
        mutate("another from", &["elsewhere", command, to, by, guard], true);
        mutate("another to", &[from, command, "elsewhere", by, guard], true);
        mutate("another actor", &[from, command, to, "somebody", guard], true);
        mutate("no actor", &[from, command, to, "", guard], true);
        mutate("another guard", &[from, command, to, by, "if-it-rains"], true);
        mutate("another command", &[from, "improvise", to, by, guard], false);
        mutate("a command of the engine's", &[from, "finish", to, by, guard], true);
        mutate("for everybody", &[from, command, to, "client, operator, worker, engine", guard], false);
        mutate("for the worker", &[from, command, to, "worker", guard], false);
        mutate("for the engine", &[from, command, to, "engine", guard], false);
        mutate("turned round", &[to, command, from, by, guard], false);
        mutate("columns turned round", &[guard, by, to, command, from], true);
    }
}

fn states(text: &str, push: &mut Push<'_>) {
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.contains("{ phase = ")) {
        let Some((name, rest)) = line.split_once('=') else { continue };
        let Some(phase) = line.split('"').nth(1) else { continue };
        push(format!("{name} renamed"), with_line(text, at, &format!("elsewhere ={rest}")), true);
        push(format!("{name} is empty"), with_line(text, at, &format!("{name} = {{}}")), true);
        for other in ["draft", "ready", "held", "parked", "settled", "done"] {
            // An outcome belongs to a settled state and to no other.
            let must_fail = other != phase && (phase == "settled" || other == "settled" || other == "done");
            let new = line.replacen(&format!("\"{phase}\""), &format!("\"{other}\""), 1);
            push(format!("{name} is {other}"), with_line(text, at, &new), must_fail);
        }
    }
}

/// Any word between quotes, changed in its first letter or exchanged with the next.
fn words(text: &str, push: &mut Push<'_>) {
    let parts: Vec<&str> = text.split('"').collect();
    for at in (1..parts.len()).step_by(2).filter(|at| !parts[*at].is_empty()) {
        let mut changed = parts.clone();
        let misspelt = format!("q{}", parts[at]);
        changed[at] = &misspelt;
        push(format!("word {at} misspelt"), changed.join("\""), false);
        if at + 2 < parts.len() {
            let mut swapped = parts.clone();
            swapped.swap(at, at + 2);
            push(format!("words {at} and {} swapped", at + 2), swapped.join("\""), false);
        }
        let mut unclosed = parts.clone();
        unclosed[at] = "\n";
        push(format!("word {at} is a line break"), unclosed.join("\""), true);
    }
}

fn types(text: &str, push: &mut Push<'_>) {
    for value in ["7", "1.5", "true", "2026-02-14T08:00:00Z", "[[]]", "{}", "\"\"", "nan", "0x10"] {
        for (at, line) in text.lines().enumerate() {
            let Some((key, old)) = line.split_once('=').filter(|(key, _)| !key.contains(['#', '[', '{']))
            else {
                continue;
            };
            let multi_line = old.trim() == "[";
            let may_be = line.starts_with("version")
                || ["codes", "cancelled_metadata"].iter().any(|key| line.starts_with(key)) && value == "{}"
                || ["stops_run", "projected"].iter().any(|key| line.starts_with(key)) && value == "true";
            let must_fail = !may_be && !multi_line;
            let new = format!("{key}= {value}");
            let text = if multi_line {
                text.lines().take(at).collect::<Vec<_>>().join("\n") + "\n" + &new
            } else {
                with_line(text, at, &new)
            };
            push(format!("{} = {value}", key.trim()), text, must_fail);
        }
    }
}
