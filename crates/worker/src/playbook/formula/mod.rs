//! What computes a target's new value: the expressions of templates with `*`, on exact decimals. Templates elsewhere count in
//! binary fractions, which is no way to count money.

mod parse;
mod words;

use serde_json::Value as Json;
use waypost_kernel::Decimal;

use super::template::{Named, Trouble};

/// Of a result: what is finer is no price.
const DECIMALS: u32 = 6;

/// Filters, with how many arguments each takes.
pub const FILTERS: [(&str, usize); 10] = [
    ("abs", 0),
    ("at_least", 1),
    ("at_most", 1),
    ("ceil", 0),
    ("default", 1),
    ("floor", 0),
    ("percent", 1),
    ("plus", 1),
    ("round", 1),
    ("round_to", 1),
];

/// One sound expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    source: String,
    root: Node,
    named: Vec<Named>,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(Decimal),
    Text(String),
    Truth(bool),
    Nothing,
    /// A variable and the way into it.
    Path(Vec<String>),
    Negated(Box<Node>),
    Not(Box<Node>),
    Two(Sign, Box<Node>, Box<Node>),
    /// Then, condition, else.
    Choice(Box<Node>, Box<Node>, Box<Node>),
    Filter(Box<Node>, String, Option<Box<Node>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Plus,
    Minus,
    Times,
    Over,
    And,
    Or,
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(Decimal),
    Text(String),
    Truth(bool),
    Nothing,
}

impl Formula {
    /// `{{ … }}`, and nothing beside it.
    pub fn parse(text: &str) -> Result<Formula, Trouble> {
        let inner = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        let Some(source) = inner.filter(|inner| !inner.trim().is_empty()) else {
            return Err(parse::trouble(
                "this is no expression".to_owned(),
                "write what computes the value: {{ target.before * 1.1 }}",
            ));
        };
        let (root, named) = parse::parse(source)?;
        Ok(Formula { source: source.trim().to_owned(), root, named })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn named(&self) -> &[Named] {
        &self.named
    }

    /// `find` gives what a variable holds. None: it comes to nothing. A number is rounded to six decimals.
    pub fn value(&self, find: &dyn Fn(&[String]) -> Option<Json>) -> Result<Option<Json>, String> {
        match self.root.value(find)? {
            Value::Nothing => Ok(None),
            Value::Truth(truth) => Ok(Some(Json::Bool(truth))),
            Value::Text(text) => Ok(Some(Json::String(text))),
            Value::Number(number) => {
                let json = number.round(DECIMALS).to_json();
                json.map(Some).ok_or_else(|| format!("{number} has more digits than a price"))
            }
        }
    }
}

impl Node {
    fn value(&self, find: &dyn Fn(&[String]) -> Option<Json>) -> Result<Value, String> {
        Ok(match self {
            Node::Number(number) => Value::Number(*number),
            Node::Text(text) => Value::Text(text.clone()),
            Node::Truth(truth) => Value::Truth(*truth),
            Node::Nothing => Value::Nothing,
            Node::Path(path) => found(path, find(path))?,
            Node::Negated(inner) => Value::Number(inner.number(find)?.negated()),
            Node::Not(inner) => Value::Truth(!inner.value(find)?.is_true()),
            Node::Two(sign, left, right) => two(*sign, left, right, find)?,
            Node::Choice(then, condition, other) => {
                let chosen = if condition.value(find)?.is_true() { then } else { other };
                chosen.value(find)?
            }
            Node::Filter(inner, name, argument) => {
                let value = inner.value(find)?;
                if name == "default" {
                    return match (&value, argument) {
                        (Value::Nothing, Some(argument)) => argument.value(find),
                        _ => Ok(value),
                    };
                }
                let argument = argument.as_ref().map(|argument| argument.number(find)).transpose()?;
                Value::Number(filtered(value.number()?, name, argument)?)
            }
        })
    }

