//! The sections of a bulk change: what it is about, how one target is changed, and how fast.

use std::path::PathBuf;

use waypost_kernel::Span;

use super::action::ActionTemplate;

#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub targets: Targets,
    pub apply: TargetAction,
    pub fetch: Option<Fetch>,
    pub rollback: Option<TargetAction>,
    pub limit: Option<Limit>,
    pub breaker: Option<Breaker>,
    pub reconcile: Option<Reconcile>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Targets {
    pub source: Source,
    pub timeout: Option<Span>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Csv(PathBuf),
    Jsonl(PathBuf),
    Action(ActionTemplate),
}

#[derive(Clone, Debug, PartialEq)]
pub struct TargetAction {
    pub action: ActionTemplate,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    pub rate: Rate,
    pub burst: u32,
}

/// Calls in a length of time.
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
    pub amount: f64,
    pub percent: f64,
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
