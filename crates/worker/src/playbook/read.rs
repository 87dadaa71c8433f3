//! Reads a playbook file: TOML with the line of every value kept, checked against the declared format.

mod scalars;

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use waypost_kernel::lifecycle::{instead_of, quoted};

use super::format::{Key, Keys, Kind, Shape};
use super::node::{Node, Value};
use super::problem::{Problem, Problems};

pub const MAX_FILE_BYTES: usize = 256 * 1024;
const MAX_DEPTH: usize = 32;
const MAX_MESSAGE_CHARS: usize = 240;
const MAX_MEND_CHARS: usize = 800;

/// Marks that turn the direction of text around, or take no room in it.
const UNSEEN: [std::ops::RangeInclusive<char>; 4] =
    ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2060}'..='\u{2069}', '\u{feff}'..='\u{feff}'];

static EMPTY: Shape = Shape { whose: "nothing", keys: &[], one_of: &[] };

/// Of one playbook: where lines end, and what was found wrong so far. All of it is collected instead of
/// stopping at the first: people mend a file in one go.
#[derive(Debug)]
pub struct Reader<'t> {
    file: &'t Path,
    text: &'t str,
    line_ends: Vec<usize>,
    root: &'static Shape,
    pub problems: Vec<Problem>,
}

/// The whole file as a node, with what is wrong about its form. An error: it is no TOML at all.
pub fn read<'t>(text: &'t str, file: &'t Path, root: &'static Shape) -> Result<(Node, Reader<'t>), Problems> {
    if text.len() > MAX_FILE_BYTES {
        let message = "the file is larger than 256 KiB";
        return Err(Problems::one(
            file,
            1,
            "too-large",
            message,
            "split it, or let a command read the long part",
        ));
    }
    let mut reader = Reader::new(text, file, root);
    let table = DeTable::parse(text).map_err(|error| {
        let line = reader.line_at(error.span().map_or(0, |span| span.start));
        Problems::one(file, line, "syntax", error.message(), mend_of_syntax(error.message()))
    })?;
    let root = reader.shaped(table.get_ref(), root, 1, "", 0);
    Ok((root, reader))
}

/// The parser says what it expected; people want to know what to write.
fn mend_of_syntax(message: &str) -> &'static str {
    const MENDS: [(&str, &str); 8] = [
        ("duplicate key", "the key stands twice: remove one of the two"),
        ("recurs", "nest less deeply"),
        ("escape", r"write \\ for a backslash, or put the text between single quotes"),
        (
            "visible",
            "close the text with its quote on the same line, and remove characters that cannot be seen",
        ),
        ("string", "close the text with the quote that opened it, on the same line"),
        ("array", "put a comma between the values of a list, and close each [ with a ]"),
        ("inline table", "close the { … }, with a comma between its keys"),
        ("key with no value", "write key = value"),
    ];
    let known = MENDS.iter().find(|(part, _)| message.contains(part));
    known.map_or("write key = value; texts stand between quotes, steps begin with [[step]]", |(_, mend)| mend)
}

