//! One step and a scope become something to execute.

use std::path::Path;

use serde_json::{Map, Value, json};
use waypost_worker::actions::{Action, Body, Exec, Http};
use waypost_worker::playbook::{Playbook, Reference, Scope, Secrets};

use super::{CLUSTER, PRICES, parse};

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

fn scope(playbook: &Playbook) -> Scope {
    let hosts = json!([{"name": "h1", "outdated": true}, {"name": "h2", "outdated": false}]);
    let preflight = json!({"ran": true, "output": {"hosts": hosts, "outdated": ["h1"]}});
    Scope {
        inputs: playbook.accept(&json!({"cluster": "c 1"})).unwrap(),
        steps: object(&json!({"pre-flight": preflight})),
        run: object(&json!({"id": "run/7", "attempt": 1})),
        ..Scope::default()
    }
}

/// Every secret is called after its reference.
fn secrets(playbook: &Playbook, key: &str, scope: &Scope) -> Secrets {
    let step = playbook.step(key).unwrap();
    let needs = playbook.needs(&step.action, &playbook.context(scope)).unwrap();
    Secrets::resolve(&needs, |reference| Ok(format!("s3cret of {reference}"))).unwrap()
}

fn exec(action: Action) -> Exec {
    match action {
        Action::Exec(exec) => exec,
        other => panic!("{other:?}"),
    }
}

