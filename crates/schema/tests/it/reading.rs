//! What is sound becomes nodes, the same ones from TOML and from JSON.

use serde_json::{Value, json};

use super::{SOUND, from_json, from_toml};

#[test]
fn values_keep_their_lines_and_paths() {
    let node = from_toml(SOUND).unwrap();
    let stops = node.get("stop").unwrap();
    assert_eq!(stops.items().len(), 2);
    let minutes = stops.items()[0].get("minutes").unwrap();
    assert_eq!((minutes.line, minutes.field.as_str()), (13, "stop[0].minutes"));
    // A text of several lines begins below its quotes.
    assert_eq!(node.get("note").unwrap().line, 3);
    assert_eq!(node.of::<Vec<String>>("zones"), Some(vec!["x".into(), "y".into()]), "lifted out of [signs]");
    assert_eq!(node.of::<f64>("fare"), Some(2.0));
    assert_eq!(node.text_of("on_strike"), Some("closed"));
}

#[test]
fn json_is_read_as_the_file_that_it_came_from() {
    let node = from_toml(SOUND).unwrap();
    let stored = node.to_json();
    assert_eq!(
        stored["more"],
        json!({ "a": [1, 2.5, "x", { "b": true }], "d": "2026-02-14" }),
        "any value, a date as text"
    );
    assert_eq!(stored["title"], "north", "kept as the format says");
    let again = from_json(&stored).unwrap();
    assert_eq!(again.to_json(), stored);
    let minutes = again.get("stop").unwrap().items()[0].get("minutes").unwrap();
    assert_eq!((minutes.line, minutes.field.as_str()), (0, "stop[0].minutes"));
}

#[test]
fn null_is_what_was_left_out() {
    let node = from_json(&json!({ "name": "ring", "fare": null, "more": { "a": null } })).unwrap();
    assert!(node.get("fare").is_none());
    assert_eq!(node.of::<Value>("more"), Some(json!({ "a": null })), "but for a part of any value");
    assert!(from_json(&json!({ "name": null })).is_err());
}
