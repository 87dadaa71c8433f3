//! Text that others wrote, on its way to a terminal: it must not move the cursor, clear the screen, set a title, hide or
//! turn around what follows. Colours are kept where output of commands is shown, and nowhere else.

use std::borrow::Cow;

/// The longest sequence that is taken for one. Colours have less than half of that.
const MAX_SEQUENCE_BYTES: usize = 64;

/// Accents on one character. No language needs more; floods of them draw over the lines above and below.
const MAX_ACCENTS: usize = 4;

/// Marks that turn the direction of text around, take no room in it, or end a line where none ends.
const UNSEEN: [std::ops::RangeInclusive<char>; 6] = [
    '\u{200b}'..='\u{200b}',
    '\u{200e}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{2069}',
    '\u{feff}'..='\u{feff}',
    '\u{e0000}'..='\u{e007f}',
];

const ACCENTS: [std::ops::RangeInclusive<char>; 7] = [
    '\u{300}'..='\u{36f}',
    '\u{483}'..='\u{489}',
    '\u{1ab0}'..='\u{1aff}',
    '\u{1dc0}'..='\u{1dff}',
    '\u{20d0}'..='\u{20ff}',
    '\u{fe00}'..='\u{fe2f}',
    '\u{e0100}'..='\u{e01ef}',
];

/// A complete control sequence (CSI) at the beginning of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub bytes: usize,
    /// It chooses colours and weights, and does nothing else.
    pub is_colour: bool,
    /// It puts colours and weights back.
    is_reset: bool,
}

/// What of colours is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colours {
    None,
    Kept,
    /// Kept, and ended where the text ends.
    Ended,
}

/// Names, reasons, error texts: nothing in them is obeyed. Line ends and tabs stay.
pub fn plain(text: &str) -> Cow<'_, str> {
    shown(text, Colours::None)
}

/// The same of a name, which stands on one line: its own line ends are shown, so that none of it looks like a line of ours.
pub fn name(text: &str) -> Cow<'_, str> {
    match plain(text) {
        shown if !shown.contains(['\n', '\t']) => shown,
        shown => Cow::Owned(shown.replace('\n', "^J").replace('\t', "^I")),
    }
}

/// The same of a text of several lines, which stand below the first one and further in: none of them looks like a line of ours.
pub fn indented(text: &str, by: usize) -> Cow<'_, str> {
    match plain(text.trim_end_matches('\n')) {
        shown if !shown.contains('\n') => shown,
        shown => Cow::Owned(shown.replace('\n', &format!("\n{}", " ".repeat(by)))),
    }
}

/// A line of a command's output: its colours stay, and end with it.
pub fn output_line(text: &str) -> Cow<'_, str> {
    shown(text, Colours::Ended)
}

/// What was put together from both, before it is written: whatever slipped through is stopped here.
pub fn screened(text: &str) -> Cow<'_, str> {
    shown(text, Colours::Kept)
}