fn http(action: Action) -> Http {
    match action {
        Action::Http(http) => *http,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_command_is_rendered_with_its_secrets_in_the_environment_alone() {
    let playbook = parse(CLUSTER);
    let scope = scope(&playbook);
    let step = playbook.step("pre-flight").unwrap();
    let rendered = playbook
        .render(&step.action, &playbook.context(&scope), &secrets(&playbook, "pre-flight", &scope))
        .unwrap();
    let exec = exec(rendered.action.clone());
    assert_eq!(exec.command, ["./preflight.sh", "--cluster", "c 1"]);
    assert_eq!(exec.folder, Path::new("playbooks"));
    let env: Vec<(&str, &str)> = exec.env.iter().map(|(name, value)| (name.as_str(), value.open())).collect();
    assert_eq!(env, [("LOGIN", "s3cret of env:CLUSTER_LOGIN"), ("TOKEN", "s3cret of env:CLUSTER_TOKEN")]);
    assert!(!format!("{rendered:?}").contains("s3cret"), "{rendered:?}");
    assert_eq!(rendered.mask.hide("is s3cret of env:CLUSTER_LOGIN!"), "is ***!");
    assert_eq!(rendered.action.in_words(), "./preflight.sh --cluster 'c 1'");
}

/// Found beside the file from wherever the worker was started; a bare name is found by PATH.
#[test]
fn a_relative_program_is_relative_to_the_file() {
    for (folder, program, found) in [
        ("/srv/playbooks", "./preflight.sh", "/srv/playbooks/preflight.sh"),
        ("/srv/playbooks", "bin/check", "/srv/playbooks/bin/check"),
        ("/srv/playbooks", "../check", "/srv/playbooks/../check"),
        ("/srv/playbooks", "/bin/sh", "/bin/sh"),
        ("/srv/playbooks", "govc", "govc"),
        ("", "./preflight.sh", "./preflight.sh"),
    ] {
        let mut playbook = parse(&CLUSTER.replace("\"./ha.sh\", \"off\"", &format!("\"{program}\"")));
        playbook.folder = folder.into();
        let step = playbook.step("disable-ha").unwrap();
        let rendered =
            playbook.render(&step.action, &playbook.context(&scope(&playbook)), &Secrets::default()).unwrap();
        assert_eq!(exec(rendered.action).command, [found], "{program} in {folder}");
    }
}

#[test]
fn a_request_is_rendered_and_lone_expressions_keep_their_type() {
    let playbook = parse(CLUSTER);
    let mut scope = scope(&playbook);
    scope.inputs.insert("hosts".into(), json!(["a", 1, null]));
    let step = playbook.step("notify").unwrap();
    let rendered = playbook
        .render(&step.action, &playbook.context(&scope), &secrets(&playbook, "notify", &scope))
        .unwrap();
    let mask = rendered.mask.clone();
    let http = http(rendered.action);
    assert_eq!((http.method.as_str(), http.url.as_str()), ("POST", "https://chat.example/hooks/run%2F7"));
    assert_eq!(http.headers[0].1.open(), "Bearer s3cret of env:CLUSTER_TOKEN");
    let Body::Json(body) = http.body else { panic!("{:?}", http.body) };
    let expected =
        json!({"text": "updating c 1", "hosts": ["a", 1, null], "urgent": true, "tries": [1, 2.5]});
    assert_eq!(serde_json::from_str::<Value>(body.open()).unwrap(), expected);
    assert_eq!(mask.hide("updating c 1, Bearer s3cret of env:CLUSTER_TOKEN"), "updating c 1, ***");
}

#[test]
fn steps_are_repeated_skipped_and_named_by_their_items() {
    let playbook = parse(CLUSTER);
    let mut scope = scope(&playbook);
    assert!(playbook.applies(playbook.step("disable-ha").unwrap(), &playbook.context(&scope)).unwrap());
    let step = playbook.step("update").unwrap();
    assert_eq!(playbook.items_of(playbook.step("notify").unwrap(), &playbook.context(&scope)), Ok(None));
    let items = playbook.items_of(step, &playbook.context(&scope)).unwrap().unwrap();
    let mut seen = Vec::new();
    for item in items {
        scope.item = Some(item);
        seen.push((
            playbook.name_of(step, &playbook.context(&scope)).unwrap(),
            playbook.applies(step, &playbook.context(&scope)).unwrap(),
        ));
    }
    assert_eq!(seen, [("update h1".to_owned(), true), ("update h2".to_owned(), false)]);
    scope.item = Some(json!({"name": "h1", "outdated": true}));
    assert_eq!(playbook.tasks_of(step, &playbook.context(&scope)).unwrap()[0], "maintenance mode of h1");
    scope.run.insert("resolutions".into(), json!({"h1": "skip"}));
    assert!(!playbook.applies(step, &playbook.context(&scope)).unwrap(), "a resolution skips the host");
    assert_eq!(
        playbook.concurrency_key_for(&playbook.context(&scope)).unwrap().as_deref(),
        Some("cluster:c 1")
    );
    let cleanup = &playbook.cleanups[0];
    scope.steps.insert("disable-ha".into(), json!({"ran": true, "output": {"was": true}}));
    let rendered = playbook.render(&cleanup.action, &playbook.context(&scope), &Secrets::default()).unwrap();
    assert_eq!(exec(rendered.action).command[2], "true");
}

#[test]
fn what_cannot_be_rendered_says_where_and_why() {
    let playbook = parse(CLUSTER);
    let mut scope = scope(&playbook);
    let update = playbook.step("update").unwrap();
    for (output, words) in [
        (json!({}), "for_each: steps['pre-flight'].output.hosts"),
        (json!({"hosts": "h1"}), "not a list"),
        (json!({"hosts": {"h1": 1}}), "not a list"),
        (json!({"hosts": vec![1; 10_001]}), "at most 10000"),
    ] {
        scope.steps.insert("pre-flight".into(), json!({"ran": true, "output": output}));
        let error = playbook.items_of(update, &playbook.context(&scope)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    // A step that has not run has no output, and says so.
    let error = playbook
        .render(&playbook.cleanups[0].action, &playbook.context(&scope), &Secrets::default())
        .unwrap_err();
    assert_eq!(error.field, "exec");
    scope.inputs.insert("cluster".into(), json!("x".repeat(200_000)));
    let preflight = playbook.step("pre-flight").unwrap();
    let secrets = secrets(&playbook, "pre-flight", &scope);
    assert!(
        playbook
            .render(&preflight.action, &playbook.context(&scope), &secrets)
            .unwrap_err()
            .message
            .contains("at most")
    );
    scope.inputs.insert("cluster".into(), json!("a\0b"));
    assert!(
        playbook
            .render(&preflight.action, &playbook.context(&scope), &secrets)
            .unwrap_err()
            .message
            .contains("NUL")
    );
}

/// Whatever an expression makes up while it runs: what is stored and shown never sees a secret.
#[test]
fn secrets_are_not_there_where_they_may_not_stand() {
    let text = r#"
name = "a"
lifecycle = "job"
[inputs.which]
type = "string"
[inputs.login]
type = "string"
secret = true
default = "env:LOGIN"
[secrets]
token = "env:TOKEN"
[[step]]
name = "a"
exec = ["echo", "{{ inputs[inputs.which] }}"]
env = { A = "{{ secrets.token }} {{ inputs[inputs.which] | default('nothing') }}" }
"#;
    let playbook = parse(text);
    let inputs = playbook.accept(&json!({"which": "login"})).unwrap();
    let scope = Scope { inputs, ..Scope::default() };
    let error = playbook
        .render(&playbook.steps[0].action, &playbook.context(&scope), &secrets(&playbook, "a", &scope))
        .unwrap_err();
    assert_eq!(error.field, "exec", "{error}");
    let needs = playbook.needs(&playbook.steps[0].action, &playbook.context(&scope)).unwrap();
    let names: Vec<(&String, &Reference)> = needs.declared.iter().collect();
    assert_eq!(names, [(&"token".to_owned(), &Reference::Env("TOKEN".into()))]);
    let missing =
        Secrets::resolve(&needs, |_| Err("the worker has no such variable".to_owned())).unwrap_err();
    assert_eq!(missing, "secrets.token (env:TOKEN): the worker has no such variable");
}

#[test]
fn given_inputs_are_held_to_what_is_declared() {
    let playbook = parse(CLUSTER);
    let accepted = playbook.accept(&json!({"cluster": "c1", "hosts": ["a"]})).unwrap();
    let expected = json!({
        "cluster": "c1", "hosts": ["a"], "parallel": 1.5, "dry_run": null, "options": {"reboot": true},
        "login": "env:CLUSTER_LOGIN",
    });
    assert_eq!(Value::Object(accepted), expected);
    for (given, input, words) in [
        (json!({}), "cluster", "missing: The cluster's name."),
        (json!(null), "cluster", "missing"),
        (json!({"cluster": null}), "cluster", "missing"),
        (json!([]), "", "not an object"),
        (json!({"cluster": 7}), "cluster", "a number, not a string"),
        (json!({"cluster": "c1", "hosts": "a"}), "hosts", "a string, not a list"),
        (json!({"cluster": "c1", "parallel": "2"}), "parallel", "a string, not a number"),
        (json!({"cluster": "c1", "dry_run": "yes"}), "dry_run", "not a boolean"),
        (json!({"cluster": "c1", "options": []}), "options", "a list, not a object"),
        (json!({"cluster": "c1", "clsuter": 1}), "clsuter", "no such input"),
        (json!({"cluster": "c1", "login": "hunter2"}), "login", "no reference"),
        (json!({"cluster": "c1", "login": "env:AWS_SECRET_ACCESS_KEY"}), "login", "no reference"),
        (json!({"cluster": "c1", "login": "file:/etc/shadow"}), "login", "no reference"),
    ] {
        let problems = playbook.accept(&given).unwrap_err();
        let told = problems.iter().find(|problem| problem.input == input);
        let told = told.unwrap_or_else(|| panic!("{given}: {problems:?}")).to_string();
        assert!(told.contains(words) && !told.contains("hunter2"), "{given}: {told}");
    }
    let many = playbook.accept(&json!({"hosts": 1, "parallel": true, "x": 1})).unwrap_err();
    assert_eq!(many.len(), 4, "all at once: {many:?}");
    assert!(playbook.accept(&json!({"cluster": "c1", "login": "env:WAYPOST_SECRET_LOGIN"})).is_ok());
    for (name, text, value) in [
        ("cluster", "7", json!("7")),
        ("parallel", "7", json!(7)),
        ("hosts", "[\"a\"]", json!(["a"])),
        ("dry_run", "true", json!(true)),
        ("dry_run", "yes", json!("yes")),
    ] {
        assert_eq!(playbook.input_from_text(name, text), value, "{name}={text}");
    }
}

#[test]
fn a_target_is_rendered_into_its_request() {
    let playbook = parse(PRICES);
    let rule = playbook.rule.as_ref().unwrap();
    let scope = Scope {
        inputs: playbook.accept(&json!({"shop": "https://shop.example"})).unwrap(),
        target: Some(json!({"id": "7", "before": 10, "after": 12.5})),
        ..Scope::default()
    };
    let needs = playbook.needs(&rule.apply.action, &playbook.context(&scope)).unwrap();
    let secrets = Secrets::resolve(&needs, |_| Ok("t0ken".to_owned())).unwrap();
    let request =
        http(playbook.render(&rule.apply.action, &playbook.context(&scope), &secrets).unwrap().action);
    assert_eq!(request.url, "https://shop.example/products/7");
    assert!(matches!(&request.body, Body::Json(body) if body.open() == r#"{"price":12.5}"#));
    let back = exec(
        playbook
            .render(&rule.rollback.as_ref().unwrap().action, &playbook.context(&scope), &secrets)
            .unwrap()
            .action,
    );
    assert_eq!(back.command[1..], ["7", "10"]);
}
