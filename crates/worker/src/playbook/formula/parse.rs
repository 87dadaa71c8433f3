//! From words to a formula. The grammar is that of templates, with one difference: `a * b|round(2)`, which rounds `b` alone
//! there, is refused, since whoever writes it means all of it.

use waypost_kernel::Decimal;
use waypost_schema::{instead_of, quoted};

use super::words::{Kind, Token, tokens};
use super::{FILTERS, Node, Sign};
use crate::playbook::template::{Named, Trouble};

/// Parentheses within each other.
const MAX_DEPTH: usize = 40;
const MAX_CHARS: usize = 2_000;

pub fn trouble(message: String, mend: &str) -> Trouble {
    Trouble { line: 0, rule: "template-syntax", message, mend: mend.to_owned() }
}

pub fn parse(source: &str) -> Result<(Node, Vec<Named>), Trouble> {
    if source.chars().count() > MAX_CHARS {
        let message = format!("the expression is longer than {MAX_CHARS} characters");
        return Err(trouble(message, "let the source of the targets compute it"));
    }
    let tokens = tokens(source);
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0, named: Vec::new() };
    let root = parser.choice()?;
    match parser.peek() {
        None => Ok((root, parser.named)),
        Some(token) => Err(parser.unexpected(token)),
    }
}

struct Parser<'t, 's> {
    tokens: &'t [Token<'s>],
    at: usize,
    depth: usize,
    named: Vec<Named>,
}

type Parsed = Result<Node, Trouble>;

/// Loosest first; those of one row bind alike.
const LEVELS: [&[(&str, Sign)]; 5] = [
    &[("or", Sign::Or)],
    &[("and", Sign::And)],
    &[
        ("==", Sign::Equal),
        ("!=", Sign::Unequal),
        ("<=", Sign::AtMost),
        (">=", Sign::AtLeast),
        ("<", Sign::Less),
        (">", Sign::More),
    ],
    &[("+", Sign::Plus), ("-", Sign::Minus)],
    &[("*", Sign::Times), ("/", Sign::Over)],
];
const COMPARISON: usize = 2;

