//! What people read, word for word. `INSTA_UPDATE=always cargo test -p waypost` rewrites it.

use crate::support::Shop;

/// Digits of ids, times and lengths become zeros and columns lose their width, which those set.
fn redacted(text: &str) -> String {
    text.lines().map(|line| redacted_line(line.trim_end())).collect::<Vec<_>>().join("\n")
}

fn redacted_line(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let words: Vec<String> =
        line.trim_start().split(' ').filter(|word| !word.is_empty()).map(redacted_word).collect();
    format!("{}{}", " ".repeat(indent), words.join(" "))
}

fn redacted_word(word: &str) -> String {
    let (front, rest) = word.split_at(word.len() - word.trim_start_matches('(').len());
    let core = rest.trim_end_matches([')', ':', ',']);
    format!("{front}{}{}", redacted_core(core), &rest[core.len()..])
}

fn redacted_core(word: &str) -> String {
    let is_short_id = word.len() == 8 && word.chars().all(|c| c.is_ascii_hexdigit());
    let digits_and = |mark: char| word.chars().all(|c| c.is_ascii_digit() || c == mark);
    let is_day = word.len() == 10 && word.matches('-').count() == 2 && digits_and('-');
    let is_of_day = word.len() == 8 && word.matches(':').count() == 2 && digits_and(':');
    let is_id = word.len() == 40 && word.starts_with("run-");
    let is_time = word.len() == 24 && word.ends_with('Z') && word.contains('T');
    let is_length = word.ends_with('s') && word.starts_with(|c: char| c.is_ascii_digit());
    let is_worker = word
        .rsplit('-')
        .next()
        .is_some_and(|end| end.len() == 8 && end.chars().all(|c| c.is_ascii_hexdigit()))
        && word.matches('-').count() >= 2;
    match () {
        () if is_id => "RUN".into(),
        () if is_short_id => "SHORT".into(),
        () if is_time || is_of_day => "TIME".into(),
        () if is_day => "DAY".into(),
        () if is_length => "0.0s".into(),
        () if is_worker => "WORKER".into(),
        () if word.contains("waypost-cli-") => "FOLDER".into(),
        () => word.to_owned(),
    }
}

#[test]
fn help() {
    let shop = Shop::new();
    let pages: &[&[&str]] = &[
        &[],
        &["run"],
        &["run", "start"],
        &["run", "list"],
        &["run", "show"],
        &["run", "watch"],
        &["run", "logs"],
        &["run", "events"],
        &["run", "cancel"],
        &["worker"],
        &["queue"],
        &["queue", "pause"],
        &["lifecycle"],
        &["playbook"],
        &["playbook", "check"],
        &["schedule"],
        &["schedule", "run"],
        &["verify"],
        &["demo"],
        &["completions"],
    ];
    let mut text = String::new();
    for page in pages {
        let help = shop.ok(&[page, &["--help"][..]].concat());
        text.push_str(&format!("$ waypost {}\n{help}\n", [page, &["--help"][..]].concat().join(" ")));
    }
    insta::assert_snapshot!("help", text);
}

#[test]
fn tables() {
    let shop = Shop::new();
    let mut text = String::new();
    let mut record = |args: &[&str]| {
        let ran = shop.run(args);
        let shown = format!("$ waypost {}\n{}{}", args.join(" "), ran.err, ran.out);
        text.push_str(&redacted(&shown));
        text.push_str(&format!("\nexit {}\n\n", ran.code.unwrap()));
    };
    record(&["run", "list"]);
    record(&["queue", "stats"]);
    record(&["run", "start", "--wait", "--", "echo", "hi"]);
    record(&["run", "start", "--wait", "--", "sh", "-c", "echo no >&2; exit 7"]);
    record(&["run", "start", "--queue", "builds", "--priority", "5", "--", "true"]);
    record(&["run", "list"]);
    record(&["queue", "pause", "builds", "--reason", "upgrade"]);
    record(&["queue", "stats"]);
    record(&["verify"]);
    let failed = shop.json(&["run", "list", "--status", "failed"])[0]["run_id"].as_str().unwrap().to_owned();
    record(&["run", "show", &failed]);
    record(&["run", "events", &failed]);
    record(&["run", "logs", &failed]);
    record(&["run", "cancel", &failed]);
    insta::assert_snapshot!("tables", text);
}
