//! What the shop answers to GraphQL's fields.

use std::collections::HashMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Map, Value, json};

use super::select::{Problem, undefined};
use crate::shop::catalogue::{sku, timestamp};
use crate::shop::{Shop, money};

const VARIANT: &str = "gid://shopify/ProductVariant/";
const PRODUCT: &str = "gid://shopify/Product/";
const MAX_PAGE: u64 = 250;

/// What one of the operation's own fields costs at most, before it is done.
pub fn requested_cost(is_mutation: bool, name: &str, arguments: &Map<String, Value>) -> f64 {
    match name {
        _ if is_mutation => 10.0,
        "productVariants" | "products" => 2.0 + arguments.get("first").and_then(Value::as_f64).unwrap_or(0.0),
        "nodes" => arguments.get("ids").and_then(Value::as_array).map_or(1.0, |ids| ids.len() as f64),
        "__typename" => 0.0,
        _ => 1.0,
    }
}

/// The products that a mutation is about.
pub fn touched(arguments: &Map<String, Value>) -> Vec<u64> {
    let variants = arguments.get("variants").and_then(Value::as_array);
    let id_of = |variant: &Value| number(variant.get("id")?.as_str()?, VARIANT);
    variants.into_iter().flatten().filter_map(id_of).collect()
}

fn number(gid: &str, prefix: &str) -> Option<u64> {
    gid.strip_prefix(prefix)?.parse().ok()
}

/// A look at the shop in which the changes of this very request are made already.
pub struct Execution<'a> {
    pub shop: &'a Shop,
    /// Those that are refused for good.
    pub refused: &'a [u64],
    pub now_ms: u64,
    pub changes: Vec<(u64, i64)>,
    pub overlay: HashMap<u64, i64>,
    /// How many objects were found.
    pub found: u64,
}

