//! A playbook of a lifecycle that has its own words for decisions, or none.

use serde_json::json;
use waypost_kernel::Catalog;
use waypost_store::{CommandWrite, NewRun};
use waypost_worker::first_steps;

use super::kit::{answers, map, step};
use crate::support::Shop;

const REVIEW: &str = r#"
name = "review"
version = 1
ids = "rev-{uuid7}"
initial = ["open"]
items = ["step"]
decisions = { waiting = "unanswered", asked = "questions", given = "verdicts", asked_count = "count" }
[states]
open = { phase = "ready" }
reading = { phase = "held", lease = "60s", on_stale = "take-over", max_take_overs = 2 }
asking = { phase = "parked" }
printed = { phase = "settled", outcome = "succeeded" }
wrong = { phase = "settled", outcome = "failed" }
dropped = { phase = "settled", outcome = "cancelled" }
transitions = [
  ["open", "claim", "reading", "worker", ""],
  ["open", "cancel", "dropped", "client", ""],
  ["reading", "print", "printed", "worker", ""],
  ["reading", "fail", "wrong", "worker", ""],
  ["reading", "pause", "asking", "operator, worker", "has-reason"],
  ["reading", "cancel", "dropped", "client, worker", ""],
  ["reading", "lose", "wrong", "engine", ""],
  ["asking", "resume", "open", "operator", "resolved-or-forced"],
  ["asking", "cancel", "dropped", "client", ""],
]
"#;

fn read() -> String {
    let asks = r#"{"outcome":"pause","reason":"a question","blockers":{"title":{"choices":["keep","cut"]}}}"#;
    let script = format!("cat > told; grep -q keep told && exit 0; {}", answers(asks));
    format!("name = \"read\"\nlifecycle = \"review\"\n\n{}", step("read", &script, ""))
}

// proves J3 and X1
#[tokio::test(flavor = "multi_thread")]
async fn what_a_handler_asks_stands_where_the_lifecycle_says() {
    let mut shop = Shop::new();
    shop.store.add_lifecycle(REVIEW.to_owned(), "tests".into()).await.unwrap();
    let playbook = shop.playbook_with(&read(), &shop.store.lifecycles().await.unwrap());
    let id = shop.queue(&playbook, NewRun::default()).await;
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!(
        (row.status(), &row.details["unanswered"], &row.details["count"]),
        ("asking", &json!(true), &json!(1))
    );
    assert_eq!(row.details["questions"], json!({ "title": {"choices": ["keep", "cut"]} }));
    assert!(!row.details.keys().any(|key| key.contains("blocker")), "{:?}", row.details);
    let answered = json!({ "title": {"decision": "cut"} });
    shop.resume(&id, map(json!({ "title": "cut" }))).await;
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!(
        (row.status(), &row.details["verdicts"]["title"]["decision"]),
        ("asking", &answered["title"]["decision"])
    );
    shop.resume(&id, map(json!({ "title": "keep" }))).await;
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!((row.status(), &row.details["unanswered"]), ("printed", &json!(false)));
    assert!(!row.details.contains_key("questions"), "what is settled is asked no more");
    shop.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lifecycle_without_decisions_waits_for_a_person_all_the_same() {
    let own = |line: &&str| !line.starts_with("decisions");
    let silent: Vec<&str> = REVIEW.lines().filter(own).collect();
    let mut shop = Shop::new();
    shop.store
        .add_lifecycle(silent.join("\n").replace("resolved-or-forced", ""), "tests".into())
        .await
        .unwrap();
    let playbook = shop.playbook_with(&read(), &shop.store.lifecycles().await.unwrap());
    let id = shop.queue(&playbook, NewRun::default()).await;
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!((row.status(), row.run.reason.as_deref()), ("asking", Some("a question")));
    assert!(!row.details.contains_key("questions"), "{:?}", row.details);
    let noted =
        shop.events(&id).await.into_iter().find(|event| event.message.contains("no place for decisions"));
    assert_eq!(noted.expect("noted").payload["blockers"]["title"]["choices"], json!(["keep", "cut"]));
    shop.command(CommandWrite { name: "resume".into(), ..Shop::cancelling(&id) }).await;
    assert_eq!(shop.run(&id).await.status(), "open");
}

/// Whether a list can be told at once is asked of the variables of its expression, not of its letters.
#[test]
fn items_of_inputs_alone_are_known_from_the_beginning() {
    let shop = &mut Shop::new();
    let text = |list: &str| {
        let first = step("first", "", "");
        let each = step("use {{ item }}", "", &format!("id = \"use\"\nfor_each = \"{list}\""));
        format!("name = \"lists\"\nlifecycle = \"job\"\n[inputs.trunks]\ntype = \"list\"\n\n{first}\n{each}")
    };
    let catalog = Catalog::shipped().unwrap();
    let job = catalog.latest("job").unwrap();
    let inputs = map(json!({ "trunks": ["a", "b"] }));
    for (list, known) in [("inputs.trunks", 3), ("[run.id, inputs.trunks[0]]", 1), ("steps.first.output", 1)]
    {
        let playbook = shop.playbook(&text(list));
        assert_eq!(first_steps(&playbook, job, &inputs).len(), known, "{list}");
    }
}
