//! Values of a file by type: each is read, or told as a problem with its line.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{At, Reader};
use crate::lifecycle::problem::{Problem, instead_of, quoted};
use crate::time::Span;

impl Reader {
    pub(super) fn new(text: &str) -> Reader {
        let line_ends =
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        let mut reader = Reader { line_ends, problems: Vec::new() };
        if !text.is_empty() && !text.ends_with('\n') {
            reader.line_ends.push(text.len());
        }
        reader
    }

    /// A comma-separated cell, each word from a known list.
    pub(super) fn list<T: Copy>(
        &mut self,
        cell: &At<String>,
        what: &str,
        known: &[T],
        name: fn(T) -> &'static str,
    ) -> Vec<At<T>> {
        let words = cell.value.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.filter_map(|word| self.known_word(cell.line, word, what, known, name)).collect()
    }

    pub(super) fn choice<T: Copy>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        what: &str,
        known: &[T],
        name: fn(T) -> &'static str,
    ) -> Option<At<T>> {
        let word = self.word(value, what)?;
        self.known_word(word.line, &word.value, what, known, name)
    }

    fn known_word<T: Copy>(
        &mut self,
        line: usize,
        word: &str,
        what: &str,
        known: &[T],
        name: fn(T) -> &'static str,
    ) -> Option<At<T>> {
        if let Some(value) = known.iter().copied().find(|candidate| name(*candidate) == word) {
            return Some(At { line, value });
        }
        let names: Vec<&str> = known.iter().map(|candidate| name(*candidate)).collect();
        let mend = instead_of(word, &names);
        self.problem(line, "unknown-word", &format!("there is no {what} {}", quoted(word)), &mend);
        None
    }

    pub(super) fn word(&mut self, value: &Spanned<DeValue<'_>>, what: &str) -> Option<At<String>> {
        let line = self.line(value);
        let word = value.get_ref().as_str().map(|word| At { line, value: word.to_owned() });
        word.or_else(|| self.wrong_type(value, what, "a text between quotes"))
    }

    pub(super) fn words(&mut self, value: &Spanned<DeValue<'_>>, what: &str) -> Vec<At<String>> {
        let Some(list) = value.get_ref().as_array() else {
            self.wrong_type::<()>(value, what, "a list of texts between quotes");
            return Vec::new();
        };
        list.iter().filter_map(|item| self.word(item, what)).collect()
    }

    pub(super) fn integer(&mut self, value: &Spanned<DeValue<'_>>, what: &str) -> Option<At<i64>> {
        let line = self.line(value);
        let Some(digits) = value.get_ref().as_integer() else {
            return self.wrong_type(value, what, "a whole number");
        };
        let parsed = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
        if parsed.is_none() {
            self.problem(line, "bad-number", &format!("{what} is out of range"), "write a smaller number");
        }
        parsed.map(|value| At { line, value })
    }

    pub(super) fn boolean(&mut self, value: &Spanned<DeValue<'_>>, what: &str) -> Option<At<bool>> {
        let line = self.line(value);
        let parsed = value.get_ref().as_bool().map(|value| At { line, value });
        parsed.or_else(|| self.wrong_type(value, what, "true or false"))
    }

    pub(super) fn span(&mut self, value: &Spanned<DeValue<'_>>, what: &str) -> Option<At<Span>> {
        let Some(word) = value.get_ref().as_str() else {
            return self.wrong_type(value, what, r#"a length of time between quotes, such as "60s" or "7d""#);
        };
        let word = At { line: self.line(value), value: word.to_owned() };
        match Span::parse(&word.value) {
            Some(span) if span > Span::ZERO => Some(At { line: word.line, value: span }),
            _ => {
                let message = format!("{what} = {} is no length of time", quoted(&word.value));
                let mend = "write a whole number above 0 and a unit: 500ms, 60s, 5m, 24h, 7d";
                self.problem(word.line, "bad-duration", &message, mend);
                None
            }
        }
    }

    pub(super) fn table<'a, 'i>(
        &mut self,
        value: &'a Spanned<DeValue<'i>>,
        what: &str,
    ) -> Option<&'a DeTable<'i>> {
        value.get_ref().as_table().or_else(|| self.wrong_type(value, what, "a table"))
    }

    pub(super) fn required<'a, 'i>(
        &mut self,
        table: &'a DeTable<'i>,
        key: &str,
    ) -> Option<&'a Spanned<DeValue<'i>>> {
        let mend = match key {
            "name" => r#"add name = "deploy", or whatever it is called"#,
            "version" => "add version = 1",
            "initial" => r#"add initial = ["queued"], or whatever a new run starts as"#,
            _ => "add the table [states], a line for each state",
        };
        if !table.contains_key(key) {
            self.problem(1, "missing-key", &format!("`{key}` is missing"), mend);
        }
        table.get(key)
    }

    pub(super) fn known_keys(&mut self, table: &DeTable<'_>, known: &[&str], whose: &str) {
        for key in table.keys() {
            self.known_key(key, known, whose);
        }
    }

    pub(super) fn known_key(
        &mut self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        known: &[&str],
        whose: &str,
    ) {
        let name = key.get_ref().as_ref();
        if !known.contains(&name) {
            let line = self.line(key);
            let message = format!("{whose} has no key {}", quoted(name));
            self.problem(line, "unknown-key", &message, &instead_of(name, known));
        }
    }

    pub(super) fn wrong_type<T>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        what: &str,
        wanted: &str,
    ) -> Option<T> {
        let found = value.get_ref().type_str();
        let article = if found.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
        let line = self.line(value);
        let message = format!("{what} is {article} {found}, not {wanted}");
        self.problem(line, "wrong-type", &message, &format!("write {wanted}"));
        None
    }

    pub(super) fn line<T>(&self, value: &Spanned<T>) -> usize {
        self.line_at(value.span().start)
    }

    /// What is missing at the end of the file is told of its last line.
    pub(super) fn line_at(&self, offset: usize) -> usize {
        let before = self.line_ends.partition_point(|end| *end < offset);
        (before + 1).min(self.line_ends.len().max(1))
    }

    pub(super) fn problem(&mut self, line: usize, rule: &'static str, message: &str, mend: &str) {
        self.problems.push(Problem { line, rule, message: message.to_owned(), mend: mend.to_owned() });
    }
}
