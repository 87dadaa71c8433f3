//! A line of output with its colours: classes of the stylesheet, and nothing that the line says itself.

use maud::{Markup, html};
use waypost_kernel::text::terminal::{output_line, sequence};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Looks {
    /// Of the sixteen that the stylesheet has.
    front: Option<u8>,
    is_bold: bool,
    is_dim: bool,
    is_italic: bool,
    is_underlined: bool,
}

impl Looks {
    fn class(self) -> Option<String> {
        let front = self.front.map(|colour| format!("c{colour}"));
        let flags =
            [(self.is_bold, "cb"), (self.is_dim, "cd"), (self.is_italic, "ci"), (self.is_underlined, "cu")];
        let names: Vec<String> =
            front.into_iter().chain(flags.iter().filter(|it| it.0).map(|it| it.1.to_owned())).collect();
        (!names.is_empty()).then(|| names.join(" "))
    }

    /// What is no colour of the sixteen, and backgrounds, change nothing: the page has its own.
    fn take(&mut self, parameters: &str) {
        let mut words = parameters.split(';');
        while let Some(word) = words.next() {
            let number = word.split(':').next().unwrap_or_default().parse::<u8>().unwrap_or(0);
            match number {
                0 => *self = Looks::default(),
                1 => self.is_bold = true,
                2 => self.is_dim = true,
                3 => self.is_italic = true,
                4 => self.is_underlined = true,
                22 => (self.is_bold, self.is_dim) = (false, false),
                23 => self.is_italic = false,
                24 => self.is_underlined = false,
                30..=37 => self.front = Some(number - 30),
                90..=97 => self.front = Some(number - 90 + 8),
                39 => self.front = None,
                38 | 48 | 58 if !word.contains(':') => {
                    let is_numbered = words.next() == Some("5");
                    let chosen = words.by_ref().take(if is_numbered { 1 } else { 3 }).last();
                    let chosen =
                        chosen.and_then(|text| text.parse::<u8>().ok()).filter(|it| is_numbered && *it < 16);
                    if number == 38 {
                        self.front = chosen.or(self.front);
                    }
                }
                _ => {}
            }
        }
    }
}

pub fn line(text: &str) -> Markup {
    let cleaned = output_line(text);
    let mut rest = &*cleaned;
    let mut looks = Looks::default();
    let mut pieces: Vec<(Option<String>, &str)> = Vec::new();
    while !rest.is_empty() {
        if let Some(found) = sequence(rest) {
            if found.is_colour {
                looks.take(&rest[2..found.bytes - 1]);
            }
            rest = &rest[found.bytes..];
            continue;
        }
        let first = rest.chars().next().map_or(1, char::len_utf8);
        let end = rest[first..].find('\u{1b}').map_or(rest.len(), |at| at + first);
        pieces.push((looks.class(), &rest[..end]));
        rest = &rest[end..];
    }
    html! {
        @for (class, text) in pieces {
            @match class { Some(class) => span class=(class) { (text) }, None => (text) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_classes_and_nothing_else_is_obeyed() {
        let cases = [
            ("plain", "plain"),
            ("\u{1b}[31mred\u{1b}[0m not", "<span class=\"c1\">red</span> not"),
            ("\u{1b}[1;92mok", "<span class=\"c10 cb\">ok</span>"),
            ("\u{1b}[38;5;3mx\u{1b}[39my", "<span class=\"c3\">x</span>y"),
            ("\u{1b}[38;2;1;2;3mx", "x"),
            ("<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)&gt;"),
        ];
        for (text, expected) in cases {
            assert_eq!(line(text).into_string(), expected, "{text:?}");
        }
        for text in ["\u{1b}[2Jx", "\u{1b}]0;title\u{7}x", "\u{202e}x", "\u{1b}"] {
            let shown = line(text).into_string();
            assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}: {shown:?}");
        }
    }
}
