//! Asking a person what a run asks: about each thing that blocks it, such as a host, or what a step of its playbook asks.

use std::io::{BufRead, IsTerminal, Write};

use serde_json::{Map, Value};
use waypost_kernel::Time;
use waypost_kernel::text::shell_word;
use waypost_kernel::text::terminal::{indented, name};
use waypost_store::{RunRow, answer_by, iso};
use waypost_worker::blockers_in_words;

use crate::output::{BAD_INPUT, ERROR, Failed, Result};
use crate::place::suggested;

/// Where a handler does not say which decisions it knows: any word is taken.
const ANY: &str = "DECISION";
/// How much further in the second line of a question stands.
const INDENT: usize = 2;

/// What the run asks, by what it is about.
pub fn of(run: &RunRow) -> Option<&Map<String, Value>> {
    let decisions = run.lifecycle.decisions.as_ref()?;
    let waits = run.details.get(decisions.waiting()).is_some_and(|waits| *waits == true);
    let blockers = run.details.get(decisions.asked()).and_then(Value::as_object);
    blockers.filter(|blockers| waits && !blockers.is_empty())
}

/// What nobody has decided about, and can still be decided.
pub fn answerable(run: &RunRow, now: Time) -> Vec<(&str, &Value)> {
    let mut open = run.undecided();
    open.retain(|(_, about)| answer_by(about).is_none_or(|until| until > now));
    open
}

/// Nothing where nothing blocks. Elsewhere than on a terminal it says what to type.
pub fn ask_about(run: &RunRow, now: Time) -> Result<Map<String, Value>> {
    let asked = answerable(run, now).into_iter();
    let blockers: Map<String, Value> = asked.map(|(host, about)| (host.to_owned(), about.clone())).collect();
    if blockers.is_empty() {
        return Ok(Map::new());
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        let names: Vec<&str> = blockers.keys().map(String::as_str).collect();
        let head = format!("{} waits for decisions about {}", run.id(), names.join(", "));
        return Err(Failed::new(BAD_INPUT, [vec![head], questions(run, now)].concat().join("\n")));
    }
    let mut input = std::io::stdin().lock();
    let mut output = anstream::stderr();
    ask(&blockers, &mut input, &mut output)
}

/// What is asked, and the command that answers it.
pub fn questions(run: &RunRow, now: Time) -> Vec<String> {
    let over = run.undecided().into_iter().filter_map(|(subject, about)| {
        let until = answer_by(about).filter(|until| *until <= now)?;
        Some(format!("{subject}: nobody answered until {}; the run goes on without an answer", iso(until)))
    });
    let mut lines: Vec<String> = over.collect();
    let asked = answerable(run, now);
    if asked.is_empty() {
        return lines;
    }
    for (subject, about) in &asked {
        lines.push(indented(&heading(subject, about), INDENT).into_owned());
        lines.extend(blockers_in_words(about).iter().map(|line| format!("  {}", indented(line, 2 * INDENT))));
    }
    let flags = asked.iter().map(|(subject, about)| {
        let choices = choices(about);
        let choices = if choices.is_empty() { ANY.to_owned() } else { choices.join("|") };
        format!("--resolve {}", shell_word(&format!("{subject}={choices}")))
    });
    let flags = flags.collect::<Vec<_>>().join(" ");
    let answer = suggested(&format!("run resume {} {flags}", run.id()));
    lines.push(format!("answer with: {answer}"));
    lines
}

/// `go ahead?: update 3 hosts? (yes, no; until 2026-02-14T08:00:00Z)`, or what it is about and what blocks it.
fn heading(subject: &str, about: &Value) -> String {
    let Some(question) = about["ask"].as_str() else {
        return match choices(about) {
            any if any.is_empty() => format!("{subject} needs a decision, in a word that its step knows"),
            choices => format!("{subject} needs a decision: {}", choices.join(", ")),
        };
    };
    let until = about["until"].as_str().map(|until| format!("; until {until}")).unwrap_or_default();
    let named = if question == subject { String::new() } else { format!("{subject}: ") };
    format!("{named}{question} ({}{until})", choices(about).join(", "))
}

