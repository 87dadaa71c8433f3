//! What an agent's run proposes, as front ends and people at a command line decide on it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agents::{Said, ask, start};
use crate::support::{Running, Shop, eventually};

const SOON: Duration = Duration::from_secs(60);

pub const PLAYBOOK: &str = r#"
name = "archivist"
lifecycle = "agent"

[inputs.proposals]
type = "list"
default = []

[[step]]
name = "execute-agent"
retries = 0
exec = ["sh", "propose.sh"]
env = { PROPOSALS = "{{ inputs.proposals | tojson }}" }

[apply]
retries = 0
exec = ["sh", "apply.sh", "{{ inputs.proposal.title }}", "{{ inputs.run_id }}"]
"#;

/// What the step proposes is what its run was asked to.
const PROPOSE: &str = r#"printf '{"outcome":"done","proposals":%s}' "$PROPOSALS" > "$WAYPOST_OUTPUT""#;
const APPLY: &str = "test -e broken && exit 1; echo \"$1 $2\" >> applied.txt";

pub fn serve(shop: &Shop, playbook: &str) -> (Running, String) {
    fs::write(shop.path("archivist.toml"), playbook).unwrap();
    fs::write(shop.path("propose.sh"), PROPOSE).unwrap();
    fs::write(shop.path("apply.sh"), APPLY).unwrap();
    let objects = shop.path("objects");
    let file = format!(
        "[projection]\nobject_store = \"file://{}\"\n[[agent]]\nslug = \"violin\"\nplaybook = \"archivist.toml\"\n",
        objects.display()
    );
    fs::write(shop.path("waypost.toml"), file).unwrap();
    shop.serve(&["serve"])
}

/// A run that proposes these, to its end: its id, and theirs.
pub fn proposed(url: &str, proposals: &Value) -> (String, Vec<String>) {
    let ran = start(url, &json!({ "agent_slug": "violin", "input": { "proposals": proposals } }), true);
    assert_eq!(ran.status, 200, "{}", ran.body);
    let ids = ran.body["proposals_created"].as_array().unwrap();
    let ids = ids.iter().map(|id| id.as_str().unwrap().to_owned()).collect();
    (ran.body["run_id"].as_str().unwrap().to_owned(), ids)
}

fn post(url: &str, path: &str, body: &Value) -> Said {
    ask(url, "POST", path, &[], Some(body))
}

fn status(url: &str, id: &str) -> Value {
    ask(url, "GET", &format!("/v1/proposals/{id}"), &[], None).body["status"].clone()
}

fn stats(url: &str) -> Value {
    ask(url, "GET", "/inbox/stats", &[], None).body
}

