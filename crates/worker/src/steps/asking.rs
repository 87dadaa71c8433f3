//! A step that asks a person. What it asks, and until when, is stored with it before its run parks; what was answered stands in
//! the run's details, where the store put it with who and why. So whoever works the run next knows what to make of it.

use serde_json::{Map, Value, json};
use waypost_kernel::text::{MAX_REASON_CHARS, clean_chars};
use waypost_kernel::{Failure, Time};
use waypost_store::{ItemRow, iso, parse_time};

use super::course::Once;
use super::once::pause_details;
use super::playbook_run::{PlaybookRun, bad_template};
use super::scope::{is_unattended, resolutions};
use super::state_names::StepState;
use super::step_log::{Halt, StepResult};
use super::{Next, PlaybookEnd};
use crate::playbook::{Ask, Context};

/// The member of a step's details that says what was asked.
const ASKED: &str = "ask";

impl PlaybookRun<'_> {
    pub async fn ask_a_person(
        &mut self,
        once: &Once<'_>,
        ask: &Ask,
        context: &Context,
    ) -> Result<Next, Halt> {
        let key = once.key.as_str();
        let question = match self.playbook.question_of(ask, context) {
            Ok(question) => clean_chars(&question, MAX_REASON_CHARS).text,
            Err(error) => return self.failed(once, &bad_template(&error)).await,
        };
        let asked = self.asked(key);
        if let Some(answer) = asked.as_ref().and_then(|asked| self.answer_to(key, asked)) {
            return self.answered(once, &question, answer).await;
        }
        let until = asked.as_ref().and_then(|asked| time(&asked["until"]));
        let is_late = until.is_some_and(|until| until <= self.deadlines.now());
        if is_late || is_unattended(self.row) {
            return self.unanswered(once, ask, &question, is_late).await;
        }
        let until = until.or_else(|| Some(self.deadlines.now() + once.step.timeout?));
        self.park_for(ask, key, &question, until).await
    }

    /// What this step asked in the last pause.
    fn asked(&self, key: &str) -> Option<Value> {
        self.step_log.row(key)?.details.get(ASKED).filter(|asked| asked.is_object()).cloned()
    }

    /// Of that pause alone: what was answered to the same question before is no answer to this one.
    fn answer_to(&self, key: &str, asked: &Value) -> Option<Value> {
        let decision = resolutions(self.row).get(key).cloned()?;
        let choice = decision["decision"].as_str()?;
        (decision["attempt"] == asked["attempt"]).then(|| {
            json!({ "choice": choice, "by": decision["by"], "reason": decision["reason"], "at": decision["at"] })
        })
    }

    async fn answered(&mut self, once: &Once<'_>, question: &str, answer: Value) -> Result<Next, Halt> {
        let (step, key) = (once.step, once.key.as_str());
        self.step_log.put(key, StepState::Held, does(question)).await?;
        let result = StepResult { answered: true, output: Some(answer), ..StepResult::default() };
        self.step_log.put_later(key, StepState::Done, result);
        self.tell_of(step, key).await;
        Ok(self.follows(step, key))
    }

    /// Nobody is there, or nobody answered in time.
    async fn unanswered(
        &mut self,
        once: &Once<'_>,
        ask: &Ask,
        question: &str,
        is_late: bool,
    ) -> Result<Next, Halt> {
        let limit = once.step.timeout.map(|limit| limit.to_string()).unwrap_or_default();
        let why = match is_late {
            true => format!("nobody answered within {limit}"),
            false => "nobody is there to be asked".to_owned(),
        };
        let Some(choice) = &ask.on_timeout else {
            let code = if is_late { "NOBODY_ANSWERED" } else { "NOBODY_TO_ASK" };
            let failure = Failure::new(code, &format!("{why}: {question}"));
            return self.failed(once, &failure).await;
        };
        let at = iso(self.deadlines.now());
        let answer = json!({ "choice": choice, "by": null, "reason": why, "at": at });
        self.answered(once, question, answer).await
    }

    async fn park_for(
        &mut self,
        ask: &Ask,
        key: &str,
        question: &str,
        until: Option<Time>,
    ) -> Result<Next, Halt> {
        self.step_log.put(key, StepState::Held, does(question)).await?;
        let until = until.map(iso);
        let mut about = json!({ "ask": question, "choices": ask.choices });
        if let Some(until) = &until {
            about["until"] = json!(until);
        }
        let asks = Map::from_iter([(key.to_owned(), about)]);
        let details = pause_details(&self.row.lifecycle, key, question, &asks);
        let asked = json!({ "question": question, "until": until, "attempt": self.row.run.attempt });
        let result = StepResult { answered: true, ..StepResult::default() }
            .with_detail(ASKED, asked)
            .with_detail("pause", details.clone());
        self.step_log.put_later(key, StepState::Parked, result);
        Ok(Next::End(PlaybookEnd::Paused { reason: question.to_owned(), details }))
    }

    /// When the first of the questions that wait for an answer waits no longer.
    pub fn answer_by(&self) -> Option<Time> {
        let is_parked = |row: &&ItemRow| self.step_log.names.state(&row.status) == StepState::Parked;
        let until = |row: &ItemRow| time(&row.details.get(ASKED)?["until"]);
        self.step_log.rows().iter().filter(is_parked).filter_map(until).min()
    }
}

fn does(question: &str) -> StepResult {
    StepResult::default().with_detail("does", format!("ask: {question}"))
}

fn time(text: &Value) -> Option<Time> {
    parse_time(text.as_str()?)
}
