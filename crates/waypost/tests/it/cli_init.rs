//! What a newcomer is given: files to begin with, completions, manual pages.

use std::fs;

use crate::support::Shop;

const FILES: [&str; 3] = ["waypost.toml", "playbooks/deploy.toml", "lifecycles/release.toml"];

#[test]
fn init_writes_files_that_are_sound_and_overwrites_nothing() {
    let shop = Shop::new();
    let said = shop.ok(&["init", "ops"]);
    assert!(said.contains("cd ops") && said.contains("waypost dev --playbooks playbooks"), "{said}");
    let read = |name: &str| fs::read_to_string(shop.path("ops").join(name)).unwrap();
    let written: Vec<String> = FILES.map(read).into();
    shop.ok(&["lifecycle", "check", "ops/lifecycles/release.toml"]);
    shop.ok(&["lifecycle", "add", "ops/lifecycles/release.toml"]);
    let playbook: toml::Table = toml::from_str(&written[1]).unwrap();
    let steps = playbook["step"].as_array().unwrap();
    assert!(steps.iter().any(|step| step.get("ask").is_some()), "one asks a person");
    shop.ok(&["schedule", "apply", "ops/waypost.toml", "--check"]);
    shop.run(&["init", "ops"])
        .expect(5, &["nothing was written", "ops/waypost.toml", "would be overwritten"]);
    fs::remove_file(shop.path("ops/waypost.toml")).unwrap();
    shop.run(&["init", "ops"]).expect(5, &["ops/playbooks/deploy.toml"]);
    assert!(!shop.path("ops/waypost.toml").exists(), "all of it or nothing");
    assert_eq!(read(FILES[1]), written[1]);
}

/// What stands behind `#` is what people uncomment.
#[test]
fn the_examples_of_the_file_are_sound_without_their_hashes() {
    let shop = Shop::new();
    shop.ok(&["init"]);
    let text = fs::read_to_string(shop.path("waypost.toml")).unwrap();
    let is_example = |line: &&str| {
        let inner = line.trim_start_matches("# ");
        line.starts_with("# [")
            || inner
                .split_once(" = ")
                .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
    };
    let examples: Vec<&str> = text.lines().filter(is_example).map(|line| &line[2..]).collect();
    let examples = examples.join("\n").replace("playbooks/deploy.toml", "plain.toml");
    assert!(
        examples.contains("[[schedule]]")
            && examples.contains("[retention.deploy]")
            && examples.contains("[github]"),
        "{examples}"
    );
    let plain = "name = 'plain'\nlifecycle = 'job'\n[inputs.stage]\ntype = 'string'\n[[step]]\nname = 'a'\nexec = ['true']\n";
    fs::write(shop.path("plain.toml"), plain).unwrap();
    fs::write(shop.path("waypost.toml"), examples).unwrap();
    shop.ok(&["schedule", "apply", "waypost.toml", "--check"]);
}

#[test]
fn shells_get_completions_and_every_command_a_manual_page() {
    let shop = Shop::new();
    for (shell, words) in
        [("bash", "complete -F"), ("zsh", "#compdef waypost"), ("fish", "complete -c waypost")]
    {
        let script = shop.ok(&["completions", shell]);
        assert!(script.contains(words) && script.contains("schedule"), "{shell}");
    }
    shop.ok(&["man", "pages"]);
    for page in [
        "waypost.1",
        "waypost-run.1",
        "waypost-run-start.1",
        "waypost-schedule-backfill.1",
        "waypost-token-create.1",
    ] {
        let text = fs::read_to_string(shop.path("pages").join(page)).unwrap();
        assert!(text.contains(".SH NAME") && text.contains("waypost"), "{page}");
    }
    let start = fs::read_to_string(shop.path("pages/waypost-run-start.1")).unwrap();
    assert!(start.contains("\\-\\-run\\-timeout"), "{start}");
    fs::write(shop.path("file"), "").unwrap();
    shop.run(&["man", "file"]).expect(1, &["file"]);
}
