//! Steps that ask a person, as files declare them.

use super::{judge, parse};

fn file(lifecycle: &str, step: &str) -> String {
    format!("name = \"ship\"\nlifecycle = \"{lifecycle}\"\n[[step]]\nname = \"go?\"\n{step}\n")
}

// proves U4
#[test]
fn a_question_has_choices() {
    let playbook = parse(&file("job", "ask = \"ship it?\"\ntimeout = \"24h\"\non_timeout = \"no\""));
    let ask = playbook.steps[0].ask.as_ref().unwrap();
    assert_eq!((ask.choices.join(" "), ask.on_timeout.as_deref()), ("yes no".to_owned(), Some("no")));
    let own = parse(&file("job", "ask = \"ship it?\"\nchoices = [\"approve\", \"send back\"]"));
    assert_eq!(own.steps[0].ask.as_ref().unwrap().choices, ["approve", "send back"]);
}

// proves U4
#[test]
fn what_is_wrong_with_a_question_is_told() {
    for (lifecycle, step, rule, field) in [
        ("deploy", "ask = \"ship it?\"", "misplaced-key", "step[0].ask"),
        ("agent", "ask = \"ship it?\"", "misplaced-key", "step[0].ask"),
        ("job", "ask = \" \"", "empty", "step[0].ask"),
        ("job", "ask = \"{{ inputs.x\"", "template-syntax", "step[0].ask"),
        ("job", "exec = [\"true\"]\nask = \"a?\"", "one-action", "step[0].ask"),
        ("job", "ask = \"a?\"\nchoices = []", "empty", "step[0].choices"),
        ("job", "ask = \"a?\"\nchoices = [\"a\", \"a\"]", "duplicate-name", "step[0].choices[1]"),
        ("job", "ask = \"a?\"\nchoices = [\" a\"]", "bad-name", "step[0].choices[0]"),
        ("job", "ask = \"a?\"\non_timeout = \"maybe\"", "unknown-word", "step[0].on_timeout"),
        ("job", "ask = \"a?\"\nretries = 2", "misplaced-key", "step[0].retries"),
        ("job", "exec = [\"true\"]\nchoices = [\"a\"]", "misplaced-key", "step[0].choices"),
    ] {
        let text = file(lifecycle, step);
        let problems = judge(&text).expect_err(&text).0;
        let found: Vec<(&str, &str)> = problems.iter().map(|it| (it.rule, it.field.as_str())).collect();
        assert!(found.contains(&(rule, field)), "{step}: {found:?}");
    }
    let of_cleanup = format!("{}[[cleanup]]\nname = \"c\"\nask = \"a?\"\n", file("job", "exec = [\"true\"]"));
    assert!(judge(&of_cleanup).is_err());
}
