//! Asking a person about each host that blocks a run.

use std::io::{BufRead, IsTerminal, Write};

use serde_json::{Map, Value};
use waypost_store::RunRow;

use crate::output::{BAD_INPUT, ERROR, Failed, Result};

/// Where a handler does not say which decisions it knows.
const CHOICES: [&str; 2] = ["power_off", "skip"];

/// What the run waits for, by host.
pub fn of(run: &RunRow) -> Option<&Map<String, Value>> {
    let decisions = run.lifecycle.decisions.as_ref()?;
    let waits = run.details.get(decisions.waiting()).is_some_and(|waits| *waits == true);
    let blockers = run.details.get(decisions.asked()).and_then(Value::as_object);
    blockers.filter(|blockers| waits && !blockers.is_empty())
}

/// The hosts that nobody has decided about yet.
pub fn open(run: &RunRow) -> Vec<String> {
    let given = run.lifecycle.decisions.as_ref().and_then(|decisions| run.details.get(decisions.given()));
    let is_open = |host: &&String| given.is_none_or(|given| given.get(host.as_str()).is_none());
    of(run).into_iter().flat_map(Map::keys).filter(is_open).cloned().collect()
}

/// Nothing where nothing blocks. Elsewhere than on a terminal it says what to type.
pub fn ask_about(run: &RunRow) -> Result<Map<String, Value>> {
    let open = open(run);
    let asked = of(run).into_iter().flatten().filter(|(host, _)| open.contains(host));
    let blockers: Map<String, Value> = asked.map(|(host, about)| (host.clone(), about.clone())).collect();
    if blockers.is_empty() {
        return Ok(Map::new());
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        let hosts: Vec<String> = blockers
            .iter()
            .map(|(host, about)| format!("--resolve {host}={}", choices(about).join("|")))
            .collect();
        let message = format!(
            "{} waits for decisions about {}\n  waypost run resume {} {}",
            run.id(),
            blockers.keys().cloned().collect::<Vec<_>>().join(", "),
            run.id(),
            hosts.join(" "),
        );
        return Err(Failed::new(BAD_INPUT, message));
    }
    let mut input = std::io::stdin().lock();
    let mut output = anstream::stderr();
    ask(&blockers, &mut input, &mut output)
}

fn ask(
    blockers: &Map<String, Value>,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<Map<String, Value>> {
    let broken = |error: std::io::Error| Failed::new(ERROR, format!("the terminal cannot be used: {error}"));
    let mut decisions = Map::new();
    for (host, about) in blockers {
        writeln!(output, "\n{host}").map_err(broken)?;
        for line in lines(about) {
            writeln!(output, "  {line}").map_err(broken)?;
        }
        let choices = choices(about);
        loop {
            for (number, choice) in choices.iter().enumerate() {
                writeln!(output, "  {}) {choice}", number + 1).map_err(broken)?;
            }
            write!(output, "  what to do about {host}? ").map_err(broken)?;
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
            writeln!(output, "  type a number or one of: {}", choices.join(", ")).map_err(broken)?;
        }
    }
    Ok(decisions)
}

fn chosen(answer: &str, choices: &[String]) -> Option<String> {
    let by_number = answer.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
    by_number.or_else(|| choices.iter().find(|choice| *choice == answer)).cloned()
}

fn choices(about: &Value) -> Vec<String> {
    let told = about["choices"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let told: Vec<String> = told.collect();
    if told.is_empty() { CHOICES.map(str::to_owned).to_vec() } else { told }
}

/// A line per blocker: `vm-7 (usb_passthrough, critical): detach the device`.
pub fn lines(about: &Value) -> Vec<String> {
    let listed = about.get("blockers").unwrap_or(about).as_array();
    let line = |blocker: &Value| {
        let text = |keys: [&str; 2]| keys.iter().find_map(|key| blocker[*key].as_str());
        let Some(vm) = text(["vm_name", "name"]) else { return blocker.to_string() };
        let about: Vec<&str> =
            [text(["reason", "type"]), blocker["severity"].as_str()].into_iter().flatten().collect();
        let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
        let mend = text(["remediation", "details"]).map(|mend| format!(": {mend}")).unwrap_or_default();
        format!("{vm}{about}{mend}")
    };
    match listed {
        Some(listed) => listed.iter().map(line).collect(),
        None => vec![about.to_string()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves J8
    #[test]
    fn people_decide_host_by_host_by_number_or_word() {
        let blockers = json!({
            "esx1": {"blockers": [{"vm_name": "vm-7", "reason": "usb_passthrough", "severity": "critical", "remediation": "detach it"}]},
            "esx2": {"blockers": [], "choices": ["wait", "skip"]},
        });
        let mut shown = Vec::new();
        let asked = ask(blockers.as_object().expect("hosts"), &mut "3\n1\nskip\n".as_bytes(), &mut shown);
        assert_eq!(asked.map(Value::Object).ok(), Some(json!({"esx1": "power_off", "esx2": "skip"})));
        let shown = String::from_utf8(shown).expect("text");
        assert!(shown.contains("vm-7 (usb_passthrough, critical): detach it"), "{shown}");
        assert!(shown.contains("type a number or one of: power_off, skip"), "{shown}");
        assert!(shown.contains("1) wait"), "{shown}");
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
