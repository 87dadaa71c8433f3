//! What a lifecycle calls things that are kept beside its moves: the decisions that a pause asks people for, and what the
//! engine notes about a run that it cancels. Words of the lifecycle's own, so that no other code has any.

use std::sync::Arc;

use waypost_schema::Problem;

use super::check::Resolver;
use super::file::At;
use super::{Lifecycle, Phase};

/// Members of a run's details that every lifecycle has, so that none can call its own like them.
pub const OWN_DETAILS: [&str; 9] = [
    "pause_reason",
    "paused_step",
    "worked",
    "tries",
    "cleanup_failed",
    "console_log",
    "artifacts",
    "metadata_left_out",
    "cut",
];

/// Where in a run's details it stands what people are asked to decide while the run is parked, and what they decided. A
/// decision is about a subject, such as a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decisions {
    words: [Option<Arc<str>>; DecisionPart::ALL.len()],
}

/// What a member of the details is to the decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecisionPart {
    /// True while decisions are missing.
    Waiting,
    /// An object: by subject what is asked, with the choices that there are.
    Asked,
    /// An object: by subject what was decided, by whom, when and why.
    Given,
    /// How many subjects are asked about.
    AskedCount,
    /// How much of what is asked is critical.
    CriticalCount,
}

/// What the engine notes in the metadata of a run that it cancels because its lease ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelFact {
    /// The word `system`.
    By,
    Reason,
    Worker,
    ClaimedAt,
}

impl DecisionPart {
    pub const ALL: [DecisionPart; 5] = [
        DecisionPart::Waiting,
        DecisionPart::Asked,
        DecisionPart::Given,
        DecisionPart::AskedCount,
        DecisionPart::CriticalCount,
    ];

    /// In the order of the variants.
    pub const NAMES: [&'static str; 5] = ["waiting", "asked", "given", "asked_count", "critical_count"];

    /// As the lifecycle file calls it.
    pub fn name(self) -> &'static str {
        DecisionPart::NAMES[self as usize]
    }
}

impl CancelFact {
    pub const ALL: [CancelFact; 4] =
        [CancelFact::By, CancelFact::Reason, CancelFact::Worker, CancelFact::ClaimedAt];

    /// In the order of the variants.
    pub const NAMES: [&'static str; 4] = ["by", "reason", "worker", "claimed_at"];

    pub fn name(self) -> &'static str {
        CancelFact::NAMES[self as usize]
    }
}

impl Decisions {
    fn of(words: &[(DecisionPart, At<String>)]) -> Decisions {
        let word = |part: DecisionPart| words.iter().find(|(it, _)| *it == part);
        Decisions { words: DecisionPart::ALL.map(|part| word(part).map(|(_, it)| it.value.as_str().into())) }
    }

    /// The member of details that this part is kept in, if there is one.
    pub fn member(&self, part: DecisionPart) -> Option<&str> {
        self.words[part as usize].as_deref()
    }

    /// The key of details that is true while decisions are missing.
    pub fn waiting(&self) -> &str {
        self.member(DecisionPart::Waiting).unwrap_or_default()
    }

    /// The key of details that holds what is asked.
    pub fn asked(&self) -> &str {
        self.member(DecisionPart::Asked).unwrap_or_default()
    }

    /// The key of details that holds what was decided.
    pub fn given(&self) -> &str {
        self.member(DecisionPart::Given).unwrap_or_default()
    }

    /// What a member of details is to the decisions, if anything.
    pub fn part_of(&self, member: &str) -> Option<DecisionPart> {
        DecisionPart::ALL.into_iter().find(|part| self.member(*part) == Some(member))
    }

    /// Every part that has a member, with it, in the order of the file format.
    pub fn members(&self) -> impl Iterator<Item = (DecisionPart, &str)> {
        DecisionPart::ALL.into_iter().filter_map(|part| Some((part, self.member(part)?)))
    }
}

impl Lifecycle {
    /// What a member of details is to the decisions of the lifecycle, if it has any.
    pub fn decision_part(&self, member: &str) -> Option<DecisionPart> {
        self.decisions.as_ref()?.part_of(member)
    }
}

impl Resolver<'_> {
    pub(super) fn decisions(&mut self) -> Option<Decisions> {
        let words = &self.draft.decisions;
        for (at, (part, word)) in words.iter().enumerate() {
            self.key(word, "a member of details");
            let mut complain = |problem: &str, hint: &str| {
                let message = format!("decisions.{} is `{}`, {problem}", part.name(), word.value);
                self.problem(word.line, "decision-member", &message, hint);
            };
            if OWN_DETAILS.contains(&word.value.as_str()) {
                complain("which every run's details have", "choose another name");
            } else if words[..at].iter().any(|(_, earlier)| earlier.value == word.value) {
                complain("which stands there twice", "give each part a member of its own");
            }
        }
        (!words.is_empty()).then(|| Decisions::of(words))
    }

    pub(super) fn cancelled_metadata(&mut self) -> Vec<(Arc<str>, CancelFact)> {
        let mut found = Vec::new();
        for (member, fact) in &self.draft.cancelled_metadata {
            self.key(member, "a member of metadata");
            found.push((member.value.as_str().into(), fact.value));
        }
        found
    }
}

/// Decisions are asked for where a run waits for a person.
pub(super) fn can_be_asked(lifecycle: &Lifecycle, line: usize) -> Option<Problem> {
    let can_wait = lifecycle.states.iter().any(|state| state.phase == Phase::Parked);
    (lifecycle.decisions.is_some() && !can_wait).then(|| Problem {
        line,
        rule: "decisions-without-pause",
        message: "the lifecycle has decisions, but no state in which a run waits for a person".into(),
        hint: "add a parked state, or remove `decisions`".into(),
        ..Problem::default()
    })
}
