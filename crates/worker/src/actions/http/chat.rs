//! What an OpenAI-compatible chat endpoint answered, in the words of every handler.

use serde_json::{Map, Value, json};

use crate::outcome::{Outcome, Word};

/// Of seed 001: the model cannot be reached, or does not answer as it should.
const UNAVAILABLE: &str = "NLM_UNAVAILABLE";
const INVALID: &str = "NLM_INVALID_ANSWER";

/// The model's words in place of the answer that they came in, with what they cost. What keeps a model from answering and may pass has
/// one code, whichever part of the network it was.
pub(super) fn read(outcome: Outcome, is_json: bool) -> Outcome {
    match outcome.word {
        Some(Word::Done) => answered(&outcome.output, is_json),
        Some(Word::Retry) if outcome.code.as_deref() != Some("TIMEOUT") => {
            Outcome { code: Some(UNAVAILABLE.to_owned()), ..outcome }
        }
        _ => outcome,
    }
}

fn answered(answer: &Value, is_json: bool) -> Outcome {
    let choice = &answer["choices"][0];
    let Some(text) = choice["message"]["content"].as_str() else {
        return again("the model's answer has no choices[0].message.content");
    };
    let mut output = Map::new();
    let mut outcome = Outcome::done();
    if is_json {
        let parsed: Value = match serde_json::from_str(without_fence(text)) {
            Ok(parsed) => parsed,
            Err(error) => return again(&format!("the model's answer is not JSON: {error}")),
        };
        let list = |name: &str| parsed[name].as_array().cloned().unwrap_or_default();
        (outcome.proposals, outcome.artifacts) = (list("proposals"), list("artifacts"));
        output.insert("answer".to_owned(), parsed);
    } else {
        output.insert("answer".to_owned(), json!(text));
    }
    for (name, value) in [
        ("model", &answer["model"]),
        ("finish_reason", &choice["finish_reason"]),
        ("usage", &answer["usage"]),
    ] {
        output.insert(name.to_owned(), value.clone());
    }
    Outcome { output: Value::Object(output), ..outcome }.cleaned()
}

/// Another try may fare better.
fn again(message: &str) -> Outcome {
    Outcome { code: Some(INVALID.to_owned()), ..Outcome::retry(message) }
}

/// Models like to put JSON into a block of Markdown.
fn without_fence(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    inner.and_then(|inner| inner.strip_suffix("```")).map_or(text, str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(content: &str) -> Outcome {
        Outcome::done_with(json!({
            "model": "m1",
            "choices": [{ "message": { "role": "assistant", "content": content }, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7 },
        }))
    }

    #[test]
    fn an_answer_is_the_models_words_and_what_they_cost() {
        let read_text = read(completion("hello"), false);
        assert_eq!((read_text.word, &read_text.output["answer"]), (Some(Word::Done), &json!("hello")));
        assert_eq!(read_text.output["usage"]["total_tokens"], 7);
        for content in [
            r#"{"a":1,"proposals":[{"title":"x"}]}"#,
            "```json\n{\"a\":1,\"proposals\":[{\"title\":\"x\"}]}\n```",
        ] {
            let read_json = read(completion(content), true);
            assert_eq!(
                (&read_json.output["answer"]["a"], read_json.proposals.len()),
                (&json!(1), 1),
                "{content}"
            );
        }
    }

    #[test]
    fn what_is_no_answer_is_asked_for_again() {
        for answer in [completion("no JSON"), Outcome::done_with(json!({ "choices": [] })), Outcome::done()] {
            let again = read(answer, true);
            assert_eq!((again.word, again.code.as_deref()), (Some(Word::Retry), Some(INVALID)));
        }
    }

    #[test]
    fn a_model_that_is_away_has_one_code_and_a_timeout_stays_one() {
        let code = |outcome: Outcome| read(outcome, false).code;
        let retry = |code: &str| Outcome { code: Some(code.to_owned()), ..Outcome::retry("away") };
        for away in ["NETWORK", "SERVER_ERROR", "RATE_LIMIT"] {
            assert_eq!(code(retry(away)).as_deref(), Some(UNAVAILABLE), "{away}");
        }
        assert_eq!(code(retry("TIMEOUT")).as_deref(), Some("TIMEOUT"));
        assert_eq!(code(Outcome::fail("AUTHORIZATION", "no")).as_deref(), Some("AUTHORIZATION"));
    }
}
