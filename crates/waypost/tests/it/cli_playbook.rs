//! `waypost playbook check`, as a person and as a script use it.

use std::fs;

use serde_json::Value;

use crate::support::Shop;

const SOUND: &str =
    "name = \"hello\"\nlifecycle = \"job\"\n\n[[step]]\nname = \"greet\"\nexec = [\"echo\", \"hi\"]\n";

fn shop(files: &[(&str, &str)]) -> Shop {
    let shop = Shop::new();
    for (name, text) in files {
        fs::write(shop.path(name), text).unwrap();
    }
    shop
}

#[test]
fn sound_playbooks_are_named_with_their_version() {
    let shop = shop(&[("hello.toml", SOUND)]);
    let out = shop.ok(&["playbook", "check", "hello.toml"]);
    assert!(
        out.starts_with("hello.toml: hello@") && out.contains("is sound: 1 step, lifecycle job"),
        "{out}"
    );
    let json: Value =
        serde_json::from_str(&shop.ok(&["playbook", "check", "hello.toml", "-o", "json"])).unwrap();
    assert_eq!((&json[0]["sound"], &json[0]["steps"][0]), (&Value::Bool(true), &Value::from("greet")));
    assert_eq!(json[0]["hash"].as_str().unwrap().len(), 64);
}

#[test]
fn problems_are_told_for_every_file_and_end_with_2() {
    let bad = SOUND.replace("exec", "exce").replace("\"job\"", "\"jobs\"");
    let shop = shop(&[("hello.toml", SOUND), ("bad.toml", &bad), ("worse.toml", "name = ")]);
    let ran = shop.run(&["playbook", "check", "bad.toml", "hello.toml", "worse.toml"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.out.contains("hello.toml: hello@"), "{}", ran.out);
    for words in [
        "bad.toml:2: lifecycle: there is no lifecycle `jobs`",
        "did you mean `job`?",
        "bad.toml:6: step[0].exce: a step has no key `exce`",
        "did you mean `exec`?",
        "bad.toml:4: step[0]: a step does not say what to do",
        "worse.toml:1: ",
    ] {
        assert!(ran.err.contains(words), "{words}:\n{}", ran.err);
    }
    let ran = shop.run(&["playbook", "check", "bad.toml", "hello.toml", "-o", "json"]);
    let error: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!((ran.code, &error["detail"]), (Some(2), &"1 of 2 playbooks have problems".into()));
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    let first = &json[0]["problems"][0];
    assert_eq!((&first["file"], &first["line"]), (&Value::from("bad.toml"), &Value::from(2)));
    assert!(first["field"] == "lifecycle" && first["mend"].as_str().unwrap().contains("job"), "{first}");
    assert_eq!(json[1]["sound"], true);
}

#[test]
fn missing_files_and_lifecycles_of_ones_own() {
    let release = include_str!("../../../../docs/examples/lifecycles/release.toml");
    let own = SOUND.replace("\"job\"", "\"release\"");
    let shop = shop(&[("own.toml", &own), ("release.toml", release)]);
    assert_eq!(shop.run(&["playbook", "check", "nowhere.toml"]).code, Some(4));
    assert_eq!(shop.run(&["playbook", "check", "own.toml"]).code, Some(2));
    let out = shop.ok(&["playbook", "check", "own.toml", "--lifecycle", "release.toml"]);
    assert!(out.contains("lifecycle release"), "{out}");
    assert_eq!(shop.run(&["playbook", "check", "own.toml", "--lifecycle", "no.toml"]).code, Some(4));
    assert_eq!(shop.run(&["playbook", "check"]).code, Some(2));
}

#[test]
fn lifecycles_of_the_database_are_known() {
    let own = SOUND.replace("\"job\"", "\"release\"");
    let shop = shop(&[("hello.toml", &own)]);
    shop.run(&["playbook", "check", "hello.toml"]).expect(2, &["there is no lifecycle `release`"]);
    assert!(!shop.database().exists(), "looking makes no database");
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let release = include_str!("../../../../docs/examples/lifecycles/release.toml");
    let body = serde_json::json!({ "source": release });
    let added = crate::http::post(&url, "/v1/lifecycles", &[], &body).unwrap();
    assert_eq!(added.status, 201, "{:?}", added.body);
    let sound = shop.ok(&["playbook", "check", "hello.toml"]);
    assert!(sound.contains("is sound: 1 step, lifecycle release"), "{sound}");
}
