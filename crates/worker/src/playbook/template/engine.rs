//! The expression engine, with nothing in it but a few filters and tests: no files, no includes, no loops, and
//! nothing that makes much out of little.

use std::cell::Cell;
use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, filters, tests};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Steps of the engine. An expression has at most 2,000 characters and no loop.
const FUEL: u64 = 10_000;

/// What all filters of one evaluation may build.
const MAX_BUILT_BYTES: usize = 1024 * 1024;

/// A list of names, and the function that gives them to the engine.
macro_rules! table {
    ($names:ident, $add_all:ident, $add:ident: $($name:literal $function:expr,)+) => {
        pub const $names: &[&str] = &[$($name),+];

        fn $add_all(engine: &mut Environment<'static>) {
            $(engine.$add($name, $function);)+
        }
    };
}

#[rustfmt::skip]
table! { FILTERS, add_filters, add_filter:
    "abs" filters::abs, "attr" filters::attr, "b64encode" b64encode, "bool" filters::bool,
    "count" filters::length, "d" default, "default" default, "first" filters::first,
    "float" filters::float, "int" filters::int, "items" filters::items, "join" join, "keys" keys,
    "last" filters::last, "length" filters::length, "list" filters::list, "lower" filters::lower,
    "map" filters::map, "max" filters::max, "min" filters::min, "reject" filters::reject,
    "rejectattr" filters::rejectattr, "replace" replace, "round" filters::round, "safe" safe, "select" filters::select,
    "selectattr" filters::selectattr, "sort" filters::sort, "split" filters::split, "string" filters::string,
    "sum" filters::sum, "times" times, "tojson" tojson, "trim" filters::trim, "unique" filters::unique,
    "upper" filters::upper, "urlencode" urlencode,
}

#[rustfmt::skip]
table! { TESTS, add_tests, add_test:
    "boolean" tests::is_boolean, "defined" tests::is_defined, "divisibleby" tests::is_divisibleby,
    "endingwith" tests::is_endingwith, "eq" tests::is_eq, "equalto" tests::is_eq, "even" tests::is_even,
    "false" tests::is_false, "float" tests::is_float, "ge" tests::is_ge, "greaterthan" tests::is_gt,
    "gt" tests::is_gt, "in" tests::is_in, "integer" tests::is_integer, "iterable" tests::is_iterable,
    "le" tests::is_le, "lessthan" tests::is_lt, "lower" tests::is_lower, "lt" tests::is_lt,
    "mapping" tests::is_mapping, "ne" tests::is_ne, "none" tests::is_none, "number" tests::is_number,
    "odd" tests::is_odd, "sequence" tests::is_sequence, "startingwith" tests::is_startingwith,
    "string" tests::is_string, "true" tests::is_true, "undefined" tests::is_undefined,
}

thread_local! {
    static BYTES_LEFT: Cell<usize> = const { Cell::new(MAX_BUILT_BYTES) };
}

static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut engine = Environment::empty();
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_fuel(Some(FUEL));
    engine.set_recursion_limit(50);
    add_filters(&mut engine);
    add_tests(&mut engine);
    engine
});

/// What is wrong with the grammar of an expression.
pub fn check(source: &str) -> Result<(), Error> {
    ENGINE.compile_expression(source).map(|_| ())
}

pub fn evaluate(source: &str, context: &Value) -> Result<Value, Error> {
    BYTES_LEFT.set(MAX_BUILT_BYTES);
    let value = ENGINE.compile_expression(source)?.eval(context.clone())?;
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "it has no value"));
    }
    Ok(value)
}

/// Takes from what this evaluation may still build.
fn spend(bytes: usize) -> Result<(), Error> {
    let left = BYTES_LEFT.get().checked_sub(bytes);
    left.map(|left| BYTES_LEFT.set(left)).ok_or_else(|| refused("the result is larger than 1 MiB"))
}

