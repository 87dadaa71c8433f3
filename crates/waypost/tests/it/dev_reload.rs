//! `waypost dev` takes up what changes on disk.

use std::fs;
use std::sync::mpsc::Receiver;

use crate::support::{SOON, Shop, eventually};

const PLAYBOOK: &str =
    "name = \"greet\"\nlifecycle = \"job\"\n\n[[step]]\nname = \"say\"\nexec = [\"echo\", \"WORDS\"]\n";

/// The lines until one has these words.
#[track_caller]
fn hears(heard: &Receiver<String>, words: &str) -> String {
    let mut lines = String::new();
    loop {
        let line = heard.recv_timeout(SOON).unwrap_or_else(|_| panic!("no {words:?} in\n{lines}"));
        lines.push_str(&line);
        lines.push('\n');
        if line.contains(words) {
            return lines;
        }
    }
}

fn write(shop: &Shop, name: &str, text: &str) {
    // Whole or not at all, as editors save.
    let beside = shop.path(&format!("{name}.new"));
    fs::create_dir_all(beside.parent().unwrap()).unwrap();
    fs::write(&beside, text).unwrap();
    fs::rename(beside, shop.path(name)).unwrap();
}

#[track_caller]
fn says(shop: &Shop, url: &str, words: &str) {
    let ran = shop.asks(url, &["run", "start", "greet", "--wait"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains(words) || ran.err.contains(words), "{}{}", ran.out, ran.err);
}

#[test]
fn dev_takes_up_what_changes_and_keeps_the_old_where_it_is_wrong() {
    let shop = Shop::new();
    let release = include_str!("../../src/init/release.toml");
    write(&shop, "playbooks/greet.toml", &PLAYBOOK.replace("WORDS", "first"));
    write(&shop, "lifecycles/release.toml", release);
    let args = ["dev", "--listen", "127.0.0.1:0", "--playbooks", "playbooks", "--lifecycles", "lifecycles"];
    let (mut server, url, heard) = shop.heard(&args, "listening on ");
    assert!(shop.asks(&url, &["lifecycle", "list"]).out.contains("release"));
    says(&shop, &url, "first");
    // Under way while its playbook changes: it ends as it began, and is not taken from its worker.
    let slow = "printf here > begun; until test -e go; do sleep 0.05; done; echo done slowly";
    let slow = shop.asks(&url, &["run", "start", "--", "sh", "-c", slow]).out.trim().to_owned();
    eventually("it has begun", SOON, || shop.path("begun").exists());

    write(&shop, "playbooks/greet.toml", &PLAYBOOK.replace("WORDS", "second"));
    hears(&heard, "reloaded: playbooks/greet.toml");
    says(&shop, &url, "second");
    fs::write(shop.path("go"), "").unwrap();
    eventually("it ends", SOON, || shop.curl(&url, &format!("/v1/runs/{slow}"))["status"] == "success");
    assert_eq!(shop.curl(&url, &format!("/v1/runs/{slow}"))["attempt"], 1);

    write(&shop, "playbooks/greet.toml", "name = \"greet\"\nstep = 7\n");
    let said = hears(&heard, "not reloaded: playbooks/greet.toml");
    assert!(said.contains("greet.toml:2"), "{said}");
    says(&shop, &url, "second");

    write(&shop, "lifecycles/release.toml", &release.replace("initial", "initially"));
    assert!(hears(&heard, "not reloaded").contains("release.toml"));
    let next = release.replace("version = 1", "version = 2");
    assert_ne!(next, release);
    write(&shop, "lifecycles/release.toml", &next);
    write(&shop, "playbooks/greet.toml", &PLAYBOOK.replace("WORDS", "third"));
    hears(&heard, "reloaded: ");
    eventually("both are there", SOON, || {
        let known = shop.curl(&url, "/v1/lifecycles/release");
        known["version"] == 2
    });
    eventually("the playbook is there", SOON, || {
        let known = shop.page(&url, "/v1/playbooks/greet");
        known.contains("third")
    });
    says(&shop, &url, "third");

    write(
        &shop,
        "waypost.toml",
        "[[schedule]]\nname = \"hourly\"\ncron = \"0 * * * *\"\nexec = [\"true\"]\n",
    );
    hears(&heard, "reloaded: waypost.toml");
    assert_eq!(shop.curl(&url, "/v1/schedules/hourly")["fired_by"], 1);
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
}
