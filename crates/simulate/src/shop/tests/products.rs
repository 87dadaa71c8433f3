//! Products, their prices, and what is refused of them.

use serde_json::{Value, json};

use super::*;

#[test]
fn a_price_is_changed_once_for_a_key() {
    let mut shop = shop(settings(&[]));
    let before = get(&mut shop, "/products/7")["unit_amount"].as_i64().unwrap();
    let (status, first) = ask(&mut shop, "PUT", "/products/7", Some("k"), &json!({ "price": "12.50" }));
    assert_eq!((status, &first["price"], &first["version"]), (200, &json!("12.50"), &json!(1)));

    // As somebody else's change lies between, a second one would show.
    ask(&mut shop, "PUT", "/products/7", Some("other"), &json!({ "unit_amount": 0 }));
    let again = request("PUT", "/products/7", Some("\"k\""), &json!({ "price": "12.50" }));
    let again = answered(shop.answer(&again, at(0)));
    assert_eq!(header(&again, "idempotency-replayed"), Some("true"));
    assert_eq!((again.status, serde_json::from_str::<Value>(&again.body).unwrap()), (200, first));
    assert_eq!(get(&mut shop, "/products/7")["price"], "0.00");

    let (status, body) = ask(&mut shop, "PUT", "/products/7", Some("k"), &json!({ "price": "13" }));
    assert_eq!((status, &body["error"]["code"]), (422, &json!("IDEMPOTENCY_KEY_REUSED")));
    let changes: Vec<(i64, i64)> = shop.changes().iter().map(|it| (it.from_cents, it.to_cents)).collect();
    assert_eq!(changes, [(before, 1250), (1250, 0)]);
}

#[test]
fn keys_that_are_not_honoured_change_again() {
    let mut shop = shop(Settings { honours_keys: false, ..settings(&[]) });
    for _ in 0..2 {
        ask(&mut shop, "PUT", "/products/7", Some("k"), &json!({ "price": 5 }));
    }
    let keys: Vec<Option<&str>> = shop.changes().iter().map(|change| change.key.as_deref()).collect();
    assert_eq!(keys, [Some("k"), Some("k")]);
    assert_eq!(get(&mut shop, "/admin/stats")["changes"]["repeated"], 1);
}

#[test]
fn a_refusal_is_repeated_for_its_key_too() {
    let mut shop = shop(settings(&[]));
    let asked = json!({ "price": "x" });
    let first = ask(&mut shop, "PUT", "/products/7", Some("k"), &asked);
    assert_eq!(first.0, 422);
    assert_eq!(ask(&mut shop, "PUT", "/products/7", Some("k"), &asked), first);
    assert_eq!(get(&mut shop, "/admin/stats")["replayed"], 1);
}

#[test]
fn pages_hold_every_product_once() {
    let mut shop = of(600, 0.1, settings(&[]));
    for (query, wanted) in [("", None), ("&archived=true", Some(true)), ("&archived=false", Some(false))] {
        let (mut path, mut ids) = (Some(format!("/products?limit=70{query}")), Vec::new());
        while let Some(asked) = path {
            let page = get(&mut shop, &asked);
            for product in page["products"].as_array().unwrap() {
                assert!(wanted.is_none_or(|wanted| product["archived"] == wanted), "{product}");
                ids.push(product["id"].as_u64().unwrap());
            }
            path = page["next"].as_str().map(str::to_owned);
        }
        let meant =
            |id: &u64| wanted.is_none_or(|wanted| shop.products[*id as usize - 1].is_archived == wanted);
        assert_eq!(ids, (1..=600).filter(meant).collect::<Vec<u64>>());
        assert!(ids.len() > 20, "{}", ids.len());
    }
}

#[test]
fn some_products_are_free_and_some_archived() {
    let mut shop = of(2_000, 0.05, settings(&[]));
    let free = shop.products.iter().filter(|product| product.price_cents == 0).count();
    let archived = shop.products.iter().position(|product| product.is_archived).unwrap() as u64 + 1;
    assert!((5..50).contains(&free), "{free}");
    let (status, body) =
        ask(&mut shop, "PUT", &format!("/products/{archived}"), None, &json!({ "price": 1 }));
    assert_eq!((status, &body["error"]["code"]), (422, &json!("VARIANT_ARCHIVED")));
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let mut shop = shop(settings(&[]));
    for (method, path, body, status, words) in [
        ("PUT", "/products/1", json!({ "price": -1 }), 422, "not negative"),
        ("PUT", "/products/1", json!({ "price": "1.999" }), 422, "two decimals"),
        ("PUT", "/products/1", json!({ "price": "1", "unit_amount": 101 }), 422, "give one of them"),
        ("PUT", "/products/1", json!({ "prise": 1 }), 422, "prise is unknown: price or unit_amount"),
        ("PUT", "/products/1", json!({}), 422, "is missing"),
        ("PUT", "/products/1", json!([1]), 422, "an object"),
        ("PUT", "/products/1", Value::Null, 400, "not JSON"),
        ("PUT", "/products/0", json!({ "price": 1 }), 404, "no product 0"),
        ("PUT", "/products/1001", json!({ "price": 1 }), 404, "no product 1001"),
        ("GET", "/products/seven", Value::Null, 404, "no product seven"),
        ("GET", "/products?limit=0", Value::Null, 400, "from 1 to 250"),
        ("GET", "/products?after=x", Value::Null, 400, "whole number"),
        ("GET", "/products?archived=1", Value::Null, 400, "true or false"),
        ("GET", "/products?page=2", Value::Null, 400, "page is unknown here: limit, after, archived"),
        ("DELETE", "/products/1", Value::Null, 405, "takes GET, PUT"),
        ("GET", "/nothing", Value::Null, 404, "there is no /nothing"),
        ("GET", "/admin/nothing", Value::Null, 404, "there is no /admin/nothing"),
    ] {
        let (found, answer) = ask(&mut shop, method, path, None, &body);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(found == status && message.contains(words), "{method} {path} {body}: {found} {message}");
    }
    assert!(shop.changes().is_empty());
}

#[test]
fn a_token_is_asked_for_if_there_is_one() {
    let options = Options { token: Some("secret".to_owned()), settings: settings(&[]), ..Options::default() };
    let mut shop = Shop::open(options).unwrap();
    for (name, value, status) in [
        ("x-shopify-access-token", "secret", 200),
        ("authorization", "Bearer secret", 200),
        ("authorization", "Bearer other", 401),
        ("x-shopify-access-token", "", 401),
    ] {
        let mut asked = request("GET", "/products/1", None, &Value::Null);
        asked.headers.push((name.to_owned(), value.to_owned()));
        assert_eq!(answered(shop.answer(&asked, at(0))).status, status, "{name}: {value}");
    }
    assert_eq!(get(&mut shop, "/admin/stats")["calls"], 2);
}
