//! What a JSON object of the API looks like, said once: requests are checked against it, and the OpenAPI document
//! and the reference page are rendered from it.

use serde_json::{Map, Value, json};

#[derive(Debug)]
pub struct Shape {
    pub name: &'static str,
    pub fields: &'static [Field],
}

#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    /// Of a request: it has to be there. Of an answer: it is never null.
    pub is_needed: bool,
    pub about: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// At most this many bytes.
    Text(usize),
    /// This many hexadecimal digits, with dashes between them or without.
    Hex(usize),
    Integer(i64, i64),
    Boolean,
    /// RFC 3339.
    Time,
    Object,
    Any,
    Choice(&'static [&'static str]),
    /// At most this many entries.
    List(&'static Kind, usize),
    Of(&'static Shape),
    /// By name.
    MapOf(&'static Kind),
    /// Any of these, in answers.
    Either(&'static [&'static Shape]),
}

/// What is wrong with a request, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// `runs/3/queue`.
    pub at: String,
    pub message: String,
}

pub const fn needed(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, is_needed: true, about }
}

pub const fn optional(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, is_needed: false, about }
}

impl Shape {
    /// Everything that is wrong with an object, so that one answer shows all that is to be mended.
    pub fn check(&self, object: &Map<String, Value>) -> Vec<Wrong> {
        let mut wrongs = Vec::new();
        check_fields(self.fields, object, "", &mut wrongs);
        wrongs
    }

    pub fn schema(&self) -> Value {
        let properties: Map<String, Value> =
            self.fields.iter().map(|field| (field.name.to_owned(), field.schema())).collect();
        let needed: Vec<&str> =
            self.fields.iter().filter(|field| field.is_needed).map(|field| field.name).collect();
        let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
        if !needed.is_empty() {
            schema["required"] = json!(needed);
        }
        schema
    }

    /// Of an answer: all fields are there, some of them null.
    pub fn answer_schema(&self) -> Value {
        let mut schema = self.schema();
        schema["required"] = self.fields.iter().map(|field| field.name).collect();
        schema
    }

    /// The shapes that this one is made of, itself among them.
    pub fn parts(&'static self, found: &mut Vec<&'static Shape>) {
        if found.iter().any(|known| known.name == self.name) {
            return;
        }
        found.push(self);
        self.fields.iter().for_each(|field| field.kind.parts(found));
    }
}

impl Field {
    fn schema(&self) -> Value {
        let mut schema = self.kind.schema();
        if !self.is_needed {
            schema = match schema.get("type").cloned() {
                Some(Value::String(name)) => {
                    schema["type"] = json!([name, "null"]);
                    if let Some(choices) = schema.get_mut("enum").and_then(Value::as_array_mut) {
                        choices.push(Value::Null);
                    }
                    schema
                }
                _ if matches!(self.kind, Kind::Any) => schema,
                _ => json!({ "anyOf": [schema, { "type": "null" }] }),
            };
        }
        schema["description"] = self.about.into();
        schema
    }
}

