//! What is rendered from the format is committed, and a stale file fails here. `UPDATE=1 cargo nextest run generated`
//! rewrites them.

use std::fs;
use std::path::Path;

use waypost_worker::schedules::{json_schema, reference};

#[test]
fn generated_files_are_current() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let notice = "<!-- Generated from the format. UPDATE=1 cargo nextest run generated -->\n\n";
    for (name, text) in [
        ("schedule.schema.json", format!("{:#}\n", json_schema())),
        ("schedule.md", format!("{notice}{}", reference())),
    ] {
        let path = docs.join(name);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "{} is stale: UPDATE=1 cargo nextest run generated", path.display());
    }
}
