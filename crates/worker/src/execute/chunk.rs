//! Lines that travel together as one event.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use waypost_kernel::text::{MAX_EVENT_BYTES, clean_line};

/// A line is seen at most this long after it was written.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// What an event has besides its lines, the name of a step included, is far below this.
const MAX_CHUNK_BYTES: usize = MAX_EVENT_BYTES - 4 * 1_024;

/// `["out",""],`
const FRAME_BYTES: usize = 11;

#[derive(Debug, Default)]
pub(super) struct Chunk {
    lines: Vec<(&'static str, String)>,
    bytes: usize,
    due: Option<Instant>,
}

/// A line and the bytes that it takes in an event: escapes make some several times as long as they read.
#[derive(Debug)]
pub(super) struct Line {
    stream: &'static str,
    text: String,
    pub bytes: usize,
}

impl Line {
    pub fn new(stream: &'static str, mut text: String) -> Line {
        let mut bytes = FRAME_BYTES + escaped_bytes(&text);
        while bytes > MAX_CHUNK_BYTES {
            text = clean_line(text.as_bytes(), text.len() / 2).text;
            bytes = FRAME_BYTES + escaped_bytes(&text);
        }
        Line { stream, text, bytes }
    }
}

impl Chunk {
    pub fn has_room_for(&self, line: &Line) -> bool {
        self.bytes + line.bytes <= MAX_CHUNK_BYTES
    }

    pub fn push(&mut self, line: Line) {
        self.bytes += line.bytes;
        self.due.get_or_insert_with(|| Instant::now() + LONGEST_WAIT);
        self.lines.push((line.stream, line.text));
    }

    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The event's payload, unless there is nothing to tell; the chunk is empty afterwards.
    pub fn take(&mut self) -> Option<Value> {
        let Chunk { lines, .. } = std::mem::take(self);
        (!lines.is_empty()).then(|| json!({ "lines": lines }))
    }
}

fn escaped_bytes(text: &str) -> usize {
    let escaped = |character: char| match character {
        '"' | '\\' | '\t' => 2,
        // The cleaned text has no control character but tab and escape, which is written \u001b.
        '\x1b' => 6,
        other => other.len_utf8(),
    };
    text.chars().map(escaped).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_kernel::text::MAX_LINE_BYTES;

    // proves X4, X10
    #[tokio::test]
    async fn no_chunk_is_larger_than_an_event_however_its_lines_are_written() {
        for text in ["", "x", "é", "\"", "\\", "\t", "\x1b", "a\x1b[31m\"é"] {
            for repeats in [1, 100, MAX_LINE_BYTES / text.len().max(1)] {
                let mut chunk = Chunk::default();
                let mut count = 0;
                loop {
                    let line = Line::new("out", text.repeat(repeats));
                    if !chunk.has_room_for(&line) {
                        break;
                    }
                    chunk.push(line);
                    count += 1;
                }
                assert!(count > 0, "a line always fits into an empty chunk");
                let counted = chunk.bytes;
                let written = chunk.take().map_or(0, |payload| payload.to_string().len());
                assert!(written <= MAX_EVENT_BYTES, "{text:?} × {repeats}: {written}");
                assert!(
                    written <= counted + 100 && counted <= written + 100,
                    "{text:?}: {written} {counted}"
                );
                assert_eq!((chunk.bytes, chunk.due()), (0, None));
            }
        }
    }
}
