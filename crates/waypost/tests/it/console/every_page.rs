//! Every page of the console, found by its own links, over the demo's runs: it can be used by everybody (axe-core finds nothing serious), fits its
//! window, and is small.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use super::browser::Browser;
use crate::support::Shop;

/// Of a page with its data; a phone loads it in a moment.
const MOST_BYTES: usize = 300_000;

/// Pages that are alike are looked at once: those of one route, lifecycle and tab.
fn kind_of(link: &str) -> Option<String> {
    let (path, query) = link.split_once('?').unwrap_or((link, ""));
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |pattern: &&str| {
        let pattern: Vec<&str> = pattern.split('/').collect();
        let same = |(pattern, part): (&&str, &&str)| pattern.starts_with('{') || pattern == part;
        pattern.len() == parts.len() && pattern.iter().zip(&parts).all(same)
    };
    // A file, though its address looks like a run's.
    let route = waypost_server::console_paths().find(fits).filter(|_| path != "/runs/export")?;
    let named = |pair: &&str| ["tab=", "kind="].iter().any(|name| pair.starts_with(name));
    let shown: Vec<&str> = query.split('&').filter(named).collect();
    let lifecycle = match parts.get(2) {
        Some(id) if route.starts_with("/runs/") => {
            id.split('-').next().filter(|it| it.len() < 8).unwrap_or("uuid")
        }
        _ => "",
    };
    Some(format!("{route} {lifecycle} {}", shown.join("&")))
}

fn axe() -> String {
    let fetched =
        Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/axe-core")).output().unwrap();
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    std::fs::read_to_string(String::from_utf8(fetched.stdout).unwrap().trim()).unwrap()
}

/// What is serious; contrast alone where only colours are other ones than before.
fn violations(browser: &Browser, only_colours: bool) -> Vec<String> {
    let options = if only_colours { "{ runOnly: ['color-contrast', 'target-size'] }" } else { "{}" };
    let script = format!(
        "const done = arguments[arguments.length - 1];
         axe.run(document, {options}).then((found) => done([...found.violations, {{ passed: found.passes.length }}]), (error) => done(String(error)));"
    );
    let mut found = browser.execute_async(&script);
    let counted = found.as_array_mut().unwrap_or_else(|| panic!("axe said nothing")).pop().unwrap();
    assert!(counted["passed"].as_u64().unwrap() > 0, "axe looked at nothing: {counted}");
    let is_serious = |it: &&Value| it["impact"] == "serious" || it["impact"] == "critical";
    let told = |it: &Value| {
        let nodes = it["nodes"].as_array().unwrap().iter().take(3);
        let nodes: Vec<String> =
            nodes.map(|node| format!("{} {}", node["html"], node["failureSummary"])).collect();
        format!("{}: {}\n    {}", it["id"], it["help"], nodes.join("\n    "))
    };
    found.as_array().unwrap().iter().filter(is_serious).map(told).collect()
}

/// What is wrong with pages, and on which.
type Wrong = BTreeMap<String, Vec<String>>;

