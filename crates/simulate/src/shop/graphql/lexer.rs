//! Tokens of a GraphQL document (October 2021, section 2.1).

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// `{`, `$`, `...` and the like.
    Mark(&'static str),
    Name(String),
    Int(i64),
    Float(f64),
    Text(String),
}

const MARKS: [&str; 14] = ["...", "{", "}", "(", ")", "[", "]", ":", "!", "=", "$", "@", "|", "&"];

pub fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',' || c == '\u{feff}');
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        if first == '#' {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(**mark)) {
            tokens.push(Token::Mark(mark));
            rest = &rest[mark.len()..];
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(Token::Name(rest[..end].to_owned()));
            rest = &rest[end..];
        } else if first == '"' {
            let (text, after) = string(rest)?;
            tokens.push(Token::Text(text));
            rest = after;
        } else if first == '-' || first.is_ascii_digit() {
            let end = rest
                .find(|c: char| !c.is_ascii_digit() && !matches!(c, '-' | '+' | '.' | 'e' | 'E'))
                .unwrap_or(rest.len());
            tokens.push(number(&rest[..end])?);
            rest = &rest[end..];
        } else {
            return Err(format!("syntax error, unexpected {first:?}"));
        }
    }
}

fn number(text: &str) -> Result<Token, String> {
    let problem = |_| format!("syntax error, {text} is no number");
    if text.contains(['.', 'e', 'E']) {
        return text
            .parse()
            .map(Token::Float)
            .map_err(|error: std::num::ParseFloatError| problem(error.to_string()));
    }
    text.parse().map(Token::Int).map_err(|error: std::num::ParseIntError| problem(error.to_string()))
}

/// A string and what comes after it.
fn string(text: &str) -> Result<(String, &str), String> {
    const OPEN: &str = "syntax error, a string has no end";
    if let Some(block) = text.strip_prefix("\"\"\"") {
        let (inside, after) = block.split_once("\"\"\"").ok_or(OPEN)?;
        let lines: Vec<&str> = inside.lines().map(str::trim).collect();
        return Ok((lines.join("\n").trim().to_owned(), after));
    }
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\n' => return Err(OPEN.to_owned()),
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => {
                // The escapes are JSON's.
                let parsed = serde_json::from_str(&text[..=at]);
                let parsed = parsed.map_err(|error| format!("syntax error, bad string: {error}"))?;
                return Ok((parsed, &text[at + 1..]));
            }
            _ => {}
        }
    }
    Err(OPEN.to_owned())
}
