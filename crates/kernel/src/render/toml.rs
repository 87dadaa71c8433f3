//! A lifecycle as a lifecycle file: what one process tells another, so that both mean the same.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::json::{self, attributes};
use crate::lifecycle::{Decisions, Kind, Lifecycle, Phase, State};

pub fn toml(lifecycle: &Lifecycle) -> String {
    let object = json::json(lifecycle);
    let mut text = String::new();
    // Neither a string nor JSON fails to be written.
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "{key} = {value}");
    };
    line("name", &inline(&object["name"]));
    line("version", &inline(&object["version"]));
    if lifecycle.kind == Kind::Item {
        line("kind", &inline(&object["kind"]));
    }
    for key in ["description", "ids", "initial", "items"] {
        if !object[key].is_null() && object[key] != json!([]) {
            line(key, &inline(&object[key]));
        }
    }
    if lifecycle.stops_run {
        line("stops_run", &inline(&object["stops_run"]));
    }
    if lifecycle.projected {
        line("projected", &inline(&object["projected"]));
    }
    // Their order counts, and JSON's objects have none.
    let codes: Vec<String> = lifecycle
        .codes
        .iter()
        .map(|(command, code)| format!("{} = {}", json!(&**command), json!(&**code)))
        .collect();
    let operations: Vec<String> = lifecycle
        .operations
        .iter()
        .map(|(command, _)| format!("{} = {}", json!(&**command), inline(&object["operations"][&**command])))
        .collect();
    let decisions: Vec<String> = lifecycle
        .decisions
        .iter()
        .flat_map(Decisions::members)
        .map(|(part, member)| format!("{} = {}", part.name(), json!(member)))
        .collect();
    let cancelled: Vec<String> = lifecycle
        .cancelled_metadata
        .iter()
        .map(|(member, fact)| format!("{} = {}", json!(&**member), json!(fact.name())))
        .collect();
    let tables = [
        ("codes", codes),
        ("operations", operations),
        ("decisions", decisions),
        ("cancelled_metadata", cancelled),
    ];
    for (key, pairs) in tables {
        if !pairs.is_empty() {
            line(key, &format!("{{ {} }}", pairs.join(", ")));
        }
    }
    let rows = object["transitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<Value> = rows.iter().map(row).collect();
    line("transitions", &inline(&Value::Array(rows)));
    text.push_str("\n[states]\n");
    for state in &lifecycle.states {
        let mut found = vec![("phase".to_owned(), json!(state.phase.name()))];
        found.extend(attributes(lifecycle, state));
        found.extend(said_to_be_endless(lifecycle, state));
        let pairs: Vec<String> =
            found.iter().map(|(key, value)| format!("{key} = {}", inline(value))).collect();
        let _ = writeln!(text, "{} = {{ {} }}", json!(&*state.name), pairs.join(", "));
    }
    text
}

/// A draft that a file says nothing of has a time to live.
fn said_to_be_endless(lifecycle: &Lifecycle, state: &State) -> Option<(String, Value)> {
    let is_endless = lifecycle.kind == Kind::Run && state.phase == Phase::Draft && state.ttl.is_none();
    is_endless.then(|| ("ttl".to_owned(), json!("never")))
}

fn row(transition: &Value) -> Value {
    let joined = |list: &Value| {
        let words: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        words.join(", ")
    };
    let word = |key: &str| transition[key].clone();
    json!([
        word("from"),
        word("command"),
        word("to"),
        joined(&transition["by"]),
        joined(&transition["guards"])
    ])
}

/// JSON's strings, numbers and lists are TOML's, but for one character that only JSON takes as it is.
fn inline(value: &Value) -> String {
    value.to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::{Catalog, SHIPPED};

    #[test]
    fn a_rendered_lifecycle_means_the_same() {
        let shipped = Catalog::shipped().expect("shipped");
        let mut again = Catalog::default();
        for (name, _) in SHIPPED {
            let lifecycle = shipped.latest(name).expect(name);
            let text = toml(lifecycle);
            let read = again.add_stored(&text).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
            assert_eq!(&read, lifecycle, "{text}");
        }
    }

    #[test]
    fn a_draft_that_never_ends_is_said_to() {
        let text = "name = \"mine\"\nversion = 2\nids = \"mine-{uuid7}\"\ninitial = [\"d\"]\n\
            transitions = [[\"d\", \"queue\", \"a\", \"client\", \"\"], [\"a\", \"claim\", \"b\", \"worker\", \"\"], [\"b\", \"end\", \"c\", \"worker\", \"\"], [\"b\", \"fail\", \"e\", \"worker\", \"\"], [\"b\", \"lose\", \"e\", \"engine\", \"\"]]\n\
            [states]\nd = { phase = \"draft\", ttl = \"never\" }\na = { phase = \"ready\" }\nb = { phase = \"held\", lease = \"5s\", on_stale = \"lose\" }\n\
            c = { phase = \"settled\", outcome = \"succeeded\", keep = \"5d\" }\ne = { phase = \"settled\", outcome = \"failed\" }\n";
        let mut catalog = Catalog::default();
        let lifecycle = catalog.add(text).unwrap_or_else(|problems| panic!("{problems}"));
        let mut again = Catalog::default();
        assert_eq!(*again.add(&toml(&lifecycle)).expect("reads"), *lifecycle);
    }
}
