//! As much of Rust's grammar as the rules need: tokens, where functions end, which items are tests.

use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// An identifier, a keyword or a number.
    Word,
    /// A string literal of any sort; the text is what stands between the quotes, escapes as written.
    Text,
    Comment,
    /// One character.
    Punct,
    /// A character literal or a lifetime.
    Quoted,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    pub line: usize,
}

impl Token<'_> {
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text == word
    }

    pub fn is_punct(&self, punct: &str) -> bool {
        self.kind == Kind::Punct && self.text == punct
    }
}

/// All tokens but comments.
pub fn code(source: &str) -> Vec<Token<'_>> {
    tokens(source).into_iter().filter(|token| token.kind != Kind::Comment).collect()
}

pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        let length = if first.is_whitespace() {
            first.len_utf8()
        } else {
            let (kind, text, length) = token(rest, first);
            found.push(Token { kind, text, line });
            length
        };
        line += rest[..length].matches('\n').count();
        at += length;
    }
    found
}

/// The kind, the text and the whole length of the token that `rest` begins with.
fn token(rest: &str, first: char) -> (Kind, &str, usize) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if rest.starts_with("//") {
        let length = rest.find('\n').unwrap_or(rest.len());
        (Kind::Comment, &rest[..length], length)
    } else if rest.starts_with("/*") {
        let length = block_comment(rest);
        (Kind::Comment, &rest[..length], length)
    } else if let Some((text, length)) = string(rest) {
        (Kind::Text, text, length)
    } else if first == '\'' {
        let length = quoted(rest);
        (Kind::Quoted, &rest[..length], length)
    } else if is_word(first) {
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        (Kind::Word, &rest[..length], length)
    } else {
        (Kind::Punct, &rest[..first.len_utf8()], first.len_utf8())
    }
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    let bytes = rest.as_bytes();
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// A string's contents and whole length, if one begins here: `"…"`, `b"…"`, `c"…"`, `r#"…"#`, `br"…"`, `cr"…"`.
fn string(rest: &str) -> Option<(&str, usize)> {
    let prefix = rest.find(|c| !matches!(c, 'b' | 'c' | 'r'))?;
    let hashes = rest[prefix..].find(|c| c != '#')?;
    let start = prefix + hashes + 1;
    if !rest[prefix + hashes..].starts_with('"') {
        return None;
    }
    let inner = &rest[start..];
    let (length, close) = match &rest[..prefix] {
        "r" | "br" | "cr" => {
            let close = format!("\"{}", "#".repeat(hashes));
            (inner.find(&close), close.len())
        }
        "" | "b" | "c" if hashes == 0 => (closing_quote(inner, '"'), 1),
        _ => return None,
    };
    let length = length.unwrap_or(inner.len());
    Some((&inner[..length], (start + length + close).min(rest.len())))
}

/// Where the first quote stands that no backslash escapes.
fn closing_quote(inner: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(at),
            _ => {}
        }
    }
    None
}

/// `'x'` and `'\n'` are characters; `'a` with no quote behind it is a lifetime.
fn quoted(rest: &str) -> usize {
    let inner = &rest[1..];
    let mut chars = inner.chars();
    let (first, second) = (chars.next(), chars.next());
    match (first, second) {
        (Some('\\'), _) => closing_quote(inner, '\'').map_or(1, |at| at + 2),
        (Some(c), Some('\'')) => 1 + c.len_utf8() + 1,
        _ => 1,
    }
}

#[derive(Debug, PartialEq)]
pub struct Function<'a> {
    pub name: &'a str,
    pub first_line: usize,
    pub last_line: usize,
}

/// Every function with a body, nested ones too.
pub fn functions(source: &str) -> Vec<Function<'_>> {
    let tokens = code(source);
    let mut found = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        if !pair[0].is_word("fn") || pair[1].kind != Kind::Word {
            continue;
        }
        let end = tokens[item_end(&tokens, at)];
        if end.is_punct("}") {
            found.push(Function { name: pair[1].text, first_line: pair[0].line, last_line: end.line });
        }
    }
    found
}

/// Where the item that begins at `start` ends: the brace that closes its body, or its semicolon.
fn item_end(tokens: &[Token<'_>], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut in_body = false;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        if token.kind != Kind::Punct {
            continue;
        }
        match token.text {
            "{" | "(" | "[" => {
                in_body |= depth == 0 && token.text == "{";
                depth += 1;
            }
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if in_body && depth == 0 {
                    return at;
                }
            }
            ";" if depth == 0 => return at,
            _ => {}
        }
    }
    tokens.len() - 1
}