// proves A8
#[test]
fn what_a_run_proposes_is_decided_and_applied() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let (_server, url) = serve(&shop, PLAYBOOK);
        let asked =
            json!([{ "title": "first" }, { "title": "second", "kind": "note" }, { "title": "third" }]);
        let (run_id, ids) = proposed(&url, &asked);
        assert_eq!(ids.len(), 3);
        for id in &ids {
            let [prefix, date, random] = id.splitn(3, '_').collect::<Vec<_>>().try_into().unwrap();
            assert_eq!((prefix, date.len(), random.len()), ("prop", 10, 6), "{id}");
        }
        let manifest = shop.path("objects/runs").join(&run_id).join("manifest.json");
        let manifest: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
        assert_eq!(manifest["proposals"], json!(ids));
        let pending = ask(&url, "GET", "/proposals/pending", &[], None);
        let listed = pending.body["proposals"].as_array().unwrap();
        assert_eq!((pending.status, listed.len()), (200, 3), "{}", pending.body);
        assert_eq!(listed[2]["proposal"], json!({ "title": "first" }));
        assert_eq!((&listed[1]["kind"], &listed[1]["run_id"]), (&json!("note"), &json!(run_id)));
        assert_eq!((&stats(&url)["pending"], &stats(&url)["processed"]), (&json!(3), &json!(0)));
        // Approved by a front end, and applied by a worker, once.
        for _ in 0..2 {
            let approved = post(&url, &format!("/proposals/{}/approve", ids[0]), &json!({ "note": "good" }));
            assert_eq!(
                approved.status, 200,
                "answered as the first, wherever it has gone: {}",
                approved.body
            );
        }
        eventually("it is applied", SOON, || status(&url, &ids[0]) == "applied");
        let again = post(&url, &format!("/proposals/{}/approve", ids[0]), &json!({ "note": "good" }));
        assert_eq!((again.status, &again.body["status"]), (200, &json!("applied")), "{}", again.body);
        let other = post(&url, &format!("/proposals/{}/approve", ids[0]), &json!({ "note": "better" }));
        assert_eq!(other.status, 409, "{}", other.body);
        assert_eq!(fs::read_to_string(shop.path("applied.txt")).unwrap(), format!("first {run_id}\n"));
        let shown = shop.json(&["proposal", "show", &ids[0]]);
        assert_eq!((&shown["status"], &shown["agent_slug"]), (&json!("applied"), &json!("violin")));
        assert!(shown["decided_by"].is_string() && shown["decided_at"].is_string(), "{shown}");
        // Rejected with a note, and not without.
        let path = format!("/proposals/{}/reject", ids[1]);
        post(&url, &path, &json!({})).is_error(422, "INVALID_INPUT");
        let rejected = post(&url, &path, &json!({ "note": "no" }));
        assert_eq!(
            (rejected.status, &rejected.body["status"]),
            (200, &json!("rejected")),
            "{}",
            rejected.body
        );
        post(&url, &format!("/proposals/{}/approve", ids[1]), &json!({})).is_error(409, "INVALID_TRANSITION");
        post(&url, "/proposals/prop_nobody/approve", &json!({})).is_error(404, "NOT_FOUND");
        post(&url, &format!("/proposals/{run_id}/approve"), &json!({})).is_error(404, "NOT_FOUND");
        // By the command line, through the server.
        let said = shop.asks(&url, &["proposal", "approve", &ids[2]]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        eventually("it is applied", SOON, || status(&url, &ids[2]) == "applied");
        let all = stats(&url);
        assert_eq!((&all["pending"], &all["processed"], &all["rejected"]), (&json!(0), &json!(2), &json!(1)));
        assert_eq!((&all["proposals"]["applied"], &all["proposals"]["pending"]), (&json!(2), &json!(0)));
        let listed = shop.ok(&["proposal", "list", "--status", "rejected"]);
        assert!(
            listed.contains(&ids[1]) && listed.contains("second") && !listed.contains(&ids[0]),
            "{listed}"
        );
        shop.run(&["proposal", "list", "--status", "reject"]).expect(2, &["no state of a proposal"]);
        shop.run(&["proposal", "reject", &ids[2], "--note", "late"]).expect(5, &["applied"]);
        shop.run(&["proposal", "show", &run_id]).expect(4, &["proposal"]);
        shop.verifies();
    }
}

// proves A8
#[test]
fn many_are_decided_at_once_and_each_is_answered() {
    let shop = Shop::new();
    let (_server, url) = serve(&shop, PLAYBOOK.split("[apply]").next().unwrap());
    let asked: Vec<Value> = (1..=50).map(|number| json!({ "title": format!("number {number}") })).collect();
    let (_, ids) = proposed(&url, &json!(asked));
    let decision = |id: &str| json!({ "proposal_id": id, "decision": "approve" });
    let decided = |decisions: Vec<Value>| post(&url, "/proposals/batch", &json!({ "decisions": decisions }));
    let mut mixed: Vec<Value> = ids[..48].iter().map(|id| decision(id)).collect();
    mixed.push(decision("prop_nobody"));
    mixed.push(json!({ "proposal_id": ids[48], "decision": "reject" }));
    let answer = decided(mixed);
    assert_eq!(
        (answer.status, &answer.body["updated"], &answer.body["errors"]),
        (200, &json!(48), &json!(2))
    );
    let results = answer.body["results"].as_array().unwrap();
    assert_eq!(
        (results.len(), &results[0]["status"]),
        (50, &json!("approved")),
        "without [apply] that is the end"
    );
    assert_eq!(results[48]["error"]["code"], "NOT_FOUND");
    assert_eq!(results[49]["error"]["code"], "INVALID_INPUT", "who rejects says why");
    assert_eq!(status(&url, &ids[48]), "pending");
    decided(Vec::new()).is_error(422, "INVALID_INPUT");
    decided(vec![decision(&ids[49]); 51]).is_error(422, "INVALID_INPUT");
    post(&url, "/proposals/batch", &json!({ "decisions": [{ "proposal_id": ids[49], "decision": "burn" }] }))
        .is_error(422, "INVALID_INPUT");
    assert_eq!(stats(&url)["pending"], 2);
    shop.verifies();
}

