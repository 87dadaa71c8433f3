//! What an expression names, found in its words: which variables by which path, which filters and tests. The
//! engine itself would only say so while it evaluates.

use waypost_kernel::lifecycle::{instead_of, quoted};

use super::Trouble;
use super::engine::{FILTERS, TESTS};

/// A variable and the constant path into it: `steps["disable HA"].output` is `steps`, `disable HA`, `output`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub path: Vec<String>,
    /// Lines below the first of the text.
    pub line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token<'s> {
    kind: Kind,
    text: &'s str,
    at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Word,
    Text,
    Number,
    Sign,
}

const WORDS: [&str; 12] =
    ["and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False"];

/// Where the expression that begins `text` ends: before the `}}` that closes it.
pub fn end_of_expression(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for token in (Tokens { text, at: 0 }) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "}" if depth > 0 => depth -= 1,
            "}" if text[token.at..].starts_with("}}") => return Some(token.at),
            _ => {}
        }
    }
    None
}

pub fn scan(source: &str) -> Result<Vec<Named>, Trouble> {
    let tokens: Vec<Token<'_>> = Tokens { text: source, at: 0 }.collect();
    let mut named = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let line = lines_before(source, token.at);
        let look = Look { tokens: &tokens, at };
        at += 1;
        if let Some(trouble) = look.trouble(line) {
            return Err(trouble);
        }
        if look.is_variable() {
            let mut path = vec![token.text.to_owned()];
            while let Some((part, width)) = (Look { tokens: &tokens, at }).part() {
                path.push(part);
                at += width;
            }
            // `none` is a word in lower case only; both are nothing.
            if path != ["None"] {
                named.push(Named { path, line });
            }
        }
    }
    Ok(named)
}

struct Look<'t, 's> {
    tokens: &'t [Token<'s>],
    at: usize,
}

impl<'s> Look<'_, 's> {
    fn text(&self, distance: isize) -> &'s str {
        let at = self.at.checked_add_signed(distance);
        at.and_then(|at| self.tokens.get(at)).map_or("", |token| token.text)
    }

    fn is_word(&self) -> bool {
        self.tokens.get(self.at).is_some_and(|token| token.kind == Kind::Word)
    }

    fn is_test(&self) -> bool {
        self.text(-1) == "is" || self.text(-1) == "not" && self.text(-2) == "is"
    }

    fn is_variable(&self) -> bool {
        self.is_word()
            && !WORDS.contains(&self.text(0))
            && !matches!(self.text(-1), "." | "|")
            && !self.is_test()
            && self.text(1) != "="
    }

    /// One constant part of a path from here, and how many tokens it takes.
    fn part(&self) -> Option<(String, usize)> {
        let next = self.tokens.get(self.at + 1)?;
        match (self.text(0), next.kind) {
            // A method is told where its name stands.
            (".", Kind::Word | Kind::Number) if self.text(2) != "(" => Some((next.text.to_owned(), 2)),
            ("[", Kind::Text) if self.text(2) == "]" && !next.text.contains('\\') => {
                Some((next.text[1..next.text.len() - 1].to_owned(), 3))
            }
            _ => None,
        }
    }

    fn trouble(&self, line: usize) -> Option<Trouble> {
        let (word, before, after) = (self.text(0), self.text(-1), self.text(1));
        let trouble =
            |rule, message: String, mend: &str| Some(Trouble { line, rule, message, mend: mend.to_owned() });
        let is_text = self.tokens.get(self.at).is_some_and(|token| token.kind == Kind::Text);
        if (word == "*" || word == "**") && !is_text {
            let message = format!("{} is not for templates", quoted(word));
            return trouble("template-syntax", message, "for numbers write x|times(3)");
        }
        if !self.is_word() || WORDS.contains(&word) && before != "|" && !self.is_test() {
            return None;
        }
        if before == "|" {
            let message = format!("there is no filter {}", quoted(word));
            return (!FILTERS.contains(&word))
                .then_some(())
                .and_then(|()| trouble("unknown-filter", message, &instead_of(word, FILTERS)));
        }
        // `is not defined`: the test comes after the `not`.
        if self.is_test() && word != "not" {
            let message = format!("there is no test {}", quoted(word));
            return (!TESTS.contains(&word))
                .then_some(())
                .and_then(|()| trouble("unknown-filter", message, &instead_of(word, TESTS)));
        }
        if after == "(" {
            let message = format!("there is no function {}", quoted(word));
            return trouble("unknown-filter", message, "use a filter: value|filter");
        }
        None
    }
}

