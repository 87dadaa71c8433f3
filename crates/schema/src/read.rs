//! The reader: values against their shape. What is sound becomes nodes, what is not is told with its place.

mod scalars;

use std::path::Path as FilePath;

use serde_json::{Map, Value as Json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::input::{Content, Entry, Input, Lines, Opened, entries, of_members};
use crate::node::{Node, Value};
use crate::path::Path;
use crate::problem::{Problem, Problems, Report};
use crate::shape::{Field, Keys, Kind, Shape};
use crate::text::Fault;
use crate::words::{instead_of, quoted};

/// Of what a file may hold by any name.
const MAX_DEPTH: usize = 32;
/// More would only make the answer to a request long.
const MAX_OF_A_REQUEST: usize = 20;

/// A kind of TOML files.
#[derive(Debug)]
pub struct Document {
    pub shape: &'static Shape,
    pub max_bytes: usize,
    /// What to do about a file that is larger.
    pub too_large: &'static str,
    /// What to write where the parser is lost: a part of its message, and the hint. The last resort has an empty part.
    pub syntax: &'static [(&'static str, &'static str)],
    /// Under a `[table]` TOML counts what follows as a part of it. These keys of the file may stand at the end of that
    /// table: (table, key).
    pub at_the_end: &'static [(&'static str, &'static str)],
}

/// The parser says what it expected; people want to know what to write.
const SYNTAX: [(&str, &str); 8] = [
    ("duplicate key", "the key stands twice: remove one of the two"),
    ("recurs", "nest less deeply"),
    ("escape", r"write \\ for a backslash, or put the text between single quotes"),
    ("visible", "close the text with its quote on the same line, and remove characters that cannot be seen"),
    ("string", "close the text with the quote that opened it, on the same line"),
    ("array", "put a comma between the values of a list, and close each [ with a ]"),
    ("inline table", "close the { … }, with a comma between its keys"),
    ("key with no value", "write key = value"),
];

impl Document {
    /// The whole file as a node, with what is wrong about its form. An error: it is no TOML at all.
    pub fn read(&self, text: &str, file: &FilePath) -> Result<(Node, Report), Problems> {
        if text.len() > self.max_bytes {
            let message = format!("the file is larger than {} KiB", self.max_bytes / 1024);
            return Err(Problems::one(file, 1, "too-large", &message, self.too_large));
        }
        let lines = Lines::of(text);
        let table = DeTable::parse(text).map_err(|error| {
            let line = lines.at(error.span().map_or(0, |span| span.start));
            Problems::one(file, line, "syntax", error.message(), self.hint(error.message()))
        })?;
        let report = Report::new(file, lines.last());
        let mut reader = Reader { lines, report, root: Some(self.shape), is_file: true };
        let mut table = table.into_inner();
        for (section, key) in self.at_the_end {
            reader.lift(&mut table, section, key);
        }
        let entries = entries(table, &reader.lines);
        let root = reader.shaped(entries, self.shape, 1, &Path::ROOT);
        Ok((root, reader.report))
    }

    fn hint(&self, message: &str) -> &'static str {
        let own = self.syntax.iter().filter(|(part, _)| !part.is_empty());
        let known = own.chain(&SYNTAX).find(|(part, _)| message.contains(part));
        known.or(self.syntax.last()).map_or("write key = value", |(_, hint)| hint)
    }
}

/// What was read from a file once and is stored as JSON: the same checks, and paths without lines.
pub fn read_json(object: Map<String, Json>, shape: &Shape) -> (Node, Report) {
    let mut reader = Reader {
        lines: Lines::default(),
        report: Report::new(FilePath::new(""), 0),
        root: None,
        is_file: true,
    };
    let root = reader.shaped(of_members(object), shape, 0, &Path::ROOT);
    (root, reader.report)
}

/// What somebody sent. Everything that is wrong, so that one answer shows all that is to be mended.
pub fn read_request(object: Map<String, Json>, shape: &Shape) -> Result<Node, Vec<Problem>> {
    let mut reader =
        Reader { lines: Lines::default(), report: Report::default(), root: None, is_file: false };
    let root = reader.shaped(of_members(object), shape, 0, &Path::ROOT);
    reader.report.done(root).map_err(|problems| problems.0)
}

/// One walk over a value.
struct Reader<'t> {
    lines: Lines<'t>,
    report: Report,
    root: Option<&'static Shape>,
    /// People wrote it: places are kept with the nodes, and messages say what to write. Programs send requests: their
    /// messages say what must be there.
    is_file: bool,
}

