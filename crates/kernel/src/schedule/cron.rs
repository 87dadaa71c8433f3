//! A cron expression: five fields, and the wall clock minutes that they name.

use jiff::ToSpan;
use jiff::civil::{Date, DateTime};

/// `0 2 * * 1-5`: minute, hour, day of the month, month, day of the week.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cron {
    text: String,
    /// One bit per value that is named.
    pub(super) minutes: u64,
    pub(super) hours: u64,
    pub(super) days: u64,
    pub(super) months: u64,
    /// Sunday is 0.
    pub(super) weekdays: u64,
    /// Begins with `*`, steps or not.
    pub(super) any_hour: bool,
    pub(super) any_day: bool,
    pub(super) any_weekday: bool,
}

/// What is wrong with an expression, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronProblem {
    pub message: String,
    pub mend: String,
}

struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const FIELDS: [Field; 5] = [
    Field { name: "minute", first: 0, last: 59, names: &[] },
    Field { name: "hour", first: 0, last: 23, names: &[] },
    Field { name: "day of the month", first: 1, last: 31, names: &[] },
    Field { name: "month", first: 1, last: 12, names: &MONTHS },
    // 7 is Sunday too, so that a range may end with it.
    Field { name: "day of the week", first: 0, last: 7, names: &WEEKDAYS },
];

/// A leap day on a certain weekday may be forty years away (over 1900 and 2100), and one more.
const MONTHS_TO_SEARCH: u32 = 12 * 41;

const NICKNAMES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

impl Cron {
    pub fn parse(text: &str) -> Result<Cron, CronProblem> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let &[minute, hour, day, month, weekday] = words.as_slice() else {
            return Err(not_five(&words));
        };
        let [minutes, hours, days, months, weekdays] = [
            FIELDS[0].read(minute)?,
            FIELDS[1].read(hour)?,
            FIELDS[2].read(day)?,
            FIELDS[3].read(month)?,
            FIELDS[4].read(weekday)?,
        ];
        let cron = Cron {
            text: words.join(" "),
            minutes,
            hours,
            days,
            months,
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            any_hour: hour.starts_with('*'),
            any_day: day.starts_with('*'),
            any_weekday: weekday.starts_with('*'),
        };
        if cron.is_possible() {
            return Ok(cron);
        }
        Err(CronProblem {
            message: format!("no month of {month} has a day {day}"),
            mend: "name a day that exists; for the last day of a month, run daily and let the command look"
                .into(),
        })
    }

    /// As it was written, with single spaces.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The first wall clock minute that is named, at or after this one.
    pub(super) fn first_from(&self, wall: DateTime) -> Option<DateTime> {
        let mut date = wall.date();
        let mut minute_of_day = u32::try_from(i32::from(wall.hour()) * 60 + i32::from(wall.minute())).ok()?;
        for _ in 0..MONTHS_TO_SEARCH {
            if self.months >> date.month() & 1 == 1 {
                let month = date.month();
                while date.month() == month {
                    if self.is_named(date)
                        && let Some(minute) = self.minute_from(minute_of_day)
                    {
                        return Some(date.at((minute / 60) as i8, (minute % 60) as i8, 0, 0));
                    }
                    minute_of_day = 0;
                    date = date.tomorrow().ok()?;
                }
            } else {
                minute_of_day = 0;
                date = date.first_of_month().checked_add(1.month()).ok()?;
            }
        }
        None
    }

    /// Both fields name days: either will do, as cron has always had it.
    fn is_named(&self, date: Date) -> bool {
        let day = self.days >> date.day() & 1 == 1;
        let weekday = self.weekdays >> date.weekday().to_sunday_zero_offset() & 1 == 1;
        if self.any_day || self.any_weekday { day && weekday } else { day || weekday }
    }

    fn minute_from(&self, minute_of_day: u32) -> Option<u32> {
        let (hour, minute) = (minute_of_day / 60, minute_of_day % 60);
        if self.hours >> hour & 1 == 1
            && let Some(minute) = first_bit(self.minutes, minute)
        {
            return Some(hour * 60 + minute);
        }
        Some(first_bit(self.hours, hour + 1)? * 60 + first_bit(self.minutes, 0)?)
    }

    /// 30 February never comes.
    fn is_possible(&self) -> bool {
        const LENGTHS: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let shortest_day = self.days.trailing_zeros();
        let either_will_do = !self.any_day && !self.any_weekday;
        either_will_do
            || (1..=12).any(|month| self.months >> month & 1 == 1 && LENGTHS[month - 1] >= shortest_day)
    }
}

