//! GraphQL documents, as far as clients with fixed documents go: operations, variables with defaults, aliases,
//! fragments, `@include` and `@skip`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::lexer::{Token, tokens};

/// Deeper ones are an attack or a mistake.
const MAX_DEPTH: usize = 24;

#[derive(Debug)]
pub struct Document {
    pub operations: Vec<Operation>,
    pub fragments: BTreeMap<String, Vec<Selection>>,
}

#[derive(Debug)]
pub struct Operation {
    pub is_mutation: bool,
    pub name: Option<String>,
    pub variables: Vec<Variable>,
    pub selections: Vec<Selection>,
}

#[derive(Debug)]
pub struct Variable {
    pub name: String,
    pub is_required: bool,
    pub default: Option<Value>,
}

#[derive(Clone, Debug)]
pub enum Selection {
    Field(Field),
    Spread { name: String, conditions: Vec<Condition> },
    Inline { selections: Vec<Selection>, conditions: Vec<Condition> },
}

#[derive(Clone, Debug)]
pub struct Field {
    pub alias: String,
    pub name: String,
    pub arguments: Vec<(String, Input)>,
    pub selections: Vec<Selection>,
    pub conditions: Vec<Condition>,
}

/// `@include(if: …)` or `@skip(if: …)`.
#[derive(Clone, Debug)]
pub struct Condition {
    pub wanted: bool,
    pub input: Input,
}

#[derive(Clone, Debug)]
pub enum Input {
    Variable(String),
    Plain(Value),
    List(Vec<Input>),
    Object(Vec<(String, Input)>),
}

impl Input {
    pub fn value(&self, variables: &Map<String, Value>) -> Option<Value> {
        Some(match self {
            Input::Variable(name) => variables.get(name)?.clone(),
            Input::Plain(value) => value.clone(),
            Input::List(items) => {
                Value::Array(items.iter().map(|item| item.value(variables).unwrap_or_default()).collect())
            }
            Input::Object(members) => Value::Object(
                members
                    .iter()
                    .filter_map(|(name, input)| Some((name.clone(), input.value(variables)?)))
                    .collect(),
            ),
        })
    }
}

