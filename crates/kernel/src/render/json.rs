//! A lifecycle as JSON: `lifecycle show -o json`, `GET /v1/lifecycles`, and what a database stores of it.

use serde_json::{Map, Value, json};

use crate::lifecycle::{Kind, Lifecycle, State, StateId, Transition};

pub fn json(lifecycle: &Lifecycle) -> Value {
    let name = |id: StateId| lifecycle.state(id).name.to_string();
    let states: Vec<Value> = lifecycle.state_ids().map(|id| state(lifecycle, id)).collect();
    let transitions: Vec<Value> =
        lifecycle.transitions.iter().map(|row| transition(lifecycle, row)).collect();
    let operations: Map<String, Value> = lifecycle
        .operations
        .iter()
        .map(|(command, states)| (command.to_string(), states.iter().map(|id| name(*id)).collect()))
        .collect();
    let codes: Map<String, Value> =
        lifecycle.codes.iter().map(|(command, code)| (command.to_string(), json!(&**code))).collect();
    let decisions = lifecycle.decisions.as_ref().map(|decisions| {
        decisions
            .members()
            .map(|(part, member)| (part.name().to_owned(), json!(member)))
            .collect::<Map<_, _>>()
    });
    let cancelled_metadata: Map<String, Value> = lifecycle
        .cancelled_metadata
        .iter()
        .map(|(member, fact)| (member.to_string(), json!(fact.name())))
        .collect();
    json!({
        "name": &*lifecycle.name,
        "description": lifecycle.description.as_deref(),
        "version": lifecycle.version,
        "kind": lifecycle.kind.name(),
        "ids": lifecycle.ids.as_ref().map(ToString::to_string),
        "initial": lifecycle.initial.iter().map(|id| name(*id)).collect::<Vec<_>>(),
        "items": lifecycle.items.iter().map(|kind| &*kind.name).collect::<Vec<_>>(),
        "stops_run": (lifecycle.kind == Kind::Item).then_some(lifecycle.stops_run),
        "projected": (lifecycle.kind == Kind::Run).then_some(lifecycle.projected),
        "codes": codes,
        "operations": operations,
        "decisions": decisions,
        "cancelled_metadata": cancelled_metadata,
        "states": states,
        "transitions": transitions,
    })
}

fn state(lifecycle: &Lifecycle, id: StateId) -> Value {
    let state = lifecycle.state(id);
    let mut fields = Map::new();
    fields.insert("name".into(), json!(&*state.name));
    fields.insert("phase".into(), json!(state.phase.name()));
    if lifecycle.kind == Kind::Run {
        fields.insert("terminal".into(), json!(lifecycle.is_terminal(id)));
    }
    for (key, value) in attributes(lifecycle, state) {
        fields.insert(key, value);
    }
    Value::Object(fields)
}

/// What a state declares beside its phase, in the order of the file format.
pub fn attributes(lifecycle: &Lifecycle, state: &State) -> Vec<(String, Value)> {
    let mut found: Vec<(String, Value)> = Vec::new();
    let mut add = |key: &str, value: Option<Value>| found.extend(value.map(|value| (key.to_owned(), value)));
    add("outcome", state.outcome.map(|outcome| json!(outcome.name())));
    add("lease", state.lease.map(|span| json!(span.to_string())));
    add("deadline", state.deadline.map(|span| json!(span.to_string())));
    add("on_stale", state.on_stale.map(|rule| json!(rule.name())));
    add("max_take_overs", (state.max_take_overs > 0).then(|| json!(state.max_take_overs)));
    add("ttl", state.ttl.map(|span| json!(span.to_string())));
    add("retry", state.retry.then_some(json!(true)));
    add("keep", state.keep.filter(|_| lifecycle.kind == Kind::Run).map(|span| json!(span.to_string())));
    for (when, to) in &state.follows {
        add(&format!("on_{}", when.replace('-', "_")), Some(json!(&*lifecycle.state(*to).name)));
    }
    found
}

fn transition(lifecycle: &Lifecycle, row: &Transition) -> Value {
    json!({
        "from": &*lifecycle.state(row.from).name,
        "command": &*row.command,
        "to": &*lifecycle.state(row.to).name,
        "by": row.by.names(),
        "guards": row.guards.iter().map(|guard| guard.name()).collect::<Vec<_>>(),
    })
}
