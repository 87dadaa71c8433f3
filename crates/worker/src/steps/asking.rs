//! A step that asks a person. What it asks, and until when, is stored with it before its run parks; what was answered stands in
//! the run's details, where the store put it with who and why. So whoever works the run next knows what to make of it.

use serde_json::{Map, Value, json};
use waypost_kernel::lifecycle::{Actor, Phase};
use waypost_kernel::text::{MAX_REASON_CHARS, clean_chars};
use waypost_kernel::{Failure, Time};
use waypost_store::{EventRow, ItemRow, iso, parse_time};

use super::course::Once;
use super::once::{Prepared, pause_details};
use super::planned_steps::runs_again;
use super::playbook_run::{PlaybookRun, bad_template};
use super::scope::{is_unattended, resolutions};
use super::state_names::StepState;
use super::step_log::{Halt, StepResult, because};
use super::{Next, PlaybookEnd};
use crate::playbook::{Ask, Context};

/// The member of a step's details that says what was asked.
const ASKED: &str = "ask";

/// What a person is to be asked, once nothing else of the run can go on.
pub(super) struct Question<'a> {
    pub once: Once<'a>,
    text: String,
    choices: &'a [String],
    /// The time that was given when it was asked before. One that is asked for the first time has its own from then on.
    until: Option<Time>,
}

impl<'a> PlaybookRun<'a> {
    /// What is known by now settles it, or a person is to be asked.
    pub async fn prepared_ask(
        &mut self,
        once: &Once<'a>,
        ask: &'a Ask,
        context: &Context,
    ) -> Result<Prepared<'a>, Halt> {
        let key = once.key.as_str();
        let text = match self.playbook.question_of(ask, context) {
            Ok(question) => clean_chars(&question, MAX_REASON_CHARS).text,
            Err(error) => return self.failed(once, &bad_template(&error)).await.map(Prepared::Over),
        };
        let asked = self.asked(key);
        if let Some(answer) = asked.as_ref().and_then(|asked| self.answer_to(key, asked)) {
            return self.answered(once, &text, answer).await.map(Prepared::Over);
        }
        let until = asked.as_ref().and_then(|asked| time(&asked["until"]));
        let is_late = until.is_some_and(|until| until <= self.deadlines.now());
        if is_late || is_unattended(self.row) {
            return self.unanswered(once, ask, &text, is_late).await.map(Prepared::Over);
        }
        if let Some(forced) = self.forced_after(asked.as_ref()).await? {
            return self.let_go(once, ask, &text, &forced).await.map(Prepared::Over);
        }
        Ok(Prepared::Ask(Question { once: once.clone(), text, choices: &ask.choices, until }))
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

    /// By what a person ended the pause that asked this, without an answer to it. The engine ends one too when the time of another
    /// question is over; then this one is asked on.
    async fn forced_after(&self, asked: Option<&Value>) -> Result<Option<EventRow>, Halt> {
        let run = &self.row.run;
        let attempt = asked.and_then(|asked| asked["attempt"].as_u64());
        if attempt.is_none_or(|attempt| attempt + 1 != u64::from(run.attempt)) {
            return Ok(None);
        }
        let lifecycle = &self.row.lifecycle;
        let is_parked = |state: &str| {
            lifecycle.state_named(state).is_some_and(|state| lifecycle.phase(state) == Phase::Parked)
        };
        let ends_pause =
            |event: &EventRow| event.from.as_deref().is_some_and(is_parked) && !is_parked(&event.to);
        let resumed = self.step_log.last_event(run.seq, ends_pause).await?;
        let by_person = |event: &EventRow| event.actor != Actor::Engine.name();
        Ok(resumed.filter(|event| event.payload["forced"] == true && by_person(event)))
    }

    async fn answered(&mut self, once: &Once<'_>, question: &str, answer: Value) -> Result<Next, Halt> {
        let (step, key) = (once.step, once.key.as_str());
        self.step_log.put(key, StepState::Held, self.begins(key, &does(question))).await?;
        let result = StepResult { answered: true, output: Some(answer), ..StepResult::default() };
        self.step_log.put_later(key, StepState::Done, used_up(result, question));
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
        let answer = self.answer_of_nobody(Some(choice), &why);
        self.answered(once, question, answer).await
    }