impl Kind {
    pub fn schema(&self) -> Value {
        match self {
            Kind::Text(most) => json!({ "type": "string", "maxLength": most }),
            Kind::Hex(digits) => {
                json!({ "type": "string", "pattern": format!("^-*([0-9a-fA-F]-*){{{digits}}}$") })
            }
            Kind::Integer(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Kind::Boolean => json!({ "type": "boolean" }),
            Kind::Time => json!({ "type": "string", "format": "date-time" }),
            Kind::Object => json!({ "type": "object" }),
            Kind::Any => json!({}),
            Kind::Choice(names) => json!({ "type": "string", "enum": names }),
            Kind::List(of, most) => json!({ "type": "array", "items": of.schema(), "maxItems": most }),
            Kind::Of(shape) => json!({ "$ref": format!("#/components/schemas/{}", shape.name) }),
            Kind::MapOf(of) => json!({ "type": "object", "additionalProperties": of.schema() }),
            Kind::Either(shapes) => {
                let refs = shapes.iter().map(|shape| Kind::Of(shape).schema());
                json!({ "anyOf": refs.collect::<Vec<_>>() })
            }
        }
    }

    fn parts(&self, found: &mut Vec<&'static Shape>) {
        match self {
            Kind::Of(shape) => shape.parts(found),
            Kind::List(of, _) | Kind::MapOf(of) => of.parts(found),
            Kind::Either(shapes) => shapes.iter().for_each(|shape| shape.parts(found)),
            _ => {}
        }
    }

    /// In the words of an error.
    pub fn wanted(&self) -> String {
        match self {
            Kind::Text(most) => format!("text of at most {most} bytes"),
            Kind::Hex(digits) => format!("{digits} hexadecimal digits"),
            Kind::Integer(least, most) => format!("a whole number from {least} to {most}"),
            Kind::Boolean => "true or false".into(),
            Kind::Time => "a time like 2026-02-14T08:00:00Z".into(),
            Kind::Object | Kind::Of(_) | Kind::MapOf(_) | Kind::Either(_) => "an object".into(),
            Kind::Any => "any JSON".into(),
            Kind::Choice(names) => format!("one of {}", names.join(", ")),
            Kind::List(_, most) => format!("a list of at most {most}"),
        }
    }

    fn check(&self, value: &Value, at: &str, wrongs: &mut Vec<Wrong>) {
        let fits = match (self, value) {
            (Kind::Text(most), Value::String(text)) => text.len() <= *most,
            (Kind::Hex(digits), Value::String(text)) => {
                let digit = |byte: &u8| byte.is_ascii_hexdigit();
                text.bytes().all(|byte| byte == b'-' || digit(&byte))
                    && text.bytes().filter(digit).count() == *digits
            }
            (Kind::Integer(least, most), Value::Number(number)) => {
                number.as_i64().is_some_and(|number| (*least..=*most).contains(&number))
            }
            (Kind::Boolean, Value::Bool(_)) | (Kind::Object, Value::Object(_)) | (Kind::Any, _) => true,
            (Kind::Time, Value::String(text)) => waypost_store::parse_time(text).is_some(),
            (Kind::Choice(names), Value::String(text)) => names.contains(&text.as_str()),
            (Kind::List(of, most), Value::Array(entries)) if entries.len() <= *most => {
                for (place, entry) in entries.iter().enumerate() {
                    of.check(entry, &format!("{at}/{place}"), wrongs);
                }
                true
            }
            (Kind::Of(shape), Value::Object(object)) => {
                check_fields(shape.fields, object, &format!("{at}/"), wrongs);
                true
            }
            (Kind::MapOf(of), Value::Object(object)) => {
                object.iter().for_each(|(name, value)| of.check(value, &format!("{at}/{name}"), wrongs));
                true
            }
            (Kind::Either(shapes), Value::Object(object)) => {
                shapes.iter().any(|shape| shape.check(object).is_empty())
            }
            _ => false,
        };
        if !fits {
            wrongs.push(Wrong { at: at.to_owned(), message: format!("must be {}", self.wanted()) });
        }
    }
}

/// More would only make the answer long.
const MOST_WRONGS: usize = 20;

fn check_fields(fields: &[Field], object: &Map<String, Value>, at: &str, wrongs: &mut Vec<Wrong>) {
    for name in object.keys().filter(|name| !fields.iter().any(|field| field.name == **name)) {
        let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
        let allowed = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let name: String = name.chars().take(100).collect();
        wrongs.push(Wrong {
            at: format!("{at}{name}"),
            message: format!("is no field here; allowed: {allowed}"),
        });
        if wrongs.len() >= MOST_WRONGS {
            return;
        }
    }
    for field in fields {
        let at = format!("{at}{}", field.name);
        match object.get(field.name) {
            None | Some(Value::Null) if field.is_needed && !matches!(field.kind, Kind::Any) => {
                let message = format!("is missing; it must be {}", field.kind.wanted());
                wrongs.push(Wrong { at, message });
            }
            None | Some(Value::Null) => {}
            Some(value) => field.kind.check(value, &at, wrongs),
        }
        if wrongs.len() >= MOST_WRONGS {
            return;
        }
    }
}

/// The fields of a request, after they were checked: what is asked for by name has the right kind or is not there.
#[derive(Clone, Debug, Default)]
pub struct Fields(pub Map<String, Value>);

impl Fields {
    pub fn text(&self, name: &str) -> Option<String> {
        self.0.get(name)?.as_str().map(str::to_owned)
    }

