//! Pages lead where they say, and the book has every page.

use std::collections::BTreeSet;

use super::tree::{Complaint, File, Tree, assert_clean, complaint, found};

const SUMMARY: &str = "docs/SUMMARY.md";

fn complaints(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let paths: BTreeSet<&str> = tree.files.iter().map(|file| file.path.as_str()).collect();
    // A picture has no text, and is not among the files. One that is larger is too large for a page.
    let is_picture = |path: &str| {
        let file = path.ends_with(".png").then(|| std::fs::metadata(tree.root.join(path)));
        file.is_some_and(|found| found.is_ok_and(|file| file.len() < 200_000))
    };
    let is_there = |path: &str| {
        paths.contains(path)
            || paths.iter().any(|file| file.starts_with(&format!("{path}/")))
            || is_picture(path)
    };
    let mut in_book = BTreeSet::new();
    for file in tree.files.iter().filter(|file| file.has_extension(&["md"])) {
        for (line, link) in links(file) {
            let target = relative_to(&file.path, link);
            if !is_there(&target) {
                let message = format!("leads to {target}, which is not there: mend the link");
                complaints.push(complaint(&file.path, line, link, message));
            }
            if file.path == SUMMARY {
                in_book.insert(target);
            }
        }
    }
    let pages =
        tree.files.iter().filter(|file| file.path.starts_with("docs/") && file.has_extension(&["md"]));
    for page in pages.filter(|page| page.path != SUMMARY && !in_book.contains(&page.path)) {
        let message = format!("is not in {SUMMARY}: nobody who reads the book finds it");
        complaints.push(complaint(&page.path, 1, "book", message));
    }
    complaints
}

/// The links of a page to files beside it, without the place in them; what stands in a block of code is none.
fn links(file: &File) -> Vec<(usize, &str)> {
    let (mut links, mut is_code) = (Vec::new(), false);
    for (at, line) in file.text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        for rest in line.split("](").skip(1).filter(|_| !is_code) {
            let link = rest.split([')', '#']).next().unwrap_or("");
            if !link.is_empty() && !link.contains("://") {
                links.push((at + 1, link));
            }
        }
    }
    links
}

/// A link of a page as a path from the root.
fn relative_to(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/').filter(|part| !part.is_empty()) {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn links_lead_somewhere_and_the_book_is_whole() {
    assert_clean(&complaints(&Tree::repository()));
}

#[test]
fn broken_links_and_forgotten_pages_are_found() {
    let page = "[a](b.md), [b](../README.md#there), [c](gone.md#x) and [d](https://example.com/x)\n```\n[e](none.md)\n```\n[f](sub/)\n[g](#h)\n";
    let tree = Tree::planted(&[
        (SUMMARY, "- [A](a.md)\n- [C](sub/c.md)\n"),
        ("README.md", "[a](docs/a.md) [b](docs/none.md)"),
        ("docs/a.md", page),
        ("docs/b.md", ""),
        ("docs/sub/c.md", "[up](../a.md)"),
    ]);
    let expected = ["README.md:1 docs/none.md", "docs/a.md:1 gone.md", "docs/b.md:1 book"];
    assert_eq!(found(&complaints(&tree)), expected);
}