/// What opens beyond the window's edge, each by itself.
fn too_wide(browser: &Browser) -> Vec<String> {
    let script = "const root = document.documentElement;
        return [...document.querySelectorAll('details')].flatMap((it) => {
          it.open = true;
          const over = root.scrollWidth - root.clientWidth;
          const left = Math.min(0, ...[...it.children].map((child) => child.getBoundingClientRect().left));
          it.open = false;
          return over > 0 || left < 0 ? [`${it.querySelector('summary').textContent} is ${over} px wider than a phone, and ${left} px left of it`] : [];
        })";
    let found = browser.execute(script);
    found.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// Short words of tables that are broken into two lines, and states and buttons that reach out of their cells.
fn broken(browser: &Browser) -> Vec<String> {
    let script = "const found = [];
        const isSeen = (it) => it.checkVisibility();
        for (const cell of document.querySelectorAll('.list td:not(.main)')) {
          if (!isSeen(cell)) continue;
          const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
          while (texts.nextNode()) {
            const text = texts.currentNode;
            if (text.parentElement.closest('.why, .unseen, pre') || !isSeen(text.parentElement)) continue;
            for (const word of text.data.matchAll(/[^\\s-]+/g)) {
              if (word[0].length > 11) continue;
              const range = document.createRange();
              range.setStart(text, word.index);
              range.setEnd(text, word.index + word[0].length);
              if (new Set([...range.getClientRects()].map((it) => Math.round(it.top))).size > 1) found.push(`${word[0]} is broken`);
            }
          }
          const edge = cell.getBoundingClientRect().right;
          for (const it of cell.querySelectorAll('.badge, .button, button, time')) {
            if (isSeen(it) && (it.getBoundingClientRect().right > edge + 1 || it.scrollWidth > it.clientWidth + 1 && it.clientWidth > 0)) found.push(`${it.textContent} is cut off`);
          }
        }
        return found";
    let found = browser.execute(script);
    found.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// In both schemes, on a phone, a desk and a wall; what opens is open once.
fn look_at(browser: &Browser, path: &str, wrong: &mut Wrong) {
    browser.goto(path);
    let open = |is_open: bool| {
        let script =
            format!("document.querySelectorAll('details').forEach((it) => {{ it.open = {is_open}; }})");
        browser.execute(&script);
    };
    let mut found: Vec<String> = Vec::new();
    for (scheme, width) in [("light", 1280), ("dark", 1280), ("dark", 400), ("light", 400), ("light", 2560)] {
        browser.prefer(scheme);
        browser.width(width);
        if browser.overhang() > 0 {
            found.push(format!("wider than {width} px"));
        }
        if width == 2560 {
            continue;
        }
        let is_first = (scheme, width) == ("light", 1280);
        found.extend(broken(browser).into_iter().map(|what| format!("{what} at {width} px")));
        if scheme == "dark" && width == 400 {
            found.extend(too_wide(browser));
            open(true);
        }
        if is_first {
            open(true);
        }
        // Structure differs by width, colours by scheme.
        found.extend(violations(browser, width == 1280 && !is_first || scheme == "light" && width == 400));
        open(false);
    }
    found.into_iter().for_each(|what| wrong.entry(what).or_default().push(path.to_owned()));
}

/// Where a page leads to.
fn links(browser: &Browser, path: &str) -> Vec<String> {
    let links = "return [...document.querySelectorAll('a[href]')].map((it) => it.getAttribute('href'))";
    let links = browser.execute(links);
    let own = path.split('?').next().unwrap();
    let whole = |link: &Value| {
        let link = link.as_str().unwrap().split('#').next().unwrap();
        // Tabs name themselves alone.
        if link.starts_with('?') { format!("{own}{link}") } else { link.to_owned() }
    };
    links.as_array().unwrap().iter().map(whole).collect()
}

/// A form alone leads to the progress of an operation: by the page that asks whether so many are meant, which can be used by everybody too.
fn command_many(browser: &Browser) -> String {
    browser.prefer("light");
    browser.width(1280);
    browser.goto("/runs?filter=lifecycle%3Ademo");
    browser.click("button[name=all]");
    browser.sees("h1", "runs?");
    let found = violations(browser, false);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let count = browser.execute("return document.querySelector('h1').textContent.match(/[0-9]+/)[0]");
    browser.fill("input[name=typed]", count.as_str().unwrap());
    browser.click("button.primary");
    browser.sees("#progress .badge", "");
    browser.path()
}

#[test]
fn everybody_can_use_every_page_of_the_demo() {
    let shop = Shop::new();
    let (_demo, url, heard) = shop.heard(&["demo"], "The console: ");
    let url = url.trim_end_matches('/');
    let said: Vec<String> = heard.iter().take_while(|line| !line.starts_with("Look at them: ")).collect();
    assert!(shop.page(url, "/waiting").contains("go ahead?"), "{}", said.join("\n"));
    let browser = Browser::open(url);
    browser.inject(&axe());
    browser.goto("/sign-in");
    browser.execute("document.querySelector('main').append(document.createElement('button'), new Image())");
    assert_eq!(violations(&browser, false).len(), 2, "a button and a picture that nobody can name");
    let mut left = vec!["/".to_owned(), "/sign-in".to_owned()];
    let mut seen: BTreeSet<String> = left.iter().filter_map(|link| kind_of(link)).collect();
    let mut wrong = Wrong::new();
    while let Some(path) = left.pop() {
        let bytes = shop.page(url, &path).len();
        if bytes >= MOST_BYTES {
            wrong.entry("too large".to_owned()).or_default().push(format!("{path} has {bytes} bytes"));
        }
        look_at(&browser, &path, &mut wrong);
        let new =
            links(&browser, &path).into_iter().filter(|it| kind_of(it).is_some_and(|kind| seen.insert(kind)));
        left.extend(new);
    }
    let progress = command_many(&browser);
    seen.extend(kind_of(&progress));
    look_at(&browser, &progress, &mut wrong);
    let told: Vec<String> =
        wrong.iter().map(|(what, paths)| format!("{what}\n  on {}", paths.join(", "))).collect();
    assert!(told.is_empty(), "{} violations\n{}", told.len(), told.join("\n"));
    for route in waypost_server::console_paths() {
        let begin = format!("{route} ");
        assert!(seen.iter().any(|kind| kind.starts_with(&begin)), "no page leads to {route}: {seen:#?}");
    }
    println!("{} pages", seen.len());
    browser.is_clean();
}