impl Execution<'_> {
    pub fn query(&mut self, name: &str, arguments: &Map<String, Value>) -> Result<Value, Problem> {
        match name {
            "productVariants" => {
                allow(name, arguments, &["first", "after"])?;
                let last = self.shop.catalogue.products;
                self.page("ProductVariant", last, arguments, Execution::variant)
            }
            "products" => {
                allow(name, arguments, &["first", "after"])?;
                let last = self.shop.catalogue.parents();
                self.page("Product", last, arguments, Execution::product)
            }
            "productVariant" | "product" | "node" => {
                allow(name, arguments, &["id"])?;
                let gid = arguments.get("id").and_then(Value::as_str).ok_or_else(|| missing(name, "id"))?;
                self.found += 1;
                Ok(self.node(gid))
            }
            "nodes" => {
                allow(name, arguments, &["ids"])?;
                let ids =
                    arguments.get("ids").and_then(Value::as_array).ok_or_else(|| missing(name, "ids"))?;
                if ids.len() as u64 > MAX_PAGE {
                    return Err(Problem::new("argumentLiteralsIncompatible", "ids: 250 at most"));
                }
                self.found += ids.len() as u64;
                Ok(ids.iter().map(|id| self.node(id.as_str().unwrap_or_default())).collect())
            }
            "shop" => {
                self.found += 1;
                Ok(json!({ "__typename": "Shop", "name": "Simulated shop", "currencyCode": "EUR" }))
            }
            "__typename" => Ok(json!("QueryRoot")),
            _ => Err(undefined(name, "QueryRoot")),
        }
    }

    fn node(&self, gid: &str) -> Value {
        if let Some(id) = number(gid, VARIANT) {
            return self.variant(id);
        }
        number(gid, PRODUCT).map_or(Value::Null, |id| self.product(id))
    }

    fn page(
        &mut self,
        kind: &str,
        last: u64,
        arguments: &Map<String, Value>,
        node: impl Fn(&Self, u64) -> Value,
    ) -> Result<Value, Problem> {
        let first =
            arguments.get("first").and_then(Value::as_u64).filter(|first| (1..=MAX_PAGE).contains(first));
        let first =
            first.ok_or_else(|| Problem::new("BAD_REQUEST", "first: a number from 1 to 250 is needed"))?;
        let after = match arguments.get("after").filter(|after| !after.is_null()) {
            None => 0,
            Some(cursor) => {
                place(cursor).ok_or_else(|| Problem::new("BAD_REQUEST", "after: no such cursor"))?
            }
        };
        let end = after.saturating_add(first).min(last);
        let ids = after + 1..=end;
        self.found += end.saturating_sub(after);
        let nodes: Vec<Value> = ids.clone().map(|id| node(self, id)).collect();
        Ok(connection(kind, ids, &nodes, after > 0, end < last))
    }

    fn price_cents(&self, id: u64) -> Option<i64> {
        self.overlay.get(&id).copied().or_else(|| self.shop.price_cents(id))
    }

    fn variant(&self, id: u64) -> Value {
        if self.shop.catalogue.index(id).is_none() {
            return Value::Null;
        }
        let mut variant = self.plain_variant(id);
        variant["product"] = self.plain_product(self.shop.catalogue.parent(id));
        variant
    }

    fn plain_variant(&self, id: u64) -> Value {
        let product = self.shop.catalogue.index(id).and_then(|at| self.shop.products.get(at));
        let changed_at_ms = if self.overlay.contains_key(&id) {
            Some(self.now_ms)
        } else {
            product.and_then(|it| it.changed_at_ms)
        };
        json!({
            "__typename": "ProductVariant",
            "id": format!("{VARIANT}{id}"),
            "legacyResourceId": id.to_string(),
            "title": format!("Product {id}"),
            "displayName": format!("Product {id}"),
            "sku": sku(id),
            "price": money::shown(self.price_cents(id).unwrap_or_default()),
            "compareAtPrice": null,
            "availableForSale": product.is_some_and(|product| !product.is_archived),
            "updatedAt": timestamp(changed_at_ms),
        })
    }

    fn product(&self, parent: u64) -> Value {
        if !(1..=self.shop.catalogue.parents()).contains(&parent) {
            return Value::Null;
        }
        let ids = self.shop.catalogue.variants(parent);
        let nodes: Vec<Value> = ids.clone().map(|id| self.plain_variant(id)).collect();
        let mut product = self.plain_product(parent);
        product["variants"] = connection("ProductVariant", ids, &nodes, false, false);
        product
    }

    fn plain_product(&self, parent: u64) -> Value {
        let is_archived = self
            .shop
            .catalogue
            .variants(parent)
            .all(|id| self.shop.catalogue.index(id).is_some_and(|at| self.shop.products[at].is_archived));
        json!({
            "__typename": "Product",
            "id": format!("{PRODUCT}{parent}"),
            "legacyResourceId": parent.to_string(),
            "title": format!("Product {parent}"),
            "handle": format!("product-{parent}"),
            "status": if is_archived { "ARCHIVED" } else { "ACTIVE" },
        })
    }

    pub fn mutation(&mut self, name: &str, arguments: &Map<String, Value>) -> Result<Value, Problem> {
        match name {
            "productVariantsBulkUpdate" => self.bulk_update(name, arguments),
            "__typename" => Ok(json!("Mutation")),
            _ => Err(undefined(name, "Mutation")),
        }
    }

    fn bulk_update(&mut self, name: &str, arguments: &Map<String, Value>) -> Result<Value, Problem> {
        allow(name, arguments, &["productId", "variants", "allowPartialUpdates"])?;
        let gid =
            arguments.get("productId").and_then(Value::as_str).ok_or_else(|| missing(name, "productId"))?;
        let variants = arguments.get("variants").and_then(Value::as_array);
        let variants = variants.ok_or_else(|| missing(name, "variants"))?;
        let is_partial = arguments.get("allowPartialUpdates").and_then(Value::as_bool).unwrap_or(false);
        let parent = number(gid, PRODUCT).filter(|id| (1..=self.shop.catalogue.parents()).contains(id));
        let Some(parent) = parent else {
            let error = user_error(&json!(["productId"]), "PRODUCT_DOES_NOT_EXIST", "Product does not exist");
            return Ok(updated(&Value::Null, &Value::Null, &[error]));
        };
        let (mut wanted, mut errors) = (Vec::new(), Vec::new());
        for (at, variant) in variants.iter().enumerate() {
            match self.wanted(parent, at, variant)? {
                Ok(change) if wanted.iter().any(|(id, _)| *id == change.0) => errors.push(user_error(
                    &json!(["variants", at.to_string(), "id"]),
                    "INVALID_INPUT",
                    "The same variant stands here twice",
                )),
                Ok(change) => wanted.push(change),
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() && !is_partial {
            return Ok(updated(&self.product(parent), &Value::Null, &errors));
        }
        for &(id, price_cents) in &wanted {
            self.changes.retain(|(other, _)| *other != id);
            self.changes.push((id, price_cents));
            self.overlay.insert(id, price_cents);
        }
        let changed: Vec<Value> = wanted.iter().map(|(id, _)| self.variant(*id)).collect();
        Ok(updated(&self.product(parent), &Value::Array(changed), &errors))
    }

    /// What one variant's input asks for, or why not; the outer error is the document's.
    fn wanted(&self, parent: u64, at: usize, input: &Value) -> Result<Result<(u64, i64), Value>, Problem> {
        let fields = input.as_object().ok_or_else(|| missing("productVariantsBulkUpdate", "variants"))?;
        if let Some(name) = fields.keys().find(|name| !["id", "price"].contains(&name.as_str())) {
            return Err(undefined(name, "ProductVariantsBulkInput"));
        }
        let field = |name: &str| json!(["variants", at.to_string(), name]);
        let gid = fields.get("id").and_then(Value::as_str).unwrap_or_default();
        let id = number(gid, VARIANT).filter(|id| self.shop.catalogue.variants(parent).contains(id));
        let Some((id, index)) = id.and_then(|id| Some((id, self.shop.catalogue.index(id)?))) else {
            let message = "Product variant does not exist";
            return Ok(Err(user_error(&field("id"), "PRODUCT_VARIANT_DOES_NOT_EXIST", message)));
        };
        let price_cents = match fields.get("price").map(money::parse) {
            Some(Ok(price_cents)) => price_cents,
            Some(Err(problem)) if problem.contains("negative") => {
                return Ok(Err(user_error(&field("price"), "NEGATIVE_PRICE_VALUE", &problem)));
            }
            Some(Err(problem)) => return Ok(Err(user_error(&field("price"), "INVALID_INPUT", &problem))),
            None => {
                return Ok(Err(user_error(&field("price"), "NEED_TO_ADD_OPTION_VALUES", "price is missing")));
            }
        };
        if self.refused.contains(&id) {
            let message = format!("Product variant {id} takes no such price");
            return Ok(Err(user_error(&field("price"), "INVALID_INPUT", &message)));
        }
        if self.shop.products[index].is_archived {
            let message = format!("Product variant {id} is archived");
            return Ok(Err(user_error(&field("id"), "VARIANT_ARCHIVED", &message)));
        }
        Ok(Ok((id, price_cents)))
    }
}

fn missing(field: &str, argument: &str) -> Problem {
    let message = format!("Field '{field}' is missing required arguments: {argument}");
    Problem::new("missingRequiredArguments", message)
}

fn allow(field: &str, arguments: &Map<String, Value>, known: &[&str]) -> Result<(), Problem> {
    match arguments.iter().find(|(name, value)| !known.contains(&name.as_str()) && !value.is_null()) {
        Some((name, _)) => {
            let message = format!("Field '{field}' doesn't accept argument '{name}', or it is not simulated");
            Err(Problem::new("argumentNotAccepted", message))
        }
        None => Ok(()),
    }
}

fn user_error(field: &Value, code: &str, message: &str) -> Value {
    json!({
        "__typename": "ProductVariantsBulkUpdateUserError",
        "field": field, "code": code, "message": message,
    })
}

fn updated(product: &Value, variants: &Value, errors: &[Value]) -> Value {
    json!({
        "__typename": "ProductVariantsBulkUpdatePayload",
        "product": product, "productVariants": variants, "userErrors": errors,
    })
}

fn cursor(id: u64) -> String {
    BASE64_STANDARD.encode(format!("after {id}"))
}

fn place(cursor: &Value) -> Option<u64> {
    let text = String::from_utf8(BASE64_STANDARD.decode(cursor.as_str()?).ok()?).ok()?;
    text.strip_prefix("after ")?.parse().ok()
}

fn connection(
    kind: &str,
    ids: std::ops::RangeInclusive<u64>,
    nodes: &[Value],
    has_previous: bool,
    has_next: bool,
) -> Value {
    let (first, last) = (cursor(*ids.start()), cursor(*ids.end()));
    let (start, end) =
        if nodes.is_empty() { (Value::Null, Value::Null) } else { (json!(first), json!(last)) };
    let edge = |(id, node): (u64, &Value)| json!({ "__typename": format!("{kind}Edge"), "cursor": cursor(id), "node": node });
    let edges: Vec<Value> = ids.zip(nodes).map(edge).collect();
    json!({
        "__typename": format!("{kind}Connection"),
        "edges": edges,
        "nodes": nodes,
        "pageInfo": {
            "__typename": "PageInfo",
            "hasNextPage": has_next, "hasPreviousPage": has_previous,
            "startCursor": start, "endCursor": end,
        },
    })
}