    /// Of a field that is needed.
    pub fn words(&self, name: &str) -> String {
        self.text(name).unwrap_or_default()
    }

    pub fn integer(&self, name: &str) -> Option<i64> {
        self.0.get(name)?.as_i64()
    }

    pub fn is(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| *value == Value::Bool(true))
    }

    pub fn time(&self, name: &str) -> Option<waypost_kernel::Time> {
        waypost_store::parse_time(self.0.get(name)?.as_str()?)
    }

    pub fn span_ms(&self, name: &str) -> Option<waypost_kernel::Span> {
        self.integer(name).map(waypost_kernel::Span::from_ms)
    }

    pub fn take_object(&mut self, name: &str) -> Option<Map<String, Value>> {
        match self.0.remove(name) {
            Some(Value::Object(object)) => Some(object),
            _ => None,
        }
    }

    pub fn take_value(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    pub fn texts(&self, name: &str) -> Option<Vec<String>> {
        let list = self.0.get(name)?.as_array()?;
        Some(list.iter().filter_map(|entry| entry.as_str().map(str::to_owned)).collect())
    }

    pub fn take_list(&mut self, name: &str) -> Vec<Fields> {
        let Some(Value::Array(entries)) = self.0.remove(name) else { return Vec::new() };
        entries
            .into_iter()
            .filter_map(|entry| match entry {
                Value::Object(object) => Some(Fields(object)),
                _ => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INNER: Shape = Shape { name: "Inner", fields: &[needed("n", Kind::Integer(0, 9), "")] };
    const OUTER: Shape = Shape {
        name: "Outer",
        fields: &[
            needed("name", Kind::Text(5), ""),
            optional("kind", Kind::Choice(&["a", "b"]), ""),
            optional("at", Kind::Time, ""),
            optional("list", Kind::List(&Kind::Of(&INNER), 2), ""),
        ],
    };

    fn wrong(value: &Value) -> Vec<String> {
        let wrongs = OUTER.check(value.as_object().expect("an object"));
        wrongs.into_iter().map(|wrong| format!("{} {}", wrong.at, wrong.message)).collect()
    }

    #[test]
    fn everything_that_is_wrong_is_named_with_its_place() {
        assert_eq!(wrong(&json!({"name": "n", "kind": null, "list": [{"n": 1}]})), Vec::<String>::new());
        for (value, expected) in [
            (json!({}), "name is missing; it must be text of at most 5 bytes"),
            (json!({"name": "longer"}), "name must be text of at most 5 bytes"),
            (json!({"name": "n", "kind": "c"}), "kind must be one of a, b"),
            (json!({"name": "n", "at": "now"}), "at must be a time like 2026-02-14T08:00:00Z"),
            (
                json!({"name": "n", "list": [{"n": 1}, {"n": 10}]}),
                "list/1/n must be a whole number from 0 to 9",
            ),
            (json!({"name": "n", "list": [{}, {}, {}]}), "list must be a list of at most 2"),
            (json!({"name": "n", "nam": 1}), "nam is no field here; allowed: name, kind, at, list"),
        ] {
            assert_eq!(wrong(&value), [expected], "{value}");
        }
        assert_eq!(wrong(&json!({"kind": 1, "x": 1})).len(), 3, "all at once");
    }
}