pub fn parse(text: &str) -> Result<Document, String> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
    let mut document = Document { operations: Vec::new(), fragments: BTreeMap::new() };
    while parser.peek().is_some() {
        if parser.takes_name("fragment") {
            let name = parser.name()?;
            parser.type_condition()?;
            document.fragments.insert(name, parser.selections()?);
        } else {
            document.operations.push(parser.operation()?);
        }
    }
    if document.operations.is_empty() {
        return Err("the document has no operation".to_owned());
    }
    Ok(document)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Result<Token, String> {
        let token = self.peek().cloned().ok_or("syntax error, unexpected end of document")?;
        self.at += 1;
        Ok(token)
    }

    fn takes(&mut self, mark: &str) -> bool {
        let is_there = matches!(self.peek(), Some(Token::Mark(it)) if *it == mark);
        self.at += usize::from(is_there);
        is_there
    }

    fn takes_name(&mut self, name: &str) -> bool {
        let is_there = matches!(self.peek(), Some(Token::Name(it)) if it == name);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, mark: &str) -> Result<(), String> {
        if self.takes(mark) {
            return Ok(());
        }
        let found = self.next()?;
        Err(format!("syntax error, expected {mark:?}, found {found:?}"))
    }

    fn name(&mut self) -> Result<String, String> {
        match self.next()? {
            Token::Name(name) => Ok(name),
            found => Err(format!("syntax error, expected a name, found {found:?}")),
        }
    }

    fn operation(&mut self) -> Result<Operation, String> {
        let is_mutation = self.takes_name("mutation");
        let is_named = is_mutation || self.takes_name("query");
        let mut operation =
            Operation { is_mutation, name: None, variables: Vec::new(), selections: Vec::new() };
        if is_named {
            if let Some(Token::Name(name)) = self.peek() {
                operation.name = Some(name.clone());
                self.at += 1;
            }
            if self.takes("(") {
                while !self.takes(")") {
                    operation.variables.push(self.variable()?);
                }
            }
            self.directives()?;
        }
        operation.selections = self.selections()?;
        Ok(operation)
    }

    fn variable(&mut self) -> Result<Variable, String> {
        self.expect("$")?;
        let name = self.name()?;
        self.expect(":")?;
        self.type_name()?;
        let is_required = self.takes("!");
        let default = if self.takes("=") { self.input()?.value(&Map::new()) } else { None };
        Ok(Variable { name, is_required: is_required && default.is_none(), default })
    }

    /// Without the `!` at its end.
    fn type_name(&mut self) -> Result<(), String> {
        if self.takes("[") {
            self.deeper(Parser::type_name)?;
            self.takes("!");
            return self.expect("]");
        }
        self.name().map(drop)
    }

    fn type_condition(&mut self) -> Result<(), String> {
        if self.takes_name("on") {
            return self.name().map(drop);
        }
        let found = self.next()?;
        Err(format!("syntax error, expected \"on\", found {found:?}"))
    }

    fn selections(&mut self) -> Result<Vec<Selection>, String> {
        self.expect("{")?;
        let mut selections = Vec::new();
        while !self.takes("}") {
            selections.push(self.deeper(Parser::selection)?);
        }
        if selections.is_empty() {
            return Err("syntax error, a selection is empty".to_owned());
        }
        Ok(selections)
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Parser) -> Result<T, String>) -> Result<T, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("the document is deeper than {MAX_DEPTH}"));
        }
        let parsed = parse(self)?;
        self.depth -= 1;
        Ok(parsed)
    }

    fn selection(&mut self) -> Result<Selection, String> {
        if self.takes("...") {
            return match self.peek() {
                Some(Token::Name(name)) if name != "on" => {
                    let name = self.name()?;
                    Ok(Selection::Spread { name, conditions: self.directives()? })
                }
                _ => {
                    if self.takes_name("on") {
                        self.name()?;
                    }
                    let conditions = self.directives()?;
                    Ok(Selection::Inline { selections: self.selections()?, conditions })
                }
            };
        }
        let first = self.name()?;
        let (alias, name) = if self.takes(":") { (first, self.name()?) } else { (first.clone(), first) };
        let arguments = self.arguments()?;
        let conditions = self.directives()?;
        let has_selections = matches!(self.peek(), Some(Token::Mark("{")));
        let selections = if has_selections { self.selections()? } else { Vec::new() };
        Ok(Selection::Field(Field { alias, name, arguments, selections, conditions }))
    }

    fn arguments(&mut self) -> Result<Vec<(String, Input)>, String> {
        let mut arguments = Vec::new();
        if self.takes("(") {
            while !self.takes(")") {
                let name = self.name()?;
                self.expect(":")?;
                arguments.push((name, self.input()?));
            }
        }
        Ok(arguments)
    }

    fn directives(&mut self) -> Result<Vec<Condition>, String> {
        let mut conditions = Vec::new();
        while self.takes("@") {
            let name = self.name()?;
            let arguments = self.arguments()?;
            let wanted = match name.as_str() {
                "include" => true,
                "skip" => false,
                _ => return Err(format!("the directive @{name} is not simulated")),
            };
            let input = arguments.into_iter().find(|(name, _)| name == "if").map(|(_, input)| input);
            let input = input.ok_or_else(|| format!("@{name} needs an argument \"if\""))?;
            conditions.push(Condition { wanted, input });
        }
        Ok(conditions)
    }

    fn input(&mut self) -> Result<Input, String> {
        self.deeper(|parser| {
            Ok(match parser.next()? {
                Token::Mark("$") => Input::Variable(parser.name()?),
                Token::Mark("[") => {
                    let mut items = Vec::new();
                    while !parser.takes("]") {
                        items.push(parser.input()?);
                    }
                    Input::List(items)
                }
                Token::Mark("{") => {
                    let mut members = Vec::new();
                    while !parser.takes("}") {
                        let name = parser.name()?;
                        parser.expect(":")?;
                        members.push((name, parser.input()?));
                    }
                    Input::Object(members)
                }
                Token::Int(number) => Input::Plain(number.into()),
                Token::Float(number) => Input::Plain(number.into()),
                Token::Text(text) => Input::Plain(text.into()),
                Token::Name(name) => Input::Plain(match name.as_str() {
                    "true" => true.into(),
                    "false" => false.into(),
                    "null" => Value::Null,
                    _ => name.into(),
                }),
                found @ Token::Mark(_) => return Err(format!("syntax error, unexpected {found:?}")),
            })
        })
    }
}