    fn number(&self, find: &dyn Fn(&[String]) -> Option<Json>) -> Result<Decimal, String> {
        self.value(find)?.number()
    }
}

impl Value {
    /// A text that is a number counts as one: a file of values separated by commas has no others.
    fn number(&self) -> Result<Decimal, String> {
        match self {
            Value::Number(number) => Ok(*number),
            Value::Text(text) => Decimal::parse(text).ok_or_else(|| format!("{text:?} is no number")),
            Value::Truth(truth) => Err(format!("{truth} is no number")),
            Value::Nothing => Err("there is no value to count with".to_owned()),
        }
    }

    /// 0 is a value, and so true of nothing but `!= 0`: as a condition it is false, as in every template.
    fn is_true(&self) -> bool {
        match self {
            Value::Number(number) => !number.is_zero(),
            Value::Text(text) => !text.is_empty(),
            Value::Truth(truth) => *truth,
            Value::Nothing => false,
        }
    }
}

fn found(path: &[String], value: Option<Json>) -> Result<Value, String> {
    Ok(match value {
        None | Some(Json::Null) => Value::Nothing,
        Some(Json::Bool(truth)) => Value::Truth(truth),
        Some(Json::String(text)) => Value::Text(text),
        Some(number @ Json::Number(_)) => {
            let found = Decimal::of_json(&number);
            Value::Number(found.ok_or_else(|| format!("{number} has more digits than there is room for"))?)
        }
        Some(_) => return Err(format!("{} is no single value", path.join("."))),
    })
}

fn two(
    sign: Sign,
    left: &Node,
    right: &Node,
    find: &dyn Fn(&[String]) -> Option<Json>,
) -> Result<Value, String> {
    let left = left.value(find)?;
    // What is not needed is not computed.
    match sign {
        Sign::And if !left.is_true() => return Ok(left),
        Sign::Or if left.is_true() => return Ok(left),
        _ => {}
    }
    let right = right.value(find)?;
    let counted = |result: Option<Decimal>| {
        result
            .map(Value::Number)
            .ok_or_else(|| "the result has more digits than there is room for".to_owned())
    };
    let order = || Ok::<_, String>(left.number()?.cmp(&right.number()?));
    Ok(match sign {
        Sign::And | Sign::Or => right,
        Sign::Plus => counted(left.number()?.plus(right.number()?))?,
        Sign::Minus => counted(left.number()?.minus(right.number()?))?,
        Sign::Times => counted(left.number()?.times(right.number()?))?,
        Sign::Over if right.number()?.is_zero() => return Err("a division by 0".to_owned()),
        Sign::Over => counted(left.number()?.over(right.number()?))?,
        Sign::Equal => Value::Truth(is_same(&left, &right)),
        Sign::Unequal => Value::Truth(!is_same(&left, &right)),
        Sign::Less => Value::Truth(order()?.is_lt()),
        Sign::AtMost => Value::Truth(order()?.is_le()),
        Sign::More => Value::Truth(order()?.is_gt()),
        Sign::AtLeast => Value::Truth(order()?.is_ge()),
    })
}

/// `"19.90"` of a file is 19.9.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(_), Value::Number(_) | Value::Text(_)) | (Value::Text(_), Value::Number(_)) => {
            left.number().is_ok_and(|left| right.number() == Ok(left))
        }
        _ => left == right,
    }
}

fn filtered(number: Decimal, name: &str, argument: Option<Decimal>) -> Result<Decimal, String> {
    let given = argument.unwrap_or(Decimal::ZERO);
    let result = match name {
        "abs" => Some(number.abs()),
        "floor" => Some(number.floor()),
        "ceil" => Some(number.ceil()),
        "at_least" => Some(number.max(given)),
        "at_most" => Some(number.min(given)),
        "plus" => number.plus(given),
        "percent" => number.times(given).and_then(|part| part.over(Decimal::HUNDRED)?.plus(number)),
        "round_to" => number.round_to(given),
        _ => {
            let places = given.to_string().parse().ok().filter(|places| *places <= DECIMALS);
            return places
                .map(|places| number.round(places))
                .ok_or_else(|| format!("round({given}): from 0 to {DECIMALS} decimals"));
        }
    };
    result.ok_or_else(|| format!("{number}|{name}({given}) cannot be computed"))
}

#[cfg(test)]
mod tests;
