//! What people read: a few mistakes of each sort, word for word. `INSTA_UPDATE=always` rewrites the snapshot.

use super::table::{PARCEL, PIECE};
use super::{catalog, judge};

/// What somebody might really get wrong.
#[rustfmt::skip]
const MISTAKES: &[(&str, &str, &str, &str)] = &[
    ("a typing error in a phase", PARCEL, "phase = \"ready\"", "phase = \"redy\""),
    ("a typing error in a key", PARCEL, "on_stale = \"take-over\"", "on_stael = \"take-over\""),
    ("a typing error in a state", PARCEL, "\"queue\", \"queued\"", "\"queue\", \"qeued\""),
    ("a guard that does not exist", PARCEL, "\"has-items\"", "\"is-friday\""),
    ("a missing comma", PARCEL, "\"draft\", \"queue\"", "\"draft\" \"queue\""),
    ("a missing quote", PARCEL, "name    = \"parcel\"", "name    = \"parcel"),
    ("a missing column", PARCEL, "[\"draft\", \"queue\", \"queued\", \"client\", \"has-items\"]", "[\"draft\", \"queued\", \"client\"]"),
    ("a number without a unit", PARCEL, "lease = \"60s\"", "lease = \"60\""),
    ("a number for a text", PARCEL, "ttl = \"7d\"", "ttl = 7"),
    ("ids that are not unique", PARCEL, "parcel-{uuid7}", "parcel-{date}"),
    ("no stale rule", PARCEL, ", on_stale = \"take-over\", max_take_overs = 5", ""),
    ("no lose row", PARCEL, "  [\"running\", \"lose\", \"failed\", \"engine\", \"\"],\n", ""),
    ("a lose row that may not hold", PARCEL, "\"lose\", \"failed\", \"engine\", \"\"", "\"lose\", \"failed\", \"engine\", \"no-item-ok\""),
    ("approve on a held run", PARCEL, "\"complete\", \"done\", \"worker\"", "\"approve\", \"done\", \"operator\""),
    ("cancel without the worker", PARCEL, "\"client, worker\"", "\"client\""),
    ("the engine reopens a settled run", PARCEL, "\"recall\", \"recalled\", \"engine\"", "\"reopen\", \"queued\", \"engine\""),
    ("a state that was forgotten", PARCEL, "halted   = { phase = \"parked\" }", "halted   = { phase = \"parked\" }\nidle     = { phase = \"settled\" }"),
    ("the same row twice", PARCEL, "transitions = [\n", "transitions = [\n  [\"queued\", \"claim\", \"taken\", \"worker\", \"\"],\n"),
    ("items of a run in an item", PIECE, "version = 1\n", "version = 1\nitems = [\"step\"]\n"),
    ("an item that follows along no row", PIECE, "on_end = \"skipped\"", "on_end = \"bad\""),
];

#[test]
fn messages_name_the_line_the_rule_and_the_mend() {
    let mut told = String::new();
    for (what, sound, old, new) in MISTAKES {
        let text = sound.replacen(old, new, 1);
        assert_ne!(text, **sound, "{what}");
        let problems = judge(&text, &catalog()).unwrap_err();
        told.push_str(&format!("## {what}\n{problems}\n\n"));
    }
    insta::assert_snapshot!(told);
}
