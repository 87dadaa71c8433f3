//! All changes of all clocks from 2000 to 2037, compared with what scripts/cron-golden found minute by minute.

use waypost_kernel::schedule::{Cron, Zone};
use waypost_kernel::{Span, Time};

use super::at;

const EXPRESSIONS: &str = include_str!("../../data/cron-expressions.txt");
const GOLDEN: &str = include_str!("../../data/cron-golden.txt");
const AROUND: Span = Span::from_seconds(3 * 3_600);

/// The checksum of gzip and PNG.
struct Crc32([u32; 256]);

impl Crc32 {
    fn new() -> Crc32 {
        let next = |crc: u32, _| if crc & 1 == 1 { 0xedb8_8320 ^ crc >> 1 } else { crc >> 1 };
        Crc32(std::array::from_fn(|byte| (0..8).fold(byte as u32, next)))
    }

    fn add(&self, crc: u32, bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!crc, |crc, byte| self.0[(crc as u8 ^ byte) as usize] ^ crc >> 8)
    }
}

fn changes(zone: &Zone) -> Vec<Time> {
    let (first, last) = (at("2000-01-01T00:00Z"), at("2038-01-01T00:00Z"));
    std::iter::successors(zone.next_change(first), |change| zone.next_change(*change))
        .take_while(|change| *change < last)
        .collect()
}

fn checked(crc32: &Crc32, cron: &Cron, zone: &Zone, changes: &[Time], name: &str) -> u32 {
    let mut crc = 0;
    for change in changes {
        let mut last = *change - AROUND - Span::from_micros(1);
        while let Some(time) = cron.next(zone, last).filter(|time| *time < *change + AROUND) {
            assert!(time > last, "{name} {}: {time} is not later than {last}", cron.as_str());
            crc = crc32.add(crc, &time.seconds().to_le_bytes());
            last = time;
        }
    }
    crc
}

// proves C2
#[test]
fn plan_times_around_every_clock_change_are_those_of_an_independent_enumerator() {
    let crc32 = Crc32::new();
    assert_eq!(crc32.add(0, b"123456789"), 0xcbf4_3926);
    let crons: Vec<Cron> = EXPRESSIONS.lines().map(|line| Cron::parse(line).unwrap()).collect();
    assert_eq!(crons.len(), 50);
    let (mut zones, mut all_changes, mut wrong) = (0, 0, Vec::new());
    for line in GOLDEN.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let (name, count) = (words.next().unwrap(), words.next().unwrap());
        let zone = Zone::named(name).unwrap_or_else(|| panic!("there is no zone {name}"));
        let changes = changes(&zone);
        assert_eq!(
            changes.len().to_string(),
            count,
            "{name}: run scripts/cron-golden if the time zones are new"
        );
        for (cron, expected) in crons.iter().zip(words) {
            let found = checked(&crc32, cron, &zone, &changes, name);
            if format!("{found:08x}") != expected {
                wrong.push(format!("scripts/cron-golden --show {name} '{}'", cron.as_str()));
            }
        }
        zones += 1;
        all_changes += changes.len();
    }
    assert!(zones > 300 && all_changes > 10_000, "{zones} zones, {all_changes} changes");
    assert!(wrong.is_empty(), "{} differ; see what it should be:\n{}", wrong.len(), wrong.join("\n"));
}