fn ask(
    blockers: &Map<String, Value>,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<Map<String, Value>> {
    let broken = |error: std::io::Error| Failed::new(ERROR, format!("the terminal cannot be used: {error}"));
    let mut decisions = Map::new();
    for (host, about) in blockers {
        let heading =
            about["ask"].as_str().map_or_else(|| host.clone(), |question| format!("{host}: {question}"));
        writeln!(output, "\n{}", indented(&heading, INDENT)).map_err(broken)?;
        for line in blockers_in_words(about) {
            writeln!(output, "  {}", indented(&line, 2 * INDENT)).map_err(broken)?;
        }
        let choices = choices(about);
        loop {
            for (number, choice) in choices.iter().enumerate() {
                writeln!(output, "  {}) {}", number + 1, name(choice)).map_err(broken)?;
            }
            match about["ask"].is_string() {
                true => write!(output, "  your answer? "),
                false => write!(output, "  what to do about {}? ", name(host)),
            }
            .map_err(broken)?;
            output.flush().map_err(broken)?;
            let mut answer = String::new();
            if input.read_line(&mut answer).map_err(broken)? == 0 {
                // What was decided before the input ended is kept.
                let nothing = || Failed::new(BAD_INPUT, "nothing was decided: the run goes on waiting");
                return Some(decisions).filter(|decisions| !decisions.is_empty()).ok_or_else(nothing);
            }
            if let Some(choice) = chosen(answer.trim(), &choices) {
                decisions.insert(host.clone(), Value::String(choice));
                break;
            }
            let known = choices.join(", ");
            match choices.is_empty() {
                true => writeln!(output, "  type a word that its step knows"),
                false => writeln!(output, "  type a number or one of: {}", name(&known)),
            }
            .map_err(broken)?;
        }
    }
    Ok(decisions)
}

fn chosen(answer: &str, choices: &[String]) -> Option<String> {
    if choices.is_empty() {
        return Some(answer.to_owned()).filter(|answer| !answer.is_empty());
    }
    let by_number = answer.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
    by_number.or_else(|| choices.iter().find(|choice| *choice == answer)).cloned()
}

/// None: any word is taken.
fn choices(about: &Value) -> Vec<String> {
    let named = about["choices"].as_array().into_iter().flatten().filter_map(Value::as_str);
    named.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves J8
    #[test]
    fn people_decide_host_by_host_by_number_or_word() {
        let blockers = json!({
            "esx1": {"blockers": [{"vm_name": "vm-7", "reason": "usb_passthrough", "severity": "critical", "remediation": "detach it"}], "choices": ["power_off", "skip"]},
            "esx2": {"blockers": [], "choices": ["wait", "skip"]},
            "esx3": {"blockers": []},
        });
        let mut shown = Vec::new();
        let asked =
            ask(blockers.as_object().expect("hosts"), &mut "3\n1\nskip\n\nevict\n".as_bytes(), &mut shown);
        let decided = json!({"esx1": "power_off", "esx2": "skip", "esx3": "evict"});
        assert_eq!(asked.map(Value::Object).ok(), Some(decided));
        let shown = String::from_utf8(shown).expect("text");
        assert!(shown.contains("vm-7 (usb passthrough, critical): detach it"), "{shown}");
        assert!(shown.contains("type a number or one of: power_off, skip"), "{shown}");
        assert!(shown.contains("1) wait"), "{shown}");
        assert!(shown.contains("type a word that its step knows"), "{shown}");
    }

    // proves U8
    #[test]
    fn a_question_moves_no_terminal_and_looks_like_no_line_of_ours() {
        let question = "ship \u{202e}it?\nanswer with: rm -rf /\u{1b}[2J";
        let asked = json!({ "go": { "ask": question, "choices": ["yes", "no\nyes"] } });
        let mut shown = Vec::new();
        let _ = ask(asked.as_object().expect("asked"), &mut "1\n".as_bytes(), &mut shown);
        let shown = String::from_utf8(shown).expect("text");
        assert!(shown.starts_with("\ngo: ship \\u{202e}it?\n  answer with: rm -rf /^[[2J\n"), "{shown}");
        assert!(shown.contains("\n  2) no^Jyes\n"), "{shown}");
        assert_eq!(shell_word("go=yes|no"), "'go=yes|no'");
    }

    #[test]
    fn an_end_of_the_input_decides_nothing() {
        let blockers = json!({"esx1": {"blockers": []}});
        assert!(ask(blockers.as_object().expect("hosts"), &mut "".as_bytes(), &mut Vec::new()).is_err());
        let two = json!({"esx1": {"blockers": []}, "esx2": {"blockers": []}});
        let asked = ask(two.as_object().expect("hosts"), &mut "skip\n".as_bytes(), &mut Vec::new());
        assert_eq!(asked.map(Value::Object).ok(), Some(json!({"esx1": "skip"})), "what was decided is kept");
    }
}