fn first_bit(bits: u64, from: u32) -> Option<u32> {
    let left = bits.checked_shr(from)?;
    (left != 0).then(|| from + left.trailing_zeros())
}

fn not_five(words: &[&str]) -> CronProblem {
    if let [word] = words
        && let Some((_, meaning)) = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word))
    {
        return CronProblem { message: "nicknames are not read".into(), mend: format!("write {meaning:?}") };
    }
    let mend = match words.len() {
        6 | 7 => "leave out seconds and years; for less than a minute write cadence = \"10s\"",
        _ => "write minute, hour, day of the month, month, day of the week: \"0 2 * * *\"",
    };
    CronProblem {
        message: format!("a cron expression has 5 fields, this has {}", words.len()),
        mend: mend.into(),
    }
}

impl Field {
    fn read(&self, text: &str) -> Result<u64, CronProblem> {
        text.split(',').try_fold(0, |bits, part| Ok(bits | self.part(part)?))
    }

    /// `*`, `5`, `1-5`, `*/15` or `8-18/2`.
    fn part(&self, part: &str) -> Result<u64, CronProblem> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (part, None),
        };
        let (low, high) = match range.split_once('-') {
            _ if range == "*" => (self.first, self.last.min(self.first + self.width() - 1)),
            Some((low, high)) => (self.value(low)?, self.end(high)?),
            None if step.is_some() => {
                let mend = format!("write {range}-{}/{}", self.last, step.unwrap_or(1));
                return Err(self.problem(&format!("{} has a step but no range", shown(part)), mend));
            }
            None => self.value(range).map(|value| (value, value))?,
        };
        if low > high {
            let mend = format!(
                "write the smaller value first, or two ranges: {low}-{},{}-{high}",
                self.last, self.first
            );
            return Err(self.problem(&format!("{} goes backwards", shown(range)), mend));
        }
        Ok((low..=high).step_by(step.unwrap_or(1)).fold(0, |bits, value| bits | 1 << value))
    }

    fn width(&self) -> u32 {
        if self.last == 7 { 7 } else { self.last - self.first + 1 }
    }

    fn step(&self, text: &str) -> Result<usize, CronProblem> {
        match number(text) {
            Some(step) if step >= 1 && step < self.width() => Ok(step as usize),
            // */90 would silently be hourly.
            _ => {
                let message = format!("{} is no step", shown(text));
                let mend = format!("write 1 to {}; for other intervals use cadence", self.width() - 1);
                Err(self.problem(&message, mend))
            }
        }
    }

    fn value(&self, text: &str) -> Result<u32, CronProblem> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        // Months are counted from 1, days of the week from 0.
        let value = named.map(|at| at as u32 + self.first).or_else(|| number(text));
        value.filter(|value| (self.first..=self.last).contains(value)).ok_or_else(|| {
            let names = match self.names {
                [] => String::new(),
                names => format!(", or {} to {}", names[0], names[names.len() - 1]),
            };
            self.problem(
                &format!("{} is no value", shown(text)),
                format!("write {} to {}{names}", self.first, self.last),
            )
        })
    }

    /// A range may end with Sunday.
    fn end(&self, text: &str) -> Result<u32, CronProblem> {
        let value = self.value(text)?;
        Ok(if self.last == 7 && value == 0 { 7 } else { value })
    }

    fn problem(&self, message: &str, mend: String) -> CronProblem {
        CronProblem { message: format!("{}: {message}", self.name), mend }
    }
}

fn number(text: &str) -> Option<u32> {
    let is_plain = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok())?
}

