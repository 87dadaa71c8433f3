//! Where an answer leads: what it hands out is what other routes ask for. Made of the table of routes, as OpenAPI links.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use waypost_schema::{Field, Kind, Shape};

use crate::api::{self, Content, Route, RouteResponse};

/// Links of one answer, by the operation that each leads to.
pub fn links(route: &Route, response: &RouteResponse) -> Map<String, Value> {
    let Content::Json(shape) = response.body else { return Map::new() };
    let found = api::documented().filter_map(|to| Some((to.name.to_owned(), link(route, shape, to)?)));
    found.collect()
}

/// None, unless all that `to` needs is there, and something of it is news to who asked.
fn link(from: &Route, shape: &'static Shape, to: &Route) -> Option<Value> {
    let in_path: Vec<(&str, String)> =
        names_in(to.path).map(|name| Some((name, place(from, shape, to, name)?))).collect::<Option<_>>()?;
    let token = to.body.and_then(|body| body.fields.iter().find(|field| field.name == "lease_token"));
    let in_body = match token {
        Some(field) => vec![(field.name, place(from, shape, to, field.name)?)],
        None => Vec::new(),
    };
    let is_news =
        |(name, _): &(&str, String)| *name != "command" && !names_in(from.path).any(|it| it == *name);
    if !in_path.iter().chain(&in_body).any(is_news) {
        return None;
    }
    let members = |places: Vec<(&str, String)>| -> Map<String, Value> {
        let member = |(name, pointer): (&str, String)| {
            (name.to_owned(), Value::from(format!("$response.body#{pointer}")))
        };
        places.into_iter().map(member).collect()
    };
    let mut link = json!({ "operationId": to.name, "parameters": members(in_path) });
    if !in_body.is_empty() {
        link["requestBody"] = members(in_body).into();
    }
    Some(link)
}

pub fn names_in(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// Where the answer has what is asked for. A plain `name` is looked for among routes of the same noun only.
fn place(from: &Route, shape: &Shape, to: &Route, name: &str) -> Option<String> {
    let noun = |route: &Route| route.path.split('/').nth(2);
    let is_plain = !name.contains('_');
    if ALIASES.contains(&name) {
        return find(shape, &|field| field.aliases.contains(&name));
    }
    let may_be_it = !is_plain || noun(from) == noun(to);
    find(shape, &|field| field.name == name && field.is_needed).filter(|_| may_be_it)
}

/// What answers call otherwise than the routes that ask for it.
static ALIASES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let mut shapes: Vec<&'static Shape> = Vec::new();
    for response in api::documented().flat_map(|route| route.responses) {
        if let Content::Json(shape) = response.body {
            shape.parts(&mut shapes);
        }
    }
    shapes.iter().flat_map(|shape| shape.fields).flat_map(|field| field.aliases).copied().collect()
});

fn find(shape: &Shape, is_it: &dyn Fn(&Field) -> bool) -> Option<String> {
    let here = |field: &&Field| is_it(field);
    let found = shape.fields.iter().find(here).map(|field| match field.kind {
        // Of several the first.
        Kind::List { .. } => format!("/{}/0", field.name),
        _ => format!("/{}", field.name),
    });
    let deeper = |field: &Field| Some(format!("/{}{}", field.name, inside(&field.kind, is_it)?));
    found.or_else(|| shape.fields.iter().find_map(deeper))
}

/// Of a list, in its first entry.
fn inside(kind: &Kind, is_it: &dyn Fn(&Field) -> bool) -> Option<String> {
    match kind {
        Kind::Of(shape) => find(shape, is_it),
        Kind::List { of, .. } => Some(format!("/0{}", inside(of, is_it)?)),
        _ => None,
    }
}
