//! The parts of an id that are made: each of a fixed width, from the time and a random number alone.

use crate::time::{Civil, Time};

/// The years 0000 to 9999, which four digits can show.
const FIRST: Time = Time::from_ms(-62_167_219_200_000);
const LAST: Time = Time::from_ms(253_402_300_799_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    Uuid7,
    Uuid4,
    Date,
    Time,
    Rand6,
    Rand12,
}

impl Made {
    pub(super) const ALL: [(&str, Made); 6] = [
        ("uuid7", Made::Uuid7),
        ("uuid4", Made::Uuid4),
        ("date", Made::Date),
        ("time", Made::Time),
        ("rand6", Made::Rand6),
        ("rand12", Made::Rand12),
    ];

    pub(super) fn name(self) -> &'static str {
        Made::ALL.iter().find(|(_, made)| *made == self).map_or("", |(name, _)| name)
    }

    pub(super) fn width(self) -> usize {
        match self {
            Made::Uuid7 | Made::Uuid4 => 36,
            Made::Date => 10,
            Made::Time | Made::Rand6 => 6,
            Made::Rand12 => 12,
        }
    }

    pub(super) fn is_unique(self) -> bool {
        !matches!(self, Made::Date | Made::Time)
    }

    pub(super) fn make(self, now: Time, random: u128) -> String {
        let civil = || Civil::of(now.clamp(FIRST, LAST));
        match self {
            Made::Uuid7 => {
                let ms = u128::from(now.ms().clamp(0, (1 << 48) - 1).unsigned_abs());
                uuid(7, ms << 80 | random & ((1 << 80) - 1))
            }
            Made::Uuid4 => uuid(4, random),
            Made::Date => {
                let Civil { year, month, day, .. } = civil();
                format!("{year:04}-{month:02}-{day:02}")
            }
            Made::Time => {
                let Civil { hour, minute, second, .. } = civil();
                format!("{hour:02}{minute:02}{second:02}")
            }
            Made::Rand6 | Made::Rand12 => base36(random, self.width()),
        }
    }

    pub(super) fn matches(self, text: &[u8]) -> bool {
        match self {
            Made::Uuid7 => is_uuid(text, b'7'),
            Made::Uuid4 => is_uuid(text, b'4'),
            Made::Date => is_date(text),
            Made::Time => is_time(text),
            Made::Rand6 | Made::Rand12 => text.iter().all(|byte| BASE36.contains(byte)),
        }
    }
}

/// RFC 9562: version in bits 48 to 51, variant `10` in bits 64 and 65, the rest as given.
fn uuid(version: u128, bits: u128) -> String {
    let bits = bits & !(0xf << 76) & !(0b11 << 62) | version << 76 | 0b10 << 62;
    let mut text = String::with_capacity(36);
    for place in (0..32).rev() {
        text.push(char::from(BASE36[(bits >> (4 * place)) as usize & 15]));
        if matches!(place, 24 | 20 | 16 | 12) {
            text.push('-');
        }
    }
    text
}

fn is_uuid(text: &[u8], version: u8) -> bool {
    let dashes = [8, 13, 18, 23];
    text.iter().enumerate().all(|(index, byte)| match index {
        14 => *byte == version,
        19 => b"89ab".contains(byte),
        _ if dashes.contains(&index) => *byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    })
}

fn is_date(text: &[u8]) -> bool {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text else { return false };
    let (Some(year), Some(month), Some(day)) =
        (number(&[*y1, *y2, *y3, *y4]), number(&[*m1, *m2]), number(&[*d1, *d2]))
    else {
        return false;
    };
    let date = Civil { year: i64::from(year), month, day, hour: 0, minute: 0, second: 0, micros: 0 };
    date.time().is_some()
}

fn is_time(text: &[u8]) -> bool {
    number(text).is_some_and(|time| time / 10_000 < 24 && time / 100 % 100 < 60 && time % 100 < 60)
}

fn number(digits: &[u8]) -> Option<u32> {
    digits
        .iter()
        .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0')))
}

const BASE36: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

fn base36(random: u128, width: usize) -> String {
    let mut left = random;
    let mut text = String::with_capacity(width);
    for _ in 0..width {
        text.push(char::from(BASE36[(left % 36) as usize]));
        left /= 36;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_carry_time_version_and_variant() {
        // The example of RFC 9562, appendix A.6: 2022-02-22T19:22:22Z.
        let example = Time::from_ms(0x017f_22e2_79b0);
        let random = 0x0cc3_18c4_dc0c_0c07_398f;
        assert_eq!(Made::Uuid7.make(example, random), "017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
        assert_eq!(Made::Uuid4.make(example, 0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(Made::Uuid4.make(example, u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn dates_have_four_digit_years() {
        for (micros, date) in [(i64::MIN, "0000-01-01"), (0, "1970-01-01"), (i64::MAX, "9999-12-31")] {
            assert_eq!(Made::Date.make(Time::from_micros(micros), 0), date);
        }
        assert_eq!(Made::Time.make(LAST, 0), "235959");
    }

    #[test]
    fn later_uuids_sort_later() {
        let ids: Vec<String> =
            [-5, 0, 1, 255, 256, 1_771_056_000_000].map(|ms| Made::Uuid7.make(Time::from_ms(ms), 7)).into();
        assert!(ids.is_sorted(), "{ids:?}");
    }

    #[test]
    fn only_what_could_be_made_matches() {
        for (made, text, fits) in [
            (Made::Uuid7, "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", true),
            (Made::Uuid7, "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", false),
            (Made::Uuid7, "017f22e2-79b0-4cc3-98c4-dc0c0c07398f", false),
            (Made::Uuid7, "017f22e2-79b0-7cc3-c8c4-dc0c0c07398f", false),
            (Made::Uuid7, "017f22e2079b0-7cc3-98c4-dc0c0c07398f", false),
            (Made::Uuid4, "017f22e2-79b0-4cc3-98c4-dc0c0c07398f", true),
            (Made::Date, "2024-02-29", true),
            (Made::Date, "2025-02-29", false),
            (Made::Date, "2025-2-029", false),
            (Made::Time, "235959", true),
            (Made::Time, "240000", false),
            (Made::Time, "126000", false),
            (Made::Time, "12:000", false),
            (Made::Rand6, "abc123", true),
            (Made::Rand6, "ABC123", false),
            (Made::Rand12, "000000000000", true),
        ] {
            assert_eq!(made.matches(text.as_bytes()), fits, "{made:?} {text}");
        }
    }
}