fn shown(text: &str) -> String {
    let short: String = text.chars().take(20).collect();
    format!("`{}`", short.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    fn cron(text: &str) -> Cron {
        Cron::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem:?}"))
    }

    // proves C2
    #[test]
    fn fields_name_minutes_of_the_wall_clock() {
        let from = date(2026, 2, 14).at(8, 17, 0, 0); // a Saturday
        for (text, expected) in [
            ("* * * * *", date(2026, 2, 14).at(8, 17, 0, 0)),
            ("*/15 * * * *", date(2026, 2, 14).at(8, 30, 0, 0)),
            ("0 2 * * *", date(2026, 2, 15).at(2, 0, 0, 0)),
            ("17 8 * * *", date(2026, 2, 14).at(8, 17, 0, 0)),
            ("16 8 * * *", date(2026, 2, 15).at(8, 16, 0, 0)),
            ("0 0 1 * *", date(2026, 3, 1).at(0, 0, 0, 0)),
            ("30 9 * * MON-FRI", date(2026, 2, 16).at(9, 30, 0, 0)),
            ("0 12 * * 7", date(2026, 2, 15).at(12, 0, 0, 0)),
            ("0 12 * * fri-sun", date(2026, 2, 14).at(12, 0, 0, 0)),
            ("0 0 29 2 *", date(2028, 2, 29).at(0, 0, 0, 0)),
            ("0 0 31 * *", date(2026, 3, 31).at(0, 0, 0, 0)),
            ("5,10 9-17/4 * JAN,MAR *", date(2026, 3, 1).at(9, 5, 0, 0)),
            // Both fields name days: the 20th, or a Monday.
            ("0 0 20 * 1", date(2026, 2, 16).at(0, 0, 0, 0)),
            // One begins with a star: an odd day that is a Monday.
            ("0 0 */2 * 1", date(2026, 2, 23).at(0, 0, 0, 0)),
        ] {
            assert_eq!(cron(text).first_from(from), Some(expected), "{text}");
        }
        let far = cron("0 0 29 2 *").first_from(date(1896, 3, 1).at(0, 0, 0, 0));
        assert_eq!(far, Some(date(1904, 2, 29).at(0, 0, 0, 0)), "1900 has none");
        let friday = cron("0 0 */7 3 5").first_from(date(2002, 4, 1).at(0, 0, 0, 0));
        assert_eq!(friday, Some(date(2013, 3, 1).at(0, 0, 0, 0)), "eleven years");
        let weekend = cron("0 0 29 2 */6").first_from(date(1880, 3, 1).at(0, 0, 0, 0));
        assert!(weekend.is_some(), "a leap day on a weekend");
    }

    // proves C8
    #[test]
    fn what_is_wrong_with_an_expression_is_said_with_its_mend() {
        for (text, part, mend) in [
            ("", "5 fields, this has 0", "\"0 2 * * *\""),
            ("0 2 * *", "this has 4", "day of the week"),
            ("0 0 2 * * *", "this has 6", "cadence"),
            ("@daily", "nicknames", "\"0 0 * * *\""),
            ("60 * * * *", "minute: `60` is no value", "0 to 59"),
            ("* 24 * * *", "hour: `24`", "0 to 23"),
            ("* * 0 * *", "day of the month: `0`", "1 to 31"),
            ("* * * 13 *", "month: `13`", "JAN to DEC"),
            ("* * * * 8", "day of the week: `8`", "SUN to SAT"),
            ("* * * * MOND", "`MOND`", "SUN to SAT"),
            ("*/0 * * * *", "`0` is no step", "1 to 59"),
            ("*/90 * * * *", "`90` is no step", "cadence"),
            ("5/15 * * * *", "has a step but no range", "5-59/15"),
            ("10-5 * * * *", "goes backwards", "10-59,0-5"),
            ("1,,2 * * * *", "`` is no value", "0 to 59"),
            ("-5 * * * *", "`` is no value", "0 to 59"),
            ("+5 * * * *", "`+5`", "0 to 59"),
            ("0 0 30 2 *", "no month of 2 has a day 30", "exists"),
            ("0 0 31 4,6 *", "no month of 4,6", "exists"),
            ("0 0 L * *", "`L`", "1 to 31"),
            ("0 0 ? * *", "`?`", "1 to 31"),
            ("١ * * * *", "is no value", "0 to 59"),
        ] {
            let problem = Cron::parse(text).expect_err(text);
            assert!(problem.message.contains(part), "{text}: {}", problem.message);
            assert!(problem.mend.contains(mend), "{text}: {}", problem.mend);
        }
        assert!(Cron::parse("0 0 31 2 1").is_ok(), "a Monday in February comes");
    }
}