impl<'s> Parser<'_, 's> {
    fn peek(&self) -> Option<Token<'s>> {
        self.tokens.get(self.at).copied()
    }

    fn is_next(&self, text: &str) -> bool {
        self.peek().is_some_and(|token| token.kind != Kind::Text && token.text == text)
    }

    fn take(&mut self, text: &str) -> bool {
        let is_it = self.is_next(text);
        self.at += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, text: &str) -> Result<(), Trouble> {
        if self.take(text) {
            return Ok(());
        }
        Err(match self.peek() {
            Some(token) => self.unexpected(token),
            None => self.at_end(&format!("a {text} is missing at the end")),
        })
    }

    fn at_end(&self, message: &str) -> Trouble {
        let line = self.tokens.last().map_or(0, |token| token.line);
        Trouble { line, ..trouble(message.to_owned(), "write it, as in {{ target.before * 1.1 }}") }
    }

    fn unexpected(&self, token: Token<'_>) -> Trouble {
        let message = format!("{} cannot stand here", quoted(token.text));
        let mend =
            "write numbers, target.…, inputs.…, + - * /, comparisons, `a if condition else b` and filters";
        Trouble { line: token.line, ..trouble(message, mend) }
    }

    fn choice(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(trouble("the expression is nested too deep".to_owned(), "make it simpler"));
        }
        let then = self.level(0)?;
        let node = if self.take("if") {
            let condition = self.level(0)?;
            self.expect("else")?;
            Node::Choice(Box::new(then), Box::new(condition), Box::new(self.choice()?))
        } else {
            then
        };
        self.depth -= 1;
        Ok(node)
    }

    fn level(&mut self, level: usize) -> Parsed {
        if level == LEVELS.len() {
            return self.single();
        }
        if level == COMPARISON && self.take("not") {
            return Ok(Node::Not(Box::new(self.level(level)?)));
        }
        let mut left = self.level(level + 1)?;
        while let Some((_, sign)) = LEVELS[level].iter().find(|(text, _)| self.is_next(text)) {
            self.at += 1;
            let right = self.level(level + 1)?;
            if level > COMPARISON {
                self.is_plain(&right)?;
            }
            left = Node::Two(*sign, Box::new(left), Box::new(right));
            if level == COMPARISON {
                break;
            }
        }
        Ok(left)
    }

    /// A filter behind the last operand: of what?
    fn is_plain(&self, right: &Node) -> Result<(), Trouble> {
        let is_closed = self.at > 0 && self.tokens[self.at - 1].text == ")" && self.begins_closed();
        let Node::Filter(_, name, _) = right else { return Ok(()) };
        if is_closed {
            return Ok(());
        }
        let message =
            format!("it is not clear what |{name} is for: all of it, or what stands right before it");
        let line = self.tokens[self.at - 1].line;
        Err(Trouble {
            line,
            ..trouble(message, "put parentheses around what is meant: (target.before * 1.1)|round(2)")
        })
    }

    /// Whether what ends here is one pair of parentheses, as in `a * (b|round(2))`.
    fn begins_closed(&self) -> bool {
        let mut depth = 0_usize;
        for at in (0..self.at).rev() {
            match self.tokens[at].text {
                ")" => depth += 1,
                "(" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                // The parentheses of a filter's arguments stand behind its name.
                return at == 0 || self.tokens[at - 1].kind != Kind::Word;
            }
        }
        false
    }

    fn single(&mut self) -> Parsed {
        if self.take("-") {
            return Ok(Node::Negated(Box::new(self.single()?)));
        }
        let mut node = self.atom()?;
        while self.take("|") {
            node = self.filter(node)?;
        }
        Ok(node)
    }

    fn atom(&mut self) -> Parsed {
        let Some(token) = self.peek() else { return Err(self.at_end("something is missing at the end")) };
        self.at += 1;
        match token.kind {
            Kind::Number => match Decimal::parse(token.text) {
                Some(number) => Ok(Node::Number(number)),
                None => Err(self.unexpected(token)),
            },
            Kind::Text => Ok(Node::Text(token.text[1..token.text.len() - 1].to_owned())),
            Kind::Sign if token.text == "(" => {
                let inner = self.choice()?;
                self.expect(")")?;
                Ok(inner)
            }
            Kind::Word => match token.text {
                "true" | "True" => Ok(Node::Truth(true)),
                "false" | "False" => Ok(Node::Truth(false)),
                "none" | "None" => Ok(Node::Nothing),
                "if" | "else" | "and" | "or" | "not" | "in" | "is" => Err(self.unexpected(token)),
                _ => self.path(token),
            },
            _ => Err(self.unexpected(token)),
        }
    }

    fn path(&mut self, first: Token<'_>) -> Parsed {
        let mut path = vec![first.text.to_owned()];
        loop {
            if self.take(".") {
                let Some(token) = self.peek().filter(|token| token.kind == Kind::Word) else {
                    return Err(self.at_end("a name is missing after the point"));
                };
                self.at += 1;
                path.push(token.text.to_owned());
            } else if self.take("[") {
                let Some(token) = self.peek().filter(|token| token.kind == Kind::Text) else {
                    return Err(self.at_end("a name between quotes is missing after the ["));
                };
                self.at += 1;
                path.push(token.text[1..token.text.len() - 1].to_owned());
                self.expect("]")?;
            } else {
                break;
            }
        }
        if self.is_next("(") {
            let message = format!("there is no function {}", quoted(first.text));
            return Err(Trouble {
                line: first.line,
                rule: "unknown-filter",
                ..trouble(message, "use a filter: value|filter")
            });
        }
        self.named.push(Named { path: path.clone(), line: first.line });
        Ok(Node::Path(path))
    }

    fn filter(&mut self, inner: Node) -> Parsed {
        let Some(token) = self.peek().filter(|token| token.kind == Kind::Word) else {
            return Err(self.at_end("the name of a filter is missing after the |"));
        };
        self.at += 1;
        let Some((name, arguments)) = FILTERS.iter().find(|(name, _)| *name == token.text) else {
            let known: Vec<&str> = FILTERS.iter().map(|(name, _)| *name).collect();
            let message = format!("there is no filter {} for a value that is computed", quoted(token.text));
            let mend = instead_of(token.text, &known);
            return Err(Trouble { line: token.line, rule: "unknown-filter", message, mend });
        };
        let mut argument = None;
        if self.take("(") {
            if !self.is_next(")") {
                argument = Some(Box::new(self.choice()?));
            }
            self.expect(")")?;
        }
        // `round` alone is to the whole number.
        let may_lack = *name == "round";
        if argument.is_some() != (*arguments == 1) && !(argument.is_none() && may_lack) {
            let message = format!("{name} takes {arguments} value{}", if *arguments == 1 { "" } else { "s" });
            let mend =
                if *arguments == 1 { "write it behind the name: value|percent(10)" } else { "remove it" };
            return Err(Trouble { line: token.line, ..trouble(message, mend) });
        }
        Ok(Node::Filter(Box::new(inner), (*name).to_owned(), argument))
    }
}
