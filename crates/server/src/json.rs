//! Bodies: as people and programs send them, and as workers do. They are read along the shape of their route: what that has no
//! place for is passed over and takes no memory, and the rest is counted as what it takes once it is read.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value, json};
use waypost_kernel::text::explain;
use waypost_schema::{Kind, Shape};

use crate::answer::Result;
use crate::problem::{INVALID_JSON, Problem, TOO_LARGE};
use crate::room::bytes::Bytes;

/// Names that a shape does not have: more would only make the answer long.
const MOST_UNKNOWN: usize = 20;
/// What a value, a list and each eleven members of an object take beside what they hold.
const VALUE_BYTES: usize = 32;
const LIST_BYTES: usize = 32;
const LEAF_BYTES: usize = 640;
const LEAF_MEMBERS: usize = 11;
/// The budget is asked for so much at a time.
const STEP: usize = 64 * 1024;

/// What a body may take once it is read, and what of it is taken.
#[derive(Debug)]
pub struct Scale<'b> {
    pub held: &'b mut Bytes,
    /// The text itself is there too.
    pub taken: usize,
    pub most: usize,
    asked: usize,
    refused: Option<Problem>,
    wrong: Option<Wrong>,
}

/// What JSON lets pass and no reader takes as it was meant.
#[derive(Debug)]
struct Wrong {
    message: &'static str,
    /// Where it stands, from the inside out.
    place: Vec<String>,
}

const TWICE: &str = "is there twice: send it once";
const TOO_LONG_A_NUMBER: &str = "is an integer beyond 64 bits, which would lose digits: allowed are -9223372036854775808 to 18446744073709551615, or a text";

impl Scale<'_> {
    pub fn new(held: &mut Bytes, taken: usize, most: usize) -> Scale<'_> {
        Scale { held, taken, most, asked: taken, refused: None, wrong: None }
    }

    fn add(&mut self, bytes: usize) -> bool {
        self.taken += bytes;
        if self.taken <= self.asked {
            return true;
        }
        self.asked = self.taken + STEP;
        let asked = if self.taken > self.most {
            let message = "the body has more parts than this route has room for: split it";
            Err(Problem::new(&TOO_LARGE, message))
        } else {
            self.held.hold(self.asked)
        };
        self.refused = asked.err();
        self.refused.is_none()
    }
}

/// `is_lenient`: what handlers printed may hold half a surrogate pair (Python writes a byte that is no UTF-8 so), which becomes
/// U+FFFD instead of costing the whole report. NULs and depth are the store's to clean. Else it is nothing but JSON, nested at
/// most 128 deep: serde_json stops there.
pub fn read(bytes: &[u8], shape: &'static Shape, is_lenient: bool, mut scale: Scale<'_>) -> Result<Value> {
    let from = scale.taken;
    if !is_lenient {
        return parse(bytes, shape, &mut scale).map_err(|error| refusal(scale, &error));
    }
    let text = String::from_utf8_lossy(bytes);
    match parse(text.as_bytes(), shape, &mut scale) {
        Ok(value) => Ok(value),
        Err(first) if scale.refused.is_some() || scale.wrong.is_some() => Err(refusal(scale, &first)),
        Err(first) => {
            scale.taken = from;
            parse(mended(&text).as_bytes(), shape, &mut scale).map_err(|_| refusal(scale, &first))
        }
    }
}

fn refusal(scale: Scale<'_>, error: &serde_json::Error) -> Problem {
    if let Some(Wrong { message, place }) = scale.wrong {
        let escaped = |name: &String| name.replace('~', "~0").replace('/', "~1");
        let pointer = place.iter().rev().map(|name| format!("/{}", escaped(name))).collect::<String>();
        let errors = json!([{ "pointer": pointer, "detail": message }]);
        return Problem::new(&INVALID_JSON, format!("{pointer}: {message}")).with("errors", errors);
    }
    scale.refused.unwrap_or_else(|| Problem::field(&INVALID_JSON, "body", &explain(error)))
}

