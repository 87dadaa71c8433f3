//! The words, numbers, texts and signs of a formula.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Word,
    Number,
    Text,
    Sign,
    /// None of these.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'s> {
    pub kind: Kind,
    pub text: &'s str,
    /// Lines before it.
    pub line: usize,
}

pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = source.trim_start();
    while let Some(first) = rest.chars().next() {
        let (kind, length) = next(rest, first);
        let at = source.len() - rest.len();
        let line = source[..at].matches('\n').count();
        found.push(Token { kind, text: &rest[..length], line });
        rest = rest[length..].trim_start();
    }
    found
}

fn next(rest: &str, first: char) -> (Kind, usize) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if first.is_ascii_digit() {
        return (Kind::Number, number(rest));
    }
    if is_word(first) {
        return (Kind::Word, rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
    }
    if matches!(first, '"' | '\'') {
        let end = rest[1..].find(first).map(|end| end + 2);
        return end.map_or((Kind::Unknown, rest.len()), |end| (Kind::Text, end));
    }
    if ["==", "!=", "<=", ">="].iter().any(|two| rest.starts_with(two)) {
        return (Kind::Sign, 2);
    }
    let kind = if "+-*/()<>.[]|,".contains(first) { Kind::Sign } else { Kind::Unknown };
    (kind, first.len_utf8())
}

/// Digits, and decimals if a digit follows the point.
fn number(rest: &str) -> usize {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let whole = digits(rest);
    match rest[whole..].strip_prefix('.').map(digits) {
        Some(part) if part > 0 => whole + 1 + part,
        _ => whole,
    }
}