impl Reader<'_> {
    fn value(&mut self, input: Input<'_>, kind: &Kind, path: &Path<'_>) -> Option<Node> {
        match (kind, input) {
            (Kind::Any, Input::Json(json))
            | (Kind::Object | Kind::Either(_), Input::Json(json @ Json::Object(_))) => {
                Some(self.node(0, path, Value::Json(json)))
            }
            (kind, input) => self.opened(input.open(&self.lines), kind, path),
        }
    }

    fn opened(&mut self, found: Opened<'_>, kind: &Kind, path: &Path<'_>) -> Option<Node> {
        let line = found.line;
        let value = match (kind, found.content) {
            (Kind::Of(shape), Content::Table(entries)) => {
                return Some(self.shaped(entries, shape, line, path));
            }
            (Kind::Map { of, keys, .. }, Content::Table(entries)) => {
                self.not_too_many(entries.len(), kind, line, path)?;
                Value::Table(self.map(entries, of, *keys, path))
            }
            (Kind::List { of, .. }, Content::List(items)) => {
                self.not_too_many(items.len(), kind, line, path)?;
                Value::List(self.list(items, of, path))
            }
            (Kind::Row(row), Content::List(cells)) if (row.least..=row.most).contains(&cells.len()) => {
                let count = cells.len();
                let cells = self.list(cells, row.of, path);
                // A cell that is not there was told already.
                (cells.len() == count).then_some(Value::List(cells))?
            }
            (Kind::Row(row), content) => {
                let found = match content {
                    Content::List(cells) => format!("a row of {}", cells.len()),
                    _ => "no row".to_owned(),
                };
                let fault = Fault::new(row.rule, format!("{}, not {found}", row.whose), row.hint);
                return self.fault(&fault, kind, line, path);
            }
            (Kind::TextOrList { text, list, .. }, content @ (Content::Text(_) | Content::List(_))) => {
                let kind = if matches!(content, Content::Text(_)) { text } else { list };
                return self.opened(Opened { content, ..found }, kind, path);
            }
            (Kind::Parts(_) | Kind::Any, content) => {
                return self.part(Opened { content, ..found }, path, 0);
            }
            (kind, content) => return self.scalar(Opened { content, ..found }, kind, path),
        };
        Some(self.node(line, path, value))
    }

    fn node(&self, line: usize, path: &Path<'_>, value: Value) -> Node {
        let field = if self.is_file { path.in_file() } else { String::new() };
        Node { line, field, value }
    }

    fn shaped(&mut self, entries: Vec<Entry<'_>>, shape: &Shape, line: usize, path: &Path<'_>) -> Node {
        self.one_of(&entries, shape, line, path);
        let is_other = |name: &str| shape.others.is_some_and(|others| name.starts_with(others.prefix));
        let mut rest: Vec<Entry<'_>> = Vec::new();
        for entry in entries {
            match shape.field(&entry.name).is_some() || is_other(&entry.name) {
                true => rest.push(entry),
                false => self.unknown(&entry, shape, path),
            }
        }
        let mut found = Vec::new();
        for field in shape.fields {
            let at = rest.iter().position(|entry| entry.name == field.name);
            let given = at.map(|at| rest.remove(at).value);
            // Null is what was left out, where null is no value of its own.
            let is_null = |input: &Input<'_>| matches!(input, Input::Json(Json::Null));
            match given.filter(|given| field.kind.may_be_null() || !is_null(given)) {
                Some(given) => {
                    let node = self.value(given, &field.kind, &path.key(field.name));
                    found.extend(node.map(|node| (field.name.to_owned(), node)));
                }
                None if field.is_needed => self.missing(field, shape, line, path),
                None => {}
            }
        }
        for entry in rest {
            let Some(others) = shape.others else { continue };
            let node = self.value(entry.value, others.kind, &path.key(&entry.name));
            found.extend(node.map(|node| (entry.name.to_string(), node)));
        }
        self.node(line, path, Value::Table(found))
    }

    fn unknown(&mut self, entry: &Entry<'_>, shape: &Shape, path: &Path<'_>) {
        let name = &*entry.name;
        let path = path.key(name);
        if !self.is_file {
            return self.of_request(&path, format!("is no field here; {}", instead_of(name, &shape.names())));
        }
        let message = format!("{} has no key {}", shape.whose, quoted(name));
        // What stands below a [table] belongs to it: the commonest slip of people who are new to TOML.
        let is_above = |root: &Shape| !std::ptr::eq(shape, root) && root.field(name).is_some();
        let hint = if self.root.is_some_and(is_above) {
            format!("move it above the first [section]: there `{name}` is a key of the file")
        } else {
            instead_of(name, &shape.names())
        };
        self.report.add(entry.line, &path.in_file(), "unknown-key", &message, &hint);
    }

    fn missing(&mut self, field: &Field, shape: &Shape, line: usize, path: &Path<'_>) {
        let path = path.key(field.name);
        if !self.is_file {
            return self.of_request(&path, format!("is missing; it must be {}", field.kind.wanted()));
        }
        let example = if field.example.is_empty() { field.kind.example() } else { field.example.to_owned() };
        let message = format!("{} has no `{}`", shape.whose, field.name);
        let hint = format!("add {} = {example}: {}", field.name, field.description);
        self.report.add(line, &path.in_file(), "missing-key", &message, &hint);
    }

    fn one_of(&mut self, entries: &[Entry<'_>], shape: &Shape, line: usize, path: &Path<'_>) {
        let named = |name: &&str| entries.iter().find(|entry| entry.name == **name);
        let present: Vec<&Entry<'_>> = shape.one_of.iter().filter_map(named).collect();
        let names: Vec<&str> = present.iter().map(|entry| &*entry.name).collect();
        match present.as_slice() {
            [] if !shape.one_of.is_empty() => {
                let message = format!("{} does not say what to do", shape.whose);
                let hint = format!("add one of: {}", shape.one_of.join(", "));
                self.report.add(line, &path.in_file(), "one-action", &message, &hint);
            }
            [_, second, ..] => {
                let message = format!("{} has {}", shape.whose, names.join(" and "));
                let hint = format!("keep one of: {}", names.join(", "));
                let path = path.key(&second.name).in_file();
                self.report.add(second.line, &path, "one-action", &message, &hint);
            }
            _ => {}
        }
    }

    fn map(
        &mut self,
        entries: Vec<Entry<'_>>,
        of: &Kind,
        keys: Option<&Keys>,
        path: &Path<'_>,
    ) -> Vec<(String, Node)> {
        let mut found = Vec::new();
        for entry in entries {
            let path = path.key(&entry.name);
            if let Some(Err(fault)) = keys.map(|keys| (keys.check)(&entry.name)) {
                self.fault(&fault, of, entry.line, &path);
            }
            let node = self.value(entry.value, of, &path);
            found.extend(node.map(|node| (entry.name.to_string(), node)));
        }
        found
    }

    fn list(&mut self, items: Vec<Input<'_>>, of: &Kind, path: &Path<'_>) -> Vec<Node> {
        let mut found = Vec::new();
        for (at, item) in items.into_iter().enumerate() {
            found.extend(self.value(item, of, &path.index(at)));
        }
        found
    }

    /// Any value, part by part.
    fn part(&mut self, found: Opened<'_>, path: &Path<'_>, depth: usize) -> Option<Node> {
        let line = found.line;
        if depth > MAX_DEPTH {
            let message = format!("values are nested more than {MAX_DEPTH} deep");
            let fault = Fault::new("too-long", message, "nest less deeply");
            return self.fault(&fault, &Kind::Any, line, path);
        }
        let value = match found.content {
            Content::Null => Value::Null,
            Content::Datetime(time) => Value::Text(time),
            Content::List(items) => {
                let mut parts = Vec::new();
                for (at, item) in items.into_iter().enumerate() {
                    parts.extend(self.part(item.open(&self.lines), &path.index(at), depth + 1));
                }
                Value::List(parts)
            }
            Content::Table(entries) => {
                let mut parts = Vec::new();
                for Entry { name, value, .. } in entries {
                    let part = self.part(value.open(&self.lines), &path.key(&name), depth + 1);
                    parts.extend(part.map(|part| (name.into_owned(), part)));
                }
                Value::Table(parts)
            }
            content => {
                let kind = scalars::of_part(&content);
                return self.scalar(Opened { content, ..found }, &kind, path);
            }
        };
        Some(self.node(line, path, value))
    }

    /// None: it is not worth reading on.
    fn not_too_many(&mut self, count: usize, kind: &Kind, line: usize, path: &Path<'_>) -> Option<()> {
        let (least, most) = match kind {
            Kind::List { least, most, .. } => (*least, *most),
            Kind::Map { most, .. } => (0, *most),
            _ => (0, usize::MAX),
        };
        if count < least {
            let hint = "write what belongs there, or remove the key";
            self.fault(&Fault::new("empty", "the list is empty", hint), kind, line, path);
        } else if count > most {
            let message = format!("there are {count}, at most {most} are allowed");
            let hint = "split the file, or let a command do more";
            self.fault(&Fault::new("too-long", message, hint), kind, line, path);
        }
        (self.is_file || count <= most).then_some(())
    }

    /// Nothing is made of it.
    fn fault(&mut self, fault: &Fault, kind: &Kind, line: usize, path: &Path<'_>) -> Option<Node> {
        match self.is_file {
            true => self.report.add(line, &path.in_file(), fault.rule, &fault.message, &fault.hint),
            false => self.of_request(path, format!("must be {}", kind.wanted())),
        }
        None
    }

    fn of_request(&mut self, path: &Path<'_>, message: String) {
        if self.report.count() < MAX_OF_A_REQUEST {
            self.report.push(Problem { field: path.in_request(), message, ..Problem::default() });
        }
    }

    /// Takes a key of the file out of the table that it stands at the end of.
    fn lift(&mut self, table: &mut DeTable<'_>, section: &str, key: &str) {
        let below = match table.get_mut(section).map(Spanned::get_mut) {
            Some(DeValue::Table(inner)) => inner.remove_entry(key),
            _ => None,
        };
        let Some((name, value)) = below else { return };
        if table.contains_key(key) {
            let message = format!("`{key}` stands twice, here under [{section}]");
            let hint = format!("keep one; as a name of [{section}] the word is taken");
            let line = self.lines.at(name.span().start);
            self.report.add(line, key, "two-tables", &message, &hint);
        } else {
            table.insert(name, value);
        }
    }
}
