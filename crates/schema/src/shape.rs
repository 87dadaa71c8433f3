//! The description of an object: plain data, made in constants.

use crate::text::Checked;

/// An object and its fields.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// What OpenAPI calls it: "Run". Shapes of files have none, they are rendered in place.
    pub name: &'static str,
    /// As a message says it: "a step has no key …".
    pub whose: &'static str,
    pub fields: &'static [Field],
    /// Exactly one of these is there.
    pub one_of: &'static [&'static str],
    /// Fields beside those that are listed.
    pub others: Option<Others>,
}

#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    /// Of a request or a file: it has to be there. Of an answer: it is never null.
    pub is_needed: bool,
    /// Of an answer: it is there only if it was asked for.
    pub may_be_left_out: bool,
    /// One sentence that stands alone.
    pub description: &'static str,
    /// As a file writes it; empty: the kind's own.
    pub example: &'static str,
    /// What others call the same thing: the parameter of a route that asks for what this field holds.
    pub aliases: &'static [&'static str],
}

/// Names that begin with a prefix, as `on_lost` and `on_retry` do.
#[derive(Clone, Copy, Debug)]
pub struct Others {
    pub prefix: &'static str,
    pub kind: &'static Kind,
}

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Text of at most so many bytes, as it is.
    Text(usize),
    /// Text of a certain form.
    Format(&'static Format),
    Integer(i64, i64),
    /// Zero or more.
    Number,
    Boolean,
    Choice(&'static [&'static str]),
    /// Any JSON, kept as it is.
    Any,
    /// Any JSON object, kept as it is.
    Object,
    /// Any value, of which each part is a node; with its name in the reference.
    Parts(&'static str),
    List {
        of: &'static Kind,
        least: usize,
        most: usize,
    },
    /// A list whose places have meanings: one that lacks a part is no row.
    Row(&'static Row),
    /// One text, or a list; with its name in the reference.
    TextOrList {
        text: &'static Kind,
        list: &'static Kind,
        name: &'static str,
    },
    /// Values by names of the writer's own choice.
    Map {
        of: &'static Kind,
        keys: Option<&'static Keys>,
        most: usize,
    },
    Of(&'static Shape),
    /// Any of these, in answers.
    Either(&'static [&'static Shape]),
}

/// The form of a text. The crates that know what it means define it.
#[derive(Debug)]
pub struct Format {
    /// In the reference: "a duration".
    pub name: &'static str,
    /// After "not" or "must be": "a text between quotes".
    pub wanted: &'static str,
    /// As a file writes it.
    pub example: &'static str,
    /// A regular expression for programs that read JSON Schema.
    pub pattern: Option<&'static str>,
    /// JSON Schema's `format`.
    pub format: Option<&'static str>,
    pub most_chars: Option<usize>,
    pub may_be_empty: bool,
    pub check: fn(&str) -> Checked,
}

#[derive(Debug)]
pub struct Row {
    /// "a transition is a row of five words"
    pub whose: &'static str,
    pub of: &'static Kind,
    pub least: usize,
    pub most: usize,
    pub rule: &'static str,
    pub hint: &'static str,
}

/// What the names of a map may look like.
#[derive(Debug)]
pub struct Keys {
    pub pattern: Option<&'static str>,
    pub not: Option<&'static str>,
    pub check: fn(&str) -> Checked,
}

pub const fn needed(name: &'static str, kind: Kind, description: &'static str) -> Field {
    Field { name, kind, is_needed: true, may_be_left_out: false, description, example: "", aliases: &[] }
}

pub const fn optional(name: &'static str, kind: Kind, description: &'static str) -> Field {
    Field { is_needed: false, ..needed(name, kind, description) }
}

/// The fields of both, as many as there are.
pub const fn joined<const N: usize>(first: &[Field], rest: &[Field]) -> [Field; N] {
    let mut all = [needed("", Kind::Any, ""); N];
    let mut at = 0;
    while at < N {
        all[at] = if at < first.len() { first[at] } else { rest[at - first.len()] };
        at += 1;
    }
    all
}

impl Field {
    #[must_use]
    pub const fn like(self, example: &'static str) -> Field {
        Field { example, ..self }
    }

    #[must_use]
    pub const fn also(self, aliases: &'static [&'static str]) -> Field {
        Field { aliases, ..self }
    }
}

impl Shape {
    /// Of a file.
    pub const fn of_file(whose: &'static str, fields: &'static [Field]) -> Shape {
        Shape { name: "", whose, fields, one_of: &[], others: None }
    }

    /// Of a request or an answer.
    pub const fn of_api(name: &'static str, fields: &'static [Field]) -> Shape {
        Shape { name, whose: name, fields, one_of: &[], others: None }
    }

    #[must_use]
    pub const fn with_one_of(self, one_of: &'static [&'static str]) -> Shape {
        Shape { one_of, ..self }
    }

    #[must_use]
    pub const fn with_others(self, prefix: &'static str, kind: &'static Kind) -> Shape {
        Shape { others: Some(Others { prefix, kind }), ..self }
    }

    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.fields.iter().map(|field| field.name).collect()
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

impl Format {
    /// A text between quotes with nothing special about it: what others are made of.
    pub const TEXT: Format = Format {
        name: "a text",
        wanted: "a text between quotes",
        example: r#""…""#,
        pattern: None,
        format: None,
        most_chars: None,
        may_be_empty: false,
        check: crate::text::some_text,
    };
}

impl Kind {
    fn parts(&self, found: &mut Vec<&'static Shape>) {
        match self {
            Kind::Of(shape) => shape.parts(found),
            Kind::List { of, .. } | Kind::Map { of, .. } => of.parts(found),
            Kind::Either(shapes) => shapes.iter().for_each(|shape| shape.parts(found)),
            _ => {}
        }
    }

    /// Null is a value of it, not what was left out.
    pub(crate) fn may_be_null(&self) -> bool {
        matches!(self, Kind::Any)
    }

    /// In the words of an error: "must be …".
    pub fn wanted(&self) -> String {
        match self {
            Kind::Text(most) => format!("text of at most {most} bytes"),
            Kind::Format(format) => format.wanted.into(),
            Kind::Integer(least, most) => format!("a whole number from {least} to {most}"),
            Kind::Number => "a number".into(),
            Kind::Boolean => "true or false".into(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Any | Kind::Parts(_) => "any JSON".into(),
            Kind::Object | Kind::Of(_) | Kind::Map { .. } | Kind::Either(_) => "an object".into(),
            Kind::List { least, most, .. } if *least > 0 => format!("a list of {least} to {most}"),
            Kind::List { most, .. } | Kind::Row(Row { most, .. }) => format!("a list of at most {most}"),
            Kind::TextOrList { name, .. } => (*name).into(),
        }
    }

    /// As a file writes one.
    pub(crate) fn example(&self) -> String {
        match self {
            Kind::Format(format) => format.example.into(),
            Kind::Integer(..) | Kind::Number => "5".into(),
            Kind::Boolean => "true".into(),
            Kind::Choice(words) => format!("{:?}", words.first().copied().unwrap_or_default()),
            Kind::List { of, .. } | Kind::Row(Row { of, .. }) => format!("[{}]", of.example()),
            Kind::Object | Kind::Of(_) | Kind::Map { .. } | Kind::Either(_) => "{ … }".into(),
            Kind::Text(_) | Kind::Any | Kind::Parts(_) | Kind::TextOrList { .. } => r#""…""#.into(),
        }
    }
}
