#![allow(clippy::unwrap_used)]
//! Documents as clients send them.

use serde_json::{Value, json};

use crate::serving::Reply;
use crate::serving::Simulator;
use crate::shop::Shop;
use crate::shop::tests::{answered, ask, at, of, request, settings};

const UPDATE: &str = r#"
# As in Shopify's own examples.
mutation productVariantsBulkUpdate($productId: ID!, $variants: [ProductVariantsBulkInput!]!, $partial: Boolean = false) {
  productVariantsBulkUpdate(productId: $productId, variants: $variants, allowPartialUpdates: $partial) {
    product { id, status }
    productVariants { id price }
    userErrors { field message code }
  }
}"#;

fn post(shop: &mut Shop, body: &Value) -> Value {
    let (status, answer) = ask(shop, "POST", "/admin/api/2025-01/graphql.json", None, body);
    assert_eq!(status, 200, "{answer}");
    answer
}

fn variant(id: u64, price: &str) -> Value {
    json!({ "id": format!("gid://shopify/ProductVariant/{id}"), "price": price })
}

fn update(product: u64, variants: &[Value], partial: bool) -> Value {
    let variables = json!({ "productId": format!("gid://shopify/Product/{product}"), "variants": variants, "partial": partial });
    json!({ "query": UPDATE, "variables": variables })
}

#[test]
fn variants_of_a_product_change_together() {
    let mut shop = of(100, 0.0, settings(&[]));
    let answer = post(&mut shop, &update(2, &[variant(5, "9.99"), variant(6, "0.00")], false));
    assert_eq!(
        answer["data"]["productVariantsBulkUpdate"],
        json!({
            "product": { "id": "gid://shopify/Product/2", "status": "ACTIVE" },
            "productVariants": [
                { "id": "gid://shopify/ProductVariant/5", "price": "9.99" },
                { "id": "gid://shopify/ProductVariant/6", "price": "0.00" },
            ],
            "userErrors": [],
        })
    );
    assert_eq!((shop.price_cents(5), shop.price_cents(6)), (Some(999), Some(0)));
}

