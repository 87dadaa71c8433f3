//! Bytes as a process writes them, cut into clean lines of bounded length. Secrets are hidden before anything is cut: half a secret
//! would not be known as one.

use waypost_kernel::text::{MAX_LINE_BYTES, clean_line};

use crate::actions::Mask;

/// One stream's lines. A carriage return ends a line too: that is how progress is shown on a terminal.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: Vec<u8>,
    after: After,
    mask: Mask,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum After {
    #[default]
    Text,
    /// The line feed that may follow belongs to the same line end.
    Return,
    /// Nothing stood before the carriage return: only with a line feed was it an empty line.
    EmptyReturn,
}

impl Lines {
    pub fn new(mask: Mask) -> Lines {
        Lines { mask, ..Lines::default() }
    }

    /// The next whole line; takes what it used from `bytes`. What is left over is kept for later, no more of
    /// it than a line may have.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Option<String> {
        while let Some(first) = bytes.first() {
            let after = std::mem::take(&mut self.after);
            if after != After::Text && *first == b'\n' {
                *bytes = &bytes[1..];
                if after == After::EmptyReturn {
                    return Some(String::new());
                }
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.keep(bytes);
                *bytes = &[];
                return None;
            };
            self.keep(&bytes[..end]);
            let returned = bytes[end] == b'\r';
            *bytes = &bytes[end + 1..];
            if returned && self.partial.is_empty() {
                self.after = After::EmptyReturn;
                continue;
            }
            self.after = if returned { After::Return } else { After::Text };
            return Some(self.take());
        }
        None
    }

    /// What the stream ended with, if no line end came.
    pub fn rest(&mut self) -> Option<String> {
        (!self.partial.is_empty()).then(|| self.take())
    }

    /// One character more than the limit is enough to see that a line must be cut, and as much as a secret may have to see that it
    /// is cut within one.
    fn keep(&mut self, bytes: &[u8]) {
        let room = (MAX_LINE_BYTES + 4 + self.mask.longest()).saturating_sub(self.partial.len());
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn take(&mut self) -> String {
        let whole = clean_line(&self.partial, usize::MAX).text;
        self.partial.clear();
        self.mask.hide_line(&whole, MAX_LINE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for piece in pieces {
            let mut bytes = *piece;
            found.extend(std::iter::from_fn(|| lines.next(&mut bytes)));
        }
        found.extend(lines.rest());
        found
    }

    #[test]
    fn lines_end_as_terminals_and_other_systems_end_them() {
        for (text, expected) in [
            (&b"a\nb\n"[..], &["a", "b"][..]),
            (b"a\n\nb", &["a", "", "b"]),
            (b"a\r\n\r\nb\r\n", &["a", "", "b"]),
            (b"10%\r20%\r\ndone", &["10%", "20%", "done"]),
            (b"\r10%\r20%", &["10%", "20%"]),
            (b"\r\r\r", &[]),
            (b"caf\xff\x00\n", &["caf\u{fffd}\u{fffd}"]),
            (b"", &[]),
            (b"\n", &[""]),
        ] {
            assert_eq!(all(&[text]), expected, "{text:?}");
            let bytes: Vec<&[u8]> = text.chunks(1).collect();
            assert_eq!(all(&bytes), expected, "{text:?} byte by byte");
        }
    }

    #[test]
    fn a_secret_across_the_cut_is_hidden_as_a_whole() {
        let secret = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";
        for (before, spelling) in
            [(0, secret.to_owned()), (40, secret.to_owned()), (0, secret.replace('I', "%49"))]
        {
            for from in MAX_LINE_BYTES - spelling.len() - 12..MAX_LINE_BYTES + 4 {
                let mut lines = Lines::new(Mask::new([secret]));
                let start = format!("{}\n", [secret.repeat(before), "x".repeat(from)].concat());
                let text =
                    start.trim_end().chars().take(from).collect::<String>() + &spelling + " and more\n";
                let line = lines.next(&mut text.as_bytes()).expect("a line");
                assert!(
                    !line.contains("eyJh") && line.len() <= MAX_LINE_BYTES,
                    "{before} {from}: {}",
                    &line[line.len() - 60..]
                );
            }
        }
    }

    // proves X10
    #[test]
    fn a_line_without_end_is_cut_and_takes_no_more_memory() {
        let mut lines = Lines::default();
        for _ in 0..1_000 {
            assert_eq!(lines.next(&mut &[b'x'; 4_096][..]), None);
        }
        assert!(lines.partial.capacity() <= 2 * MAX_LINE_BYTES);
        let line = lines.rest().expect("the line so far");
        assert!(line.len() <= MAX_LINE_BYTES && line.ends_with("… [cut]"));
    }
}
