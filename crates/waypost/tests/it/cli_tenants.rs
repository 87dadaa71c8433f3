//! `--tenant` and `WAYPOST_TENANT`: whose runs, schedules and lifecycles are meant, on a database and on a server.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Ran, SOON, Shop, eventually};

const RELEASE: &str = include_str!("../../../../docs/examples/lifecycles/release.toml");
const JOBS: &str = "[[schedule]]\nname = \"rollup\"\ncadence = \"1h\"\nrun = { lifecycle = \"deploy\", exec = [\"true\"] }\n";

/// Names of what a command lists.
fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

/// The command line of a tenant, or of nobody's, before a database or a server.
struct Desk<'s> {
    shop: &'s Shop,
    flags: Vec<&'s str>,
}

impl<'s> Desk<'s> {
    fn of(&self, tenant: &'s str) -> Desk<'s> {
        Desk { shop: self.shop, flags: [&self.flags[..], &["--tenant", tenant]].concat() }
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.shop.run(&[&self.flags[..], args].concat())
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        self.shop.ok(&[&self.flags[..], args].concat())
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let (verb, rest) = args.split_at(2);
        let text = self.ok(&[verb, &["-o", "json"], rest].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    }

    fn ids(&self) -> Vec<String> {
        let list = self.json(&["run", "list"]);
        list.as_array().unwrap().iter().map(|it| it["run_id"].as_str().unwrap().to_owned()).collect()
    }
}

/// Lifecycles, runs and schedules of `shop`; what nobody else sees of them.
fn is_apart(desk: &Desk<'_>) {
    let (own, other) = (desk.of("shop"), desk.of("bank"));
    fs::write(desk.shop.path("release.toml"), RELEASE).unwrap();
    fs::write(desk.shop.path("jobs.toml"), JOBS).unwrap();
    let added = own.ok(&["lifecycle", "add", "release.toml"]);
    assert_eq!(added, "shop/release 1 is there: runs may use it\n");
    assert!(names(&own.json(&["lifecycle", "list"])).contains(&"shop/release"));
    assert!(!names(&other.json(&["lifecycle", "list"])).contains(&"shop/release"));
    own.ok(&["lifecycle", "show", "release"]);
    other.run(&["lifecycle", "show", "release"]).expect(4, &["release"]);
    let started = own.json(&["run", "start", "--lifecycle", "release", "--", "true"]);
    assert_eq!((&started["tenant"], &started["lifecycle"]), (&json!("shop"), &json!("shop/release")));
    let id = started["run_id"].as_str().unwrap();
    other.run(&["run", "start", "--lifecycle", "release", "--", "true"]).expect(2, &["lifecycle"]);
    let mine = desk.ok(&["run", "start", "--", "true"]);
    assert_eq!(own.ids(), [id]);
    assert_eq!(desk.ids(), [mine.trim()], "who names no tenant sees what was seen before");
    assert!(other.ids().is_empty());
    for verb in ["show", "events", "cancel"] {
        other.run(&["run", verb, id]).expect(4, &[id]);
        desk.run(&["run", verb, id]).expect(4, &[id]);
    }
    let mut named = desk.shop.command(&[&desk.flags[..], &["run", "show", id]].concat());
    assert!(named.env("WAYPOST_TENANT", "shop").output().unwrap().status.success());
    own.ok(&["schedule", "apply", "jobs.toml"]);
    assert_eq!(names(&own.json(&["schedule", "list"])), ["shop/rollup"]);
    assert!(names(&other.json(&["schedule", "list"])).is_empty());
    own.ok(&["schedule", "pause", "rollup", "--reason", "why"]);
    assert_eq!(own.json(&["schedule", "list"])[0]["paused"]["reason"], "why");
    own.ok(&["schedule", "resume", "rollup"]);
    own.ok(&["schedule", "trigger", "rollup"]);
    assert_eq!(own.json(&["schedule", "history", "rollup"])[0]["schedule"], "shop/rollup");
    for foreign in [&other, &desk.of("default")] {
        for verb in ["next", "pause", "remove", "trigger"] {
            foreign.run(&["schedule", verb, "rollup"]).expect(4, &["rollup"]);
        }
    }
    own.ok(&["schedule", "remove", "rollup"]);
    own.ok(&["stats"]);
    own.ok(&["run", "cancel", id]);
}

// proves U14
#[test]
fn what_is_named_by_a_tenant_is_the_tenants_alone() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        is_apart(&Desk { shop: &shop, flags: Vec::new() });
        shop.verifies();
    }
}

