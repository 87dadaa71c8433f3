//! What the shop sells: made of a seed, so that it need not be stored.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::money;
use crate::serving::hash;

/// A shop of this many is more than memory and anybody's patience have room for.
const MAX_PRODUCTS: u64 = 5_000_000;

/// What a shop stays; `shop.json` keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    pub seed: u64,
    pub products: u64,
    pub variants_per_product: u64,
    /// Shares of all products.
    pub archived: f64,
    pub free: f64,
}

/// What was said about it; what was not is as it is, or the default.
#[derive(Clone, Debug, Default)]
pub struct CatalogueFlags {
    pub seed: Option<u64>,
    pub products: Option<u64>,
    pub variants_per_product: Option<u64>,
    pub archived: Option<f64>,
    pub free: Option<f64>,
}

impl CatalogueFlags {
    pub fn catalogue(&self) -> Result<Catalogue, String> {
        let catalogue = Catalogue {
            seed: self.seed.unwrap_or(1),
            products: self.products.unwrap_or(1_000),
            variants_per_product: self.variants_per_product.unwrap_or(4),
            archived: self.archived.unwrap_or(0.0),
            free: self.free.unwrap_or(0.01),
        };
        if !(1..=MAX_PRODUCTS).contains(&catalogue.products) {
            return Err(format!("products: {} is not from 1 to {MAX_PRODUCTS}", catalogue.products));
        }
        if !(1..=100).contains(&catalogue.variants_per_product) {
            let given = catalogue.variants_per_product;
            return Err(format!("variants-per-product: {given} is not from 1 to 100"));
        }
        Ok(catalogue)
    }

    pub fn agree_with(&self, kept: &Catalogue) -> Result<(), String> {
        let whole = |name: &str, given: Option<u64>, kept: u64| match given {
            Some(given) if given != kept => Err(format!("its {name}: {kept}, and {given} was given")),
            _ => Ok(()),
        };
        let share = |name: &str, given: Option<f64>, kept: f64| match given {
            Some(given) if given != kept => Err(format!("its {name}: {kept}, and {given} was given")),
            _ => Ok(()),
        };
        whole("seed", self.seed, kept.seed)?;
        whole("products", self.products, kept.products)?;
        whole("variants-per-product", self.variants_per_product, kept.variants_per_product)?;
        share("archived", self.archived, kept.archived)?;
        share("free", self.free, kept.free)
    }
}

#[derive(Clone, Debug)]
pub struct Product {
    pub price_cents: i64,
    pub is_archived: bool,
    /// How often its price was changed, by whomever.
    pub version: u64,
    pub changed_at_ms: Option<u64>,
}

impl Product {
    pub fn change(&mut self, to_cents: i64, at_ms: u64) {
        self.price_cents = to_cents;
        self.version += 1;
        self.changed_at_ms = Some(at_ms);
    }
}

impl Catalogue {
    pub fn products(&self) -> Vec<Product> {
        (1..=self.products).map(|id| self.product(id)).collect()
    }

    fn product(&self, id: u64) -> Product {
        let id = id.to_string();
        let drawn = |name| hash(self.seed, name, &id);
        let is_in = |name, share| (drawn(name) as f64 / u64::MAX as f64) < share;
        // From 1.00 to 200.99.
        let price_cents = 100 + (drawn("price") % 20_000) as i64;
        Product {
            price_cents: if is_in("free", self.free) { 0 } else { price_cents },
            is_archived: is_in("archived", self.archived),
            version: 0,
            changed_at_ms: None,
        }
    }

    /// Products are numbered from 1.
    pub fn index(&self, id: u64) -> Option<usize> {
        (1..=self.products).contains(&id).then(|| id as usize - 1)
    }

    /// Which of GraphQL's products it is a variant of.
    pub fn parent(&self, id: u64) -> u64 {
        (id - 1) / self.variants_per_product + 1
    }

    pub fn parents(&self) -> u64 {
        self.products.div_ceil(self.variants_per_product)
    }

    pub fn variants(&self, parent: u64) -> std::ops::RangeInclusive<u64> {
        let first = (parent - 1) * self.variants_per_product + 1;
        first..=(first + self.variants_per_product - 1).min(self.products)
    }
}

pub fn sku(id: u64) -> String {
    format!("SKU-{id:06}")
}

pub fn timestamp(at_ms: Option<u64>) -> Value {
    let at = at_ms.and_then(|ms| jiff::Timestamp::from_millisecond(ms as i64).ok());
    at.map_or(Value::Null, |at| json!(at.to_string()))
}

/// As REST shows it.
pub fn shown(catalogue: &Catalogue, id: u64, product: &Product) -> Value {
    json!({
        "id": id,
        "product_id": catalogue.parent(id),
        "title": format!("Product {id}"),
        "sku": sku(id),
        "price": money::shown(product.price_cents),
        "unit_amount": product.price_cents,
        "currency": "EUR",
        "archived": product.is_archived,
        "version": product.version,
        "updated_at": timestamp(product.changed_at_ms),
    })
}