/// Whether this number stands there as a whole one, longer than 64 bits. Looked for when one was read that may have been one.
fn has_long_integer(text: &[u8], read_as: f64) -> bool {
    let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at += 1;
                while !matches!(text.get(at), None | Some(b'"')) {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let length = text[at..].iter().take_while(|byte| is_of_number(byte)).count();
                let number = std::str::from_utf8(&text[at..at + length]).unwrap_or_default();
                let is_whole = !number.contains(['.', 'e', 'E']);
                if is_whole && number.parse() == Ok(read_as) {
                    return true;
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    false
}

fn parse(
    bytes: &[u8],
    shape: &'static Shape,
    scale: &mut Scale<'_>,
) -> std::result::Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let scale = RefCell::new(scale);
    let whole = Part { place: Place::Fields(shape), scale: &scale, text: bytes };
    let value = whole.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// What may stand where a value is read.
#[derive(Clone, Copy)]
enum Place {
    Fields(&'static Shape),
    List(&'static Kind, usize),
    Any,
    /// No list and no object: one that is there is wrong, whatever it holds.
    Scalar,
}

impl Place {
    fn of(kind: &Kind) -> Place {
        match kind {
            Kind::Of(shape) => Place::Fields(shape),
            Kind::List { of, most, .. } => Place::List(of, *most),
            Kind::Text(_)
            | Kind::Format(_)
            | Kind::Choice(_)
            | Kind::Integer(..)
            | Kind::Number
            | Kind::Boolean => Place::Scalar,
            _ => Place::Any,
        }
    }
}

#[derive(Clone, Copy)]
struct Part<'r, 's, 'b> {
    place: Place,
    scale: &'r RefCell<&'s mut Scale<'b>>,
    text: &'r [u8],
}

impl Part<'_, '_, '_> {
    fn weigh<E: serde::de::Error>(&self, bytes: usize) -> std::result::Result<(), E> {
        match self.scale.borrow_mut().add(bytes) {
            true => Ok(()),
            false => Err(E::custom("the body takes too much room")),
        }
    }

    fn wrong<E: serde::de::Error>(&self, message: &'static str) -> E {
        self.scale.borrow_mut().wrong = Some(Wrong { message, place: Vec::new() });
        E::custom(message)
    }

    /// What is wrong inside stands at this name.
    fn inside<E>(&self, name: impl FnOnce() -> String, error: E) -> E {
        if let Some(wrong) = &mut self.scale.borrow_mut().wrong {
            wrong.place.push(name());
        }
        error
    }

    fn at(self, place: Place) -> Self {
        Part { place, ..self }
    }
}

impl<'de> DeserializeSeed<'de> for Part<'_, '_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_, '_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value of JSON")
    }

    fn visit_bool<E>(self, truth: bool) -> std::result::Result<Value, E> {
        Ok(truth.into())
    }

    fn visit_i64<E>(self, number: i64) -> std::result::Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> std::result::Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> std::result::Result<Value, E> {
        const LONG: f64 = 9_223_372_036_854_775_808.0;
        if number.abs() >= LONG && has_long_integer(self.text, number) {
            return Err(self.wrong(TOO_LONG_A_NUMBER));
        }
        Ok(number.into())
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Value, E> {
        self.weigh(text.len())?;
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Value, A::Error> {
        let (of, most) = match self.place {
            Place::List(of, most) => (Place::of(of), most),
            Place::Any => (Place::Any, usize::MAX),
            Place::Fields(_) | Place::Scalar => (Place::Scalar, 0),
        };
        let mut values = Vec::new();
        self.weigh(LIST_BYTES)?;
        loop {
            // One too many tells that there are; what else follows is passed over.
            if values.len() > most || matches!(self.place, Place::Fields(_) | Place::Scalar) {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                break;
            }
            let value = list.next_element_seed(self.at(of));
            let value = value.map_err(|error| self.inside(|| values.len().to_string(), error))?;
            let Some(value) = value else { break };
            self.weigh(VALUE_BYTES)?;
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> std::result::Result<Value, A::Error> {
        let mut members = Map::new();
        let mut unknown = 0;
        while let Some(name) = object.next_key::<String>()? {
            let place = match self.place {
                Place::Fields(shape) => shape.field(&name).map(|field| Place::of(&field.kind)),
                Place::Any => Some(Place::Any),
                Place::List(..) | Place::Scalar => None,
            };
            let Some(place) = place else {
                object.next_value::<IgnoredAny>()?;
                unknown += 1;
                if matches!(self.place, Place::Fields(_)) && unknown <= MOST_UNKNOWN {
                    members.insert(name, Value::Null);
                }
                continue;
            };
            if members.len().is_multiple_of(LEAF_MEMBERS) {
                self.weigh(LEAF_BYTES)?;
            }
            self.weigh(name.len())?;
            match members.entry(name) {
                Entry::Vacant(slot) => {
                    let value = object.next_value_seed(self.at(place));
                    let value = value.map_err(|error| self.inside(|| slot.key().clone(), error))?;
                    slot.insert(value);
                }
                Entry::Occupied(slot) => {
                    let error = self.wrong(TWICE);
                    return Err(self.inside(|| slot.key().clone(), error));
                }
            }
        }
        Ok(Value::Object(members))
    }
}

/// Every `\udXXX` that has no other half, as `\ufffd`.
fn mended(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let (taken, replaced) = match (bytes[at], unit(bytes, at)) {
            (b'\\', Some(0xd800..=0xdbff)) if matches!(unit(bytes, at + 6), Some(0xdc00..=0xdfff)) => {
                (12, false)
            }
            (b'\\', Some(0xd800..=0xdfff)) => (6, true),
            // Two of them are one backslash, and what follows is no escape.
            (b'\\', _) => (2, false),
            _ => (1, false),
        };
        let end = (at + taken).min(bytes.len());
        out.extend_from_slice(if replaced { b"\\ufffd" } else { &bytes[at..end] });
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The number of the escape `\uXXXX` that begins here.
fn unit(bytes: &[u8], at: usize) -> Option<u32> {
    let escape = bytes.get(at..at + 6)?;
    let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::bytes::Budget;
    use waypost_schema::optional;

    const PAIR: Shape =
        Shape::of_api("Pair", &[optional("of", Kind::Text(9), "Of."), optional("any", Kind::Any, "Any.")]);
    const ROOT: Shape = Shape::of_api(
        "Root",
        &[
            optional("any", Kind::Any, "Any."),
            optional("word", Kind::Text(9), "A word."),
            optional("pairs", Kind::List { of: &Kind::Of(&PAIR), least: 0, most: 2 }, "Pairs."),
        ],
    );

    fn read_as(text: &[u8], is_lenient: bool, most: usize) -> Result<Value> {
        let mut held = Budget::new("bodies", 1 << 30).open(None);
        read(text, &ROOT, is_lenient, Scale::new(&mut held, text.len(), most))
    }

    fn lenient(text: &str) -> Result<Value> {
        let body = format!("{{\"any\": {text}}}");
        read_as(body.as_bytes(), true, 1 << 20).map(|mut read| read["any"].take())
    }

    // proves X10
    #[test]
    fn halves_of_pairs_become_marks_and_pairs_stay() {
        for (text, expected) in [
            (r#""a\udc80b""#, json!("a\u{fffd}b")),
            (r#"["\ud800", "\ud83d\ude00", "\ud800x"]"#, json!(["\u{fffd}", "😀", "\u{fffd}x"])),
            (r#""\\ud800""#, json!("\\ud800")),
            (r#""\ud800\ud800\udc00""#, json!("\u{fffd}\u{10000}")),
            (r#"{"n": "\u0000"}"#, json!({"n": "\0"})),
        ] {
            assert_eq!(lenient(text).expect(text), expected, "{text}");
        }
        assert_eq!(read_as(b"{\"any\": \"\xff\"}", true, 1 << 20).expect("read")["any"], "\u{fffd}");
        for text in ["", "{", r#""\ud800"#, "[1e999]"] {
            let body = format!("{{\"any\": {text}}}");
            assert!(lenient(text).is_err() && read_as(body.as_bytes(), false, 1 << 20).is_err(), "{text}");
        }
    }

    // proves X10
    #[test]
    fn what_would_be_read_otherwise_than_it_was_meant_is_refused_where_it_stands() {
        for (text, place) in [
            (r#"{"any": 1, "any": 2}"#, "/any"),
            (r#"{"any": {"a/b": [0, {"c": 1, "c": 1}]}}"#, "/any/a~1b/1/c"),
            (r#"{"pairs": [{"any": 1, "any": 2}]}"#, "/pairs/0/any"),
            (r#"{"any": 123456789012345678901234567890}"#, "/any"),
            (r#"{"any": ["\"", 1e30, 2.5, -9223372036854775809]}"#, "/any/3"),
            (r#"{"any": [18446744073709551616]}"#, "/any/0"),
        ] {
            for is_lenient in [true, false] {
                let refused = read_as(text.as_bytes(), is_lenient, 1 << 20).expect_err(text);
                assert_eq!((refused.code, refused.status), ("INVALID_JSON", 400), "{text}");
                assert_eq!(refused.more["errors"][0]["pointer"], place, "{text}: {}", refused.detail);
            }
        }
        for text in [
            r#"{"any": [18446744073709551615, -9223372036854775808, 1e30, 1e300, 123456789012345678901234567890.0, -0.0]}"#,
            r#"{"any": ["123456789012345678901234567890", 1e30]}"#,
            r#"{"any": [{"a": 1}, {"a": 2}], "word": "a"}"#,
        ] {
            assert!(read_as(text.as_bytes(), false, 1 << 20).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_a_shape_has_no_place_for_is_named_and_not_kept() {
        let text = br#"{"x": [{"a": 0}, {"a": 0}], "word": [[[1]]], "pairs": [{"of": "a", "y": {"z": 1}}, {}, {}, {}, 5]}"#;
        let read = read_as(text, false, 1 << 20).expect("read");
        let pairs = json!([{ "of": "a", "y": null }, {}, {}]);
        assert_eq!(read, json!({ "x": null, "word": [], "pairs": pairs }));
    }

    #[test]
    fn what_would_take_too_much_memory_is_refused_while_it_is_read() {
        let many = format!("{{\"any\": [{}0]}}", "{\"a\":0},".repeat(100_000));
        assert_eq!(read_as(many.as_bytes(), true, 16 << 20).expect_err("too large").code, "TOO_LARGE");
        assert!(read_as(many.as_bytes(), true, 128 << 20).is_ok());
        let junk = format!("{{\"x\": [{}0]}}", "{\"a\":0},".repeat(100_000));
        assert!(read_as(junk.as_bytes(), true, 1 << 20).is_ok(), "what is passed over takes nothing");
        let mut held = Budget::new("bodies", 2 << 20).open(None);
        let refused = read(many.as_bytes(), &ROOT, false, Scale::new(&mut held, 0, 128 << 20));
        assert_eq!(refused.expect_err("there is not so much").code, "BUSY");
    }
}
