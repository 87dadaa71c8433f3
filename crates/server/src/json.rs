//! Bodies: as people and programs send them, and as workers do. They are read along the shape of their route: what that has no
//! place for is passed over and takes no memory, and the rest is counted as what it takes once it is read.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
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
}

impl Scale<'_> {
    pub fn new(held: &mut Bytes, taken: usize, most: usize) -> Scale<'_> {
        Scale { held, taken, most, asked: taken, refused: None }
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
        Err(first) if scale.refused.is_some() => Err(refusal(scale, &first)),
        Err(first) => {
            scale.taken = from;
            parse(mended(&text).as_bytes(), shape, &mut scale).map_err(|_| refusal(scale, &first))
        }
    }
}

fn refusal(scale: Scale<'_>, error: &serde_json::Error) -> Problem {
    scale.refused.unwrap_or_else(|| Problem::field(&INVALID_JSON, "body", &explain(error)))
}

fn parse(
    bytes: &[u8],
    shape: &'static Shape,
    scale: &mut Scale<'_>,
) -> std::result::Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let scale = RefCell::new(scale);
    let value = Part { place: Place::Fields(shape), scale: &scale }.deserialize(&mut deserializer)?;
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
}

impl Part<'_, '_, '_> {
    fn weigh<E: serde::de::Error>(&self, bytes: usize) -> std::result::Result<(), E> {
        match self.scale.borrow_mut().add(bytes) {
            true => Ok(()),
            false => Err(E::custom("the body takes too much room")),
        }
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

    fn visit_f64<E>(self, number: f64) -> std::result::Result<Value, E> {
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
            let Some(value) = list.next_element_seed(self.at(of))? else { break };
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
            let value = object.next_value_seed(self.at(place))?;
            members.insert(name, value);
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
    use serde_json::json;
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
