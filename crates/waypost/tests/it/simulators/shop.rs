//! The shop.

use serde_json::{Value, json};

use super::Served;
use crate::support::Shop;

/// A change whose answer was lost, a process that was killed, and the same change again: it was made once.
// proves R15
#[test]
fn a_shop_keeps_its_ledger_when_it_is_killed() {
    let folder = Shop::new();
    let flags = ["shop", "--dir", "data", "--products", "20", "--fault", "lost=100%", "--rate", "1000"];
    let mut shop = Served::start(&folder, &flags);
    assert_eq!(shop.line["count"], 20);
    let change = |shop: &Served| {
        shop.ask("PUT", "/products/7", &["Idempotency-Key: run:7:apply:1"], &json!({ "price": "12.50" }))
    };
    assert_eq!(change(&shop).0, 0, "the answer is lost");
    let ledger = shop.get("/admin/ledger");
    shop.process.kill();

    let shop = Served::start(&folder, &flags);
    assert_eq!(change(&shop).0, 0, "faults count anew");
    let (status, product) = change(&shop);
    assert_eq!((status, &product["price"]), (200, &json!("12.50")));
    assert_eq!(shop.get("/admin/ledger"), ledger);
    assert_eq!(ledger["changes"].as_array().unwrap().len(), 1);
    assert_eq!(ledger["changes"][0]["key"], "run:7:apply:1");
    shop.stop();
}

#[test]
fn a_shop_speaks_graphql_and_limits_by_cost() {
    let folder = Shop::new();
    let shop = Served::start(
        &folder,
        &["shop", "--cost-rate", "0.001", "--cost-burst", "15", "--access-token", "t"],
    );
    let update = "mutation($v: [ProductVariantsBulkInput!]!) { productVariantsBulkUpdate(productId: \
                  \"gid://shopify/Product/1\", variants: $v) { productVariants { price } userErrors { message } } }";
    let variants = json!([{ "id": "gid://shopify/ProductVariant/2", "price": "0.00" }]);
    let asked = json!({ "query": update, "variables": { "v": variants } });
    let post = |headers: &[&str]| shop.ask("POST", "/admin/api/2025-01/graphql.json", headers, &asked);
    assert_eq!(post(&[]).0, 401);
    let (status, answer) = post(&["X-Shopify-Access-Token: t"]);
    assert_eq!((status, &answer["data"]["productVariantsBulkUpdate"]["userErrors"]), (200, &json!([])));
    assert_eq!(answer["extensions"]["cost"]["throttleStatus"]["currentlyAvailable"], 5);
    let (status, answer) = post(&["X-Shopify-Access-Token: t"]);
    assert_eq!((status, &answer["errors"][0]["extensions"]["code"]), (200, &json!("THROTTLED")));
    assert_eq!(shop.get("/admin/stats")["answers"], json!({ "200": 1, "throttled": 1 }));
    shop.stop();
}

#[test]
fn a_shop_is_changed_while_it_is_served() {
    let folder = Shop::new();
    let shop = Served::start(&folder, &["shop", "--burst", "1"]);
    let look = || shop.ask("GET", "/products/1", &[], &Value::Null).0;
    assert_eq!([look(), look()], [200, 429]);
    let (status, now) = shop.ask("PATCH", "/admin/faults", &[], &json!({ "rate": 100000, "burst": 100000 }));
    assert_eq!((status, &now["burst"]), (200, &json!(100_000.0)));
    assert_eq!([look(), look()], [200, 200]);
    shop.stop();
}

#[test]
fn bad_flags_of_a_shop_are_named() {
    let folder = Shop::new();
    for (args, words) in [
        (&["--fault", "lots=1"][..], &["--fault: there is no fault lots: rate_limited, server_error"][..]),
        (&["--fault", "lost"], &["--fault: lost: write NAME=SHARE"]),
        (&["--fault", "lost=2"], &["lost: a share is from 0 to 1"]),
        (&["--archived", "110%"], &["--archived", "a share is from 0 to 1"]),
        (&["--rate", "0"], &["rate: 0 is not from 0.001"]),
        (&["--rate", "many"], &["--rate"]),
        (&["--products", "0"], &["products: 0 is not from 1 to"]),
        (&["--variants-per-product", "101"], &["variants-per-product: 101 is not from 1 to 100"]),
        (&["--retry-after", "soon"], &["seconds, date, none or mixed"]),
        (&["--hold", "2h"], &["hold_ms: 7200000 is more than an hour"]),
        (&["--listen", "here"], &["--listen"]),
    ] {
        folder.run(&[&["simulate", "shop"], args].concat()).expect(2, words);
    }
    let taken = Served::start(&folder, &["shop", "--dir", "data", "--products", "20"]);
    let address = taken.line["url"].as_str().unwrap().strip_prefix("http://").unwrap();
    folder.run(&["simulate", "shop", "--listen", address]).expect(1, &["cannot listen on", address]);
    let again = folder.run(&["simulate", "shop", "--dir", "data"]);
    again.expect(1, &["--dir data: another shop is served from this folder"]);
    let other = folder.run(&["simulate", "shop", "--dir", "data", "--products", "30"]);
    other.expect(2, &["data/shop.json: its products: 20, and 30 was given"]);
}
