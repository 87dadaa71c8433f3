//! What the model says: always the same to the same prompt.

use serde_json::{Value, json};

use super::schema;
use crate::serving::hash;

/// What a request asks for, once it was checked.
#[derive(Debug)]
pub struct Prompt {
    pub model: String,
    /// All messages, for counting and drawing.
    pub text: String,
    /// The last one of the user.
    pub question: String,
    pub wants: Wants,
    pub choices: u64,
    pub max_tokens: Option<u64>,
    pub streams: bool,
    pub streams_usage: bool,
}

#[derive(Debug)]
pub enum Wants {
    Text,
    Json,
    Schema(Value),
}

impl Prompt {
    /// The error names the field.
    pub fn read(body: &Value) -> Result<Prompt, (&'static str, String)> {
        let at = |field: &'static str, problem: &str| (field, format!("{field}: {problem}"));
        if !body.is_object() {
            return Err(at("body", "an object with model and messages is needed"));
        }
        let model = body.get("model").and_then(Value::as_str).filter(|model| !model.is_empty());
        let model = model.ok_or_else(|| at("model", "the name of a model is needed"))?;
        let messages = body.get("messages").and_then(Value::as_array).filter(|it| !it.is_empty());
        let messages = messages.ok_or_else(|| at("messages", "a list of at least one message is needed"))?;
        let (mut text, mut question) = (String::new(), String::new());
        for message in messages {
            let role = message.get("role").and_then(Value::as_str);
            let role = role.ok_or_else(|| at("messages", "each message has a role"))?;
            let said = content(message.get("content"))
                .ok_or_else(|| at("messages", "content is a text or a list of parts"))?;
            text.push_str(&format!("{role}: {said}\n"));
            if role == "user" {
                question = said;
            }
        }
        let number = |field: &'static str| match body.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value
                .as_u64()
                .filter(|number| *number > 0)
                .map(Some)
                .ok_or_else(|| at(field, "a whole number above 0")),
        };
        let choices = number("n")?.unwrap_or(1);
        if choices > 16 {
            return Err(at("n", "16 at most"));
        }
        let max_tokens = number("max_completion_tokens")?.or(number("max_tokens")?);
        Ok(Prompt {
            model: model.to_owned(),
            text,
            question,
            wants: wants(body.get("response_format")).map_err(|problem| at("response_format", &problem))?,
            choices,
            max_tokens,
            streams: body.get("stream").and_then(Value::as_bool).unwrap_or(false),
            streams_usage: body.pointer("/stream_options/include_usage") == Some(&json!(true)),
        })
    }

    /// What is said by itself.
    pub fn say(&self, seed: u64, choice: u64) -> String {
        let drawn = format!("{} {choice} {}", self.model, self.text);
        let id = hash(seed, "answer", &drawn) >> 32;
        let question: String = self.question.chars().take(60).collect();
        match &self.wants {
            Wants::Text => format!("Simulated answer {id:08x} to: {question}"),
            Wants::Json => {
                json!({ "id": format!("{id:08x}"), "answer": format!("to: {question}") }).to_string()
            }
            Wants::Schema(schema) => schema::example(schema, seed, &drawn).to_string(),
        }
    }
}

fn content(value: Option<&Value>) -> Option<String> {
    match value {
        // A message of a call of tools has none.
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(parts)) => {
            let texts: Vec<&str> =
                parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect();
            Some(texts.join("\n"))
        }
        Some(_) => None,
    }
}

fn wants(format: Option<&Value>) -> Result<Wants, String> {
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(Wants::Text) };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(Wants::Text),
        Some("json_object") => Ok(Wants::Json),
        Some("json_schema") => match format.pointer("/json_schema/schema") {
            Some(schema @ Value::Object(_)) => Ok(Wants::Schema(schema.clone())),
            _ => Err("json_schema.schema is an object".to_owned()),
        },
        _ => Err("its type is text, json_object or json_schema".to_owned()),
    }
}

/// About four characters each, as in English.
pub fn tokens(text: &str) -> u64 {
    (text.chars().count() as u64).div_ceil(4)
}
