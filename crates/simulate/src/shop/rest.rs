//! The shop's own routes.

use serde_json::{Value, json};

use super::calls::{Done, Intent};
use super::stats::Api;
use super::{Shop, catalogue, graphql, money};
use crate::serving::{Answer, Asked, Reply, Route, hash};

const MAX_PAGE: u64 = 250;

pub const ROUTES: &[Route<Shop>] = &[
    Route {
        method: "GET",
        path: "/products",
        what: "A page of products in the order of their ids: `limit` (50, at most 250), `after` (an id), `archived` (`true` or `false`). `next` and the header `Link` lead on.",
        act: list,
    },
    Route { method: "GET", path: "/products/{id}", what: "One product.", act: show },
    Route {
        method: "PUT",
        path: "/products/{id}",
        what: "Sets its price: `price` (`\"12.99\"` or `12.99`) or `unit_amount` (`1299`). 404 `PRODUCT_NOT_FOUND`, 422 `INVALID_PRICE` or `VARIANT_ARCHIVED`. Takes an `Idempotency-Key`.",
        act: put,
    },
    Route {
        method: "POST",
        path: "/graphql",
        what: "GraphQL: `{\"query\", \"variables\", \"operationName\"}`. Mutations take an `Idempotency-Key`.",
        act: graphql::post,
    },
    Route {
        method: "POST",
        path: "/admin/api/{version}/graphql.json",
        what: "The same at Shopify's path.",
        act: graphql::post,
    },
];

fn intent(products: Vec<u64>, is_change: bool) -> Intent {
    Intent { api: Api::Rest, products, is_change, cost: 0.0 }
}

fn list(shop: &mut Shop, asked: &Asked<'_>) -> Reply {
    let Asked { request, now, .. } = asked;
    shop.perform(request, *now, &intent(Vec::new(), false), |shop, _| {
        Done::looked(page(shop, asked).unwrap_or_else(|problem| Answer::bad_request(&problem)))
    })
}

fn page(shop: &Shop, asked: &Asked<'_>) -> Result<Answer, String> {
    let request = asked.request;
    request.only(&["limit", "after", "archived"])?;
    let limit = request.number("limit")?.unwrap_or(50);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(format!("limit={limit}: from 1 to {MAX_PAGE}"));
    }
    let after = request.number("after")?.unwrap_or(0);
    let archived = match request.text("archived") {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(other) => return Err(format!("archived={other}: true or false")),
    };
    let first = after.min(shop.catalogue.products) as usize;
    let mut products = shop.products[first..]
        .iter()
        .enumerate()
        .map(|(at, product)| ((first + at) as u64 + 1, product))
        .filter(|(_, product)| archived.is_none_or(|archived| archived == product.is_archived));
    let found: Vec<(u64, Value)> = products
        .by_ref()
        .take(limit as usize)
        .map(|(id, product)| (id, catalogue::shown(&shop.catalogue, id, product)))
        .collect();
    let filter = archived.map(|archived| format!("&archived={archived}")).unwrap_or_default();
    let next = products.next().and(found.last());
    let next = next.map(|(last, _)| format!("/products?limit={limit}&after={last}{filter}"));
    let shown: Vec<Value> = found.into_iter().map(|(_, shown)| shown).collect();
    let answer = Answer::ok(&json!({ "products": shown, "next": next }));
    Ok(match next {
        Some(next) => answer.with("link", format!("<{next}>; rel=\"next\"")),
        None => answer,
    })
}

/// What is no number is no product.
fn id_of(asked: &Asked<'_>) -> Option<u64> {
    asked.parts.first()?.parse().ok()
}

fn show(shop: &mut Shop, asked: &Asked<'_>) -> Reply {
    let id = id_of(asked);
    shop.perform(asked.request, asked.now, &intent(id.into_iter().collect(), false), |shop, _| {
        Done::looked(match id.and_then(|id| Some((id, product(shop, id)?))) {
            Some((id, product)) => Answer::ok(&catalogue::shown(&shop.catalogue, id, product)),
            None => unknown(asked),
        })
    })
}

fn product(shop: &Shop, id: u64) -> Option<&catalogue::Product> {
    shop.products.get(shop.catalogue.index(id)?)
}

fn unknown(asked: &Asked<'_>) -> Answer {
    let id = asked.parts.first().copied().unwrap_or_default();
    Answer::refusal(404, "PRODUCT_NOT_FOUND", &format!("there is no product {id}"))
}

fn put(shop: &mut Shop, asked: &Asked<'_>) -> Reply {
    let id = id_of(asked);
    shop.perform(asked.request, asked.now, &intent(id.into_iter().collect(), true), |shop, refused| {
        match change(shop, asked, id, refused) {
            Ok(done) => done,
            Err(refusal) => Done::looked(refusal),
        }
    })
}

fn change(shop: &Shop, asked: &Asked<'_>, id: Option<u64>, refused: &[u64]) -> Result<Done, Answer> {
    let (id, product) = id.and_then(|id| Some((id, product(shop, id)?))).ok_or_else(|| unknown(asked))?;
    let body = asked.request.json().map_err(|problem| Answer::bad_request(&problem))?;
    let price_cents = price(&body).map_err(|problem| Answer::refusal(422, "INVALID_PRICE", &problem))?;
    if refused.contains(&id) {
        return Err(refused_for_good(shop.settings.seed, id));
    }
    if product.is_archived {
        return Err(Answer::refusal(422, "VARIANT_ARCHIVED", &format!("product {id} is archived")));
    }
    let mut changed = product.clone();
    changed.change(price_cents, asked.now.unix_ms);
    let answer = Answer::ok(&catalogue::shown(&shop.catalogue, id, &changed));
    Ok(Done { answer, changes: vec![(id, price_cents)], cost: 0.0 })
}

/// Of two kinds, so that reports have something to group.
fn refused_for_good(seed: u64, id: u64) -> Answer {
    if hash(seed, "refusal", &id.to_string()).is_multiple_of(3) {
        return Answer::refusal(403, "PERMISSION_DENIED", &format!("product {id} is not yours to change"));
    }
    Answer::refusal(422, "INVALID_PRICE", &format!("product {id} takes no such price"))
}

fn price(body: &Value) -> Result<i64, String> {
    let Some(body) = body.as_object() else { return Err("the body is an object with a price".to_owned()) };
    if let Some(name) = body.keys().find(|name| !["price", "unit_amount"].contains(&name.as_str())) {
        return Err(format!("{name} is unknown: price or unit_amount"));
    }
    let from_price = body.get("price").map(money::parse).transpose()?;
    let amount = |value: &Value| {
        value
            .as_i64()
            .ok_or_else(|| "unit_amount: a whole number of cents".to_owned())
            .and_then(money::bounded)
    };
    let from_amount = body.get("unit_amount").map(amount).transpose()?;
    match (from_price, from_amount) {
        (None, None) => Err("price or unit_amount is missing".to_owned()),
        (Some(price), Some(amount)) if price != amount => {
            Err(format!("price is {price} cents and unit_amount {amount}: give one of them"))
        }
        (Some(cents), _) | (None, Some(cents)) => Ok(cents),
    }
}
