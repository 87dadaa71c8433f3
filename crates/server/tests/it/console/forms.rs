//! What becomes of forms: those that start runs, those that are sent twice, and those that are refused.

use serde_json::{Value, json};

use super::Person;
use crate::roles::{token, with_tokens};
use crate::support::{Answer, On, Server, send};
use waypost_worker::loops::Operator;

const SHIP: &str = r#"
name = "ship"
lifecycle = "job"
[inputs.version]
type = "string"
[inputs.region]
type = "string"
default = "eu"
[inputs.count]
type = "number"
default = 2
[inputs.hosts]
type = "list"
required = false
[inputs.pw]
type = "string"
secret = true
required = false
[[step]]
name = "make"
exec = ["true"]
"#;

async fn with_playbook() -> Server {
    let server = Server::new().await;
    let body = json!({ "by": "tests", "playbooks": [{ "name": "ship", "text": SHIP }] });
    let told = server.post("/v1/playbooks", body).await;
    assert!((200..300).contains(&told.status), "{}", told.text);
    server
}

fn value_of(page: &str, name: &str) -> String {
    let found = page.split(&format!("name=\"{name}\" value=\"")).nth(1);
    found.and_then(|rest| rest.split('"').next()).unwrap_or_else(|| panic!("{name}: {page}")).to_owned()
}

async fn input_of(server: &Server, started: &Answer) -> Value {
    assert_eq!(started.status, 303, "{}", started.text);
    let run = server.get(&format!("/v1{}", started.header("location"))).await;
    run.expect(200)["input"].clone()
}

