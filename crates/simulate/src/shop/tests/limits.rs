//! Both limits, and how a client is told.

use serde_json::{Value, json};

use super::*;
use crate::serving::RetryAfter;

fn limited(retry_after: RetryAfter) -> Shop {
    shop(Settings { retry_after, ..Settings::default() })
}

fn look(shop: &mut Shop, id: u64, ms: u64) -> Answer {
    answered(shop.answer(&request("GET", &format!("/products/{id}"), None, &Value::Null), at(ms)))
}

#[test]
fn forty_at_once_and_two_a_second() {
    let mut shop = limited(RetryAfter::Seconds);
    for id in 1..=40 {
        let answer = look(&mut shop, id, 0);
        assert_eq!(answer.status, 200);
        assert_eq!(header(&answer, "x-shopify-shop-api-call-limit"), Some(&*format!("{id}/40")));
    }
    let refused = look(&mut shop, 41, 0);
    assert_eq!((refused.status, header(&refused, "retry-after")), (429, Some("1")));
    // Who obeys is answered.
    assert_eq!([look(&mut shop, 41, 1_000).status, look(&mut shop, 42, 1_000).status], [200, 200]);
    assert_eq!(look(&mut shop, 43, 1_000).status, 429);
}

#[test]
fn retry_after_in_every_form() {
    let refused = |form| {
        let mut shop = limited(form);
        (1..=40).for_each(|id| drop(look(&mut shop, id, 0)));
        (41..=100).map(|id| look(&mut shop, id, 0)).collect::<Vec<_>>()
    };
    let date = "Tue, 14 Nov 2023 22:13:21 GMT";
    let expect = |form, wanted: &[Option<&str>]| {
        let mut found: Vec<Option<String>> =
            refused(form).iter().map(|answer| header(answer, "retry-after").map(str::to_owned)).collect();
        found.sort();
        found.dedup();
        assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), wanted);
    };
    expect(RetryAfter::Seconds, &[Some("1")]);
    expect(RetryAfter::Date, &[Some(date)]);
    expect(RetryAfter::None, &[None]);
    expect(RetryAfter::Mixed, &[None, Some("1"), Some(date)]);
}

#[test]
fn graphql_is_limited_by_cost_inside_a_200() {
    let mut shop = shop(Settings { cost_rate: 50.0, cost_burst: 300.0, ..Settings::default() });
    let asked = json!({ "query": "{ productVariants(first: 250) { nodes { id } } }" });
    let mut post = |ms| {
        let answer = answered(shop.answer(&request("POST", "/graphql", None, &asked), at(ms)));
        assert_eq!(answer.status, 200);
        serde_json::from_str::<Value>(&answer.body).unwrap()
    };
    let cost = post(0)["extensions"]["cost"].clone();
    assert_eq!(
        cost,
        json!({
            "requestedQueryCost": 252, "actualQueryCost": 252,
            "throttleStatus": { "maximumAvailable": 300.0, "currentlyAvailable": 48, "restoreRate": 50.0 },
        })
    );
    let refused = post(0);
    assert_eq!(refused["errors"][0]["extensions"]["code"], "THROTTLED");
    assert_eq!(refused["extensions"]["cost"]["actualQueryCost"], Value::Null);
    assert_eq!(refused.get("data"), None);
    // (requested - available) / rate is 4.08 s.
    assert!(post(4_000).get("errors").is_some());
    assert!(post(4_080).get("data").is_some());
    assert_eq!(get(&mut shop, "/admin/stats")["rate_limited"], 2);
}

#[test]
fn what_a_query_did_not_need_is_given_back_and_too_much_is_refused() {
    let mut shop = of(10, 0.0, Settings { cost_burst: 252.0, ..Settings::default() });
    let mut post = |query: &str| {
        let (_, body) = ask(&mut shop, "POST", "/graphql", None, &json!({ "query": query }));
        body
    };
    let answer = post("{ productVariants(first: 250) { nodes { id } } }");
    assert_eq!(answer["extensions"]["cost"]["actualQueryCost"], 12);
    assert_eq!(answer["extensions"]["cost"]["throttleStatus"]["currentlyAvailable"], 240);
    let answer = post("{ a: productVariants(first: 250) { nodes { id } } b: shop { name } }");
    assert_eq!(answer["errors"][0]["extensions"]["code"], "MAX_COST_EXCEEDED");
}

#[test]
fn stats_say_whether_a_client_used_its_rate() {
    let mut shop = limited(RetryAfter::Seconds);
    // The burst, one call a second for two minutes, a pause of a minute, and some that are too many.
    (0..40).for_each(|_| drop(look(&mut shop, 1, 0)));
    (0..240).for_each(|n| drop(look(&mut shop, 1, n * 500 + 500)));
    drop(look(&mut shop, 1, 120_000));
    let stats = get(&mut shop, "/admin/stats");
    assert_eq!((&stats["calls"], &stats["answers"]), (&json!(281), &json!({ "200": 280, "429": 1 })));
    assert_eq!(stats["after"]["rest_calls"]["taken"], 121.0);
    let used = stats["after"]["rest_calls"]["used_share"].as_f64().unwrap();
    assert!((0.99..1.02).contains(&used), "{used}");
    drop(look(&mut shop, 1, 180_000));
    assert_eq!(get(&mut shop, "/admin/stats")["longest_gap_ms"], 60_000);
    assert_eq!(get(&mut shop, "/admin/stats?after_s=130")["after"]["calls"], 1);
    assert_eq!(ask(&mut shop, "DELETE", "/admin/stats", None, &Value::Null).0, 200);
    assert_eq!(get(&mut shop, "/admin/stats")["calls"], 0);
}
