//! `/webhooks/github`, as GitHub sends it: signed bytes, ids that are not signed, deliveries that come again and out of order.

use std::process::Command;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::support::{Running, Shop};

const SECRET: &str = "It's a Secret to Everybody";
const PLAYBOOK: &str = r#"
name = "deploy-app"
lifecycle = "deploy"
queue = "releases"
priority = 7
concurrency_key = "app-{{ inputs.branch }}"

[inputs]
sha = { type = "string", required = true }
branch = { type = "string", default = "main" }

[[step]]
name = "deploy"
exec = ["echo", "{{ inputs.sha }}"]
"#;

fn shop(shop: Shop, rules: &str) -> Shop {
    std::fs::create_dir(shop.path("playbooks")).unwrap();
    std::fs::write(shop.path("playbooks/deploy-app.toml"), PLAYBOOK).unwrap();
    std::fs::write(shop.path("secret"), format!("{SECRET}\n")).unwrap();
    let file = format!("[github]\nsecret = \"file:{}\"\n{rules}", shop.path("secret").display());
    std::fs::write(shop.path("waypost.toml"), file).unwrap();
    shop
}

const RULES: &str = r#"
[[github.on]]
event = "push"
repository = "acme/*"
branch = "main"
playbook = "deploy-app"
inputs = { sha = "{{ event.after }}" }

[[github.on]]
event = "release"
action = "published"
tag = "v*"
playbook = "deploy-app"
inputs = { sha = "{{ event.release.target_commitish }}", branch = "{{ event.release.tag_name }}" }

[[github.on]]
event = "workflow_run"
when = "event.workflow_run.conclusion == 'success'"
playbook = "deploy-app"
inputs = { sha = "{{ event.workflow_run.head_sha }}" }
"#;

const SERVE: &[&str] = &["serve", "--no-worker", "--playbooks", "playbooks"];

fn serve(shop: &Shop) -> (Running, String) {
    shop.serve(SERVE)
}

fn push(number: usize) -> String {
    let after = format!("{number:040x}");
    json!({ "ref": "refs/heads/main", "after": after, "repository": { "full_name": "acme/app" } }).to_string()
}