/// The words, texts, numbers and signs of an expression. Knows no grammar: the engine checks that.
struct Tokens<'s> {
    text: &'s str,
    at: usize,
}

impl<'s> Iterator for Tokens<'s> {
    type Item = Token<'s>;

    fn next(&mut self) -> Option<Token<'s>> {
        let rest = self.text[self.at..].trim_start();
        let at = self.text.len() - rest.len();
        let first = rest.chars().next()?;
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let (kind, length) = if first.is_ascii_digit() {
            (Kind::Number, rest.find(|c| !is_word(c)).unwrap_or(rest.len()))
        } else if is_word(first) {
            (Kind::Word, rest.find(|c| !is_word(c)).unwrap_or(rest.len()))
        } else if matches!(first, '"' | '\'') {
            (Kind::Text, text_length(rest, first))
        } else {
            let two = ["==", "!=", "<=", ">=", "**", "//"].iter().any(|two| rest.starts_with(two));
            (Kind::Sign, if two { 2 } else { first.len_utf8() })
        };
        self.at = at + length;
        Some(Token { kind, text: &rest[..length], at })
    }
}

/// Up to the closing quote, or to the end if there is none.
fn text_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

pub fn lines_before(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(source: &str) -> Vec<String> {
        let named = scan(source).unwrap_or_else(|trouble| panic!("{source}: {trouble:?}"));
        named.into_iter().map(|named| named.path.join("/")).collect()
    }

    #[test]
    fn variables_are_found_with_their_paths() {
        for (source, expected) in [
            ("item.outdated", &["item/outdated"][..]),
            ("steps[\"disable HA\"].output.was", &["steps/disable HA/output/was"]),
            ("steps['a'].output[0].b", &["steps/a/output"]),
            ("inputs.a ~ inputs['b']", &["inputs/a", "inputs/b"]),
            ("inputs[item.name]", &["inputs", "item/name"]),
            ("inputs.list[1:3]", &["inputs/list"]),
            ("x|default(inputs.y)|join(', ')", &["x", "inputs/y"]),
            ("x|sort(attribute='name', reverse=true)", &["x"]),
            ("a is not defined or b is none and not c", &["a", "b", "c"]),
            ("a if b else c", &["a", "b", "c"]),
            ("{'k': v, \"it's\": w}.k", &["v", "w"]),
            ("'secrets.token' in x", &["x"]),
            ("item.0.name == 1.5e3", &["item/0/name"]),
            ("none or None or true", &[]),
        ] {
            assert_eq!(paths(source), expected, "{source}");
        }
    }

    #[test]
    fn what_is_not_offered_is_told() {
        for (source, rule) in [
            ("x|uper", "unknown-filter"),
            ("x is defind", "unknown-filter"),
            ("x is not defind", "unknown-filter"),
            ("range(3)", "unknown-filter"),
            ("x.items()", "unknown-filter"),
            ("'x' * 3", "template-syntax"),
            ("2 ** 3", "template-syntax"),
        ] {
            assert_eq!(scan(source).expect_err(source).rule, rule, "{source}");
        }
    }

    #[test]
    fn an_expression_ends_at_its_own_braces() {
        for (text, length) in [
            (" a }} b", Some(3)),
            (" {'a': {'b': 1}} }}", Some(17)),
            (" '}}' }}", Some(6)),
            (" \"a\\\"}}\" }}", Some(9)),
            (" a", None),
            (" 'a }}", None),
            (" (a }} ", None),
        ] {
            assert_eq!(end_of_expression(text), length, "{text}");
        }
    }
}
