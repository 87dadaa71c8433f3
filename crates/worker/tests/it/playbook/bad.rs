//! Hand-written mistakes: each an edit of a sound file, with the rule, the line and the field that must be told.

use std::collections::BTreeSet;

use waypost_worker::playbook::{Problem, RULES};

use super::{CLUSTER, PRICES, bad_actions, bad_values, judge, mutations};

/// What stands in the sound file, what stands there instead, the rule, how many lines below the edit's first it
/// is told, and the field.
pub type Edit = (&'static str, &'static str, &'static str, isize, &'static str);

fn edited(sound: &str, edit: &Edit) -> (String, usize) {
    let (old, new, _, below, _) = edit;
    let at = sound.find(old).unwrap_or_else(|| panic!("{old:?} is not in the sound file"));
    let line = (1 + sound[..at].matches('\n').count()).saturating_add_signed(*below);
    (sound.replacen(old, new, 1), line)
}

fn tables() -> Vec<(&'static str, &'static [Edit])> {
    vec![
        (CLUSTER, bad_values::CLUSTER_VALUES),
        (CLUSTER, bad_actions::CLUSTER_ACTIONS),
        (CLUSTER, bad_actions::CLUSTER_TEMPLATES),
        (PRICES, bad_values::PRICES_EDITS),
    ]
}