// proves A9
#[test]
fn a_stream_tells_of_proposals_and_is_never_ahead_of_the_documents() {
    let shop = Shop::new();
    let (_server, url) = serve(&shop, PLAYBOOK);
    let stream = Command::new("curl")
        .args(["-s", "-N", "--noproxy", "*", "--max-time", "60", "-H", "Last-Event-ID: 0"])
        .arg(format!("{url}/events/stream"))
        .stdout(Stdio::piped())
        .spawn();
    let mut stream = stream.unwrap();
    let (run_id, ids) = proposed(&url, &json!([{ "title": "a" }]));
    assert_eq!(post(&url, &format!("/proposals/{}/approve", ids[0]), &json!({})).status, 200);
    let document = || -> Value {
        let path = shop.path("objects/runs").join(&run_id).join("status.json");
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    };
    let order = ["requested", "queued", "running", "completed"];
    let place = |status: &Value| order.iter().position(|name| status == *name).unwrap();
    let mut told = Vec::new();
    for line in BufReader::new(stream.stdout.take().unwrap()).lines() {
        let Some(data) = line.unwrap().strip_prefix("data: ").map(str::to_owned) else { continue };
        let data: Value = serde_json::from_str(&data).unwrap();
        let now = document();
        if data["type"] == "run.status.changed" {
            assert!(place(&now["status"]) >= place(&data["status"]), "{data} is ahead of {now}");
        }
        if data["type"] == "run.step.completed" {
            assert!(now["steps_completed"].as_u64() >= data["step"].as_u64(), "{data} is ahead of {now}");
        }
        let is_end = data["status"] == "applied";
        told.push(data);
        if is_end {
            break;
        }
    }
    stream.kill().unwrap();
    stream.wait().unwrap();
    let has = |kind: &str, more: Value| {
        let is_it = |data: &&Value| {
            data["type"] == kind && more.as_object().unwrap().iter().all(|(name, value)| data[name] == *value)
        };
        assert!(told.iter().any(|data| is_it(&data)), "no {kind} {more} in {told:?}");
    };
    has("proposal.created", json!({ "proposalId": ids[0] }));
    has("proposal.status.changed", json!({ "proposalId": ids[0], "status": "approved" }));
    has("proposal.status.changed", json!({ "proposalId": ids[0], "status": "applied" }));
    has("run.status.changed", json!({ "runId": run_id, "status": "completed" }));
    let entry = told.iter().find(|data| data["type"] == "inbox.new").unwrap_or_else(|| panic!("{told:?}"));
    assert!(entry["inboxId"].is_string(), "{entry}");
}

// proves A8
#[test]
fn a_proposal_for_another_revision_is_not_approved() {
    let shop = Shop::new();
    let (_server, url) = serve(&shop, PLAYBOOK);
    let about = |title: &str, revision: Value| json!({ "title": title, "target": "notes/1", "base_revision": revision });
    let (_, ids) = proposed(&url, &json!([about("a", json!(7)), about("b", json!(7)), about("c", json!(8))]));
    let approve = |at: usize, body: Value| post(&url, &format!("/proposals/{}/approve", ids[at]), &body);
    approve(0, json!({ "base_revision": "8" })).is_error(409, "CONCURRENT_MODIFICATION");
    assert_eq!(status(&url, &ids[0]), "pending");
    approve(0, json!({ "base_revision": 8 })).is_error(409, "CONCURRENT_MODIFICATION");
    approve(0, json!({ "base_revision": [7] })).is_error(422, "INVALID_INPUT");
    let shown =
        ask(&url, "GET", &format!("/v1/proposals/{}", ids[0]), &[], None).body["base_revision"].clone();
    assert_eq!(approve(0, json!({ "base_revision": shown })).status, 200, "as it is shown");
    approve(1, json!({})).is_error(409, "CONCURRENT_MODIFICATION");
    let refused = shop.asks(&url, &["proposal", "approve", &ids[1]]);
    assert_eq!(refused.code, Some(5), "{}", refused.err);
    // By the command that every run has, too.
    post(&url, &format!("/v1/runs/{}/approve", ids[1]), &json!({}))
        .is_problem(409, "CONCURRENT_MODIFICATION");
    shop.asks(&url, &["run", "do", &ids[1], "approve"]).expect(5, &["was approved before"]);
    shop.run(&["run", "do", &ids[1], "approve"]).expect(5, &["was approved before"]);
    assert_eq!(status(&url, &ids[1]), "pending");
    assert_eq!(approve(2, json!({})).status, 200, "it was made for the next one");
    eventually("all that were approved are applied", SOON, || {
        [0, 2].into_iter().all(|at| status(&url, &ids[at]) == "applied")
    });
    shop.verifies();
}

