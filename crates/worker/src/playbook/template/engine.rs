//! The expression engine, with nothing in it but a few filters and tests: no files, no includes, no loops, and
//! nothing that makes much out of little.

use std::cell::Cell;
use std::sync::LazyLock;

use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, filters, tests};

/// Steps of the engine. An expression has at most 2,000 characters and no loop.
const FUEL: u64 = 10_000;

/// What all filters of one evaluation may build.
const MAX_BUILT_BYTES: usize = 1024 * 1024;

pub const FILTERS: [&str; 36] = [
    "abs",
    "attr",
    "b64encode",
    "bool",
    "count",
    "d",
    "default",
    "first",
    "float",
    "int",
    "items",
    "join",
    "keys",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "replace",
    "round",
    "select",
    "selectattr",
    "sort",
    "split",
    "string",
    "sum",
    "times",
    "tojson",
    "trim",
    "unique",
    "upper",
    "urlencode",
];

pub const TESTS: [&str; 29] = [
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "eq",
    "equalto",
    "even",
    "false",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sequence",
    "startingwith",
    "string",
    "true",
    "undefined",
];

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

fn add_filters(engine: &mut Environment<'static>) {
    engine.add_filter("abs", filters::abs);
    engine.add_filter("attr", filters::attr);
    engine.add_filter("b64encode", b64encode);
    engine.add_filter("bool", filters::bool);
    engine.add_filter("count", filters::length);
    engine.add_filter("d", filters::default);
    engine.add_filter("default", filters::default);
    engine.add_filter("first", filters::first);
    engine.add_filter("float", filters::float);
    engine.add_filter("int", filters::int);
    engine.add_filter("items", filters::items);
    engine.add_filter("join", join);
    engine.add_filter("keys", keys);
    engine.add_filter("last", filters::last);
    engine.add_filter("length", filters::length);
    engine.add_filter("list", filters::list);
    engine.add_filter("lower", filters::lower);
    engine.add_filter("map", filters::map);
    engine.add_filter("max", filters::max);
    engine.add_filter("min", filters::min);
    engine.add_filter("reject", filters::reject);
    engine.add_filter("rejectattr", filters::rejectattr);
    engine.add_filter("replace", replace);
    engine.add_filter("round", filters::round);
    engine.add_filter("select", filters::select);
    engine.add_filter("selectattr", filters::selectattr);
    engine.add_filter("sort", filters::sort);
    engine.add_filter("split", filters::split);
    engine.add_filter("string", filters::string);
    engine.add_filter("sum", filters::sum);
    engine.add_filter("times", times);
    engine.add_filter("tojson", tojson);
    engine.add_filter("trim", filters::trim);
    engine.add_filter("unique", filters::unique);
    engine.add_filter("upper", filters::upper);
    engine.add_filter("urlencode", urlencode);
}

fn add_tests(engine: &mut Environment<'static>) {
    engine.add_test("boolean", tests::is_boolean);
    engine.add_test("defined", tests::is_defined);
    engine.add_test("divisibleby", tests::is_divisibleby);
    engine.add_test("endingwith", tests::is_endingwith);
    engine.add_test("eq", tests::is_eq);
    engine.add_test("equalto", tests::is_eq);
    engine.add_test("even", tests::is_even);
    engine.add_test("false", tests::is_false);
    engine.add_test("float", tests::is_float);
    engine.add_test("ge", tests::is_ge);
    engine.add_test("greaterthan", tests::is_gt);
    engine.add_test("gt", tests::is_gt);
    engine.add_test("in", tests::is_in);
    engine.add_test("integer", tests::is_integer);
    engine.add_test("iterable", tests::is_iterable);
    engine.add_test("le", tests::is_le);
    engine.add_test("lessthan", tests::is_lt);
    engine.add_test("lower", tests::is_lower);
    engine.add_test("lt", tests::is_lt);
    engine.add_test("mapping", tests::is_mapping);
    engine.add_test("ne", tests::is_ne);
    engine.add_test("none", tests::is_none);
    engine.add_test("number", tests::is_number);
    engine.add_test("odd", tests::is_odd);
    engine.add_test("sequence", tests::is_sequence);
    engine.add_test("startingwith", tests::is_startingwith);
    engine.add_test("string", tests::is_string);
    engine.add_test("true", tests::is_true);
    engine.add_test("undefined", tests::is_undefined);
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
fn urlencode(value: &Value) -> Result<String, Error> {
    let text = text_of(value)?;
    spend(text.len().saturating_mul(3))?;
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(encoded)
}

/// For `Authorization: Basic …`.
fn b64encode(value: &Value) -> Result<String, Error> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = text_of(value)?;
    spend(text.len().saturating_mul(2))?;
    let mut encoded = String::new();
    for three in text.as_bytes().chunks(3) {
        let at = |index: usize| u32::from(three.get(index).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let index = (bits >> (18 - 6 * place)) & 63;
            let letter = char::from(ALPHABET[index as usize]);
            encoded.push(if place <= three.len() { letter } else { '=' });
        }
    }
    Ok(encoded)
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
