//! The format, rendered: as JSON Schema for editors, and as the reference's table for people.

use serde_json::Value;
use waypost_schema::Kind;
use waypost_schema::render::{document, section};

use super::format::PLAYBOOK;
use super::problem::RULES;

/// JSON Schema (2020-12) of a playbook.
pub fn json_schema() -> Value {
    document("Waypost playbook", "What a run does: steps in order, or a change to many targets.", &PLAYBOOK)
}

/// The page of all keys and rules, in Markdown.
pub fn reference() -> String {
    let mut page = "# Keys of a playbook\n".to_owned();
    section(&mut page, "A playbook", &PLAYBOOK);
    for field in PLAYBOOK.fields {
        describe(&mut page, field.name, &field.kind);
    }
    page.push_str("\n## Rules\n\nWhat `waypost playbook check` holds a file to.\n\n| rule | what it asks for |\n|---|---|\n");
    for (rule, about) in RULES {
        page.push_str(&format!("| `{rule}` | {about} |\n"));
    }
    page
}

fn describe(page: &mut String, name: &str, kind: &Kind) {
    match kind {
        Kind::Of(shape) => {
            section(page, &format!("`[{name}]`"), shape);
            for field in
                shape.fields.iter().filter(|field| matches!(field.kind, Kind::Of(_)) && field.name != "http")
            {
                describe(page, &format!("{name}.{}", field.name), &field.kind);
            }
        }
        Kind::List { of: Kind::Of(of), .. } => {
            section(page, &format!("`[[{name}]]`"), of);
            for action in ["http", "chat"] {
                if let Some(found) = of.field(action).filter(|_| name == "step") {
                    describe(page, action, &found.kind);
                }
            }
        }
        Kind::Map { of: Kind::Of(shape), .. } => section(page, &format!("`[{name}.NAME]`"), shape),
        _ => {}
    }
}
