//! docs/agents.md from a front end's side: its curl lines and its JavaScript are executed as they stand there, against the archivist that is
//! shipped (`playbooks/agent/archivist.toml`) and a simulated model.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::agents::{ask, start};
use crate::simulators::Served;
use crate::support::{Running, Shop, eventually};

const SOON: std::time::Duration = std::time::Duration::from_secs(60);
const ANSWER: &str = r#"[[sim: answer {"proposals": [{"title": "rosin", "text": "Bows need rosin.", "target": "rosin.txt", "base_revision": 0}]}]]"#;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn guide() -> String {
    fs::read_to_string(repository().join("docs/agents.md")).unwrap()
}

/// The block of this language that has these words.
fn block(language: &str, words: &str) -> String {
    let (guide, fence) = (guide(), format!("```{language}\n"));
    let blocks = guide.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap());
    blocks
        .filter(|block| block.contains(words))
        .map(str::to_owned)
        .next()
        .unwrap_or_else(|| panic!("no {words}"))
}

/// The archivist that is shipped, and the model that it asks.
fn serve(shop: &Shop, model: &Served) -> (Running, String) {
    let folder = repository().join("playbooks/agent");
    for name in ["archivist.toml", "context.sh", "apply.sh"] {
        fs::copy(folder.join(name), shop.path(name)).unwrap();
        fs::set_permissions(shop.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let base = format!("{}/v1", model.line["url"].as_str().unwrap());
    let playbook = fs::read_to_string(shop.path("archivist.toml")).unwrap();
    fs::write(shop.path("archivist.toml"), playbook.replace("http://127.0.0.1:7700/v1", &base)).unwrap();
    let agent = "[[agent]]\nslug = \"archivist-violin\"\nplaybook = \"archivist.toml\"\n";
    fs::write(shop.path("waypost.toml"), agent).unwrap();
    shop.serve(&["serve"])
}

// proves A5, A8, A11
#[test]
fn the_archivist_proposes_a_note_and_writes_it_once_it_is_approved() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let folder = Shop::new();
        let model = Served::start(&folder, &["model"]);
        let objects = format!("file://{}", shop.path("objects").display());
        let (server, _) = serve(&shop, &model);
        drop(server);
        let (_server, url) = shop.serve(&["serve", "--object-store", &objects]);
        let input = json!({ "text": ANSWER });
        let ran = start(&url, &json!({ "agent_slug": "archivist-violin", "input": input }), true);
        assert_eq!((ran.status, &ran.body["steps_completed"]), (200, &json!(4)), "{}", ran.body);
        let id = ran.body["proposals_created"][0].as_str().unwrap().to_owned();
        let shown = shop.asks(&url, &["proposal", "show", &id]);
        assert!(
            shown.out.contains("rosin.txt") && shown.out.contains("pending"),
            "{}{}",
            shown.out,
            shown.err
        );
        assert_eq!(shop.asks(&url, &["proposal", "approve", &id, "--base-revision", "0"]).code, Some(0));
        let note = shop.path("archive/rosin.txt");
        eventually("the note is written", SOON, || note.exists());
        assert_eq!(fs::read_to_string(note).unwrap(), "Bows need rosin.\n");
        model.stop();
    }
}

