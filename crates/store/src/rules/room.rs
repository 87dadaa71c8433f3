//! How much a page has room for. What JSON takes in memory is many times its text if it is made of small parts, so those are
//! counted too.

use std::io;

use serde::Serialize;

/// What a page of runs or of events may have at most. One row it always has, however large.
pub const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// What the columns that are always there take.
const ROW_BYTES: usize = 1_024;
/// What a page may take in memory.
const PAGE_WEIGHT: usize = 8 * PAGE_BYTES;

#[derive(Debug)]
pub(crate) struct Room {
    bytes: usize,
    weight: usize,
    is_bounded: bool,
    is_begun: bool,
    /// Something was left out.
    pub is_full: bool,
}

impl Room {
    pub fn of_a_page() -> Room {
        Room { is_bounded: true, ..Room::unbounded() }
    }

    pub fn unbounded() -> Room {
        Room { bytes: 0, weight: 0, is_bounded: false, is_begun: false, is_full: false }
    }

    /// Whether a row that takes so much memory fits too. The first one does.
    pub fn has_weight(&mut self, weight: usize) -> bool {
        self.bytes += weight;
        self.is_full |= self.is_bounded && self.is_begun && self.bytes > 2 * PAGE_BYTES;
        self.is_begun = true;
        !self.is_full
    }

    /// Whether a row with these texts fits too. The first one does.
    pub fn has_for<'t>(&mut self, texts: impl Iterator<Item = &'t [u8]>) -> bool {
        if !self.is_bounded {
            return true;
        }
        self.bytes += ROW_BYTES;
        for text in texts {
            self.bytes += text.len();
            self.weight += weight(text);
        }
        self.is_full |= self.is_begun && (self.bytes > PAGE_BYTES || self.weight > PAGE_WEIGHT);
        self.is_begun = true;
        !self.is_full
    }
}

/// Roughly what a text takes once it is read as JSON. An empty object or list takes nothing.
pub(crate) fn weight(text: &[u8]) -> usize {
    if text.len() <= 2 { text.len() } else { weight_of_bytes(text) }
}

/// An object is at least one leaf of a tree with room for eleven members.
fn weight_of_bytes(text: &[u8]) -> usize {
    let part = |byte: &u8| match byte {
        b'{' => 640,
        b'[' => 64,
        b',' => 32,
        _ => 1,
    };
    text.iter().map(part).sum()
}

/// The same of a value, without its text.
pub(crate) fn weight_of(value: &impl Serialize) -> usize {
    struct Scale(usize);
    impl io::Write for Scale {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0 += weight_of_bytes(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut scale = Scale(0);
    serde_json::to_writer(&mut scale, value).map_or(0, |()| scale.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_before_its_bytes_or_its_parts_are_too_many_and_is_never_empty() {
        let large = vec![b'x'; 3 * 1024 * 1024];
        let mut room = Room::of_a_page();
        assert!(room.has_for([&*large].into_iter()) && !room.has_for([&*large].into_iter()) && room.is_full);
        let huge = vec![b'{'; 1024 * 1024];
        let mut room = Room::of_a_page();
        assert!(room.has_for([&*huge].into_iter()) && !room.is_full, "the first is always taken");
        assert!(!room.has_for([&b"{}"[..]].into_iter()));
        let mut room = Room::of_a_page();
        assert!((0..500).all(|_| room.has_for([&b"{\"a\":1}"[..]].into_iter())) && !room.is_full);
    }
}
