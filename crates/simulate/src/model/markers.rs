//! What a test writes into a prompt, or queues for the next calls: `[[sim: fail 503 x2]]`.

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Slow(Option<u64>),
    RateLimited(Option<u64>),
    Fail(Option<u16>),
    Cut,
    Timeout,
    Garbage,
    Truncated,
    Prose,
    Empty,
    /// The content is this.
    Answer(String),
    /// Nothing happens to it: one that comes through in a queue of others.
    Pass,
}

/// Name, what may follow it, what it does.
pub const MARKERS: &[(&str, &str, &str)] = &[
    ("slow", "[500ms | 2s]", "takes longer by this, or by `slow_ms`"),
    ("rate_limited", "[SECONDS]", "429, with this in `Retry-After`"),
    ("fail", "[STATUS]", "this status from 400 to 599, or one of 500, 502 and 503"),
    ("cut", "", "closes the connection without an answer"),
    ("timeout", "", "holds the answer back for `hold_ms`"),
    ("garbage", "", "200 with a page of HTML in place of JSON"),
    ("truncated", "", "the content ends in its middle, with `finish_reason` `length`"),
    ("prose", "", "the content is prose, though JSON was asked for"),
    ("empty", "", "the content is empty"),
    ("answer", "TEXT", "the content is TEXT, up to `]]`"),
    ("pass", "", "nothing: for `/admin/next`"),
];

/// An effect, and how many times it hits the same prompt; each time if it is not said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub text: String,
    pub effect: Effect,
    pub times: Option<u32>,
}

pub fn effect(text: &str) -> Result<Effect, String> {
    let text = text.trim();
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    let plain = |effect: Effect| match rest {
        "" => Ok(effect),
        _ => Err(format!("{text}: nothing follows {name}")),
    };
    match name {
        "slow" => duration_ms(rest).map(Effect::Slow),
        "rate_limited" if rest.is_empty() => Ok(Effect::RateLimited(None)),
        "rate_limited" => {
            let seconds = rest.parse().map_err(|_| format!("{text}: {rest} is no number of seconds"));
            seconds.map(|seconds| Effect::RateLimited(Some(seconds)))
        }
        "fail" if rest.is_empty() => Ok(Effect::Fail(None)),
        "fail" => match rest.parse() {
            Ok(status @ 400..=599) => Ok(Effect::Fail(Some(status))),
            _ => Err(format!("{text}: {rest} is no status from 400 to 599")),
        },
        "cut" => plain(Effect::Cut),
        "timeout" => plain(Effect::Timeout),
        "garbage" => plain(Effect::Garbage),
        "truncated" => plain(Effect::Truncated),
        "prose" => plain(Effect::Prose),
        "empty" => plain(Effect::Empty),
        "answer" => Ok(Effect::Answer(rest.to_owned())),
        "pass" => plain(Effect::Pass),
        _ => {
            let names: Vec<&str> = MARKERS.iter().map(|marker| marker.0).collect();
            Err(format!("{name} is no marker: {}", names.join(", ")))
        }
    }
}

fn duration_ms(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let ms = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(ms), _) => ms.parse().ok(),
        (None, Some(seconds)) => seconds.parse::<u64>().ok().map(|seconds| seconds.saturating_mul(1_000)),
        (None, None) => None,
    };
    let ms = ms.filter(|ms| *ms <= 3_600_000);
    ms.map(Some).ok_or_else(|| format!("slow {text}: write 500ms or 2s, an hour at most"))
}

/// All markers of a prompt, in order.
pub fn find(prompt: &str) -> Result<Vec<Marker>, String> {
    let mut markers = Vec::new();
    for part in prompt.split("[[sim:").skip(1) {
        let (inside, _) = part.split_once("]]").ok_or("a marker [[sim: … has no ]]")?;
        let inside = inside.trim();
        let times = inside.rsplit_once(' ').and_then(|(before, last)| {
            let times = last.strip_prefix('x')?.parse().ok()?;
            // An answer may end in anything.
            (!before.starts_with("answer")).then_some((before, times))
        });
        let (text, times) = times.map_or((inside, None), |(before, times)| (before, Some(times)));
        markers.push(Marker { text: inside.to_owned(), effect: effect(text)?, times });
    }
    Ok(markers)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found() {
        let found =
            find("a [[wiki]] [[sim: fail 503 x2]] b [[sim:slow 2s]][[sim: answer {\"a\": [[1]]} x2").unwrap();
        let effects: Vec<(Effect, Option<u32>)> =
            found.into_iter().map(|marker| (marker.effect, marker.times)).collect();
        assert_eq!(
            effects,
            [
                (Effect::Fail(Some(503)), Some(2)),
                (Effect::Slow(Some(2_000)), None),
                (Effect::Answer("{\"a\": [[1".to_owned()), None),
            ]
        );
        assert_eq!(find("nothing here"), Ok(Vec::new()));
    }

    #[test]
    fn every_marker_of_the_table_is_one() {
        for (name, argument, _) in MARKERS {
            let example = match *argument {
                "[SECONDS]" => "3",
                "[STATUS]" => "502",
                "[500ms | 2s]" => "500ms",
                "TEXT" => "{}",
                _ => "",
            };
            assert!(effect(&format!("{name} {example}")).is_ok(), "{name}");
            assert!(argument.starts_with("TEXT") || effect(name).is_ok(), "{name}");
        }
        for fault in super::super::FAULTS {
            assert!(effect(fault.name).is_ok(), "{}", fault.name);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("[[sim: fial 503]]", "fial is no marker: slow, rate_limited, fail"),
            ("[[sim: fail 200]]", "no status from 400 to 599"),
            ("[[sim: slow 2h]]", "500ms or 2s"),
            ("[[sim: cut it]]", "nothing follows cut"),
            ("[[sim: rate_limited soon]]", "no number of seconds"),
            ("[[sim: cut", "has no ]]"),
        ] {
            let problem = find(text).unwrap_err();
            assert!(problem.contains(words), "{text}: {problem}");
        }
    }
}
