//! What lengths of time and instants look like in files and requests.

use waypost_schema::{Checked, Fault, Format, FromNode, MayBeAbsent, Node, Takes, quoted};

use crate::item::Role;
use crate::lifecycle::{Actor, CancelFact, Kind, OnStale, Outcome, Phase};
use crate::request::Level;
use crate::time::{Span, Time};

/// Above zero. Kept as [`Span`] prints it: `60s` and `1m` are one.
pub static DURATION: Format = Format {
    name: "a duration",
    wanted: r#"a length of time between quotes, such as "60s" or "7d""#,
    example: r#""60s""#,
    pattern: Some("^[0-9]+(ms|s|m|h|d)$"),
    check: duration,
    ..Format::TEXT
};

pub(crate) fn duration(text: &str) -> Checked {
    match Span::parse(text) {
        Some(span) if span > Span::ZERO => Ok(Some(span.to_string())),
        _ => {
            let hint = "write a whole number above 0 and a unit: 500ms, 60s, 5m, 24h, 7d";
            Err(Fault::new("bad-duration", format!("{} is no length of time", quoted(text)), hint))
        }
    }
}

impl FromNode for Span {
    const TAKES: Takes = Takes::Text;

    fn from_node(node: Node) -> Option<Span> {
        Span::parse(node.text())
    }
}

/// RFC 3339.
pub static TIME: Format = Format {
    name: "a time",
    wanted: "a time like 2026-02-14T08:00:00Z",
    example: r#""2026-02-14T08:00:00Z""#,
    format: Some("date-time"),
    check: |text| match Time::parse(text) {
        Some(_) => Ok(None),
        None => {
            Err(Fault::new("bad-time", format!("{} is no time", quoted(text)), "write 2026-02-14T08:00:00Z"))
        }
    },
    ..Format::TEXT
};

impl FromNode for Time {
    const TAKES: Takes = Takes::Text;

    fn from_node(node: Node) -> Option<Time> {
        Time::parse(node.text())
    }
}

/// Types whose values have names.
macro_rules! by_name {
    ($($type:ty),+) => {$(
        impl FromNode for $type {
            const TAKES: Takes = Takes::Text;

            fn from_node(node: Node) -> Option<$type> {
                <$type>::ALL.into_iter().find(|known| known.name() == node.text())
            }
        }
    )+};
}

by_name!(Actor, CancelFact, Kind, Level, OnStale, Outcome, Phase, Role);

impl MayBeAbsent for Role {
    fn absent() -> Role {
        Role::default()
    }
}
