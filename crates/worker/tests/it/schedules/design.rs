//! What a sound file means.

use std::path::Path;

use serde_json::json;
use waypost_kernel::schedule::{CatchUp, Overlap, in_words};
use waypost_kernel::{Catalog, Span};
use waypost_worker::schedules::{Scopes, What, stored};

use super::{SOUND, judge, sound};

#[test]
fn every_key_means_what_it_says() {
    let all = sound(SOUND);
    let [backup, rollup, deploy, tidy] = all.as_slice() else { panic!("{all:#?}") };
    assert_eq!(in_words(&backup.policy.timing), "at 02:00 every day (Europe/Kyiv)");
    assert_eq!((backup.policy.overlap, backup.policy.max_lateness), (Overlap::Skip, None));
    assert_eq!(backup.scopes, Scopes::Global);
    assert_eq!(in_words(&rollup.policy.timing), "every 5m, 5m later");
    let window = Span::from_seconds(86_400);
    assert_eq!(rollup.policy.catch_up, CatchUp::EveryPlan { window, at_once: 3 });
    assert_eq!(rollup.policy.overlap, Overlap::Queue, "every plan means every plan");
    assert_eq!(rollup.policy.max_lateness, Some(Span::from_seconds(600)));
    assert_eq!(rollup.scopes.known(), Some(vec!["a".to_owned(), "b".to_owned()]));
    assert!(
        matches!(&deploy.what, What::Run(run) if run.carried.as_ref().unwrap()["command"][0] == "./deploy.sh" && run.queue.as_deref() == Some("builds"))
    );
    assert!(matches!(&tidy.what, What::Handler(name) if name == "tidy-up"));
    assert!(matches!(&tidy.scopes, Scopes::Sql { kind, .. } if kind == "tenant"));
}

// proves C7
#[test]
fn the_last_wait_repeats_and_no_waits_are_no_retry() {
    let waits = |text: &str| {
        let schedule = &sound(&SOUND.replace("backoff = [\"1m\", \"5m\", \"15m\"]", text))[0].clone();
        (1..=5).map(|attempt| schedule.retry_in(attempt).map(|span| span.to_string())).collect::<Vec<_>>()
    };
    let some = |texts: &[&str]| {
        let mut waits: Vec<Option<String>> = texts.iter().map(|text| Some((*text).to_owned())).collect();
        waits.resize(5, None);
        waits
    };
    assert_eq!(waits("backoff = [\"1m\", \"5m\", \"15m\"]"), some(&["1m", "5m"]));
    assert_eq!(waits("backoff = [\"2m\"]"), some(&["2m", "2m"]));
    assert_eq!(waits("backoff = []"), some(&[]));
}

#[test]
fn a_stored_schedule_is_the_one_that_was_written() {
    for schedule in sound(SOUND) {
        let again =
            stored(&schedule.definition, Path::new("/srv/jobs"), &Catalog::shipped().unwrap()).unwrap();
        let line = again.line;
        assert_eq!(waypost_worker::schedules::Schedule { line, ..schedule }, again);
    }
    let hostile = SOUND.replace("The whole database", r#"\"; rm\\ \u0007 \u007f {{ x"#);
    let schedule = sound(&hostile).remove(0);
    let again = stored(&schedule.definition, Path::new("/"), &Catalog::shipped().unwrap()).unwrap();
    assert_eq!(again.description, schedule.description);
}

#[test]
fn what_is_stored_is_read_as_json() {
    let catalog = Catalog::shipped().unwrap();
    let definition = json!({
        "name": "job", "cadence": "5m", "description": null,
        "run": { "lifecycle": "job", "exec": ["true"], "input": { "a": [null, { "b": 1.5 }], "": "\u{7f}" } },
    });
    let schedule = stored(&definition, Path::new("/"), &catalog).unwrap();
    assert_eq!(schedule.description, None);
    let What::Run(run) = &schedule.what else { panic!("{schedule:?}") };
    assert_eq!(run.input, definition["run"]["input"], "null is a value of JSON, though not of TOML");
    let wrong =
        json!({ "name": "job", "cadence": "5m", "jittr": "1s", "run": { "lifecycle": "job", "exec": [5] } });
    let problems = stored(&wrong, Path::new("/"), &catalog).unwrap_err();
    let told: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
    assert!(
        told[0].starts_with("jittr: a schedule has no key `jittr` [unknown-key]\n  did you mean `jitter`?"),
        "{told:?}"
    );
    assert!(told[1].starts_with("run.exec[0]: this is an integer, not a text"), "{told:?}");
    assert_eq!(told.len(), 2);
}

#[test]
fn sections_that_nobody_reads_are_refused() {
    let text = format!("{SOUND}\n[[mail]]\nslug = \"a\"\n\n[http]\nallow_private = true\n");
    let told: Vec<(&str, String)> =
        judge(&text).unwrap_err().0.into_iter().map(|problem| (problem.rule, problem.field)).collect();
    assert_eq!(told, [("unknown-key", "mail".to_owned()), ("unknown-key", "http".to_owned())]);
    assert_eq!(sound("").len(), 0);
}

#[test]
fn the_schedules_of_the_guide_are_sound() {
    let guide = include_str!("../../../../../docs/schedules.md");
    let blocks: Vec<&str> =
        guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.iter().map(|block| sound(block).len()).sum::<usize>(), 3);
}