fn signed(body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let digest = mac.finalize().into_bytes();
    format!("sha256={}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// The status, and what was said.
fn send(url: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-w", "\n%{http_code}", "--data-binary", body]);
    for (name, value) in headers {
        curl.args(["-H", &format!("{name}: {value}")]);
    }
    let said = curl.arg(format!("{url}/webhooks/github")).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let (answer, status) = said.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(answer).unwrap_or(Value::Null))
}

fn deliver(url: &str, event: &str, id: &str, body: &str) -> (u16, Value) {
    let signature = signed(body);
    let headers = [
        ("Content-Type", "application/json"),
        ("X-GitHub-Event", event),
        ("X-GitHub-Delivery", id),
        ("X-Hub-Signature-256", &signature),
    ];
    send(url, &headers, body)
}

// proves D10
#[test]
fn a_delivery_starts_its_playbook_once_with_the_playbooks_own_settings() {
    for shop in [shop(Shop::new(), RULES), shop(Shop::on_postgres(), RULES)] {
        let (_server, url) = serve(&shop);
        let (status, said) = deliver(&url, "push", "d-1", &push(1));
        assert_eq!((status, &said["result"]), (202, &json!("started")), "{said}");
        let run = shop.show(said["runs"][0]["run_id"].as_str().unwrap());
        assert_eq!(run["queue"], "releases");
        assert_eq!(run["priority"], 7);
        assert_eq!(run["concurrency_key"], "app-main");
        assert_eq!(run["input"], json!({ "sha": format!("{:040x}", 1), "branch": "main" }));
        assert_eq!(run["idempotency_key"], "github:d-1");
        assert_eq!(run["title"], "push acme/app main");
        let (status, again) = deliver(&url, "push", "d-1", &push(1));
        assert_eq!((status, &again["runs"][0]["run_id"]), (200, &run["run_id"]), "{again}");
        assert_eq!(shop.runs().len(), 1);
        shop.verifies();
    }
}

// proves D10: forged, replayed, reordered
#[test]
fn every_real_delivery_makes_one_run_whoever_sends_what_again() {
    for shop in [shop(Shop::new(), RULES), shop(Shop::on_postgres(), RULES)] {
        let (_first, first) = serve(&shop);
        let (_second, second) = serve(&shop);
        std::thread::scope(|scope| {
            // Newest first, and each at two servers at once.
            for number in (1..=10).rev() {
                for url in [&first, &second] {
                    scope.spawn(move || {
                        let (status, said) = deliver(url, "push", &format!("d-{number}"), &push(number));
                        assert!(matches!(status, 200 | 202), "{said}");
                    });
                }
                let first = &first;
                scope.spawn(move || {
                    // The content is known, or is about to be: whichever id comes first, the content makes one run.
                    let (status, said) = deliver(first, "push", &format!("other-{number}"), &push(number));
                    assert!(matches!(status, 200 | 202), "{said}");
                });
                scope.spawn(move || {
                    let body = push(100 + number);
                    let forged = signed(&push(number));
                    let headers = [
                        ("Content-Type", "application/json"),
                        ("X-GitHub-Event", "push"),
                        ("X-GitHub-Delivery", "forged"),
                        ("X-Hub-Signature-256", &*forged),
                    ];
                    assert_eq!(send(first, &headers, &body).0, 401);
                });
            }
        });
        let mut shas: Vec<String> = shop
            .runs()
            .iter()
            .map(|run| shop.show(run["run_id"].as_str().unwrap())["input"]["sha"].to_string())
            .collect();
        shas.sort();
        let wanted: Vec<String> = (1..=10).map(|number| format!("\"{number:040x}\"")).collect();
        assert_eq!(shas, wanted);
        // An id with another content is no delivery of GitHub's.
        let known = shop.runs()[0]["idempotency_key"].as_str().unwrap().replace("github:", "");
        assert_eq!(deliver(&first, "push", &known, &push(77)).0, 422);
        shop.verifies();
    }
}

// proves D10
#[test]
fn what_nobody_asked_for_starts_nothing_and_is_counted() {
    let shop = shop(Shop::new(), RULES);
    let (_server, url) = serve(&shop);
    assert_eq!(deliver(&url, "ping", "p-1", r#"{"zen":"Keep it simple."}"#).0, 200);
    let branch = push(1).replace("heads/main", "heads/other");
    let elsewhere = push(2).replace("acme/app", "evil/app");
    let gone = json!({ "ref": "refs/heads/main", "after": "0".repeat(40), "deleted": true, "repository": { "full_name": "acme/app" } });
    let failed = json!({ "workflow_run": { "conclusion": "failure", "head_sha": "s" } }).to_string();
    let draft =
        json!({ "action": "created", "release": { "tag_name": "v1", "target_commitish": "s" } }).to_string();
    let unasked = [
        ("push", branch),
        ("push", elsewhere),
        ("push", gone.to_string()),
        ("workflow_run", failed),
        ("release", draft),
        ("star", "{}".to_owned()),
    ];
    for (number, (event, body)) in unasked.iter().enumerate() {
        let (status, said) = deliver(&url, event, &format!("u-{number}"), body);
        assert_eq!((status, &said["result"]), (202, &json!("no rule fits")), "{event} {body}: {said}");
    }
    assert!(shop.runs().is_empty());
    let page = shop.page(&url, "/metrics");
    assert!(page.contains(r#"waypost_webhooks_total{result="ignored"} 6"#), "{page}");
    assert!(page.contains(r#"waypost_webhooks_total{result="ping"} 1"#), "{page}");
    // The form that a webhook sends by default; the signature is over the form.
    let form = format!("payload={}", push(3).replace('"', "%22").replace(':', "%3A").replace('/', "%2F"));
    let signature = signed(&form);
    let headers = [
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("X-GitHub-Event", "push"),
        ("X-GitHub-Delivery", "f-1"),
        ("X-Hub-Signature-256", &*signature),
    ];
    assert_eq!(send(&url, &headers, &form).0, 202);
    // The same said as JSON, under another id, is the same.
    assert_eq!(deliver(&url, "push", "f-2", &push(3)).0, 200);
    let done = json!({ "workflow_run": { "conclusion": "success", "head_sha": "s" } }).to_string();
    assert_eq!(deliver(&url, "workflow_run", "w-1", &done).0, 202);
    let out = json!({ "action": "published", "release": { "tag_name": "v1.2", "target_commitish": "s" } })
        .to_string();
    assert_eq!(deliver(&url, "release", "r-1", &out).0, 202);
    assert_eq!(shop.runs().len(), 3);
    shop.verifies();
}

#[test]
fn bad_deliveries_are_refused_with_words() {
    let shop = shop(Shop::new(), RULES);
    let (_server, url) = serve(&shop);
    let body = push(1);
    let signature = signed(&body);
    let all = [
        ("Content-Type", "application/json"),
        ("X-GitHub-Event", "push"),
        ("X-GitHub-Delivery", "d"),
        ("X-Hub-Signature-256", &*signature),
    ];
    let without = |name: &str| all.iter().copied().filter(|(it, _)| *it != name).collect::<Vec<_>>();
    for (headers, status, words) in [
        (without("X-Hub-Signature-256"), 401, "github.secret"),
        (without("X-GitHub-Event"), 400, "X-GitHub-Event"),
        (without("X-GitHub-Delivery"), 400, "X-GitHub-Delivery"),
        ([without("Content-Type"), vec![("Content-Type", "text/plain")]].concat(), 415, "application/json"),
    ] {
        let (found, said) = send(&url, &headers, &body);
        assert_eq!(found, status, "{said}");
        assert!(
            said["detail"].as_str().unwrap().contains(words) || said.to_string().contains(words),
            "{said}"
        );
    }
    for (bad, status) in [
        ("[]", 422),
        ("{", 400),
        (r#"{"ref": "refs/heads/main", "repository": {"full_name": "acme/app"}}"#, 422),
    ] {
        let (found, said) = deliver(&url, "push", "bad", bad);
        assert_eq!(found, status, "{bad}: {said}");
    }
    assert!(shop.runs().is_empty());
}

#[test]
fn a_server_does_not_start_with_rules_that_cannot_work() {
    let wrong = RULES.replace("playbook = \"deploy-app\"", "playbook = \"deploy-ap\"");
    let shop = shop(Shop::new(), &wrong);
    shop.run(SERVE).expect(2, &["waypost.toml:8", "deploy-ap", "deploy-app"]);
    let template = RULES.replace("{{ event.after }}", "{{ event.after");
    std::fs::write(shop.path("waypost.toml"), format!("[github]\nsecret = \"env:NOT_THERE\"\n{template}"))
        .unwrap();
    shop.run(SERVE).expect(2, &["never closed"]);
    std::fs::write(shop.path("waypost.toml"), format!("[github]\nsecret = \"env:NOT_THERE\"\n{RULES}"))
        .unwrap();
    shop.run(SERVE).expect(2, &["github.secret", "env:NOT_THERE"]);
    std::fs::write(shop.path("waypost.toml"), "[github]\nsecret = \"hunter22\"\n").unwrap();
    let ran = shop.run(SERVE);
    ran.expect(2, &["env:NAME"]);
    assert!(!ran.err.contains("hunter22"), "{}", ran.err);
}