impl<'t> Reader<'t> {
    /// Of nothing, for the moment in which another has the real one.
    pub(crate) fn empty() -> Reader<'t> {
        Reader::new("", Path::new(""), &EMPTY)
    }

    fn new(text: &'t str, file: &'t Path, root: &'static Shape) -> Reader<'t> {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at);
        let mut line_ends: Vec<usize> = ends.collect();
        if !text.is_empty() && !text.ends_with('\n') {
            line_ends.push(text.len());
        }
        Reader { file, text, line_ends, root, problems: Vec::new() }
    }

    fn value(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        kind: &Kind,
        field: &str,
        depth: usize,
    ) -> Option<Node> {
        let line = self.line(value);
        let found = match kind {
            Kind::Table(shape) => {
                let Some(table) = value.get_ref().as_table() else {
                    return self.wrong_type(value, field, "a table");
                };
                return Some(self.shaped(table, shape, line, field, depth + 1));
            }
            Kind::Tables { of, at_most } => self.tables(value, of, *at_most, field, depth)?,
            Kind::Map { of, keys, at_most } => self.map(value, (of, *keys, *at_most), field, depth)?,
            Kind::List { of, at_least, at_most } => {
                self.list(value, of, (*at_least, *at_most), field, depth)?
            }
            Kind::Names if value.get_ref().as_str().is_some() => {
                return self.value(value, &Kind::Expression, field, depth);
            }
            Kind::Names => self.list(value, &Kind::Template, (1, 100), field, depth)?,
            Kind::Json | Kind::Anything => return self.json(value, field, depth),
            scalar => return self.scalar(value, scalar, field),
        };
        Some(Node { line, field: field.to_owned(), value: found })
    }

    fn shaped(&mut self, table: &DeTable<'_>, shape: &Shape, line: usize, field: &str, depth: usize) -> Node {
        let mut entries = Vec::new();
        for (name, value) in table {
            let inner = join(field, name.get_ref());
            match shape.key(name.get_ref()) {
                Some(key) => {
                    let node = self.value(value, &key.kind, &inner, depth);
                    entries.extend(node.map(|node| (key.name.to_owned(), node)));
                }
                None => self.unknown_key(self.line(name), &inner, name.get_ref(), shape),
            }
        }
        for key in shape.keys.iter().filter(|key| key.needed && !table.contains_key(key.name)) {
            self.missing(line, field, key, shape);
        }
        self.one_of(table, shape, line, field);
        Node { line, field: field.to_owned(), value: Value::Table(entries) }
    }

    fn unknown_key(&mut self, line: usize, field: &str, name: &str, shape: &Shape) {
        let message = format!("{} has no key {}", shape.whose, quoted(name));
        // What stands below a [table] belongs to it: the commonest slip of people who are new to TOML.
        let mend = if !std::ptr::eq(shape, self.root) && self.root.key(name).is_some() {
            format!("move it above the first [section]: there `{name}` is a key of the file")
        } else {
            instead_of(name, &shape.names())
        };
        self.problem(line, field, "unknown-key", &message, &mend);
    }

    fn missing(&mut self, line: usize, field: &str, key: &Key, shape: &Shape) {
        let example = match key.kind {
            Kind::Clock => r#""22:00""#.to_owned(),
            Kind::Rate => r#""2/s""#.to_owned(),
            Kind::Duration => r#""60s""#.to_owned(),
            Kind::Whole { .. } => "5".to_owned(),
            Kind::Choice(words) => format!("{:?}", words.first().copied().unwrap_or_default()),
            _ => r#""…""#.to_owned(),
        };
        let message = format!("{} has no `{}`", shape.whose, key.name);
        let mend = format!("add {} = {example}: {}", key.name, key.about);
        self.problem(line, &join(field, key.name), "missing-key", &message, &mend);
    }

    fn one_of(&mut self, table: &DeTable<'_>, shape: &Shape, line: usize, field: &str) {
        let present: Vec<&str> =
            shape.one_of.iter().copied().filter(|name| table.contains_key(*name)).collect();
        let ways = shape.one_of.join(", ");
        match present.as_slice() {
            [] if !shape.one_of.is_empty() => {
                let message = format!("{} does not say what to do", shape.whose);
                self.problem(line, field, "one-action", &message, &format!("add one of: {ways}"));
            }
            [_, second, ..] => {
                let line = table.get_key_value(*second).map_or(line, |(key, _)| self.line(key));
                let message = format!("{} has {}", shape.whose, present.join(" and "));
                let field = join(field, second);
                self.problem(
                    line,
                    &field,
                    "one-action",
                    &message,
                    &format!("keep one of: {}", present.join(", ")),
                );
            }
            _ => {}
        }
    }

    fn tables(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        shape: &Shape,
        at_most: usize,
        field: &str,
        depth: usize,
    ) -> Option<Value> {
        let Some(tables) = value.get_ref().as_array() else {
            return self.wrong_type(value, field, &format!("a list of tables: write [[{field}]] above each"));
        };
        self.not_too_many(self.line(value), field, tables.len(), at_most);
        let mut found = Vec::new();
        for (at, table) in tables.iter().enumerate() {
            let field = format!("{field}[{at}]");
            match table.get_ref().as_table() {
                Some(inner) => {
                    let line = self.line(table);
                    found.push(self.shaped(inner, shape, line, &field, depth + 1));
                }
                None => {
                    self.wrong_type::<()>(table, &field, "a table");
                }
            }
        }
        Some(Value::List(found))
    }

    fn map(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        (of, keys, at_most): (&Kind, Keys, usize),
        field: &str,
        depth: usize,
    ) -> Option<Value> {
        let Some(table) = value.get_ref().as_table() else {
            return self.wrong_type(value, field, "a table of names");
        };
        self.not_too_many(self.line(value), field, table.len(), at_most);
        let mut found = Vec::new();
        for (name, value) in table {
            let inner = join(field, name.get_ref());
            self.key_of_map(self.line(name), name.get_ref(), keys, &inner);
            let node = self.value(value, of, &inner, depth + 1);
            found.extend(node.map(|node| (name.get_ref().to_string(), node)));
        }
        Some(Value::Table(found))
    }

    fn list(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        of: &Kind,
        (at_least, at_most): (usize, usize),
        field: &str,
        depth: usize,
    ) -> Option<Value> {
        let Some(items) = value.get_ref().as_array() else {
            return self.wrong_type(value, field, "a list between [ and ]");
        };
        let line = self.line(value);
        if items.len() < at_least {
            self.problem(
                line,
                field,
                "empty",
                "the list is empty",
                "write what belongs there, or remove the key",
            );
        }
        self.not_too_many(line, field, items.len(), at_most);
        let mut found = Vec::new();
        for (at, item) in items.iter().enumerate() {
            found.extend(self.value(item, of, &format!("{field}[{at}]"), depth + 1));
        }
        Some(Value::List(found))
    }

    fn json(&mut self, value: &Spanned<DeValue<'_>>, field: &str, depth: usize) -> Option<Node> {
        let line = self.line(value);
        if depth > MAX_DEPTH {
            let message = format!("values are nested more than {MAX_DEPTH} deep");
            self.problem(line, field, "too-long", &message, "nest less deeply");
            return None;
        }
        let found = match value.get_ref() {
            DeValue::String(_) => return self.scalar(value, &Kind::Template, field),
            DeValue::Integer(_) => return self.any_integer(value, field),
            DeValue::Float(_) => return self.scalar(value, &Kind::Number, field),
            DeValue::Boolean(value) => Value::Boolean(*value),
            DeValue::Datetime(time) => Value::Text(time.to_string()),
            DeValue::Array(items) => {
                let items: Vec<Option<Node>> = items
                    .iter()
                    .enumerate()
                    .map(|(at, item)| self.json(item, &format!("{field}[{at}]"), depth + 1))
                    .collect();
                Value::List(items.into_iter().flatten().collect())
            }
            DeValue::Table(table) => {
                let mut entries = Vec::new();
                for (name, value) in table {
                    let node = self.json(value, &join(field, name.get_ref()), depth + 1);
                    entries.extend(node.map(|node| (name.get_ref().to_string(), node)));
                }
                Value::Table(entries)
            }
        };
        Some(Node { line, field: field.to_owned(), value: found })
    }

    fn not_too_many(&mut self, line: usize, field: &str, count: usize, at_most: usize) {
        if count > at_most {
            let message = format!("there are {count}, at most {at_most} are allowed");
            self.problem(line, field, "too-long", &message, "split the file, or let a command do more");
        }
    }

    fn wrong_type<T>(&mut self, value: &Spanned<DeValue<'_>>, field: &str, wanted: &str) -> Option<T> {
        let found = value.get_ref().type_str();
        let article = if found.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
        let message = format!("this is {article} {found}, not {wanted}");
        self.problem(self.line(value), field, "wrong-type", &message, &format!("write {wanted}"));
        None
    }

    fn line<T>(&self, value: &Spanned<T>) -> usize {
        self.line_at(value.span().start)
    }

    /// What is missing at the end of the file is told of its last line.
    fn line_at(&self, offset: usize) -> usize {
        let before = self.line_ends.partition_point(|end| *end < offset);
        (before + 1).min(self.line_ends.len().max(1))
    }

    pub fn problem(&mut self, line: usize, field: &str, rule: &'static str, message: &str, mend: &str) {
        self.problems.push(Problem {
            file: self.file.to_owned(),
            line: line.min(self.line_ends.len().max(1)),
            field: field.to_owned(),
            rule,
            message: harmless(message, MAX_MESSAGE_CHARS),
            mend: harmless(mend, MAX_MEND_CHARS),
        });
    }
}

/// Names that a message lists are the file's own words: short, and without characters that a terminal would obey.
fn harmless(text: &str, max_chars: usize) -> String {
    let is_plain = |c: char| c == '\n' || !(c.is_control() || UNSEEN.iter().any(|range| range.contains(&c)));
    let mut shown = String::new();
    for (at, c) in text.chars().enumerate() {
        if at == max_chars {
            shown.push('…');
            break;
        }
        match c {
            c if is_plain(c) => shown.push(c),
            c => shown.extend(c.escape_unicode()),
        }
    }
    shown
}

/// A field's path with one more name, short and without characters that a terminal would obey.
fn join(field: &str, name: &str) -> String {
    let plain = !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        && name.len() <= 64;
    let name = if plain { name.to_owned() } else { quoted(name).replace('`', "\"") };
    if field.is_empty() { name } else { format!("{field}.{name}") }
}
