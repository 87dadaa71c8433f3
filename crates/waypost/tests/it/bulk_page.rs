//! docs/bulk-changes.md: its files are written and its commands executed, in their order, against a shop.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::simulators::Served;
use crate::support::{Shop, surround};

/// The shop's address on the page.
const ADDRESS: &str = "127.0.0.1:7600";

/// Blocks of the page, with their language.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = Vec::new();
    let mut is_open = false;
    for line in page.lines() {
        match (line.strip_prefix("```"), is_open) {
            (Some(language), false) => {
                blocks.push((language.to_owned(), String::new()));
                is_open = true;
            }
            (Some(_), true) => is_open = false,
            (None, true) => {
                let (_, text) = blocks.last_mut().unwrap();
                text.push_str(line);
                text.push('\n');
            }
            (None, false) => {}
        }
    }
    blocks
}

fn block<'a>(blocks: &'a [(String, String)], language: &str) -> &'a str {
    &blocks.iter().find(|(it, _)| it == language).unwrap().1
}

// proves R1, R8, R10, R11, R15
#[test]
fn the_page_about_bulk_changes_is_as_it_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bulk-changes.md");
    let page = std::fs::read_to_string(path).unwrap();
    let blocks = blocks(&page);
    let shop = Shop::new();
    let mut lines = blocks.iter().filter(|(language, _)| language == "sh").flat_map(|(_, text)| text.lines());
    let started = lines.next().unwrap().replace(ADDRESS, "127.0.0.1:0");
    let flags: Vec<&str> = started.strip_prefix("waypost simulate ").unwrap().split(' ').collect();
    let served = Served::start(&shop, &flags);
    let prices = |ids: &[u64]| -> Vec<String> {
        let price = |id: &u64| served.get(&format!("/products/{id}"))["price"].as_str().unwrap().to_owned();
        ids.iter().map(price).collect()
    };
    let before = prices(&[1, 2, 3, 4, 5, 6]);
    let rows: Vec<String> = (1..).zip(&before).map(|(id, price)| format!("{id},{price}")).collect();
    let csv = block(&blocks, "csv");
    assert_eq!(
        csv.trim(),
        format!("id,before\n{}", rows.join("\n")),
        "the prices of the shop's first products"
    );
    std::fs::write(shop.path("prices.csv"), csv).unwrap();
    std::fs::write(shop.path("prices.toml"), block(&blocks, "toml")).unwrap();
    let (mut said, mut run) = (Vec::new(), String::new());
    for line in lines {
        let (command, code) = match line.split_once("# exit ") {
            Some((command, code)) => (command.trim(), code.trim().parse().unwrap()),
            None => (line, 0),
        };
        let command = match command.strip_prefix("RUN=$(") {
            Some(started) => started.trim_end_matches(')'),
            None => command,
        };
        let mut bash = Command::new("bash");
        surround(&mut bash, shop.folder());
        let bin = Path::new(env!("CARGO_BIN_EXE_waypost")).parent().unwrap();
        let search = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let address = served.line["url"].as_str().unwrap().trim_start_matches("http://");
        let ran = bash
            .args(["-c", &command.replace(ADDRESS, address)])
            .env("PATH", search)
            .env("RUN", &run)
            .output()
            .unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert_eq!(ran.status.code(), Some(code), "{command}: {text}");
        if command.contains("run start") {
            run = String::from_utf8(ran.stdout).unwrap().trim().to_owned();
        }
        said.push((command.to_owned(), text));
    }
    let of = |command: &str| &said.iter().find(|(it, _)| it.starts_with(command)).unwrap().1;
    for (command, words) in [
        ("waypost run start", "6 targets would change"),
        ("waypost run queue", "PARTIAL"),
        ("waypost dlq report", "AUTHORIZATION"),
        ("waypost run retry", "6 APPLIED"),
        ("waypost run reconcile", "1 are not what was applied"),
        ("waypost run rollback $RUN --target", "1 had been changed by others"),
        ("waypost run rollback $RUN --all", "4 rolled back"),
    ] {
        assert!(of(command).contains(words), "{command}: no {words:?} in {}", of(command));
    }
    assert_eq!(prices(&[1, 2, 3, 4, 5, 6]), before, "as it was");
    assert_eq!(shop.show(&run)["status"], json!("ROLLED_BACK"));
    shop.verifies();
}
