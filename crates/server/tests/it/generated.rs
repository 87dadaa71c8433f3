//! The API's reference is committed, and a stale one fails here. `UPDATE=1 cargo nextest run generated` rewrites it.

use std::fs;
use std::path::Path;

#[test]
fn generated_pages_are_current() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let notice =
        "<!-- Generated from the server's table of routes. UPDATE=1 cargo nextest run generated -->\n\n";
    let (path, text) = (docs.join("api.md"), format!("{notice}{}", waypost_server::reference()));
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == text, "api.md is stale: UPDATE=1 cargo nextest run generated");
}
