//! Shopify's Admin GraphQL, made of the generic request: what a variant's price is, and how it is changed.

use serde_json::json;
use waypost_schema::Node;

use super::Builder;
use super::place::Place;
use crate::actions::Reads;
use crate::playbook::action::{BodyTemplate, HttpTemplate, JsonTemplate};
use crate::playbook::template::Template;

const VERSION: &str = "2025-07";

/// One variant a call: the target's key is the call's, so that a change whose answer was lost is not made twice.
const MUTATION: &str = "mutation ($productId: ID!, $variants: [ProductVariantsBulkInput!]!) { productVariantsBulkUpdate(productId: $productId, variants: $variants) { productVariants { id price } userErrors { field message code } } }";
const QUERY: &str = "query ($id: ID!) { productVariant(id: $id) { id price } }";

impl Builder<'_> {
    /// Where the query answers with the price.
    pub(super) const PRICE: &'static str = "/data/productVariant/price";

    pub(super) fn price_mutation(&mut self, node: &Node) -> HttpTemplate {
        self.mutation(node, "after")
    }

    /// The same with what it was.
    pub(super) fn price_back(&mut self, node: &Node) -> HttpTemplate {
        self.mutation(node, "before")
    }

    fn mutation(&mut self, node: &Node, value: &str) -> HttpTemplate {
        let text = |source: String| JsonTemplate::Text(Template::parse(&source).unwrap_or_default());
        let variant = vec![
            ("id".to_owned(), text(gid(node, "variant", "id", "ProductVariant"))),
            ("price".to_owned(), text(format!("{{{{ target.{value}|string }}}}"))),
        ];
        let variables = vec![
            ("productId".to_owned(), text(gid(node, "product", "product_id", "Product"))),
            ("variants".to_owned(), JsonTemplate::List(vec![JsonTemplate::Object(variant)])),
        ];
        self.graphql(node, MUTATION, variables)
    }

    pub(super) fn price_query(&mut self, node: &Node) -> HttpTemplate {
        let id = Template::parse(&gid(node, "variant", "id", "ProductVariant")).unwrap_or_default();
        self.graphql(node, QUERY, vec![("id".to_owned(), JsonTemplate::Text(id))])
    }

    fn graphql(&mut self, node: &Node, query: &str, variables: Vec<(String, JsonTemplate)>) -> HttpTemplate {
        let place = Place::with_target();
        let version = node.of::<String>("version").unwrap_or_else(|| VERSION.to_owned());
        let url = node.get("shop").map(|shop| {
            let source = format!("{}/admin/api/{version}/graphql.json", shop.text().trim_end_matches('/'));
            self.url_of(shop, &source, &place)
        });
        let token = node.get("token").map(|token| {
            self.not_empty(token);
            self.template(token, &place.open_to_secrets())
        });
        HttpTemplate {
            method: "POST".to_owned(),
            url: url.unwrap_or_default(),
            headers: vec![("X-Shopify-Access-Token".to_owned(), token.unwrap_or_default())],
            body: BodyTemplate::Json(JsonTemplate::Object(vec![
                ("query".to_owned(), JsonTemplate::Plain(json!(query))),
                ("variables".to_owned(), JsonTemplate::Object(variables)),
            ])),
            allow_private: node.of("allow_private").unwrap_or(false),
            reads: Reads::Outcome,
        }
    }
}

/// Shopify's id of what a member of the target names, which may be one already.
fn gid(node: &Node, key: &str, usual: &str, kind: &str) -> String {
    let member = node.of::<String>(key).unwrap_or_else(|| usual.to_owned());
    let prefix = format!("gid://shopify/{kind}/");
    format!("{prefix}{{{{ target[\"{member}\"]|string|replace('{prefix}', '') }}}}")
}
