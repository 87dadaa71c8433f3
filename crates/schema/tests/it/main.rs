//! One shape, read from TOML, from JSON and from a request, and rendered.
#![allow(clippy::unwrap_used)]

mod problems;
mod purity;
mod reading;
mod rendering;
mod requests;

use std::path::Path;

use serde_json::{Map, Value};
use waypost_schema::{
    Document, Fault, Format, Keys, Kind, Node, Problems, Shape, needed, optional, read_json, some_text, text,
};

static WORD: Format = Format {
    name: "a word",
    pattern: Some("^[a-z]+$"),
    check: |given| {
        some_text(given)?;
        match given.bytes().all(|byte| byte.is_ascii_lowercase()) {
            true => Ok(None),
            false => Err(Fault::new("bad-word", "this is no word", "use lower-case letters")),
        }
    },
    ..Format::TEXT
};

/// Kept in lower case: what is read is not always what is kept.
static LOWER: Format =
    Format { name: "a text in any case", check: |given| Ok(Some(given.to_lowercase())), ..Format::TEXT };

static LETTERS: Keys = Keys { pattern: Some("^[a-z]$"), not: None, check: |name| (WORD.check)(name) };

static STOP: Shape = Shape::of_file(
    "a stop",
    &[
        needed("name", Kind::Format(&WORD), "What it is called."),
        optional("minutes", Kind::Integer(0, 60), "How long."),
        optional("by", Kind::Choice(&["bus", "tram"]), "What goes there."),
        optional("foot", Kind::Boolean, "It is near."),
    ],
)
.with_one_of(&["by", "foot"]);

static LINE: Shape = Shape::of_file(
    "a line",
    &[
        needed("name", Kind::Format(&WORD), "What it is called.").like("\"ring\""),
        optional(
            "note",
            Kind::Format(&Format { may_be_empty: true, check: text, ..Format::TEXT }),
            "For people.",
        ),
        optional("title", Kind::Format(&LOWER), "For posters."),
        optional("fare", Kind::Number, "What it costs."),
        optional("stop", Kind::List { of: &Kind::Of(&STOP), least: 0, most: 3 }, "Where it stops."),
        optional("zones", Kind::List { of: &Kind::Format(&WORD), least: 1, most: 2 }, "Where it goes."),
        optional(
            "signs",
            Kind::Map { of: &Kind::Integer(0, 9), keys: Some(&LETTERS), most: 2 },
            "By letter.",
        ),
        optional("more", Kind::Parts("any value"), "Whatever else."),
        optional(
            "names",
            Kind::TextOrList {
                text: &Kind::Format(&Format::TEXT),
                list: &Kind::List { of: &Kind::Format(&WORD), least: 1, most: 9 },
                name: "a list of words, or a text",
            },
            "What people say.",
        ),
    ],
)
.with_others("on_", &Kind::Format(&WORD));

static FILE: Document = Document {
    shape: &LINE,
    max_bytes: 4096,
    too_large: "split it",
    syntax: &[("array", "mind the commas"), ("", "write TOML")],
    at_the_end: &[("signs", "zones")],
};

const SOUND: &str = r#"name = "ring"
note = """
two
lines"""
title = "NORTH"
fare = 2
names = "the ring"
on_strike = "closed"
more = { a = [1, 2.5, "x", { b = true }], d = 2026-02-14 }

[[stop]]
name = "mill"
minutes = 7
by = "bus"

[[stop]]
name = "gate"
foot = true

[signs]
a = 1
zones = ["x", "y"]
"#;

fn from_toml(text: &str) -> Result<Node, Problems> {
    let (node, report) = FILE.read(text, Path::new("line.toml"))?;
    report.done(node)
}

fn from_json(object: &Value) -> Result<Node, Problems> {
    let object: Map<String, Value> = object.as_object().cloned().unwrap_or_default();
    let (node, report) = read_json(object, &LINE);
    report.done(node)
}
