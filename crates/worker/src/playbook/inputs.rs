//! What a run is given: each value against what its input declares, with everything that is wrong told at once.

use std::fmt;

use serde_json::{Map, Value, json};
use waypost_schema::{instead_of, quoted};

use super::Playbook;
use super::secret::Reference;

#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    pub name: String,
    pub kind: Type,
    pub default: Option<Value>,
    pub required: bool,
    pub description: Option<String>,
    pub secret: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    String,
    Number,
    Boolean,
    List,
    Object,
}

/// What is wrong with one given input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputProblem {
    pub input: String,
    pub message: String,
    pub mend: String,
}

impl fmt::Display for InputProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "input {}: {}\n  {}", quoted(&self.input), self.message, self.mend)
    }
}

impl Type {
    pub const ALL: [Type; 5] = [Type::String, Type::Number, Type::Boolean, Type::List, Type::Object];

    pub fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            Type::Number => "number",
            Type::Boolean => "boolean",
            Type::List => "list",
            Type::Object => "object",
        }
    }

    pub fn fits(self, value: &Value) -> bool {
        match self {
            Type::String => value.is_string(),
            Type::Number => value.is_number(),
            Type::Boolean => value.is_boolean(),
            Type::List => value.is_array(),
            Type::Object => value.is_object(),
        }
    }

    fn example(self) -> &'static str {
        match self {
            Type::String => r#""text""#,
            Type::Number => "5",
            Type::Boolean => "true",
            Type::List => r#"["a", "b"]"#,
            Type::Object => r#"{"a": 1}"#,
        }
    }
}

impl Playbook {
    /// For those who want to start it. A secret's default is a reference, and still nobody's business.
    pub fn described_inputs(&self) -> Vec<Value> {
        let described = |input: &Input| {
            json!({
                "name": input.name,
                "type": input.kind.name(),
                "required": input.required,
                "default": input.default.as_ref().filter(|_| !input.secret),
                "description": input.description,
                "secret": input.secret,
            })
        };
        self.inputs.iter().map(described).collect()
    }

    pub fn input(&self, name: &str) -> Option<&Input> {
        self.inputs.iter().find(|input| input.name == name)
    }

    /// The inputs of a run, with defaults filled in. A secret stays a reference. A playbook that declares no inputs
    /// takes any.
    pub fn accept(&self, given: &Value) -> Result<Map<String, Value>, Vec<InputProblem>> {
        let empty = Map::new();
        let given = match given {
            Value::Null => &empty,
            Value::Object(given) => given,
            other => {
                let message = format!("the inputs are {}, not an object", type_of(other));
                let mend = "give them by name: {\"cluster\": \"c1\"}".to_owned();
                return Err(vec![InputProblem { input: String::new(), message, mend }]);
            }
        };
        if self.takes_any_input {
            return Ok(given.clone());
        }
        let mut problems = Vec::new();
        let known: Vec<&str> = self.inputs.iter().map(|input| input.name.as_str()).collect();
        for name in given.keys().filter(|name| !known.contains(&name.as_str())) {
            let mend = match known.as_slice() {
                [] => "leave it out: it has no inputs".to_owned(),
                known => instead_of(name, known),
            };
            let message = format!("playbook {} has no such input", self.name);
            problems.push(InputProblem { input: name.clone(), message, mend });
        }
        let mut accepted = Map::new();
        for input in &self.inputs {
            match input.accept(given.get(&input.name)) {
                Ok(value) => {
                    accepted.insert(input.name.clone(), value);
                }
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok(accepted) } else { Err(problems) }
    }

    /// A value as somebody types it, `--input hosts='["a"]'`, read as its input's type: a string is what was typed,
    /// `1.10` and `true` too. Where nothing is declared, JSON keeps its type.
    pub fn input_from_text(&self, name: &str, text: &str) -> Value {
        match self.input(name).map(|input| input.kind) {
            Some(Type::String) => Value::from(text),
            // Not of its type, or not known: `accept` says so.
            _ => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        }
    }
}

impl Input {
    fn accept(&self, given: Option<&Value>) -> Result<Value, InputProblem> {
        let problem =
            |message: String, mend: String| Err(InputProblem { input: self.name.clone(), message, mend });
        let Some(value) = given.filter(|value| !value.is_null()) else {
            if self.required {
                let about = self.description.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
                let example = if self.secret { "env:WAYPOST_SECRET_…" } else { self.kind.example() };
                return problem(
                    format!("it is missing{about}"),
                    format!("give a {}, such as {example}", self.kind.name()),
                );
            }
            return Ok(self.default.clone().unwrap_or(Value::Null));
        };
        if self.secret {
            // Not quoted: it may be the secret itself.
            let text = value.as_str().unwrap_or_default();
            return match Reference::parse_given(text) {
                Ok(_) => Ok(value.clone()),
                Err(mend) => {
                    problem("it is a secret, and this is no reference to one".to_owned(), mend.to_owned())
                }
            };
        }
        if !self.kind.fits(value) {
            let message = format!("it is {}, not a {}", type_of(value), self.kind.name());
            return problem(message, format!("give a {}, such as {}", self.kind.name(), self.kind.example()));
        }
        Ok(value.clone())
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