// proves U14
#[test]
fn a_server_is_told_the_tenant_by_those_who_may_name_it() {
    let shop = Shop::new();
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let there = Shop::new();
    is_apart(&Desk { shop: &there, flags: vec!["--url", &url] });
}

/// A worker of one tenant leaves the others' runs alone; one without works for all. What a command starts is the same tenant's.
#[test]
fn a_worker_works_for_its_tenant_or_for_all() {
    let shop = Shop::new();
    let start = |tenant: &str| {
        let args = ["run", "start", "--tenant", tenant, "--", "sh", "-c", "echo $WAYPOST_TENANT >> seen"];
        shop.ok(&args).trim().to_owned()
    };
    // The older one comes first to whoever may take both.
    let (other, own) = (start("bank"), start("shop"));
    let status =
        |id: &str, tenant: &str| shop.json(&["run", "show", id, "--tenant", tenant])["status"].clone();
    let worker = shop.spawn(&["worker", "--allow-commands", "--tenant", "shop"]);
    eventually("its own is worked", Duration::from_secs(60), || status(&own, "shop") == "success");
    drop(worker);
    assert_eq!(status(&other, "bank"), "queued");
    shop.ok(&["worker", "--allow-commands", "--until-idle"]);
    assert_eq!(status(&other, "bank"), "success");
    assert_eq!(fs::read_to_string(shop.path("seen")).unwrap(), "shop\nbank\n");
}

/// What is not there, or is another tenant's, is no parent.
#[test]
fn a_parent_is_a_run_of_the_same_tenant() {
    let shop = Shop::new();
    let parent = shop.ok(&["run", "start", "--tenant", "bank", "--", "true"]).trim().to_owned();
    for tenant in ["shop", "default"] {
        shop.run(&["run", "start", "--tenant", tenant, "--parent", &parent, "--", "true"])
            .expect(4, &[&parent]);
    }
    shop.run(&["run", "start", "--parent", "run-nope", "--", "true"]).expect(4, &["run-nope"]);
    let child = shop.ok(&["run", "start", "--tenant", "bank", "--parent", &parent, "--", "true"]);
    assert_eq!(
        shop.json(&["run", "show", child.trim(), "--tenant", "bank"])["parent_run_id"],
        parent.as_str()
    );
    let said = shop.ok(&["queue", "pause", "default", "--tenant", "bank"]);
    assert!(said.contains("waypost queue resume default --tenant bank"), "{said}");
}

#[test]
fn a_tenant_that_cannot_be_one_is_refused() {
    let shop = Shop::new();
    for (tenant, words) in [("a/b", "without '/'"), ("*", "one tenant")] {
        shop.run(&["run", "list", "--tenant", tenant]).expect(2, &["tenant", words]);
    }
    let token = shop.json(&["token", "create", "ci", "--role", "viewer", "--tenant", "*"]);
    assert_eq!(token["tenant"], "*");
    let token = shop.json(&["token", "create", "ci", "--role", "viewer"]);
    assert_eq!(token["tenant"], "default");
    shop.run(&["token", "create", "ci", "--role", "viewer", "--tenant", "a/b"]).expect(2, &["tenant"]);
}

// proves U14: a server of one tenant fires that one's schedules alone
#[test]
fn a_server_of_one_tenant_fires_its_schedules_alone() {
    let shop = Shop::new().with(
        "jobs.toml",
        "[[schedule]]\nname = \"tick\"\ncadence = \"1s\"\nexec = [\"sh\", \"-c\", \"echo $WAYPOST_TENANT >> seen\"]\n",
    );
    for tenant in ["bank", "shop"] {
        shop.ok(&["schedule", "apply", "jobs.toml", "--tenant", tenant]);
    }
    let (_server, _) = shop.serve(&["serve", "--allow-commands", "--tenant", "shop"]);
    let seen = || fs::read_to_string(shop.path("seen")).unwrap_or_default();
    eventually("it fires twice", SOON, || seen().lines().count() >= 2);
    assert!(seen().lines().all(|line| line == "shop"), "{}", seen());
    let listed = shop.ok(&["schedule", "list", "--tenant", "bank"]);
    assert!(listed.contains("nobody fires it"), "{listed}");
}