#[test]
fn every_mistake_is_told_with_its_line_and_field() {
    let mut wrong = Vec::new();
    for (sound, edits) in tables() {
        for edit in edits {
            let (text, line) = edited(sound, edit);
            let (_, new, rule, _, field) = edit;
            match judge(&text) {
                Ok(_) => wrong.push(format!("{new:?} is accepted, not {rule}")),
                Err(problems) => {
                    let is_told = |problem: &Problem| {
                        (problem.rule, problem.line, problem.field.as_str()) == (*rule, line, *field)
                    };
                    if !problems.0.iter().any(is_told) {
                        wrong
                            .push(format!("{new:?} should be {rule} of {field} in line {line}:\n{problems}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn whole_files_that_are_no_playbooks_are_refused() {
    let large = format!("{CLUSTER}# {}\n", "x".repeat(256 * 1024));
    let steps = "[[step]]\nname = \"a\"\nexec = [\"true\"]\n".repeat(201);
    let many = format!("name = \"a\"\nlifecycle = \"job\"\n{steps}");
    for (text, rule, line) in [
        ("", "missing-key", 1),
        ("# nothing yet\n", "nothing-to-do", 1),
        ("<playbook/>\n", "syntax", 1),
        ("{\"name\": \"a\"}", "syntax", 1),
        ("name: update\n", "syntax", 1),
        ("name = \"a\"\nlifecycle = \"job\"\nstep = []\n", "nothing-to-do", 1),
        ("name = \"a\"\nlifecycle = \"job\"\n\n[step]\nname = \"x\"\n", "wrong-type", 4),
        ("name = \"a\"\nlifecycle = \"job\"\nstep = [1]\n", "wrong-type", 3),
        (large.as_str(), "too-large", 1),
        (many.as_str(), "too-long", 3),
        (many.as_str(), "too-many-problems", 301),
    ] {
        let problems = judge(text).expect_err(rule);
        let is_told = problems.0.iter().any(|problem| (problem.rule, problem.line) == (rule, line));
        assert!(is_told, "{rule} in line {line}: {problems}");
    }
}

/// What a run calls a step is stored, with what is put before and after it.
#[test]
fn a_name_leaves_room_for_what_a_run_adds_to_it() {
    let playbook = |section: &str, bytes: usize, more: &str| {
        let name = "é".repeat(bytes / 2) + &"x".repeat(bytes % 2);
        let step = "[[step]]\nname = \"first\"\nexec = [\"true\"]\n";
        format!(
            "name = \"a\"\nlifecycle = \"job\"\n{step}[[{section}]]\n{more}name = \"{name}\"\nexec = [\"true\"]\n"
        )
    };
    let each = "for_each = \"inputs.hosts\"\n";
    for (section, more, at_most) in [
        ("step", "", 255),
        ("step", each, 255 - "[10000]".len()),
        ("cleanup", "", 255 - "cleanup: ".len()),
        ("cleanup", each, 255 - "cleanup: [10000]".len()),
    ] {
        judge(&playbook(section, at_most, more)).unwrap();
        let problems = judge(&playbook(section, at_most + 1, more)).expect_err(section);
        let (line, at) = (if more.is_empty() { 7 } else { 8 }, usize::from(section == "step"));
        let told = problems.0.iter().map(|problem| (problem.rule, problem.line, problem.field.clone()));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [("too-long", line, format!("{section}[{at}].name"))],
            "{problems}"
        );
        assert!(problems.to_string().contains(&format!("at most {at_most} ")), "{problems}");
    }
    // An id is what it is called then, and has its own limit.
    judge(&playbook("step", 1_000, "id = \"long\"\n")).unwrap();
}

/// Brackets are for whoever has no `for_each` of that name.
#[test]
fn a_name_may_look_like_a_part_where_there_is_none() {
    for name in ["notify[1]", "update[]", "update[a]", "update[1][2]", "update [1]", "update[1] ", "cleanup"]
    {
        judge(&CLUSTER.replacen("name = \"notify\"", &format!("name = \"{name}\""), 1)).unwrap();
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let mut text = CLUSTER.to_owned();
    for (old, new) in [
        ("lifecycle = \"job\"", "lifecycle = \"jbo\""),
        ("timeout = \"30s\"", "tiemout = \"30s\""),
        ("inputs.cluster }}\"]", "inputs.clutser }}\"]"),
        ("after = \"disable-ha\"", "after = \"disable-ah\""),
    ] {
        text = text.replacen(old, new, 1);
    }
    let problems = judge(&text).unwrap_err();
    let rules: Vec<&str> = problems.0.iter().map(|problem| problem.rule).collect();
    assert_eq!(rules, ["unknown-lifecycle", "unknown-variable", "unknown-key", "unknown-step"]);
    insta::assert_snapshot!("problems", problems.to_string());
}

/// Who sees what: the mend is what to write.
#[test]
fn what_a_step_does_not_wait_for_is_told_with_its_mend() {
    let step = |name: &str, more: &str| format!("[[step]]\nname = \"{name}\"\nexec = [\"true\"]\n{more}\n");
    let file = |steps: &[String]| format!("name = \"a\"\nlifecycle = \"job\"\n{}", steps.concat());
    let sees = |name: &str| format!("env = {{ A = \"{{{{ steps.{name}.output }}}}\" }}");
    let three = |needs: &str, seen: &str| {
        file(&[step("a", ""), step("b", "needs = []"), step("c", &format!("{needs}\n{}", sees(seen)))])
    };
    for (text, line, message, mend) in [
        (three("", "a"), 15, "this step does not wait for `a`", "write needs = [\"b\", \"a\"]"),
        (
            three("needs = [\"a\"]", "b"),
            15,
            "this step does not wait for `b`",
            "write needs = [\"a\", \"b\"]",
        ),
        (three("needs = []", "a"), 15, "this step does not wait for `a`", "write needs = [\"a\"]"),
        (three("", "c"), 15, "the step `c` has not run yet here", "move that step up, or this one down"),
        (
            file(&[step("a", &sees("b")), step("b", "")]),
            6,
            "the step `b` has not run yet here",
            "move that step up, or this one down",
        ),
        (
            file(&[step("a", "needs = [\"c\"]"), step("b", ""), step("c", "")]),
            6,
            "steps wait for each other: `a` waits for `c`, which waits for `b`, which waits for `a`",
            "take one of them out; a step without needs waits for the one before it",
        ),
    ] {
        let problems = judge(&text).expect_err(&text);
        let told: Vec<(usize, &str, &str)> =
            problems.0.iter().map(|it| (it.line, it.message.as_str(), it.hint.as_str())).collect();
        assert_eq!(told, [(line, message, mend)], "{text}");
    }
    judge(&three("needs = [\"b\", \"a\"]", "a")).unwrap();
    judge(&file(&[step("a", "needs = [\"b\"]"), step("b", "needs = []")])).unwrap();
}

#[test]
fn what_an_editor_adds_is_no_mistake() {
    for text in [CLUSTER, PRICES] {
        let sound = judge(text).unwrap();
        for changed in [
            format!("\u{feff}{text}"),
            text.replace('\n', "\r\n"),
            text.trim_end().to_owned(),
            text.lines().map(|line| format!("{line}  # said\n")).collect::<String>(),
        ] {
            let again = judge(&changed).unwrap();
            assert_eq!((again.pin(), again.steps.len()), (sound.pin(), sound.steps.len()));
        }
    }
}

/// Every rule is broken by some file; two are about files that cannot be read.
#[test]
fn every_rule_is_shown_by_a_mistake() {
    let mut shown: BTreeSet<&str> = BTreeSet::new();
    for (_, edits) in tables() {
        shown.extend(edits.iter().map(|edit| edit.2));
    }
    let elsewhere = ["unreadable", "too-large", "too-many-problems", "nothing-to-do"];
    for (rule, _) in RULES {
        assert!(shown.contains(rule) || elsewhere.contains(&rule), "no mistake shows {rule}");
    }
}

#[test]
fn more_than_two_hundred_bad_playbooks_are_refused() {
    let written: BTreeSet<String> = tables()
        .into_iter()
        .flat_map(|(sound, edits)| edits.iter().map(move |edit| edited(sound, edit).0))
        .collect();
    let mutated: BTreeSet<String> = mutations::all().into_iter().collect();
    let refused = |texts: &BTreeSet<String>| texts.iter().filter(|text| judge(text).is_err()).count();
    let (by_hand, by_machine) = (refused(&written), refused(&mutated));
    println!("by hand: {by_hand} refused of {}", written.len());
    println!("by machine: {by_machine} refused of {}", mutated.len());
    assert!(by_hand >= 150 && by_machine >= 1_000, "{by_hand} and {by_machine}");
}
