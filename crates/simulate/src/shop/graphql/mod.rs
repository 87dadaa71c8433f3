//! Shopify's GraphQL, as far as prices go: `productVariantsBulkUpdate`, the queries that find variants, and limits by
//! cost, which refuse inside a 200.

mod execute;
mod lexer;
mod parse;
mod select;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::Shop;
use super::calls::{Done, Intent};
use super::stats::Api;
use crate::serving::{Answer, Asked, Reply};
use execute::Execution;
use parse::{Document, Field, Operation};
use select::{Problem, Scope};

#[derive(Debug)]
pub struct ThrottleStatus {
    pub maximum: f64,
    pub available: f64,
    pub restore_rate: f64,
}

/// A request whose document was read.
struct Read {
    document: Document,
    operation: usize,
    variables: Map<String, Value>,
}

impl Read {
    fn operation(&self) -> &Operation {
        &self.document.operations[self.operation]
    }

    fn scope(&self) -> Scope<'_> {
        Scope { document: &self.document, variables: &self.variables }
    }
}

pub fn post(shop: &mut Shop, asked: &Asked<'_>) -> Reply {
    let read = match asked.request.json() {
        Ok(body) => read(&body),
        Err(problem) => return Answer::bad_request(&problem).into(),
    };
    let read = read.and_then(|read| {
        let fields = read.scope().fields(&read.operation().selections)?;
        Ok((read, fields))
    });
    let (intent, read) = match read {
        Ok((read, fields)) => (intent(&read, &fields), Ok((read, fields))),
        Err(problem) => (nothing(), Err(problem)),
    };
    if intent.cost > shop.settings.cost_burst {
        let message = format!(
            "Query cost is {}, which exceeds the single query max cost limit {}",
            intent.cost, shop.settings.cost_burst
        );
        return errors(&Problem::new("MAX_COST_EXCEEDED", message)).into();
    }
    shop.perform(asked.request, asked.now, &intent, |shop, refused| match read {
        Ok((read, fields)) => execute(shop, refused, asked, &read, &fields, &intent),
        Err(problem) => Done::looked(errors(&problem)),
    })
}

fn nothing() -> Intent {
    Intent { api: Api::Graphql, products: Vec::new(), is_change: false, cost: 0.0 }
}

fn read(body: &Value) -> Result<Read, Problem> {
    let bad = |message: &str| Problem::new("BAD_REQUEST", message);
    let query =
        body.get("query").and_then(Value::as_str).ok_or_else(|| bad("query is missing or no text"))?;
    let document = parse::parse(query).map_err(|problem| Problem::new("PARSE_ERROR", problem))?;
    let operation = match body.get("operationName").and_then(Value::as_str) {
        Some(name) => document.operations.iter().position(|it| it.name.as_deref() == Some(name)),
        None => (document.operations.len() == 1).then_some(0),
    };
    let operation = operation.ok_or_else(|| bad("operationName names no operation of the document"))?;
    let mut variables = match body.get("variables") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(variables)) => variables.clone(),
        Some(_) => return Err(bad("variables is an object")),
    };
    for variable in &document.operations[operation].variables {
        match (variables.get(&variable.name), &variable.default) {
            (None, Some(default)) => drop(variables.insert(variable.name.clone(), default.clone())),
            (None | Some(Value::Null), None) if variable.is_required => {
                let message = format!("Variable ${} is needed and was not provided", variable.name);
                return Err(Problem::new("INVALID_VARIABLE", message));
            }
            _ => {}
        }
    }
    Ok(Read { document, operation, variables })
}

fn intent(read: &Read, fields: &[Field]) -> Intent {
    let (scope, is_change) = (read.scope(), read.operation().is_mutation);
    let mut intent = Intent { is_change, ..nothing() };
    for field in fields {
        let arguments = scope.arguments(field);
        intent.cost += execute::requested_cost(is_change, &field.name, &arguments);
        if is_change {
            intent.products.extend(execute::touched(&arguments));
        }
    }
    intent
}

fn execute(
    shop: &Shop,
    refused: &[u64],
    asked: &Asked<'_>,
    read: &Read,
    fields: &[Field],
    intent: &Intent,
) -> Done {
    let now_ms = asked.now.unix_ms;
    let mut execution =
        Execution { shop, refused, now_ms, changes: Vec::new(), overlay: HashMap::new(), found: 0 };
    let scope = read.scope();
    let mut data = Map::new();
    for field in fields {
        let arguments = scope.arguments(field);
        let value = match intent.is_change {
            true => execution.mutation(&field.name, &arguments),
            false => execution.query(&field.name, &arguments),
        };
        match value.and_then(|value| scope.project(&value, field)) {
            Ok(value) => drop(data.insert(field.alias.clone(), value)),
            // A document that is wrong anywhere does nothing, as it would not have passed validation.
            Err(problem) => return Done::looked(errors(&problem)),
        }
    }
    let found = 2.0 + execution.found as f64;
    let cost = if intent.is_change { intent.cost } else { found.min(intent.cost) };
    Done { answer: Answer::ok(&json!({ "data": data })), changes: execution.changes, cost }
}

fn errors(problem: &Problem) -> Answer {
    let error = json!({ "message": problem.message, "extensions": { "code": problem.code } });
    Answer::ok(&json!({ "errors": [error] }))
}

fn cost_of(requested: f64, actual: Option<f64>, status: &ThrottleStatus) -> Value {
    json!({ "cost": {
        "requestedQueryCost": requested as u64,
        "actualQueryCost": actual.map(|actual| actual as u64),
        "throttleStatus": {
            "maximumAvailable": status.maximum,
            "currentlyAvailable": status.available as u64,
            "restoreRate": status.restore_rate,
        },
    }})
}

pub fn throttled(requested: f64, status: &ThrottleStatus) -> Answer {
    let error = json!({ "message": "Throttled", "extensions": { "code": "THROTTLED" } });
    Answer::ok(&json!({ "errors": [error], "extensions": cost_of(requested, None, status) }))
}

/// Answers are kept for their key without it: what is available then is another matter.
pub fn append_cost(answer: &mut Answer, requested: f64, actual: f64, status: &ThrottleStatus) {
    if answer.status == 200 && answer.body.pop() == Some('}') {
        let cost = cost_of(requested, Some(actual), status);
        answer.body.push_str(&format!(",\"extensions\":{cost}}}"));
    }
}
