//! Requests become structs, or are refused with every field that is wrong.

use serde_json::{Map, Value, json};
use waypost_schema::{Kind, Request, read_request, requests};

requests! {
    STOP "NewStop" NewStop {
        needed minutes: u8 = Kind::Integer(0, 9), "How long.";
    }
    /// A new line.
    LINE "NewLine" NewLine {
        needed name: String = Kind::Text(5), "What it is called.";
        optional kind: Option<String> = Kind::Choice(&["a", "b"]), "Of which sort.";
        optional actor "as": Option<String> = Kind::Text(9), "Who asks.";
        optional is_open "open": bool = Kind::Boolean, "People may use it.";
        optional stops: Vec<NewStop> = Kind::List { of: &Kind::Of(&STOP), least: 0, most: 2 }, "Where it stops.";
        optional input: Option<Value> = Kind::Any, "Whatever.";
        optional details: Map<String, Value> = Kind::Object, "Kept beside it.";
    }
}

fn read(sent: Value) -> Result<NewLine, Vec<String>> {
    let Value::Object(object) = sent else { panic!("no object") };
    let told = |problems: Vec<waypost_schema::Problem>| {
        problems
            .into_iter()
            .map(|problem| format!("{} {}", problem.field, problem.message))
            .collect::<Vec<_>>()
    };
    let node = read_request(object, NewLine::SHAPE).map_err(told)?;
    Ok(node.typed().expect("the struct takes what its shape lets through"))
}

#[test]
fn what_was_sent_becomes_a_struct() {
    let sent = json!({
        "name": "ring", "kind": null, "as": "me", "open": true, "stops": [{ "minutes": 1 }, { "minutes": 9 }],
        "input": null, "details": { "a": [1] },
    });
    let line = read(sent).unwrap();
    assert_eq!((line.name.as_str(), line.kind, line.actor.as_deref()), ("ring", None, Some("me")));
    assert_eq!(line.stops.iter().map(|stop| stop.minutes).collect::<Vec<_>>(), [1, 9]);
    assert_eq!((line.is_open, line.input), (true, Some(Value::Null)), "null is a value where any value is");
    assert_eq!(Value::Object(line.details), json!({ "a": [1] }));
    let line = read(json!({ "name": "ring" })).unwrap();
    assert!(!line.is_open && line.stops.is_empty() && line.input.is_none() && line.details.is_empty());
}

#[test]
fn everything_that_is_wrong_is_named_with_its_place() {
    for (sent, expected) in [
        (json!({}), "name is missing; it must be text of at most 5 bytes"),
        (json!({ "name": null }), "name is missing; it must be text of at most 5 bytes"),
        (json!({ "name": "longer" }), "name must be text of at most 5 bytes"),
        (json!({ "name": 5 }), "name must be text of at most 5 bytes"),
        (json!({ "name": "n", "kind": "c" }), "kind must be one of a, b"),
        (json!({ "name": "n", "kind": "" }), "kind must be one of a, b"),
        (json!({ "name": "n", "open": "yes" }), "open must be true or false"),
        (json!({ "name": "n", "details": [] }), "details must be an object"),
        (json!({ "name": "n", "stops": [1] }), "stops/0 must be an object"),
        (
            json!({ "name": "n", "stops": [{ "minutes": 1 }, { "minutes": 10 }] }),
            "stops/1/minutes must be a whole number from 0 to 9",
        ),
        (
            json!({ "name": "n", "stops": [{ "minutes": 1.0 }] }),
            "stops/0/minutes must be a whole number from 0 to 9",
        ),
        (json!({ "name": "n", "stops": [{}, {}, {}] }), "stops must be a list of at most 2"),
        (
            json!({ "name": "n", "knid": "a" }),
            "knid is no field here; did you mean `kind`? Allowed: name, kind, as, open, stops, input, details",
        ),
        (
            json!({ "name": "n", "colour": 1 }),
            "colour is no field here; allowed: name, kind, as, open, stops, input, details",
        ),
    ] {
        assert_eq!(read(sent.clone()).unwrap_err(), [expected], "{sent}");
    }
    let all = read(json!({ "nmae": 1, "kind": 1 })).unwrap_err();
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all[0].starts_with("nmae is no field"), "what was misspelt comes before what is missing then");
    let many: Map<String, Value> = (0..100).map(|at| (format!("unknown{at}"), json!(1))).collect();
    assert_eq!(read(many.into()).unwrap_err().len(), 20);
}
