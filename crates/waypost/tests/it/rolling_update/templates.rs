//! What the playbook's own templates make of outputs, and its request on its way.

use serde_json::{Map, Value, json};
use waypost_simulate::Site;
use waypost_worker::Word;
use waypost_worker::actions::http::Client;
use waypost_worker::actions::{Action, Call, Rendered};
use waypost_worker::playbook::{Playbook, Reference, Scope, Secrets, Step};

use super::stage::{PASSWORDS, Stage, playbook};
use crate::support::eventually;

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

fn scope(playbook: &Playbook, stage: &Stage, steps: &Value, item: Option<Value>) -> Scope {
    Scope {
        inputs: playbook.accept(&stage.input()).unwrap(),
        steps: object(steps),
        run: object(&json!({ "id": "run-1" })),
        item,
        ..Scope::default()
    }
}

fn password(reference: &Reference) -> Result<String, String> {
    let at =
        ["env:GOVC_PASSWORD", "env:IDRAC_PASSWORD"].iter().position(|known| *known == reference.to_string());
    at.map(|at| PASSWORDS[at].to_owned()).ok_or_else(|| format!("{reference} is not expected"))
}

fn rendered(playbook: &Playbook, step: &Step, scope: &Scope) -> Rendered {
    let context = playbook.context(scope);
    let secrets = Secrets::resolve(&playbook.needs(&step.action, &context).unwrap(), password).unwrap();
    playbook.render(&step.action, &context, &secrets).unwrap()
}

fn variable(rendered: &Rendered, wanted: &str) -> String {
    let Action::Exec(exec) = &rendered.action else { panic!("{rendered:?}") };
    let found = exec.env.iter().find(|(name, _)| name == wanted);
    found.unwrap_or_else(|| panic!("no {wanted}")).1.open().to_owned()
}

#[test]
fn steps_are_named_as_people_know_them() {
    let stage = Stage::of(&Site::sample());
    let playbook = Playbook::load(&playbook().join("playbook.toml")).unwrap();
    let item = json!({ "name": "esx2", "idrac": "http://x" });
    let scope = scope(&playbook, &stage, &json!({}), Some(item));
    let context = playbook.context(&scope);
    let named = |step| playbook.name_of(step, &context).unwrap();
    let expected = [
        "Pre-flight checks",
        "Disable HA on cluster: Prod",
        "Comprehensive blocker scan",
        "SCP Backup: esx2",
        "Update host: esx2",
        "Take hosts out of maintenance mode",
        "Re-enable HA on cluster: Prod",
    ];
    assert_eq!(playbook.steps.iter().chain(&playbook.cleanups).map(named).collect::<Vec<_>>(), expected);
    assert_eq!(playbook.tasks_of(playbook.step("update").unwrap(), &context).unwrap().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backup_is_a_request_that_an_idrac_understands() {
    let stage = Stage::of(&Site { pace_ms: 30, ..Site::sample() });
    let playbook = Playbook::load(&playbook().join("playbook.toml")).unwrap();
    let item = json!({ "name": "esx2", "idrac": stage.told["idracs"]["esx2"] });
    let scope = scope(&playbook, &stage, &json!({}), Some(item));
    let rendered = rendered(&playbook, playbook.step("backup").unwrap(), &scope);
    let Action::Http(request) = &rendered.action else { panic!("{rendered:?}") };
    let call = Call { idempotency_key: "run-1:backup:1".to_owned(), ..Call::default() };
    let reply = Client::new(false).unwrap().send(request, &call, None, &rendered.mask).await;
    assert_eq!((reply.status, reply.outcome.unwrap().word), (Some(202), Some(Word::Done)));
    let file = stage.world.folder().join("scp/esx2-run-1.xml");
    eventually("it is exported", super::stage::LONG, || {
        stage.site();
        file.is_file()
    });
    let by: Vec<_> = stage.changes().into_iter().map(|entry| (entry.on, entry.by)).collect();
    assert_eq!(by, [("esx2".to_owned(), Some("run-1:backup:1".to_owned()))]);
}

#[test]
fn cleanups_can_be_rendered_however_little_ran() {
    let stage = Stage::of(&Site::sample());
    let playbook = Playbook::load(&playbook().join("playbook.toml")).unwrap();
    let was = json!({ "ha": { "enabled": true }, "was_on": true });
    for (steps, expected) in [
        (json!({}), json!({})),
        (json!({ "disable_ha": { "ran": true, "ok": false, "output": null } }), json!({})),
        (json!({ "disable_ha": { "ran": true, "ok": true, "output": was } }), was.clone()),
    ] {
        let scope = scope(&playbook, &stage, &steps, None);
        for cleanup in &playbook.cleanups {
            let rendered = rendered(&playbook, cleanup, &scope);
            assert_eq!(variable(&rendered, "GOVC_PASSWORD"), PASSWORDS[0]);
            if cleanup.after.is_some() {
                assert_eq!(serde_json::from_str::<Value>(&variable(&rendered, "WAS")).unwrap(), expected);
            }
        }
    }
}
