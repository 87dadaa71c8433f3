//! A cheap hash for keys that this process makes itself: places in a table, codes of states, run ids. The standard one,
//! which keeps strangers from choosing keys that collide, took 2 % of the writer's time.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub type QuickMap<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;
pub type QuickSet<K> = HashSet<K, BuildHasherDefault<Quick>>;

#[derive(Clone, Copy, Debug, Default)]
pub struct Quick(u64);

impl Quick {
    fn add(&mut self, word: u64) {
        // The golden ratio's digits: a multiplication spreads a word over the upper bits.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.add(u64::from(byte));
    }

    fn write_i64(&mut self, number: i64) {
        self.add(number.cast_unsigned());
    }

    /// Tables take a slot from the lower bits and a tag from the upper ones.
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
