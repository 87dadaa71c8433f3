//! Words of a message that come from outside: quoted, made harmless, and compared with those that are known.

/// What a message quotes of a word that somebody wrote.
const MAX_QUOTED_CHARS: usize = 64;

/// Marks that turn the direction of text around, or take no room in it.
const UNSEEN: [std::ops::RangeInclusive<char>; 4] =
    ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2060}'..='\u{2069}', '\u{feff}'..='\u{feff}'];

/// A word as a message quotes it: short, and without characters that a terminal would obey.
pub fn quoted(word: &str) -> String {
    let shown: String = word.chars().take(MAX_QUOTED_CHARS).flat_map(char::escape_debug).collect();
    let cut = if word.chars().nth(MAX_QUOTED_CHARS).is_some() { "…" } else { "" };
    format!("`{shown}{cut}`")
}

/// A text that may hold words of a file: of bounded length, and without characters that a terminal would obey.
pub(crate) fn harmless(text: &str, max_chars: usize) -> String {
    let is_plain = |c: char| c == '\n' || !(c.is_control() || UNSEEN.iter().any(|range| range.contains(&c)));
    let mut shown = String::new();
    for (at, c) in text.chars().enumerate() {
        if at == max_chars {
            shown.push('…');
            break;
        }
        match c {
            c if is_plain(c) => shown.push(c),
            c => shown.extend(c.escape_unicode()),
        }
    }
    shown
}

/// "Did you mean", where a known word is near, and all that would do.
pub fn instead_of(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`? Allowed: {}", known.join(", ")),
        None if known.is_empty() => "allowed: none".to_owned(),
        None => format!("allowed: {}", known.join(", ")),
    }
}

/// The known word that a typing error most likely meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = |candidate: &str| 1 + candidate.chars().count() / 4;
    known
        .into_iter()
        .filter(|candidate| word.len() <= 4 * (candidate.len() + near(candidate)))
        .map(|candidate| (edits(word, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= near(candidate))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, by rows.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, b) in right.iter().enumerate() {
            let substitute = diagonal + usize::from(a != *b);
            diagonal = row[column + 1];
            row[column + 1] = substitute.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}
