//! Tables of the reference.

use crate::shape::{Kind, Row, Shape};

/// A section of a page about a kind of files: its keys.
pub fn section(page: &mut String, title: &str, shape: &Shape) {
    page.push_str(&format!("\n## {title}\n\n"));
    if !shape.one_of.is_empty() {
        page.push_str(&format!("Exactly one of {}.\n\n", shape.one_of.join(", ")));
    }
    page.push_str("| key | value | |\n|---|---|---|\n");
    for field in shape.fields {
        let needed = if field.is_needed { " (needed)" } else { "" };
        let description = field.description.replace('|', "\\|");
        page.push_str(&format!(
            "| `{}`{needed} | {} | {description} |\n",
            field.name,
            file_kind(&field.kind)
        ));
    }
}

fn file_kind(kind: &Kind) -> String {
    match kind {
        Kind::Format(format) => format.name.to_owned(),
        Kind::Integer(least, most) => format!("{least} to {most}"),
        Kind::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::Any => "any value".to_owned(),
        Kind::Parts(name) | Kind::TextOrList { name, .. } => (*name).to_owned(),
        Kind::List { of: Kind::Of(_), .. } => "tables".to_owned(),
        Kind::List { of, .. } | Kind::Row(Row { of, .. }) => format!("a list: {}", file_kind(of)),
        Kind::Map { of: Kind::Of(_), .. } | Kind::Of(_) | Kind::Object | Kind::Either(_) => {
            "a table".to_owned()
        }
        Kind::Map { of, .. } => format!("a table: {} each", file_kind(of)),
        Kind::Text(_) | Kind::Number | Kind::Boolean => kind.wanted(),
    }
}

/// The kind of a field of the API.
pub fn api_kind(kind: &Kind) -> String {
    match kind {
        Kind::Of(shape) => format!("`{}`", shape.name),
        Kind::List { of, .. } => format!("list of {}", api_kind(of)),
        Kind::Map { of, .. } => format!("by name: {}", api_kind(of)),
        Kind::Either(shapes) => {
            shapes.iter().map(|shape| format!("`{}`", shape.name)).collect::<Vec<_>>().join(" or ")
        }
        Kind::Text(_) => "text".into(),
        Kind::Integer(0, i64::MAX) => "number".into(),
        plain => plain.wanted(),
    }
}