    /// A person let the run go on without an answer: the step takes the choice that it declares for that, or has none and is skipped.
    async fn let_go(
        &mut self,
        once: &Once<'_>,
        ask: &Ask,
        question: &str,
        forced: &EventRow,
    ) -> Result<Next, Halt> {
        let reason = forced.payload["reason"].as_str().filter(|reason| !reason.is_empty());
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let why = format!("{} let the run go on without an answer{reason}", forced.by);
        let answer = self.answer_of_nobody(ask.on_timeout.as_deref(), &why);
        if ask.on_timeout.is_some() {
            return self.answered(once, question, answer).await;
        }
        let (step, key) = (once.step, once.key.as_str());
        // What is skipped stays so; what a cleanup undid is asked again after a pause.
        let state = if runs_again(self.playbook, step) { StepState::Done } else { StepState::Skipped };
        let result = StepResult { output: Some(answer), ..because(&why) };
        self.step_log.put_later(key, state, used_up(result, question));
        self.tell_of(step, key).await;
        Ok(self.follows(step, key))
    }

    fn answer_of_nobody(&self, choice: Option<&str>, why: &str) -> Value {
        json!({ "choice": choice, "by": null, "reason": why, "at": iso(self.deadlines.now()) })
    }

    /// Stored as begun, all in one write.
    pub async fn begin_asking(&mut self, questions: &[(usize, Question<'a>)]) -> Result<(), Halt> {
        let begins = |question: &Question<'_>| {
            let key = question.once.key.clone();
            let told = self.begins(&key, &does(&question.text));
            (key, told)
        };
        let begun = questions.iter().map(|(_, question)| begins(question)).collect();
        self.step_log.begin(begun).await
    }

    /// The step waits for a person from now on, and the run with it.
    pub fn ask_a_person(&mut self, question: &Question<'a>) -> Next {
        let Question { once, text, choices, until } = question;
        let key = once.key.as_str();
        let until = until.or_else(|| Some(self.deadlines.now() + once.step.timeout?)).map(iso);
        let mut about = json!({ "ask": text, "choices": choices });
        if let Some(until) = &until {
            about["until"] = json!(until);
        }
        let asks = Map::from_iter([(key.to_owned(), about)]);
        let details = pause_details(&self.row.lifecycle, key, text, &asks);
        let asked = json!({ "question": text, "until": until, "attempt": self.row.run.attempt });
        let result = StepResult { answered: true, ..StepResult::default() }
            .with_detail(ASKED, asked)
            .with_detail("pause", details.clone());
        self.step_log.put_later(key, StepState::Parked, result);
        Next::End(PlaybookEnd::Paused { reason: text.clone(), details })
    }

    /// Whether questions of the present pause are stored already: then they are all of it.
    pub fn is_asking(&self) -> bool {
        let attempt = json!(self.row.run.attempt);
        let asked = |row: &ItemRow| Some(row.details.get(ASKED)?["attempt"] == attempt);
        self.step_log.parked().filter_map(asked).any(|is_now| is_now)
    }

    /// When the first of the questions that wait for an answer waits no longer.
    pub fn answer_by(&self) -> Option<Time> {
        let is_parked = |row: &&ItemRow| self.step_log.names.state(&row.status) == StepState::Parked;
        let until = |row: &ItemRow| time(&row.details.get(ASKED)?["until"]);
        self.step_log.rows().iter().filter(is_parked).filter_map(until).min()
    }
}

/// What was asked is over with this: if the step runs again, it asks anew.
fn used_up(result: StepResult, question: &str) -> StepResult {
    result.with_detail(ASKED, json!({ "question": question }))
}

fn does(question: &str) -> String {
    format!("ask: {question}")
}

fn time(text: &Value) -> Option<Time> {
    parse_time(text.as_str()?)
}
