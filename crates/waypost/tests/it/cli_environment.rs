//! What commands see of the environment of the process that executes them.

use std::process::Command;

use crate::support::{Ran, Shop};

/// Variables that a process of Waypost has and a command must not see.
const PRIVATE: [(&str, &str); 4] = [
    ("WAYPOST_TOKEN", "wp_token-of-the-worker"),
    ("WAYPOST_SECRET_OTHER", "s3cret-of-others"),
    ("WAYPOST_LOG", "warn"),
    ("PGPASSWORD", "pg-passw0rd"),
];

/// Prints the names alone: values are masked or not, names are seen or not.
const NAMES: &str = "env | cut -d= -f1 | sort; stat -c '%a of its folder' \"$(dirname \"$WAYPOST_OUTPUT\")\"";

fn both() -> [Shop; 2] {
    [Shop::new(), Shop::on_postgres()]
}

fn surrounded(mut command: Command) -> Ran {
    let ran = command.envs(PRIVATE).env("AWS_SECRET_ACCESS_KEY", "aws").env("LC_TIME", "C").output().unwrap();
    Ran::from(ran)
}

#[track_caller]
fn sees(lines: &str, expected: &[&str], hidden: &[&str]) {
    let lines: Vec<&str> = lines.lines().collect();
    for name in ["PATH", "LC_TIME", "USER", "WAYPOST_RUN_ID", "WAYPOST_TENANT", "WAYPOST_OUTPUT"] {
        assert!(lines.contains(&name), "no {name} in {lines:?}");
    }
    for name in expected {
        assert!(lines.contains(name), "no {name} in {lines:?}");
    }
    for name in hidden.iter().copied().chain(["WAYPOST_DATABASE_URL", "WAYPOST_SECRET_OTHER", "PGPASSWORD"]) {
        assert!(!lines.contains(&name), "{name} is seen: {lines:?}");
    }
}

// proves U13
#[test]
fn a_workers_commands_get_the_basics_and_what_it_was_told_to_hand_on() {
    for shop in both() {
        let run = shop.queue(&[], NAMES);
        let worker = shop.command(&["worker", "--allow-commands", "--until-idle"]);
        surrounded(worker).expect(0, &["succeeded 1"]);
        let lines = shop.ok(&["run", "logs", &run]);
        sees(&lines, &["700 of its folder"], &["WAYPOST_TOKEN", "AWS_SECRET_ACCESS_KEY"]);
        let run = shop.queue(&[], NAMES);
        let worker = [
            "worker",
            "--allow-commands",
            "--until-idle",
            "--pass-env",
            "AWS_*",
            "--pass-env",
            "WAYPOST_TOKEN",
        ];
        surrounded(shop.command(&[&worker[..], &["--pass-env", "WAYPOST_*"]].concat())).expect(0, &[]);
        sees(&shop.ok(&["run", "logs", &run]), &["AWS_SECRET_ACCESS_KEY", "WAYPOST_TOKEN"], &["WAYPOST_LOG"]);
    }
    let refused = Shop::new().run(&["worker", "--allow-commands", "--pass-env", "A=b"]);
    refused.expect(2, &["--pass-env", "the name of a variable", "AWS_*"]);
}

/// Their own shell's, as the person who types it expects; not what opens Waypost.
// proves U13
#[test]
fn a_persons_command_gets_their_environment_without_what_opens_waypost() {
    for shop in both() {
        let ran = surrounded(shop.command(&["run", "start", "--wait", "--", "sh", "-c", NAMES]));
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        sees(&ran.out, &["AWS_SECRET_ACCESS_KEY"], &["WAYPOST_TOKEN", "WAYPOST_LOG"]);
    }
}

// proves U13
#[test]
fn scheduled_commands_get_the_basics() {
    for shop in both() {
        let file = "[[schedule]]\nname = 'look'\ncadence = '1h'\nexec = ['sh', 'look.sh']\n";
        std::fs::write(shop.path("waypost.toml"), file).unwrap();
        std::fs::write(shop.path("look.sh"), format!("{{ {NAMES}; }} > seen.tmp; mv seen.tmp seen")).unwrap();
        let mut scheduler = shop.command(&["schedule", "run"]);
        scheduler.envs(PRIVATE).env("AWS_SECRET_ACCESS_KEY", "aws").env("LC_TIME", "C");
        let _running = crate::support::Running(scheduler.spawn().unwrap());
        crate::support::eventually("it is executed", std::time::Duration::from_secs(60), || {
            shop.path("seen").exists()
        });
        let seen = std::fs::read_to_string(shop.path("seen")).unwrap();
        sees(&seen, &["700 of its folder"], &["WAYPOST_TOKEN", "AWS_SECRET_ACCESS_KEY"]);
    }
}

/// Who finds one elsewhere, in a file or another process, does not show it either.
// proves U13
#[test]
fn secrets_of_the_worker_are_hidden_in_what_any_command_prints() {
    let shop = Shop::new();
    let run = shop.queue(&[], "echo found s3cret-of-others");
    surrounded(shop.command(&["worker", "--allow-commands", "--until-idle"])).expect(0, &[]);
    assert_eq!(shop.ok(&["run", "logs", &run]), "found ***\n");
}
