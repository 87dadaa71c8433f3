//! The table of routes as OpenAPI 3.1.

use serde_json::{Map, Value, json};
use waypost_kernel::Code;
use waypost_schema::render::{component, of_field};
use waypost_schema::{Field, Shape};

use crate::api::{self, Content, EVENT_STREAM, Route, RouteResponse};
use crate::guard::RequiredRole;
use crate::links::{links, names_in};
use crate::problem::{self, Reason};

/// What any request can meet; `a body` only those that have one.
const ALWAYS: &[&Reason] = &[
    &problem::INVALID_QUERY,
    &problem::UNAUTHENTICATED,
    &problem::FORBIDDEN,
    &problem::CROSS_ORIGIN,
    &problem::RATE_LIMITED,
    &problem::INTERNAL_ERROR,
    &problem::UNAVAILABLE,
    &problem::UNUSABLE,
    &problem::BUSY,
];
const WITH_A_BODY: &[&Reason] = &[
    &problem::INVALID_JSON,
    &problem::TIMED_OUT,
    &problem::TOO_LARGE,
    &problem::UNSUPPORTED_MEDIA_TYPE,
    &problem::INVALID_INPUT,
];

/// Everything that a route may be refused with, as (code, status, meaning).
pub fn refusals(route: &Route) -> Vec<(&'static str, u16, &'static str)> {
    let mut reasons: Vec<&Reason> = ALWAYS.to_vec();
    if route.body.is_some() || route.is_raw {
        reasons.extend(WITH_A_BODY);
    }
    if route.path.contains('{') || !route.query.is_empty() {
        reasons.push(&problem::INVALID_INPUT);
    }
    reasons.extend(route.refuses);
    let mut all: Vec<_> =
        reasons.iter().map(|reason| (reason.code, reason.status, reason.description)).collect();
    if route.may_conflict {
        let kernels = Code::ALL.into_iter().filter(|code| *code != Code::InvalidInput);
        all.extend(kernels.map(|code| (code.name(), 409, code.meaning())));
    }
    all.sort_by_key(|(code, status, _)| (*status, *code));
    all.dedup();
    all
}

pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    let mut asked: Vec<&'static Shape> = Vec::new();
    let mut given: Vec<&'static Shape> = Vec::new();
    for route in api::documented() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.name().to_lowercase()] = operation(route);
        route.body.into_iter().for_each(|shape| shape.parts(&mut asked));
        for response in route.responses {
            if let Content::Json(shape) = response.body {
                shape.parts(&mut given);
            }
        }
    }
    let mut schemas: Map<String, Value> =
        given.iter().map(|shape| (shape.name.to_owned(), component(shape, true))).collect();
    schemas.extend(asked.iter().map(|shape| (shape.name.to_owned(), component(shape, false))));
    schemas.insert("Problem".into(), problem_schema());
    schemas.insert("Envelope".into(), envelope_schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Waypost",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs that move along declared lifecycles. Times are UTC; errors are application/problem+json with a stable `code`.",
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route) -> Value {
    let in_path = names_in(route.path).map(|name| {
        json!({
            "name": name, "in": "path", "required": true,
            "schema": { "type": "string", "minLength": 1, "maxLength": 512 },
        })
    });
    let parameters: Vec<Value> = in_path
        .chain(route.query.iter().map(|field| parameter("query", field)))
        .chain(route.headers.iter().map(|field| parameter("header", field)))
        .collect();
    let mut responses: Map<String, Value> = route
        .responses
        .iter()
        .map(|response| (response.status.to_string(), described(route, response)))
        .collect();
    let (kind, schema) = match route.is_front {
        true => ("application/json", "#/components/schemas/Envelope"),
        false => ("application/problem+json", "#/components/schemas/Problem"),
    };
    for (code, status, about) in refusals(route) {
        let known = responses.entry(status.to_string()).or_insert_with(|| {
            json!({
                "description": "",
                "content": { kind: { "schema": { "$ref": schema } } },
            })
        });
        let before = known["description"].as_str().unwrap_or_default();
        let after = if before.is_empty() { String::new() } else { format!("{before}; ") };
        known["description"] = format!("{after}{code}: {about}").into();
        known["content"][kind]["schema"]["$ref"] = schema.into();
    }
    let mut operation = json!({
        "operationId": route.name,
        "deprecated": route.is_deprecated,
        "summary": route.description,
        "parameters": parameters,
        "responses": responses,
        "x-waypost-role": role(route.required_role),
    });
    if let Some(shape) = route.body {
        operation["requestBody"] = json!({
            "required": shape.fields.iter().any(|field| field.is_needed),
            "content": { "application/json": { "schema": { "$ref": format!("#/components/schemas/{}", shape.name) } } },
        });
    }
    if route.is_raw {
        operation["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": { "type": "object" } } },
        });
    }
    if route.required_role == RequiredRole::Nothing {
        operation["security"] = json!([]);
    }
    operation
}

pub fn role(required_role: RequiredRole) -> &'static str {
    match required_role {
        RequiredRole::Nothing => "none",
        RequiredRole::Read => "viewer, operator, worker or admin",
        RequiredRole::Operate => "operator or admin",
        RequiredRole::Work => "worker or admin",
        RequiredRole::Admin => "admin",
    }
}

fn parameter(place: &str, field: &Field) -> Value {
    let mut parameter = json!({
        "name": field.name,
        "in": place,
        "required": field.is_needed,
        "description": field.description,
        "schema": of_field(field),
    });
    if place == "query" {
        // As if it were left out.
        parameter["allowEmptyValue"] = true.into();
    }
    parameter
}

fn described(route: &Route, response: &RouteResponse) -> Value {
    let content = match response.body {
        Content::Nothing => return json!({ "description": response.description }),
        Content::Json(shape) => {
            json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{}", shape.name) } } })
        }
        Content::AnyJson => json!({ "application/json": { "schema": { "type": "object" } } }),
        Content::Text(kind) => json!({ kind: { "schema": { "type": "string" } } }),
        // Before 3.2 the schema of a stream is that of each of its events.
        Content::Events => json!({ EVENT_STREAM: { "schema": event_schema() } }),
    };
    let mut object = json!({ "description": response.description, "content": content });
    let links = links(route, response);
    if !links.is_empty() {
        object["links"] = links.into();
    }
    object
}

/// A server-sent event, by its fields.
fn event_schema() -> Value {
    json!({
        "type": "object",
        "required": ["data"],
        "properties": {
            "id": { "type": "string" },
            "event": { "type": "string" },
            "data": { "type": "string", "contentMediaType": "application/json" },
        },
    })
}

/// What front ends of agents are told.
fn envelope_schema() -> Value {
    json!({
        "type": "object",
        "required": ["error", "correlationId"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message", "details"],
                "properties": {
                    "code": { "type": "string" },
                    "message": { "type": "string" },
                    "details": { "type": "object" },
                },
            },
            "correlationId": { "type": "string" },
        },
    })
}

/// By hand: its members depend on the code.
fn problem_schema() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "detail": { "type": "string", "description": "What is wrong, and what to do." },
            "code": { "type": "string", "description": "Stable: branch on this." },
            "instance": { "type": "string" },
            "request_id": { "type": "string" },
            "current": { "type": "string", "description": "The state that the run is in." },
            "requested": { "type": "string" },
            "allowed": { "type": "array", "items": { "type": "string" }, "description": "Commands that may be given instead." },
            "retryable": { "type": "boolean", "description": "The same request may succeed later." },
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["pointer", "detail"],
                    "properties": { "pointer": { "type": "string" }, "detail": { "type": "string" } },
                },
            },
        },
    })
}
