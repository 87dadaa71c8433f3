//! Mistakes in an item's lifecycle, and files that are wrong as a whole.

use super::table::{Case, Edit, PARCEL};

#[rustfmt::skip]
pub const PIECE_EDITS: &[Edit] = &[
    ("kind    = \"item\"", "kind    = \"items\"", "unknown-word", 2),
    ("kind    = \"item\"", "kind    = 1", "wrong-type", 2),
    ("kind    = \"item\"\n", "\n", "missing-key", 1),
    ("version = 1", "version = 1\nids = \"{uuid7}\"", "item-key", 4),
    ("version = 1", "version = 1\nitems = [\"step\"]", "item-key", 4),
    ("version = 1", "version = 1\nprojected = true", "item-key", 4),
    ("version = 1", "version = 1\ncodes = { fail = \"BAD\" }", "item-key", 4),
    ("version = 1", "version = 1\noperations = { redo = [\"good\"] }", "item-key", 4),
    ("version = 1", "version = 1\ndecisions = { waiting = \"a\", asked = \"b\", given = \"c\" }", "item-key", 4),
    ("version = 1", "version = 1\ncancelled_metadata = { who = \"by\" }", "item-key", 4),
    ("on_end = \"skipped\"", "on_end = \"skiped\"", "unknown-state", 7),
    ("on_end = \"skipped\"", "on_end = 1", "wrong-type", 7),
    ("on_end = \"skipped\"", "on_end = \"bad\"", "follow-edge-missing", 7),
    ("on_end = \"skipped\"", "onend = \"skipped\"", "unknown-key", 7),
    ("on_lost = \"waiting\", ", "", "held-without-stale-rule", 8),
    ("on_lost = \"waiting\", ", "on_stale = \"lose\", ", "key-phase", 8),
    ("on_lost = \"waiting\", ", "on_lost = \"waiting\", lease = \"60s\", ", "key-phase", 8),
    ("phase = \"ready\"", "phase = \"ready\", ttl = \"1d\"", "key-phase", 7),
    ("outcome = \"succeeded\"", "outcome = \"succeeded\", keep = \"1d\"", "key-phase", 9),
    ("outcome = \"succeeded\"", "outcome = \"succeeded\", retry = true", "key-phase", 9),
    ("on_retry = \"waiting\"", "on_retry = \"waiting\", on_resume = \"waiting\"", "follow-guarded", 10),
    ("\"client, engine\", \"not-discarded\"", "\"client, engine\", \"has-reason\"", "guard-misplaced", 19),
    ("\"client, engine\", \"not-discarded\"", "\"client, engine\", \"all-items-ok\"", "guard-misplaced", 19),
    ("\"client, engine\", \"not-discarded\"", "\"client, engine\", \"reruns\"", "follow-uncounted", 8),
    ("\"not-discarded\"],\n", "\"not-discarded\"],\n  [\"bad\", \"redo\", \"waiting\", \"worker\", \"\"],\n", "follow-uncounted", 8),
    ("[\"going\", \"fail\", \"bad\"", "[\"going\", \"fail\", \"going\"", "idle-loop", 17),
    ("[\"going\", \"complete\", \"good\"", "[\"going\", \"complete\", \"bad\"", "unreachable-state", 9),
    ("initial = [\"waiting\"]", "initial = [\"good\"]", "initial-phase", 4),
    ("version = 1", "version = 1\nstops_run = \"yes\"", "wrong-type", 4),
    ("initial = [\"waiting\"]", "initial = [\"waiting\", \"going\"]\nstops_run = true", "begins-by-itself", 9),
    ("initial = [\"waiting\"]\n\n[states]\nwaiting = { phase = \"ready\",", "initial = [\"waiting\"]\nstops_run = true\n\n[states]\nwaiting = { phase = \"ready\", on_claim = \"going\",", "begins-by-itself", 8),
];

fn case(name: &str, text: String, rule: &'static str, line: usize) -> Case {
    Case { name: name.to_owned(), text, rule, line }
}

pub fn whole_files() -> Vec<Case> {
    let many_states: String = (0..70).map(|at| format!("s{at} = {{ phase = \"ready\" }}\n")).collect();
    let row = "  [\"draft\", \"queue\", \"queued\", \"client\", \"has-items\"],\n";
    let above = PARCEL.replacen("[states]", &format!("transitions = [\n{row}]\n[states]"), 1);
    vec![
        case("empty", String::new(), "missing-key", 1),
        case("only a comment", "# nothing yet\n".into(), "missing-key", 1),
        case("not TOML", "<lifecycle name=\"deploy\"/>\n".into(), "syntax", 1),
        case("JSON", "{\"name\": \"deploy\"}".into(), "syntax", 1),
        case("YAML", "name: deploy\nversion: 1\n".into(), "syntax", 1),
        case("too large", format!("{PARCEL}# {}\n", "x".repeat(256 * 1024)), "too-large", 1),
        case(
            "no states",
            PARCEL.split("draft    =").next().unwrap().to_owned() + "transitions = []\n",
            "size",
            1,
        ),
        case("many states", PARCEL.replacen("[states]\n", &format!("[states]\n{many_states}"), 1), "size", 1),
        case("many rows", PARCEL.replacen(row, &row.repeat(513), 1), "size", 1),
        case("two tables of rows", above, "two-tables", 23),
        case("no rows", PARCEL.split("transitions").next().unwrap().to_owned(), "missing-key", 1),
    ]
}
