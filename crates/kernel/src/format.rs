//! What a length of time looks like in a file or a request.

use waypost_schema::{Checked, Fault, Format, FromNode, Node, quoted};

use crate::time::Span;

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
    fn from_node(node: Node) -> Option<Span> {
        Span::parse(node.text())
    }
}
