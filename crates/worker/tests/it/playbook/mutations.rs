//! Machine-made mistakes: every line and every word of the sound files dropped, doubled, cut, swapped and bent.

use super::{CLUSTER, PRICES, judge};

/// Bent by rule, not by chance: the same every time.
pub fn all() -> Vec<String> {
    let mut mutants = Vec::new();
    for text in [CLUSTER, PRICES] {
        let lines: Vec<&str> = text.lines().collect();
        for at in 0..lines.len() {
            let with = |line: &[&str]| {
                let mut changed = lines[..at].to_vec();
                changed.extend_from_slice(line);
                changed.extend_from_slice(&lines[at + 1..]);
                changed.join("\n") + "\n"
            };
            let line = lines[at];
            mutants.push(with(&[]));
            mutants.push(with(&[line, line]));
            mutants.push(with(&["[x]", line]));
            mutants.push(with(&["surprise = 1", line]));
            if let Some((key, value)) = line.split_once(" = ") {
                for other in
                    ["1", "-1", "1.5", "true", "\"\"", "\"x\"", "[]", "{}", "[1]", "1979-05-27", "\"{{\""]
                {
                    mutants.push(with(&[&format!("{key} = {other}")]));
                }
                let bent: String = key.chars().rev().collect();
                mutants.push(with(&[&format!("{bent} = {value}")]));
                mutants.push(with(&[&format!("{key}s = {value}")]));
            }
        }
        mutants.extend(words(text));
        mutants.extend(
            (0..text.len())
                .step_by(23)
                .filter(|at| text.is_char_boundary(*at))
                .map(|at| text[..at].to_owned()),
        );
    }
    mutants
}

fn words(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut mutants = Vec::new();
    let mut at = 0;
    while let Some(found) = text[at..].find(is_word) {
        let start = at + found;
        let end = text[start..].find(|c| !is_word(c)).map_or(text.len(), |length| start + length);
        for new in ["zzz", "", "\u{1b}", "{{ zzz }}", "\\u0000"] {
            mutants.push(format!("{}{new}{}", &text[..start], &text[end..]));
        }
        at = end;
    }
    mutants
}

#[test]
fn no_mutation_makes_the_checker_panic_or_stay_vague() {
    let mutants = all();
    assert!(mutants.len() > 2_000, "{}", mutants.len());
    for text in &mutants {
        let _ = judge(text);
    }
}