#[tokio::test]
async fn a_form_that_was_sent_before_says_so_and_starts_another_run_if_asked() {
    let server = with_playbook().await;
    let person = Person::at(&server, "");
    let key = value_of(&person.get("/playbooks/ship").await.text, "key");
    let send = async |key: &str, version: &str| {
        person.post("/playbooks/ship", &[("key", key), ("input.version", version)]).await
    };
    let first = send(&key, "1").await;
    assert_eq!(first.status, 303, "{}", first.text);
    let again = send(&key, "1").await;
    assert_eq!(again.status, 200, "{}", again.text);
    let words = format!("This form was sent before: it started <a href=\"{}\"", first.header("location"));
    assert!(again.text.contains(&words), "{}", again.text);
    let second = send(&value_of(&again.text, "key"), "1").await;
    assert_eq!(second.status, 303);
    assert_ne!(second.header("location"), first.header("location"));
    // With another value under the same key.
    let other = send(&key, "2").await;
    assert!(other.status == 422 && other.text.contains("sent before, with other values"), "{}", other.text);
    assert_eq!(value_of(&other.text, "input.version"), "2", "what was typed is there");
    let third = send(&value_of(&other.text, "key"), "2").await;
    assert_eq!(third.status, 303, "{}", third.text);
    assert_eq!(server.get("/v1/runs").await.expect(200)["runs"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn what_was_typed_into_a_form_is_taken_or_told_of() {
    let server = with_playbook().await;
    let person = Person::at(&server, "");
    let post = async |fields: &[(&str, &str)]| person.post("/playbooks/ship", fields).await;
    let wrong =
        post(&[("input.version", ""), ("input.count", "abc"), ("input.hosts", "{}"), ("input.pw", "s3cret")])
            .await;
    assert_eq!(wrong.status, 422);
    for words in
        ["version: is missing", "count: abc is no number", "hosts: is no list in JSON", "Type it again"]
    {
        assert!(wrong.text.contains(words), "{words}: {}", wrong.text);
    }
    assert!(!wrong.text.contains("s3cret"));
    let field = wrong.text.split("name=\"input.pw\"").nth(1).unwrap().split('>').next().unwrap();
    assert!(field.contains("required"), "a secret that was typed is asked for again: {field}");
    // A default that somebody took out is not what the run begins with.
    let emptied = post(&[("input.version", "1"), ("input.region", ""), ("input.count", "7")]).await;
    let input = input_of(&server, &emptied).await;
    assert_eq!((&input["region"], &input["count"]), (&json!(""), &json!(7)), "{input}");
    let emptied = post(&[("input.version", "1"), ("input.count", "")]).await;
    assert!(
        emptied.status == 422 && emptied.text.contains("count: is empty; leave it at 2"),
        "{}",
        emptied.text
    );
    assert!(
        emptied.text.contains("name=\"input.count\" inputmode=\"decimal\" value=\"\""),
        "it is as it was left"
    );
    let left =
        post(&[("input.version", "1"), ("input.region", "eu"), ("input.count", "2"), ("input.hosts", "")])
            .await;
    assert_eq!(input_of(&server, &left).await["region"], "eu");
}

#[tokio::test]
async fn a_command_for_many_that_is_sent_twice_is_one_operation() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let person = Person::at(&server, "");
        for _ in 0..3 {
            server.start_with(json!({ "queue": "builds" })).await;
        }
        let chosen = [("command", "cancel"), ("all", "yes"), ("filter", "queue:builds")];
        let page = person.post("/runs/bulk", &chosen).await.text;
        let (key, seen_at) = (value_of(&page, "key"), value_of(&page, "seen_at"));
        let confirmed = [&chosen[..], &[("key", &key), ("seen_at", &seen_at), ("typed", "3")]].concat();
        let first = person.post("/runs/bulk", &confirmed).await;
        assert_eq!(first.status, 303, "{}", first.text);
        Operator::new(server.store.clone()).work_all().await.unwrap();
        let again = person.post("/runs/bulk", &confirmed).await;
        assert_eq!(
            (again.status, again.header("location")),
            (303, first.header("location")),
            "{}",
            again.text
        );
        // Asked for once more under another key it changes nothing, and nobody is said to have done anything.
        let once_more = [&chosen[..], &[("key", "another"), ("seen_at", &seen_at), ("typed", "3")]].concat();
        let once_more = person.post("/runs/bulk", &once_more).await;
        Operator::new(server.store.clone()).work_all().await.unwrap();
        let page = person.get(once_more.header("location")).await.text;
        assert!(page.contains("<dt>Done</dt><dd>0</dd>"), "{on:?}: {page}");
        assert!(page.contains("<dt>Were so already</dt><dd>3</dd>"), "{on:?}: {page}");
        let told = server.get("/v1/audit").await.expect(200);
        let cancels = told["audit"].as_array().unwrap().iter().filter(|it| it["action"] == "cancel").count();
        assert_eq!(cancels, 3, "{on:?}: {told}");
    }
}

#[tokio::test]
async fn who_sent_a_form_that_is_refused_is_led_back_to_its_page() {
    let server = with_tokens().await;
    let person = Person::at(&server, &token(&*server.store, "operator", "default").await);
    let page = person.get("/").await.text;
    let fields = [("form_token", value_of(&page, "form_token")), ("at_most", "many".to_owned())];
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let form = |path: &str| person.form(path, &fields);
    let refused = send(form("/queues/builds/limit").header("referer", server.url("/queues?cursor=x"))).await;
    assert_eq!(refused.status, 422, "{}", refused.text);
    assert!(refused.text.contains("href=\"/queues?cursor=x\">Back to the page</a>"), "{}", refused.text);
    assert!(
        !refused.text.contains("href=\"/sign-in\""),
        "who is signed in is not asked to sign in: {}",
        refused.text
    );
    let elsewhere = send(form("/queues/builds/limit").header("referer", "https://evil.example/x")).await;
    assert!(!elsewhere.text.contains("Back to the page") && !elsewhere.text.contains("evil"));
    // Without scripts the page that one is on is known by the same.
    let chosen = send(
        person
            .form("/preferences", &[fields[0], ("to", "/"), ("theme", "dark")])
            .header("referer", server.url("/runs?filter=x")),
    )
    .await;
    assert_eq!((chosen.status, chosen.header("location")), (303, "/runs?filter=x"), "{}", chosen.text);
}