fn refused(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn text_of(value: &Value) -> Result<String, Error> {
    match super::json::to_json(value).map_err(refused)? {
        serde_json::Value::String(text) => Ok(text),
        other => Ok(super::json::to_text(&other)),
    }
}

/// Null is no value either: an input that need not be given, or the output of a step that gave none.
fn default(state: &State<'_, '_>, value: &Value, args: Rest<Value>) -> Result<Value, Error> {
    let value = if value.is_none() { &Value::UNDEFINED } else { value };
    filters::default(state, value, args)
}

/// The engine's own squares a text with each use.
fn replace(value: &Value, from: &str, to: &str) -> Result<String, Error> {
    let text = text_of(value)?;
    let grown = text.matches(from).count().saturating_mul(to.len());
    spend(text.len().saturating_add(grown))?;
    Ok(text.replace(from, to))
}

fn join(value: &Value, separator: Option<&str>) -> Result<String, Error> {
    let separator = separator.unwrap_or_default();
    let mut joined = String::new();
    for (at, item) in value.try_iter()?.enumerate() {
        let item = text_of(&item)?;
        spend(item.len() + separator.len() + 1)?;
        if at > 0 {
            joined.push_str(separator);
        }
        joined.push_str(&item);
    }
    Ok(joined)
}

fn keys(value: &Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Map {
        return Err(refused("only an object has keys"));
    }
    Ok(Value::from(value.try_iter()?.collect::<Vec<Value>>()))
}

/// In place of `*`, which also multiplies texts and lists.
fn times(value: &Value, factor: &Value) -> Result<Value, Error> {
    let whole = |value: &Value| value.is_integer().then(|| i128::try_from(value.clone()).ok())?;
    if let (Some(a), Some(b)) = (whole(value), whole(factor)) {
        let product = a.checked_mul(b).and_then(|product| i64::try_from(product).ok());
        return product.map(Value::from).ok_or_else(|| refused("the product is out of range"));
    }
    let number = |value: &Value| value.is_number().then(|| f64::try_from(value.clone()).ok())?;
    match (number(value), number(factor)) {
        (Some(a), Some(b)) => Ok(Value::from(a * b)),
        _ => Err(refused("times is for numbers")),
    }
}

fn tojson(value: &Value) -> Result<String, Error> {
    let text = super::json::to_json(value).map_err(refused)?.to_string();
    spend(text.len())?;
    Ok(text)
}

/// Everything but letters, digits and `-._~`, so that a value stays one part of a path or query.
fn urlencode(value: &Value) -> Result<Value, Error> {
    const KEPT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    let text = text_of(value)?;
    spend(text.len().saturating_mul(3))?;
    // Dots alone are a way to another name, however they are written.
    if text == "." || text == ".." {
        return Ok(Value::from(text));
    }
    Ok(Value::from_safe_string(utf8_percent_encode(&text, &KEPT).to_string()))
}

/// Parts of a URL that are meant as they are.
fn safe(value: &Value) -> Result<Value, Error> {
    text_of(value).map(Value::from_safe_string)
}

/// For `Authorization: Basic …`.
fn b64encode(value: &Value) -> Result<String, Error> {
    let text = text_of(value)?;
    spend(text.len().saturating_mul(2))?;
    Ok(BASE64_STANDARD.encode(text))
}

#[cfg(test)]
mod test {
    use super::*;

    fn shown(source: &str) -> Result<String, String> {
        let context = super::super::json::from_json(
            &serde_json::json!({"x": "a b/é", "n": 3, "l": ["a", "b"], "m": {"k": 1}}),
        );
        let value = evaluate(source, &context).map_err(|error| error.to_string())?;
        super::super::json::to_json(&value).map(|json| json.to_string())
    }

    #[test]
    fn filters_of_our_own() {
        for (source, expected) in [
            ("x|urlencode", "\"a%20b%2F%C3%A9\""),
            ("'user:pass'|b64encode", "\"dXNlcjpwYXNz\""),
            ("'a'|b64encode ~ 'ab'|b64encode ~ ''|b64encode", "\"YQ==YWI=\""),
            ("l|join(', ')", "\"a, b\""),
            ("l|join", "\"ab\""),
            ("m|keys", "[\"k\"]"),
            ("m|tojson", "\"{\\\"k\\\":1}\""),
            ("n|times(4)", "12"),
            ("1.5|times(2)", "3.0"),
            ("x|replace('b', 'c')", "\"a c/é\""),
            ("l|map('upper')|list", "[\"A\",\"B\"]"),
            (
                "[{'n': 'a', 'on': true}, {'n': 'b', 'on': false}]|selectattr('on')|map(attribute='n')|list",
                "[\"a\"]",
            ),
            ("missing|default('d')", "\"d\""),
            ("none|default('d')", "\"d\""),
            ("none|d", "\"\""),
            ("''|default('d')", "\"\""),
            ("false|default('d')", "false"),
            ("0|default('d')", "0"),
            ("m.k is defined and m.z is undefined", "true"),
            ("n|int + 1", "4"),
        ] {
            assert_eq!(shown(source).as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn what_is_undefined_or_too_large_is_an_error() {
        for source in [
            "missing",
            "m.z",
            "m.z.y",
            "x ~ missing",
            "1 if missing else 2",
            "missing|upper",
            "l|times(2)",
            "n|times(9223372036854775807)",
            "'aaaaaaaaaaaaaaaa'|replace('a', x|replace('', 'zzzzzzzzzzzzzzzzzzzzzz'))|replace('z', x|replace('', 'zzzzzzzzzzzzzzzzzzzzzz'))|replace('z', x|replace('', 'zzzzzzzzzzzzzzzzzzzzzz'))|replace('z', x|replace('', 'zzzzzzzzzzzzzzzzzzzzzz'))",
            "1/0",
            "x.y.z",
        ] {
            assert!(shown(source).is_err(), "{source}: {:?}", shown(source));
        }
    }

    #[test]
    fn the_lists_name_what_is_there_in_order() {
        assert!(FILTERS.is_sorted() && TESTS.is_sorted());
        for name in FILTERS {
            let unknown = evaluate(&format!("1|{name}"), &Value::from(())).err();
            assert_ne!(unknown.map(|error| error.kind()), Some(ErrorKind::UnknownFilter), "{name}");
        }
        for name in TESTS {
            let unknown = evaluate(&format!("1 is {name}"), &Value::from(())).err();
            assert_ne!(unknown.map(|error| error.kind()), Some(ErrorKind::UnknownTest), "{name}");
        }
    }
}