/// JSON as a terminal may see it: the same document, with escapes for the characters that JSON allows and terminals obey.
pub fn json(document: String) -> String {
    if !document.chars().any(is_obeyed) {
        return document;
    }
    let mut shown = String::with_capacity(document.len() + 16);
    for character in document.chars() {
        // What stands between the texts of a document is its own line ends.
        if character != '\n' && is_obeyed(character) {
            let mut units = [0; 2];
            shown.extend(character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The control sequence that a text begins with, if it is whole.
pub fn sequence(text: &str) -> Option<Sequence> {
    let body = text.strip_prefix("\u{1b}[")?;
    let head = &body.as_bytes()[..body.len().min(MAX_SEQUENCE_BYTES)];
    let parameters = head.iter().position(|byte| !(0x30..=0x3f).contains(byte))?;
    let between = head[parameters..].iter().position(|byte| !(0x20..=0x2f).contains(byte))?;
    let last = *head.get(parameters + between).filter(|byte| (0x40..=0x7e).contains(*byte))?;
    let chosen = &body[..parameters];
    let is_colour = last == b'm' && between == 0 && are_colours(chosen);
    let is_reset = is_colour && matches!(chosen, "" | "0");
    Some(Sequence { bytes: 2 + parameters + between + 1, is_colour, is_reset })
}

/// Not those that blink or hide: what is hidden is still copied.
fn are_colours(parameters: &str) -> bool {
    let mut words = parameters.split(';');
    while let Some(word) = words.next() {
        let mut parts = word.split(':');
        let number = parts.next().unwrap_or_default();
        let is_number = |text: &str| text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(number) || !parts.clone().all(is_number) || matches!(number, "5" | "6" | "8") {
            return false;
        }
        // `38;5;8` is a colour by its number, `38;2;1;2;3` one by its parts.
        if matches!(number, "38" | "48" | "58") && parts.next().is_none() {
            let follow = if words.next() == Some("2") { 3 } else { 1 };
            if !words.by_ref().take(follow).all(is_number) {
                return false;
            }
        }
    }
    true
}

fn is_obeyed(character: char) -> bool {
    character.is_control() || UNSEEN.iter().any(|range| range.contains(&character))
}

fn is_accent(character: char) -> bool {
    character >= '\u{300}' && ACCENTS.iter().any(|range| range.contains(&character))
}

fn shown(text: &str, colours: Colours) -> Cow<'_, str> {
    let is_kept = |character: char| matches!(character, '\n' | '\t');
    let is_harmless = |character: char| is_kept(character) || !(is_obeyed(character) || is_accent(character));
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let (mut rest, mut accents, mut is_coloured) = (text, 0, false);
    while let Some(character) = rest.chars().next() {
        let colour = if colours == Colours::None { None } else { sequence(rest) };
        if let Some(colour) = colour.filter(|sequence| sequence.is_colour) {
            shown.push_str(&rest[..colour.bytes]);
            is_coloured = !colour.is_reset;
            rest = &rest[colour.bytes..];
            continue;
        }
        rest = &rest[character.len_utf8()..];
        accents = if is_accent(character) { accents + 1 } else { 0 };
        match character {
            _ if accents > MAX_ACCENTS + 1 => {}
            _ if accents > MAX_ACCENTS => shown.push(char::REPLACEMENT_CHARACTER),
            character if is_kept(character) || !is_obeyed(character) => shown.push(character),
            // As `cat -v` writes them.
            '\0'..='\x1f' => shown.extend(['^', char::from(character as u8 + b'@')]),
            '\x7f' => shown.push_str("^?"),
            character => shown.extend(character.escape_unicode()),
        }
    }
    if is_coloured && colours == Colours::Ended {
        shown.push_str("\u{1b}[0m");
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // proves U8
    #[test]
    fn colours_are_kept_in_output_and_nothing_else_is_obeyed() {
        for (text, as_output, as_name) in [
            ("plain\ttext", "plain\ttext", "plain\ttext"),
            ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m", "^[[31mred^[[0m"),
            ("\x1b[31mred", "\x1b[31mred\x1b[0m", "^[[31mred"),
            ("\x1b[38;5;8;1mx\x1b[m", "\x1b[38;5;8;1mx\x1b[m", "^[[38;5;8;1mx^[[m"),
            ("\x1b[38:2::1:2:3mx", "\x1b[38:2::1:2:3mx\x1b[0m", "^[[38:2::1:2:3mx"),
            ("\x1b[8mhidden", "^[[8mhidden", "^[[8mhidden"),
            ("\x1b[1;5mblinks", "^[[1;5mblinks", "^[[1;5mblinks"),
            ("\x1b[2J\x1b[Hgone", "^[[2J^[[Hgone", "^[[2J^[[Hgone"),
            ("\x1b[>4;2mx", "^[[>4;2mx", "^[[>4;2mx"),
            ("a\x1b]0;title\x07 b", "a^[]0;title^G b", "a^[]0;title^G b"),
            ("a\x1b]0;title\u{fffd} b", "a^[]0;title\u{fffd} b", "a^[]0;title\u{fffd} b"),
            ("a\x1b]8;;http://x\x1b\\b", "a^[]8;;http://x^[\\b", "a^[]8;;http://x^[\\b"),
            ("\x1bPq\x1b_x\x1b^y\x1bXz", "^[Pq^[_x^[^y^[Xz", "^[Pq^[_x^[^y^[Xz"),
            ("\u{9b}31m\u{9d}0;t\u{9c}", "\\u{9b}31m\\u{9d}0;t\\u{9c}", "\\u{9b}31m\\u{9d}0;t\\u{9c}"),
            ("end\x1b", "end^[", "end^["),
            ("end\x1b[", "end^[[", "end^[["),
            ("end\x1b[31", "end^[[31", "end^[[31"),
            ("\0\x08\x7f\r", "^@^H^?^M", "^@^H^?^M"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe", "\\u{202e}txt.exe"),
            ("e\u{301}é", "e\u{301}é", "e\u{301}é"),
        ] {
            assert_eq!(output_line(text), as_output, "{text:?}");
            assert_eq!(plain(text), as_name, "{text:?}");
        }
        assert_eq!(name("a\nb\tc\x1b"), "a^Jb^Ic^[");
        assert_eq!(indented("a\nb\u{202e}\n", 2), "a\n  b\\u{202e}");
        let flood = format!("e{}x", "\u{301}".repeat(5_000));
        assert_eq!(plain(&flood), format!("e{}\u{fffd}x", "\u{301}".repeat(4)));
        assert_eq!(json(r#"{"a": "b"}"#.replace('b', "\u{9b}\u{7f}")), r#"{"a": "\u009b\u007f"}"#);
    }

    /// What a terminal obeys is left only as a whole colour.
    fn obeys_nothing_but_colours(text: &str) -> bool {
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| is_obeyed(c) && !matches!(c, '\n' | '\t')) {
            match sequence(&rest[at..]).filter(|sequence| sequence.is_colour) {
                Some(colour) => rest = &rest[at + colour.bytes..],
                None => return false,
            }
        }
        true
    }

    proptest! {
        // proves U8
        #[test]
        fn whatever_is_shown_moves_no_terminal(
            pieces in proptest::collection::vec("\\PC{0,3}|\x1b\\[[0-9;:?]{0,6}[a-zA-Z]?|\x1b[\\]P_X^\\\\]|[\0-\x1f\x7f\u{80}-\u{9f}\u{202a}-\u{202e}]{0,3}", 0..12),
        ) {
            let text = pieces.concat();
            prop_assert!(obeys_nothing_but_colours(&output_line(&text)));
            prop_assert!(obeys_nothing_but_colours(&screened(&text)));
            prop_assert!(!plain(&text).contains('\x1b'));
            let is_letter = |c: &char| c.is_alphanumeric() && !is_accent(*c) && !is_obeyed(*c);
            let letters = |text: &str| text.chars().filter(is_letter).count();
            prop_assert!(letters(&plain(&text)) >= letters(&text), "no text is swallowed");
            let document = serde_json::Value::from(text.as_str());
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&json(document.to_string())).ok(), Some(document));
        }
    }
}