// proves A1, A8
#[test]
fn the_guides_curl_lines_work_as_they_stand() {
    let (shop, folder) = (Shop::new(), Shop::new());
    let model = Served::start(&folder, &["model"]);
    let (_server, url) = serve(&shop, &model);
    let block = block("sh", "curl -s localhost:7070/agents/run");
    let address = url.strip_prefix("http://").unwrap();
    let mut run_id = "run_2026-02-14_080000_abc123".to_owned();
    let lines: Vec<&str> = block.lines().filter(|line| line.starts_with("curl")).collect();
    assert!(lines.len() >= 5, "{block}");
    for line in lines {
        let line = line.replace("localhost:7070", address).replace("run_2026-02-14_080000_abc123", &run_id);
        // The stream does not end by itself.
        let line = line.replacen("curl ", "curl --noproxy '*' --max-time 20 ", 1);
        let line = if line.contains("/events/stream") {
            line.replace("--max-time 20", "--max-time 2")
        } else {
            line
        };
        let ran = Command::new("sh").args(["-c", &line]).output().unwrap();
        let out = String::from_utf8(ran.stdout).unwrap();
        if line.contains("/events/stream") {
            continue;
        }
        let answer: Value =
            serde_json::from_str(&out).unwrap_or_else(|error| panic!("{line}: {error}: {out}"));
        assert_eq!(answer["error"].get("code"), None, "{line}: {answer}");
        if line.contains("/agents/run") {
            assert_eq!(answer["status"], "requested", "{answer}");
            run_id = answer["run_id"].as_str().unwrap().to_owned();
        }
    }
    model.stop();
}

/// What a page has and a command does not. Waits end at once and are counted; the tab is hidden when the page begins to look.
const PAGE: &str = r#"
const waits = [], asked = [], seen = [];
let show_tab;
const document = { hidden: true, addEventListener: (name, go) => { show_tab = () => { document.hidden = false; go(); }; } };
const wait = globalThis.setTimeout;
const setTimeout = (go, ms) => { waits.push(ms); return wait(go, 20); };
const fetch = async (path, options) => {
  const answer = await globalThis.fetch(process.env.URL + path, options);
  asked.push(answer.status);
  return answer;
};
wait(async () => {
  const followed = follow(process.env.RUN, (run) => seen.push(run.status));
  await new Promise((go) => wait(go, 100));
  const asked_while_hidden = asked.length;
  show_tab();
  const last = await followed;
  const asked_at_the_end = asked.length;
  await new Promise((go) => wait(go, 200));
  console.log(JSON.stringify({ last, waits, asked, seen, asked_while_hidden, more: asked.length - asked_at_the_end }));
}, 0);
"#;

// proves A9
#[test]
fn the_guides_javascript_polls_stops_at_the_end_and_rests_while_hidden() {
    if Command::new("node").arg("--version").output().is_err() {
        println!("left out: there is no node here");
        return;
    }
    let (shop, folder) = (Shop::new(), Shop::new());
    let model = Served::start(&folder, &["model"]);
    let (_server, url) = serve(&shop, &model);
    let input = json!({ "text": "[[sim: slow 2s]]" });
    let started = start(&url, &json!({ "agent_slug": "archivist-violin", "input": input }), false);
    let script = shop.path("page.mjs");
    fs::write(&script, format!("{PAGE}\n{}", block("js", "async function follow"))).unwrap();
    let run_id = started.body["run_id"].as_str().unwrap();
    let mut node = Command::new("node");
    node.arg(&script)
        .env("URL", &url)
        .env("RUN", run_id)
        .env("NO_PROXY", "*")
        .env_remove("HTTP_PROXY")
        .env_remove("http_proxy");
    let ran = node.output().unwrap();
    let out = String::from_utf8(ran.stdout).unwrap();
    let told: Value = serde_json::from_str(&out)
        .unwrap_or_else(|error| panic!("{error}: {out}{}", String::from_utf8_lossy(&ran.stderr)));
    assert_eq!(told["last"]["run_id"], run_id);
    let end = told["last"]["status"].as_str().unwrap();
    assert!(["completed", "failed"].contains(&end), "{told}");
    assert_eq!((&told["asked_while_hidden"], &told["more"]), (&json!(0), &json!(0)), "{told}");
    let statuses = told["asked"].as_array().unwrap();
    assert!(
        statuses.iter().all(|status| *status == 200 || *status == 304) && statuses.contains(&json!(304)),
        "{told}"
    );
    assert!(told["waits"].as_array().unwrap().iter().all(|wait| *wait == 5_000), "{told}");
    assert_eq!(ask(&url, "GET", &format!("/runs/{run_id}/status"), &[], None).body, told["last"]);
    model.stop();
}