#[test]
fn an_error_of_one_variant_is_its_own_or_everybodys() {
    let bad = [variant(5, "9.99"), variant(6, "-1"), variant(99, "1"), variant(5, "1"), variant(7, "x")];
    for (partial, changed) in [(false, 0), (true, 1)] {
        let mut shop = of(100, 0.0, settings(&[]));
        let answer = post(&mut shop, &update(2, &bad, partial));
        let answer = &answer["data"]["productVariantsBulkUpdate"];
        let errors: Vec<(&str, &str)> = answer["userErrors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|error| (error["field"][1].as_str().unwrap(), error["code"].as_str().unwrap()))
            .collect();
        assert_eq!(
            errors,
            [
                ("1", "NEGATIVE_PRICE_VALUE"),
                ("2", "PRODUCT_VARIANT_DOES_NOT_EXIST"),
                ("3", "INVALID_INPUT"),
                ("4", "INVALID_INPUT"),
            ]
        );
        assert_eq!(shop.changes().len(), changed);
        assert_eq!(answer["productVariants"].is_null(), !partial);
    }
    let mut shop = of(100, 0.0, settings(&[]));
    let answer = post(&mut shop, &update(99, &[variant(5, "1")], false));
    let error = &answer["data"]["productVariantsBulkUpdate"]["userErrors"][0];
    assert_eq!(error["code"], "PRODUCT_DOES_NOT_EXIST");
}

#[test]
fn faults_of_products_are_user_errors_or_a_503() {
    let mut shop = of(100, 0.0, settings(&["permanent=30%"]));
    let variants: Vec<Value> = (1..=4).map(|id| variant(id, "3")).collect();
    let refused: Vec<u64> = (1..=100).filter(|&id| shop.is_hit("permanent", id)).collect();
    let product = (refused[0] - 1) / 4 + 1;
    let first = (product - 1) * 4 + 1;
    let variants: Vec<Value> = variants.iter().zip(first..).map(|(_, id)| variant(id, "3")).collect();
    let answer = post(&mut shop, &update(product, &variants, true));
    let errors = answer["data"]["productVariantsBulkUpdate"]["userErrors"].as_array().unwrap().len();
    assert_eq!(errors, refused.iter().filter(|id| (first..first + 4).contains(id)).count());
    assert_eq!(shop.changes().len(), 4 - errors);

    let mut shop = of(100, 0.0, settings(&["transient=100%"]));
    let asked = update(1, &[variant(1, "3"), variant(2, "3")], false);
    assert_eq!(ask(&mut shop, "POST", "/graphql", None, &asked).0, 503);
    assert_eq!(ask(&mut shop, "POST", "/graphql", None, &asked).0, 200, "once for all of them");
}

#[test]
fn a_key_is_honoured_and_the_cost_is_of_now() {
    let mut shop = of(100, 0.0, settings(&["lost=100%"]));
    let asked = request("POST", "/graphql", Some("k"), &update(1, &[variant(1, "3")], false));
    assert!(matches!(shop.answer(&asked, at(0)), Reply::Cut));
    let again = answered(shop.answer(&asked, at(0)));
    let again: Value = serde_json::from_str(&again.body).unwrap();
    assert_eq!(again["data"]["productVariantsBulkUpdate"]["productVariants"][0]["price"], "3.00");
    assert_eq!(again["extensions"]["cost"]["throttleStatus"]["currentlyAvailable"], 1_000_000 - 20);
    assert_eq!(shop.changes().len(), 1);
}

#[test]
fn pages_with_cursors_fragments_aliases_and_conditions() {
    let mut shop = of(10, 0.0, settings(&[]));
    let query = r#"
      query Page($n: Int!, $after: String, $withSku: Boolean!) {
        page: productVariants(first: $n, after: $after) {
          edges { cursor node { ...Priced sku @include(if: $withSku) product { ... on Product { id } } } }
          pageInfo { hasNextPage endCursor }
        }
        __typename
      }
      fragment Priced on ProductVariant { id price __typename }"#;
    let (mut after, mut ids) = (Value::Null, Vec::new());
    loop {
        let asked = json!({ "query": query, "operationName": "Page",
            "variables": { "n": 4, "after": after, "withSku": ids.is_empty() } });
        let answer = post(&mut shop, &asked);
        for edge in answer["data"]["page"]["edges"].as_array().unwrap() {
            assert_eq!(edge["node"].get("sku").is_some(), ids.len() < 4, "{edge}");
            ids.push(edge["node"]["id"].as_str().unwrap().to_owned());
        }
        after = answer["data"]["page"]["pageInfo"]["endCursor"].clone();
        if answer["data"]["page"]["pageInfo"]["hasNextPage"] == false {
            break;
        }
    }
    let all: Vec<String> = (1..=10).map(|id| format!("gid://shopify/ProductVariant/{id}")).collect();
    assert_eq!(ids, all);
    let asked = json!({ "query": "{ product(id: \"gid://shopify/Product/3\") { variants(first: 5) { nodes { id } } } \
        none: productVariant(id: \"gid://shopify/ProductVariant/99\") { id } nodes(ids: [\"gid://shopify/Product/1\"]) { id } }" });
    let answer = post(&mut shop, &asked);
    assert_eq!(answer["data"]["product"]["variants"]["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(answer["data"]["none"], Value::Null);
    assert_eq!(answer["data"]["nodes"], json!([{ "id": "gid://shopify/Product/1" }]));
}

#[test]
fn what_is_wrong_with_a_document_is_said_and_nothing_is_done() {
    let mut shop = of(100, 0.0, settings(&[]));
    let deep = format!("{}id{}", "{a".repeat(40), "}".repeat(40));
    for (query, code, words) in [
        ("", "PARSE_ERROR", "no operation"),
        ("{", "PARSE_ERROR", "end of document"),
        ("{ a ( }", "PARSE_ERROR", "syntax error"),
        ("{ shop { name } } }", "PARSE_ERROR", "syntax error"),
        ("{ shop(a: \"x) { name } }", "PARSE_ERROR", "no end"),
        ("{ shop { } }", "PARSE_ERROR", "empty"),
        ("{ shop %}", "PARSE_ERROR", "unexpected"),
        (&deep, "PARSE_ERROR", "deeper than"),
        ("{ shop }", "selectionMismatch", "must have selections"),
        ("{ shop { name { x } } }", "selectionMismatch", "scalars"),
        ("{ shop { size } }", "undefinedField", "'size' doesn't exist on type 'Shop'"),
        ("{ orders { id } }", "undefinedField", "'orders' doesn't exist on type 'QueryRoot'"),
        (
            "mutation { orderDelete { id } }",
            "undefinedField",
            "'orderDelete' doesn't exist on type 'Mutation'",
        ),
        ("{ ...Gone }", "useAndDefineFragment", "Gone"),
        ("{ ...A } fragment A on X { ...A }", "infiniteLoop", "contain each other"),
        ("{ productVariants { nodes { id } } }", "BAD_REQUEST", "first"),
        ("{ productVariants(first: 251) { nodes { id } } }", "BAD_REQUEST", "from 1 to 250"),
        ("{ productVariants(first: 2, after: \"x\") { nodes { id } } }", "BAD_REQUEST", "no such cursor"),
        ("{ productVariants(first: 2, query: \"x\") { nodes { id } } }", "argumentNotAccepted", "query"),
        ("query($a: ID!) { productVariant(id: $a) { id } }", "INVALID_VARIABLE", "$a is needed"),
        ("query A { shop { name } } query B { shop { name } }", "BAD_REQUEST", "operationName"),
        ("{ shop { name @defer } }", "PARSE_ERROR", "@defer is not simulated"),
        ("{ productVariant { id } }", "missingRequiredArguments", "id"),
    ] {
        let answer = post(&mut shop, &json!({ "query": query }));
        let error = &answer["errors"][0];
        let message = error["message"].as_str().unwrap();
        assert!(error["extensions"]["code"] == code && message.contains(words), "{query}: {answer}");
    }
    // A second mutation that is wrong undoes the first.
    let both = r#"mutation { productVariantsBulkUpdate(productId: "gid://shopify/Product/1",
        variants: [{id: "gid://shopify/ProductVariant/1", price: 3.5}]) { userErrors { code } } gone }"#;
    assert!(post(&mut shop, &json!({ "query": both })).get("errors").is_some());
    assert!(shop.changes().is_empty());
    assert!(post(&mut shop, &json!({ "query": both.replace("gone", "__typename") })).get("errors").is_none());
    assert_eq!(shop.price_cents(1), Some(350));
    for body in [json!({}), json!({ "query": 1 }), json!({ "query": "{ shop { name } }", "variables": [] })] {
        assert_eq!(post(&mut shop, &body)["errors"][0]["extensions"]["code"], "BAD_REQUEST", "{body}");
    }
}