pub struct Split<'a> {
    pub production: Vec<Token<'a>>,
    pub tests: Vec<Token<'a>>,
}

/// Parts what is compiled for tests only (`#[cfg(test)]`, `#[test]`, `#[tokio::test]`) from the rest.
pub fn split_tests(source: &str) -> Split<'_> {
    let all = code(source);
    let mut split = Split { production: Vec::new(), tests: Vec::new() };
    let mut at = 0;
    while at < all.len() {
        let end = match attribute(&all, at) {
            Some((inside, whole_file)) if is_test_attribute(&all[inside.clone()]) => {
                let end = if whole_file { all.len() } else { item_end(&all, inside.end + 1) + 1 };
                split.tests.extend(&all[at..end]);
                end
            }
            _ => {
                split.production.push(all[at]);
                at + 1
            }
        };
        at = end;
    }
    split
}

/// What stands inside the `#[…]` or `#![…]` that begins here, and whether it is the latter.
fn attribute(tokens: &[Token<'_>], at: usize) -> Option<(Range<usize>, bool)> {
    if !tokens[at].is_punct("#") {
        return None;
    }
    let whole_file = tokens.get(at + 1)?.is_punct("!");
    let open = at + 1 + usize::from(whole_file);
    if !tokens.get(open)?.is_punct("[") {
        return None;
    }
    let mut depth = 0_usize;
    for (close, token) in tokens.iter().enumerate().skip(open) {
        if token.is_punct("[") {
            depth += 1;
        } else if token.is_punct("]") {
            depth -= 1;
            if depth == 0 {
                return Some((open + 1..close, whole_file));
            }
        }
    }
    None
}

fn is_test_attribute(inside: &[Token<'_>]) -> bool {
    let has = |word| inside.iter().any(|token| token.is_word(word));
    match inside {
        [] => false,
        [first, ..] if first.is_word("cfg") => has("test") && !has("not"),
        [first, ..] => {
            let path_end = inside.iter().position(|token| token.is_punct("(")).unwrap_or(inside.len());
            !first.is_word("cfg_attr") && inside[path_end - 1].is_word("test")
        }
    }
}

#[test]
fn tokens_see_through_comments_strings_and_quotes() {
    let source = concat!(
        "// \"no\"\n/* /* \"no\" */ \"no\" */ f(\"a\\\"b\", r#\"c\"d\"#, b\"e\", '\"', '\\'', \"g\");\n",
        "fn h<'a>(x: &'a str) { r#\"two\nlines\"# } \"last\"",
    );
    let texts: Vec<(&str, usize)> =
        tokens(source).iter().filter(|t| t.kind == Kind::Text).map(|t| (t.text, t.line)).collect();
    let expected = [("a\\\"b", 2), ("c\"d", 2), ("e", 2), ("g", 2), ("two\nlines", 3), ("last", 4)];
    assert_eq!(texts, expected);
}

#[test]
fn functions_end_at_their_own_brace() {
    let source = "trait T { fn none(a: [u8; 2]); }\nfn outer() -> [u8; 2] {\n  let x = \"}\";\n  \
                  fn inner() {}\n  '}'\n}\nconst F: fn(u8) = g;\n";
    let named = |name, first_line, last_line| Function { name, first_line, last_line };
    assert_eq!(functions(source), [named("outer", 2, 6), named("inner", 4, 4)]);
}

#[test]
fn tests_are_parted_from_what_ships() {
    let source = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod b { c!{} }\n#[cfg(not(test))]\nfn d() {}\n\
                  #[tokio::test(flavor = \"e\")]\nasync fn f() {}\n#[derive(G)]\nstruct H;";
    let split = split_tests(source);
    let words = |tokens: &[Token<'_>]| -> Vec<String> {
        tokens
            .iter()
            .filter(|t| t.kind == Kind::Word && t.text.len() == 1)
            .map(|t| t.text.to_owned())
            .collect()
    };
    assert_eq!(words(&split.production), ["a", "d", "G", "H"]);
    assert_eq!(words(&split.tests), ["x", "b", "c", "f"]);
    assert!(split_tests("#![cfg(test)]\nfn a() {}").production.is_empty());
}