// proves A8
#[test]
fn what_could_not_be_applied_is_tried_again_or_rejected() {
    let shop = Shop::new();
    let (_server, url) = serve(&shop, PLAYBOOK);
    fs::write(shop.path("broken"), "").unwrap();
    let (_, ids) = proposed(&url, &json!(["a plain text", { "title": "other" }]));
    for id in &ids {
        assert_eq!(post(&url, &format!("/v1/proposals/{id}/approve"), &json!({})).status, 200);
        eventually("it fails", SOON, || status(&url, id) == "failed");
    }
    let shown = shop.json(&["proposal", "show", &ids[1]]);
    assert!(shown["error"].as_str().unwrap().contains("EXIT_1"), "{shown}");
    fs::remove_file(shop.path("broken")).unwrap();
    assert_eq!(post(&url, &format!("/v1/runs/{}/retry", ids[1]), &json!({})).status, 200);
    eventually("it is applied", SOON, || status(&url, &ids[1]) == "applied");
    assert_eq!(
        post(&url, &format!("/proposals/{}/reject", ids[0]), &json!({ "note": "hopeless" })).status,
        200
    );
    assert_eq!(status(&url, &ids[0]), "rejected");
    shop.verifies();
}

// proves A8
#[test]
fn of_two_people_who_approve_at_one_instant_one_is_refused() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let (_server, url) = serve(&shop, PLAYBOOK.split("[apply]").next().unwrap());
        let about = |title: String| json!({ "title": title, "target": "notes/1", "base_revision": 7 });
        let asked: Vec<Value> = (0..16).map(|number| about(format!("number {number}"))).collect();
        let (_, ids) = proposed(&url, &json!(asked));
        let answers: Vec<Said> = thread::scope(|scope| {
            let approve = |id: &String| post(&url, &format!("/proposals/{id}/approve"), &json!({}));
            let people: Vec<_> = ids.iter().map(|id| scope.spawn(move || approve(id))).collect();
            people.into_iter().map(|person| person.join().unwrap()).collect()
        });
        let (passed, refused): (Vec<&Said>, Vec<&Said>) = answers.iter().partition(|it| it.status == 200);
        assert_eq!(passed.len(), 1);
        refused.iter().for_each(|it| it.is_error(409, "CONCURRENT_MODIFICATION"));
        let approved = ids.iter().filter(|id| status(&url, id) == "approved").count();
        assert_eq!(approved, 1);
        shop.verifies();
    }
}

/// Says when it begins and ends, so that two at once are seen.
const SLOWLY: &str = "echo \"begin $1\" >> applied.txt; sleep 0.2; echo \"end $1\" >> applied.txt";

// proves A8
#[test]
fn changes_of_one_target_are_made_one_after_the_other() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let (_server, url) = serve(&shop, PLAYBOOK);
        fs::write(shop.path("apply.sh"), SLOWLY).unwrap();
        let _worker = shop.spawn(&["worker", "--slots", "4"]);
        // Names of any kind and length.
        for target in [json!("notes/1"), json!(17), json!("n".repeat(400))] {
            let about = |number: usize| json!({ "title": number.to_string(), "target": target });
            let asked: Vec<Value> = (1..=4).map(about).collect();
            let (_, ids) = proposed(&url, &json!(asked));
            for id in ids.iter().rev() {
                assert_eq!(post(&url, &format!("/proposals/{id}/approve"), &json!({})).status, 200);
            }
            eventually("all are applied", SOON, || ids.iter().all(|id| status(&url, id) == "applied"));
            let expected: Vec<String> = (1..=4)
                .rev()
                .flat_map(|number| [format!("begin {number}"), format!("end {number}")])
                .collect();
            let made = fs::read_to_string(shop.path("applied.txt")).unwrap();
            assert_eq!(made.lines().collect::<Vec<_>>(), expected, "in the order of their approvals");
            fs::remove_file(shop.path("applied.txt")).unwrap();
        }
        shop.verifies();
    }
}

// proves A8, X10
#[test]
fn what_a_step_proposes_is_taken_whole_or_refused_with_words() {
    let shop = Shop::new();
    let (_server, url) = serve(&shop, PLAYBOOK);
    let many = |count: usize| Value::from((0..count).map(|at| json!({ "title": at })).collect::<Vec<_>>());
    let (run_id, ids) = proposed(&url, &many(150));
    assert_eq!(ids.len(), 150);
    let step = shop.path("objects/runs").join(&run_id).join("steps/1.json");
    let step: Value = serde_json::from_slice(&fs::read(step).unwrap()).unwrap();
    assert_eq!((&step["attempts"], &step["status"]), (&json!(1), &json!("completed")));
    let refused =
        start(&url, &json!({ "agent_slug": "violin", "input": { "proposals": many(1_001) } }), true);
    refused.is_error(500, "INTERNAL_ERROR");
    let error = refused.body["error"]["details"]["run"]["error"].as_str().unwrap();
    assert!(error.contains("proposals: 1001 are given; at most 1000 are taken of one step"), "{error}");
}
