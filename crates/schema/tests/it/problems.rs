//! What is not sound is told with its place, what is allowed and a hint; all of it at once.

use serde_json::json;
use waypost_schema::{instead_of, nearest, quoted};

use super::{SOUND, from_json, from_toml};

fn told(text: &str) -> Vec<String> {
    let problems = from_toml(text).expect_err(text);
    problems.0.iter().map(ToString::to_string).collect()
}

/// What stands in the sound file, what stands there instead, and what is told.
#[rustfmt::skip]
const MISTAKES: &[(&str, &str, &str)] = &[
    ("name = \"ring\"\n", "", "line.toml:1: name: a line has no `name` [missing-key]\n  add name = \"ring\": What it is called."),
    ("\"ring\"", "7", "line.toml:1: name: this is an integer, not a text between quotes [wrong-type]\n  write a text between quotes"),
    ("\"ring\"", "\"Ring\"", "line.toml:1: name: this is no word [bad-word]\n  use lower-case letters"),
    ("\"ring\"", "\"\"", "line.toml:1: name: the text is empty [empty]\n  write what belongs there, or remove the key"),
    ("fare = 2", "fair = 2", "line.toml:6: fair: a line has no key `fair` [unknown-key]\n  did you mean `fare`? Allowed: name, note, title, fare, stop, zones, signs, more, names"),
    ("fare = 2", "fare = -1", "line.toml:6: fare: `-1` is out of range [bad-number]\n  write a number from 0 to 9223372036854775807"),
    ("fare = 2", "fare = inf", "line.toml:6: fare: `inf` is no number that can be used [bad-number]\n  write a number such as 1.5"),
    ("names = \"the ring\"", "names = [\"A\"]", "line.toml:7: names[0]: this is no word [bad-word]\n  use lower-case letters"),
    ("names = \"the ring\"", "names = []", "line.toml:7: names: the list is empty [empty]\n  write what belongs there, or remove the key"),
    ("names = \"the ring\"", "names = 1", "line.toml:7: names: this is an integer, not a list of words, or a text [wrong-type]\n  write a list of words, or a text"),
    ("on_strike = \"closed\"", "on_strike = false", "line.toml:8: on_strike: this is a boolean, not a text between quotes [wrong-type]\n  write a text between quotes"),
    ("more = { a", "more = { \"\\u001b\" = \"\\u0000\", a", "line.toml:9: more.\"\\u{1b}\": the text has a NUL character [bad-text]\n  remove it"),
    ("minutes = 7", "minutes = 61", "line.toml:13: stop[0].minutes: `61` is out of range [bad-number]\n  write a number from 0 to 60"),
    ("minutes = 7", "fare = 7", "line.toml:13: stop[0].fare: a stop has no key `fare` [unknown-key]\n  move it above the first [section]: there `fare` is a key of the file"),
    ("by = \"bus\"", "by = \"buss\"", "line.toml:14: stop[0].by: there is no `buss` [unknown-word]\n  did you mean `bus`? Allowed: bus, tram"),
    ("by = \"bus\"\n", "", "line.toml:11: stop[0]: a stop does not say what to do [one-action]\n  add one of: by, foot"),
    ("by = \"bus\"", "by = \"bus\"\nfoot = true", "line.toml:15: stop[0].foot: a stop has by and foot [one-action]\n  keep one of: by, foot"),
    ("[signs]\na = 1", "[signs]\nA = 1", "line.toml:21: signs.A: this is no word [bad-word]\n  use lower-case letters"),
    ("[signs]\na = 1", "[signs]\na = 1\nb = 1\nc = 1", "line.toml:20: signs: there are 3, at most 2 are allowed [too-long]\n  split the file, or let a command do more"),
    ("fare = 2", "zones = [\"x\"]", "line.toml:22: zones: `zones` stands twice, here under [signs] [two-tables]\n  keep one; as a name of [signs] the word is taken"),
    ("zones = [\"x\", \"y\"]", "zones = [\"x\" \"y\"]", "mind the commas"),
    ("fare = 2", "= 2", "write TOML"),
    ("fare = 2", "fare = 2\nfare = 3", "the key stands twice: remove one of the two"),
];

#[test]
fn every_problem_has_its_line_field_rule_and_hint() {
    for (old, new, expected) in MISTAKES {
        let text = SOUND.replacen(old, new, 1);
        assert_ne!(text, SOUND, "{old}");
        let told = told(&text);
        assert!(told.iter().any(|problem| problem.ends_with(expected)), "{expected}\n{told:#?}");
    }
}

#[test]
fn all_are_told_at_once_in_order_and_not_without_end() {
    let text = SOUND.replace("\"ring\"", "1").replace("fare = 2", "fare = []").replace("\"tram\"", "5");
    assert_eq!(told(&text).len(), 2);
    let many: String = (0..150).map(|at| format!("k{at} = 1\n")).collect();
    let told = told(&many);
    assert_eq!(told.len(), 101);
    assert!(told[100].contains("further problems are not shown [too-many-problems]"), "{}", told[100]);
    let large = format!("name = \"a\"\n# {}", "x".repeat(4_096));
    assert_eq!(from_toml(&large).expect_err("large").0[0].rule, "too-large");
}

#[test]
fn json_has_paths_without_lines() {
    let problems =
        from_json(&json!({ "name": "ring", "stop": [{ "name": "mill", "by": "buss" }], "far": 1 }));
    let told = problems.expect_err("two problems").to_string();
    assert_eq!(
        told,
        "far: a line has no key `far` [unknown-key]\n  did you mean `fare`? Allowed: name, note, title, fare, stop, \
         zones, signs, more, names\nstop[0].by: there is no `buss` [unknown-word]\n  did you mean `bus`? Allowed: bus, tram"
    );
}

#[test]
fn values_within_each_other_have_an_end() {
    let mut deep = json!(1);
    for _ in 0..40 {
        deep = json!([deep]);
    }
    let problems = from_json(&json!({ "name": "ring", "more": deep })).expect_err("too deep");
    assert_eq!((problems.0.len(), problems.0[0].rule), (1, "too-long"));
}

#[test]
fn words_are_quoted_and_compared() {
    assert_eq!(quoted("a\u{1b}[2J"), "`a\\u{1b}[2J`");
    assert_eq!(quoted(&"x".repeat(100)).chars().count(), 67);
    assert_eq!(nearest("raeson", ["reason", "by"]), Some("reason"));
    assert_eq!(nearest("nothing", ["reason", "by"]), None);
    assert_eq!(instead_of("x", &[]), "allowed: none");
}
