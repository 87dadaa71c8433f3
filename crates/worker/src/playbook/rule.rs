//! The sections of a bulk change: what it is about, how one target is changed, and how fast.

use std::path::PathBuf;

use waypost_kernel::bucket::MILLI_PER_UNIT;
use waypost_kernel::{Decimal, Span, breaker};

use super::action::{ActionTemplate, BodyTemplate, Way};
use super::formula::Formula;
use super::guardrails::Guardrails;
use super::template::{Named, Template};

#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub targets: Targets,
    pub apply: TargetAction,
    /// Targets of a run that are changed at once.
    pub parallel: usize,
    pub fetch: Option<Fetch>,
    /// None: as `apply`, with the value of before.
    pub rollback: Option<TargetAction>,
    pub limit: Limit,
    pub breaker: Breaker,
    pub guardrails: Guardrails,
    pub reconcile: Option<Reconcile>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Targets {
    pub source: Source,
    /// Of a page, or of the command.
    pub timeout: Option<Span>,
    /// Where the list stands in a page, as a JSON pointer.
    pub list: Option<String>,
    /// Where a page says what comes next, as a JSON pointer.
    pub next: Option<String>,
    /// The member of a row that names its target.
    pub id: String,
    /// The member with the present value.
    pub before: String,
    /// What computes the new value; none: the member `after`.
    pub after: Option<Formula>,
    /// How long what was gathered may be queued.
    pub valid_for: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Csv(PathBuf),
    Jsonl(PathBuf),
    Action(ActionTemplate),
}

#[derive(Clone, Debug, PartialEq)]
pub struct TargetAction {
    /// Of no meaning where a handler does it.
    pub action: ActionTemplate,
    /// The name of a handler in Rust.
    pub handler: Option<String>,
    pub timeout: Option<Span>,
    /// After the first try.
    pub retries: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Fetch {
    pub action: TargetAction,
    /// A JSON pointer into the answer.
    pub value: String,
}

/// How fast a destination is called, and whose limit that is.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// None: as fast as it answers.
    pub pace: Option<Pace>,
    /// How long a target waits for it in all.
    pub give_up_after: Span,
    /// None: the host that is called.
    pub destination: Option<Template>,
}

/// What comes back to a destination's bucket, and what a call takes out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub rate: Rate,
    pub burst: u32,
    /// Of one call: 1 where calls are counted.
    pub cost: u32,
}

/// Calls, or points, in a length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub calls: u32,
    pub per: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    pub after: u32,
    pub pause: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Reconcile {
    pub after: Vec<Span>,
    pub daily_for: Option<Span>,
    pub amount: Decimal,
    pub percent: Decimal,
    /// A mismatch is changed again by a new run.
    pub retries: bool,
}

impl Reconcile {
    /// Of a `[reconcile]` that does not say when.
    pub const USUAL_AFTER: [Span; 2] = [Span::from_seconds(5 * 60), Span::from_seconds(3_600)];
    pub const USUAL_DAYS: Span = Span::from_seconds(30 * 24 * 3_600);
}

impl Rule {
    /// Whether a target can be undone: by `[rollback]`, or by `[apply]` with the value of before in place of the new one. Commands and handlers are handed the
    /// whole target; a request that names no new value would only be made again.
    pub fn can_undo(&self) -> bool {
        let Way::Http(http) = &self.apply.action.way else { return true };
        let is_after = |named: &Named| {
            let mut path = named.path.iter().map(String::as_str);
            path.next() == Some("target") && matches!(path.next(), None | Some("after"))
        };
        self.rollback.is_some()
            || self.apply.handler.is_some()
            || http.body == BodyTemplate::Envelope
            || http.templates().into_iter().flat_map(Template::named).any(is_after)
    }

    /// Handlers in Rust that its actions name.
    pub fn handlers(&self) -> impl Iterator<Item = &str> {
        let fetch = self.fetch.as_ref().map(|fetch| &fetch.action);
        let actions = [Some(&self.apply), fetch, self.rollback.as_ref()];
        actions.into_iter().flatten().filter_map(|action| action.handler.as_deref())
    }
}

impl Targets {
    /// The member with the new value, where nothing computes it.
    pub const AFTER: &'static str = "after";
}

impl TargetAction {
    /// Of one try, if nothing else is said.
    pub const TIMEOUT: Span = Span::from_seconds(30);

    pub fn is_request(&self) -> bool {
        matches!(self.action.way, Way::Http(_))
    }
}

impl Pace {
    /// Shopify's figures for the Admin API: 100 points a second, 2,000 at once, 10 for a mutation.
    pub const fn of_points() -> Pace {
        Pace { rate: Rate { calls: 100, per: Span::from_seconds(1) }, burst: 2_000, cost: 10 }
    }

    pub fn capacity_milli(self) -> u64 {
        u64::from(self.burst) * MILLI_PER_UNIT
    }

    pub fn cost_milli(self) -> u64 {
        u64::from(self.cost) * MILLI_PER_UNIT
    }
}

impl Default for Limit {
    fn default() -> Limit {
        Limit { pace: None, give_up_after: Span::from_seconds(3_600), destination: None }
    }
}

impl Default for Breaker {
    fn default() -> Breaker {
        let breaker::Settings { after, pause, .. } = breaker::Settings::default();
        Breaker { after, pause }
    }
}

impl Breaker {
    /// `call` is how long one may take: a probe without an answer by then is lost.
    pub fn settings(&self, call: Span) -> breaker::Settings {
        let probe_timeout = Span::from_ms(call.ms().saturating_add(5_000));
        breaker::Settings { after: self.after, pause: self.pause, probe_timeout }
    }
}

impl Rate {
    /// `2/s`, `100/m`, `1000/h`
    pub fn parse(text: &str) -> Option<Rate> {
        let (calls, unit) = text.split_once('/')?;
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            _ => return None,
        };
        let is_plain = !calls.is_empty() && calls.bytes().all(|byte| byte.is_ascii_digit());
        let calls = is_plain.then(|| calls.parse::<u32>().ok())?.filter(|calls| *calls > 0)?;
        (calls <= 1_000_000).then_some(Rate { calls, per: Span::from_seconds(seconds) })
    }

    /// For the kernel's bucket.
    pub fn milli_per_s(self) -> u64 {
        let seconds = u64::try_from(self.per.ms() / 1_000).unwrap_or(1).max(1);
        (u64::from(self.calls) * 1_000 / seconds).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, expected) in [
            ("2/s", Some(2_000)),
            ("100/m", Some(1_666)),
            ("1/h", Some(1)),
            ("0/s", None),
            ("-1/s", None),
            ("2/d", None),
            ("2", None),
            ("2 / s", None),
            ("+2/s", None),
            ("99999999999/s", None),
        ] {
            assert_eq!(Rate::parse(text).map(Rate::milli_per_s), expected, "{text}");
        }
    }
}
