//! Generated pages are committed, and a stale one fails here. `UPDATE=1 cargo nextest run generated` rewrites them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use waypost_kernel::Lifecycle;
use waypost_kernel::render::postgres;
use waypost_kernel::render::sql;
use waypost_kernel::render::{markdown::markdown, reference};

use crate::shipped::catalog;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
}

fn pages() -> BTreeMap<PathBuf, String> {
    let notice =
        "<!-- Generated from lifecycles/ and the kernel. UPDATE=1 cargo nextest run generated -->\n\n";
    let mut pages = BTreeMap::new();
    for lifecycle in catalog().iter() {
        let path = docs().join(format!("lifecycles/{}.md", lifecycle.name));
        pages.insert(path, format!("{notice}{}", markdown(lifecycle)));
    }
    pages.insert(docs().join("refusals.md"), format!("{notice}{}", reference::refusals()));
    pages.insert(docs().join("lifecycle.md"), format!("{notice}{}", reference::keys()));
    pages.insert(docs().join("guards.md"), format!("{notice}{}", reference::guards()));
    pages.insert(docs().join("lifecycle-rules.md"), format!("{notice}{}", reference::rules()));
    let notice = "-- Generated: the database's own guard. UPDATE=1 cargo nextest run generated\n\n";
    let of = |guard: String, definition: &dyn Fn(&Lifecycle) -> String| {
        let definitions: String =
            catalog().iter().map(|lifecycle| format!("\n{}", definition(lifecycle))).collect();
        format!("{notice}{guard}{definitions}")
    };
    let sqlite = of(sql::guard(), &|lifecycle| sql::definition(lifecycle));
    pages.insert(docs().join("guard.sqlite.sql"), sqlite);
    let meanings = postgres::conditions().map(|(name, means)| format!("-- {name}\n{means};\n"));
    let guards = format!("{}{}", meanings.concat(), postgres::items_stay());
    pages.insert(docs().join("guard.postgres.sql"), of(guards, &postgres::definition));
    pages
}

#[test]
fn generated_pages_are_current() {
    for (path, text) in pages() {
        if std::env::var_os("UPDATE").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &text).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "{} is stale: UPDATE=1 cargo nextest run generated", path.display());
    }
}
