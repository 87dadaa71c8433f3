//! What goes wrong on demand.

use serde_json::{Value, json};

use super::*;

fn put(shop: &mut Shop, id: u64, key: &str) -> Reply {
    shop.answer(&request("PUT", &format!("/products/{id}"), Some(key), &json!({ "price": "5" })), at(0))
}

fn is_held(reply: &Reply) -> bool {
    matches!(reply, Reply::Held { for_ms: 60_000, .. })
}

#[test]
fn a_share_of_products_is_refused_for_good() {
    let mut shop = shop(settings(&["permanent=3%"]));
    let hit = get(&mut shop, "/admin/faults/permanent")["products"].as_array().unwrap().clone();
    assert!((10..60).contains(&hit.len()), "{}", hit.len());
    let mut statuses = Vec::new();
    for id in 1..=1_000 {
        for attempt in 0..2 {
            let answer = answered(put(&mut shop, id, &format!("{id} {attempt}")));
            assert_eq!(answer.status != 200, hit.contains(&json!(id)), "{id}: {answer:?}");
            statuses.push(answer.status);
        }
    }
    assert!(statuses.contains(&422) && statuses.contains(&403));
    assert_eq!(shop.changes().len(), 2 * (1_000 - hit.len()));
}

#[test]
fn a_share_of_products_fails_once() {
    let mut shop = shop(settings(&["transient=10%"]));
    for id in 1..=1_000 {
        let is_hit = shop.is_hit("transient", id);
        assert_eq!(answered(put(&mut shop, id, &format!("{id} 1"))).status, if is_hit { 503 } else { 200 });
        assert_eq!(answered(put(&mut shop, id, &format!("{id} 2"))).status, 200);
        assert_eq!(get(&mut shop, &format!("/products/{id}"))["price"], "5.00");
    }
}

#[test]
fn faults_are_counted_and_one_can_be_cured() {
    let mut shop = shop(settings(&["permanent=100%", "lost=100%"]));
    for key in ["a", "b"] {
        put(&mut shop, 7, key);
    }
    assert_eq!(get(&mut shop, "/admin/stats")["faults"], json!({ "permanent": 2, "lost": 2 }));
    shop.cure("permanent");
    assert!(matches!(put(&mut shop, 7, "c"), Reply::Cut));
    assert_eq!((shop.price_cents(7), shop.faults_met().get("lost")), (Some(500), Some(&3)));
    assert_eq!(ask(&mut shop, "DELETE", "/admin/stats", None, &Value::Null).0, 200);
    assert!(shop.faults_met().is_empty());
}

#[test]
fn answers_are_lost_after_the_change() {
    let mut shop = shop(settings(&["lost=100%", "late=0"]));
    assert!(matches!(put(&mut shop, 7, "k"), Reply::Cut));
    assert_eq!(shop.price_cents(7), Some(500));
    // The same key again: no second change, and the answer of the first.
    assert_eq!(answered(put(&mut shop, 7, "k")).status, 200);
    assert_eq!(shop.changes().len(), 1);

    let mut shop = super::shop(settings(&["late=100%"]));
    assert!(is_held(&put(&mut shop, 7, "k")));
    assert_eq!(shop.price_cents(7), Some(500));
}

#[test]
fn calls_fail_before_the_change() {
    for fault in ["cut", "timeout", "server_error", "rate_limited"] {
        let mut shop = shop(settings(&[&format!("{fault}=1")]));
        let before = shop.price_cents(7);
        let met = match put(&mut shop, 7, "k") {
            Reply::Cut => "cut",
            Reply::Answer(Answer { status: 500..=504, .. }) => "server_error",
            Reply::Answer(Answer { status: 429, .. }) => "rate_limited",
            held if is_held(&held) => "timeout",
            other => panic!("{fault}: {other:?}"),
        };
        assert_eq!((met, shop.price_cents(7)), (fault, before));
        assert_eq!(answered(put(&mut shop, 7, "k")).status, 200, "{fault}: once for a key");
        // Reads meet them too.
        let read = shop.answer(&request("GET", "/products/7", None, &Value::Null), at(0));
        assert!(!matches!(read, Reply::Answer(Answer { status: 200, .. })), "{fault}");
    }
}

/// The same calls in another order, and with a day in between, meet the same.
#[test]
fn faults_are_drawn_by_key_and_not_by_time() {
    let all = ["server_error=20%", "cut=20%", "lost=20%", "rate_limited=20%", "late=20%", "transient=20%"];
    let met = |order: &mut dyn Iterator<Item = u64>, seed| {
        let mut shop = shop(Settings { seed, ..settings(&all) });
        let mut met: Vec<(u64, String)> = order
            .map(|id| {
                let asked = request(
                    "PUT",
                    &format!("/products/{id}"),
                    Some(&format!("{id}")),
                    &json!({ "price": 5 }),
                );
                let reply = shop.answer(&asked, at(id * 86_400_000));
                (
                    id,
                    match reply {
                        Reply::Answer(answer) => answer.status.to_string(),
                        Reply::Cut => format!("cut {}", shop.price_cents(id) == Some(500)),
                        Reply::Held { .. } => "held".to_owned(),
                    },
                )
            })
            .collect();
        met.sort();
        met
    };
    let first = met(&mut (1..=300), 1);
    assert_eq!(first, met(&mut (1..=300).rev(), 1));
    assert_ne!(first, met(&mut (1..=300), 2));
    for word in ["200", "500", "503", "429", "cut true", "cut false", "held"] {
        assert!(first.iter().any(|(_, met)| met == word), "{word}");
    }
}

#[test]
fn something_else_changes_prices_after_a_client_did() {
    let mut shop = shop(settings(&["drift=100%"]));
    let answer = answered(put(&mut shop, 7, "k"));
    assert_eq!(serde_json::from_str::<Value>(&answer.body).unwrap()["price"], "5.00");
    assert_eq!(get(&mut shop, "/products/7")["price"], "5.35");
    let via: Vec<(&str, i64)> = shop.changes().iter().map(|it| (it.via.as_str(), it.to_cents)).collect();
    assert_eq!(via, [("rest", 500), ("drift", 535)]);
    // A correction stays.
    put(&mut shop, 7, "k2");
    assert_eq!(get(&mut shop, "/products/7")["price"], "5.00");
    assert_eq!(get(&mut shop, "/admin/stats")["changes"]["drifted"], 1);
}

#[test]
fn one_call_can_be_named() {
    let mut shop = shop(settings(&[]));
    let patch = json!({ "faults": { "lost": { "only": ["/products/7"] }, "cut": { "only": ["k9"] } } });
    assert_eq!(ask(&mut shop, "PATCH", "/admin/faults", None, &patch).0, 200);
    for (id, key, is_cut) in
        [(6, "k1", false), (7, "k2", true), (7, "k3", false), (8, "k9", true), (8, "k9", false)]
    {
        assert_eq!(matches!(put(&mut shop, id, key), Reply::Cut), is_cut, "{id} {key}");
    }
    let changed: Vec<u64> = shop.changes().iter().map(|change| change.id).collect();
    assert_eq!(changed, [6, 7, 7, 8]);
}
