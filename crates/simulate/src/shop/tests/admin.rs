//! What tests ask of the shop while it is served.

use serde_json::{Value, json};

use super::*;

#[test]
fn settings_change_while_it_runs() {
    let mut shop = shop(Settings::default());
    let patch = json!({ "rate": 2000, "burst": 100, "faults": { "permanent": { "share": 1 } } });
    let (status, now) = ask(&mut shop, "PATCH", "/admin/faults", None, &patch);
    assert_eq!((status, &now["rate"], &now["cost_rate"]), (200, &json!(2000.0), &json!(100.0)));
    assert_eq!(get(&mut shop, "/admin/faults"), now);
    for _ in 0..100 {
        assert_eq!(ask(&mut shop, "GET", "/products/1", None, &Value::Null).0, 200);
    }
    assert_eq!(ask(&mut shop, "GET", "/products/1", None, &Value::Null).0, 429);
    let (_, now) =
        ask(&mut shop, "PATCH", "/admin/faults", None, &json!({ "faults": { "permanent": null } }));
    assert_eq!(now["faults"], json!({}));
    let (_, now) = ask(&mut shop, "DELETE", "/admin/faults", None, &Value::Null);
    assert_eq!((&now["faults"], &now["rate"]), (&json!({}), &json!(2000.0)));
}

#[test]
fn mistakes_are_named_and_change_nothing() {
    let mut shop = shop(Settings::default());
    let before = get(&mut shop, "/admin/faults");
    for (method, path, body, words) in [
        ("PATCH", "/admin/faults", json!({ "rat": 1 }), "unknown field `rat`, expected one of"),
        ("PATCH", "/admin/faults", json!({ "rate": -1 }), "rate: -1 is not from"),
        ("PATCH", "/admin/faults", json!({ "rate": null }), "missing field `rate`"),
        ("PATCH", "/admin/faults", json!([]), "an object"),
        ("PATCH", "/admin/faults", Value::Null, "not JSON"),
        (
            "PATCH",
            "/admin/faults",
            json!({ "faults": { "lots": {} } }),
            "there is no fault lots: rate_limited",
        ),
        ("PATCH", "/admin/faults", json!({ "faults": { "lost": { "share": 2 } } }), "from 0 to 1"),
        (
            "PATCH",
            "/admin/faults",
            json!({ "faults": { "lost": { "chance": 1 } } }),
            "unknown field `chance`",
        ),
        ("PATCH", "/admin/faults", json!({ "retry_after": "soon" }), "unknown variant `soon`"),
        ("POST", "/admin/drift", json!({ "products": [0] }), "no product 0"),
        ("POST", "/admin/drift", json!({ "products": 1 }), "a list of ids"),
        ("POST", "/admin/drift", json!({ "share": 7 }), "from 0 to 1"),
        ("POST", "/admin/drift", json!({}), "give products or share"),
        ("POST", "/admin/drift", json!({ "ids": [1] }), "ids is unknown"),
        ("GET", "/admin/ledger?limit=0", Value::Null, "from 1 to"),
        ("GET", "/admin/ledger?since=0", Value::Null, "since is unknown here"),
        ("GET", "/admin/stats?after_s=x", Value::Null, "whole number"),
    ] {
        let (status, answer) = ask(&mut shop, method, path, None, &body);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(status == 400 && message.contains(words), "{method} {path} {body}: {status} {message}");
    }
    assert_eq!(ask(&mut shop, "GET", "/admin/faults/lots", None, &Value::Null).0, 404);
    assert_eq!(get(&mut shop, "/admin/faults"), before);
    assert!(shop.changes().is_empty());
}

#[test]
fn prices_drift_when_told() {
    let mut shop = shop(settings(&[]));
    for id in 1..=100 {
        ask(
            &mut shop,
            "PUT",
            &format!("/products/{id}"),
            None,
            &json!({ "price": if id == 1 { 0 } else { 10 } }),
        );
    }
    let (_, told) =
        ask(&mut shop, "POST", "/admin/drift", None, &json!({ "products": [1, 2, 2], "percent": -50 }));
    assert_eq!(told["drifted"], json!([1, 2]));
    assert_eq!((shop.price_cents(1), shop.price_cents(2)), (Some(1), Some(500)), "a price of 0 drifts too");
    let (_, told) = ask(&mut shop, "POST", "/admin/drift", None, &json!({ "share": 0.5 }));
    let drifted = told["drifted"].as_array().unwrap();
    assert!((25..75).contains(&drifted.len()), "{}", drifted.len());
    assert!(drifted.iter().all(|id| id.as_u64().unwrap() <= 100), "only what was changed");
}

#[test]
fn the_ledger_has_pages_and_filters() {
    let mut shop = shop(settings(&[]));
    for id in 1..=10 {
        ask(&mut shop, "PUT", &format!("/products/{id}"), Some(&format!("k{id}")), &json!({ "price": 1 }));
    }
    let page = get(&mut shop, "/admin/ledger?limit=4&after=4");
    let seqs: Vec<u64> =
        page["changes"].as_array().unwrap().iter().map(|it| it["seq"].as_u64().unwrap()).collect();
    assert_eq!((seqs, &page["next"]), (vec![5, 6, 7, 8], &json!(8)));
    assert_eq!(get(&mut shop, "/admin/ledger?after=8")["next"], Value::Null);
    for query in ["id=3", "key=k3"] {
        let found = get(&mut shop, &format!("/admin/ledger?{query}"));
        assert_eq!(found["changes"].as_array().unwrap().len(), 1);
        assert_eq!((&found["changes"][0]["id"], &found["changes"][0]["key"]), (&json!(3), &json!("k3")));
    }
}
