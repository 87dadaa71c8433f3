//! Plan times in words, for lists that people read.

use super::cron::Cron;
use super::timing::Timing;
use super::zone::Zone;
use crate::time::{Span, Time};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// So many times of day are listed one by one.
const MAX_TIMES: u32 = 4;

/// `at 02:00 on Monday to Friday (Europe/Kyiv)`
pub fn in_words(timing: &Timing) -> String {
    match timing {
        Timing::Every { cadence, delay } if *delay == Span::ZERO => format!("every {cadence}"),
        Timing::Every { cadence, delay } => format!("every {cadence}, {delay} later"),
        Timing::Cron { cron, zone } => {
            let parts = [times(cron), days(cron), months(cron)];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            format!("{} ({})", parts.join(" "), zone.name())
        }
    }
}

/// When clocks change between two instants, in a sentence.
pub fn clock_change(zone: &Zone, after: Time, until: Time) -> Option<String> {
    let change = zone.next_change(after).filter(|change| *change <= until)?;
    let before = zone.offset(change - Span::from_seconds(1))?.seconds();
    let after = zone.offset(change)?.seconds();
    let way = if after > before { "forward" } else { "back" };
    let by = Span::from_seconds(i64::from(after.abs_diff(before)));
    Some(format!("clocks go {way} by {by} at {}", zone.shown(change)))
}

fn times(cron: &Cron) -> Option<String> {
    let (minutes, hours) = (values(cron.minutes), values(cron.hours));
    let all_hours = hours.len() == 24;
    let minute_step = step(&minutes, 60);
    let hour_step = step(&hours, 24);
    Some(match (minutes.as_slice(), hours.as_slice()) {
        _ if minutes.len() == 60 && all_hours => "every minute".to_owned(),
        _ if all_hours && let Some(step) = minute_step => format!("every {step} minutes"),
        ([minute], _) if all_hours => format!("every hour at minute {minute}"),
        ([minute], _) if let Some(step) = hour_step => format!("every {step} hours at minute {minute}"),
        _ if cron.minutes.count_ones() * cron.hours.count_ones() <= MAX_TIMES => {
            let at = hours
                .iter()
                .flat_map(|hour| minutes.iter().map(move |minute| format!("{hour:02}:{minute:02}")));
            format!("at {}", and(&at.collect::<Vec<_>>()))
        }
        _ => {
            let minutes = match minute_step {
                _ if minutes.len() == 60 => "every minute".to_owned(),
                Some(step) => format!("every {step} minutes"),
                None => format!("at minute {}", listed(&minutes, &|minute| minute.to_string())),
            };
            let hours = match hour_step {
                _ if all_hours => "every hour".to_owned(),
                Some(step) => format!("every {step} hours"),
                None => format!("hour {}", listed(&hours, &|hour| hour.to_string())),
            };
            format!("{minutes} of {hours}")
        }
    })
}

fn days(cron: &Cron) -> Option<String> {
    let (days, weekdays) = (values(cron.days), values(cron.weekdays));
    let on_days =
        (days.len() < 31).then(|| format!("day {} of the month", listed(&days, &|day| day.to_string())));
    let on_weekdays =
        (weekdays.len() < 7).then(|| listed(&weekdays, &|day| WEEKDAYS[day as usize % 7].to_owned()));
    let joint = if cron.any_day || cron.any_weekday { "and on" } else { "or on" };
    match (on_days, on_weekdays) {
        (None, None) if cron.any_hour => None,
        (None, None) => Some("every day".to_owned()),
        (Some(only), None) | (None, Some(only)) => Some(format!("on {only}")),
        (Some(days), Some(weekdays)) => Some(format!("on {days} {joint} {weekdays}")),
    }
}

fn months(cron: &Cron) -> Option<String> {
    let months = values(cron.months);
    let name = |month: u32| MONTHS[(month as usize).saturating_sub(1) % 12].to_owned();
    (months.len() < 12).then(|| format!("in {}", listed(&months, &name)))
}

fn values(bits: u64) -> Vec<u32> {
    (0..64).filter(|value| bits >> value & 1 == 1).collect()
}

/// `*/15`: from zero on, evenly, to the end.
fn step(values: &[u32], width: u32) -> Option<u32> {
    let step = *values.get(1)?;
    let whole = values.len() as u32 == width.div_ceil(step);
    (step > 1 && whole && values.iter().enumerate().all(|(at, value)| *value == at as u32 * step))
        .then_some(step)
}

/// Three or more in a row are a range.
fn listed(values: &[u32], name: &dyn Fn(u32) -> String) -> String {
    let runs = values.chunk_by(|one, next| one + 1 == *next);
    let words = runs.flat_map(|run| match run {
        [first, _, .., last] => vec![format!("{} to {}", name(*first), name(*last))],
        few => few.iter().map(|value| name(*value)).collect(),
    });
    and(&words.collect::<Vec<_>>())
}

fn and(words: &[String]) -> String {
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((only, _)) => only.clone(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_read_as_sentences() {
        for (text, expected) in [
            ("* * * * *", "every minute (UTC)"),
            ("*/15 * * * *", "every 15 minutes (UTC)"),
            ("5 * * * *", "every hour at minute 5 (UTC)"),
            ("0 */2 * * *", "every 2 hours at minute 0 (UTC)"),
            ("0 2 * * *", "at 02:00 every day (UTC)"),
            ("0 2,14 * * 1-5", "at 02:00 and 14:00 on Monday to Friday (UTC)"),
            ("30 9 1,15 * *", "at 09:30 on day 1 and 15 of the month (UTC)"),
            ("0 0 13 * 5", "at 00:00 on day 13 of the month or on Friday (UTC)"),
            ("0 0 1 1 *", "at 00:00 on day 1 of the month in January (UTC)"),
            ("*/10 9-17 * * SAT,SUN", "every 10 minutes of hour 9 to 17 on Sunday and Saturday (UTC)"),
            ("0,20,40 8 * 6-8 *", "at 08:00, 08:20 and 08:40 every day in June to August (UTC)"),
            ("7,8 */5 * * *", "at minute 7 and 8 of every 5 hours (UTC)"),
        ] {
            let timing = Timing::Cron { cron: Cron::parse(text).expect(text), zone: Zone::utc() };
            assert_eq!(in_words(&timing), expected, "{text}");
        }
        let minute = Span::from_seconds(60);
        let timing = Timing::Every { cadence: Span::from_seconds(300), delay: minute };
        assert_eq!(in_words(&timing), "every 5m, 1m later");
        assert_eq!(in_words(&Timing::Every { cadence: minute, delay: Span::ZERO }), "every 1m");
    }

    #[test]
    fn a_clock_change_is_told_with_its_instant() {
        let kyiv = Zone::named("Europe/Kyiv").expect("a zone");
        let day = Span::from_seconds(86_400);
        let march = Time::from_ms(1_774_656_000_000); // 2026-03-28T00:00Z
        let told = clock_change(&kyiv, march, march + day + day).expect("a change");
        assert_eq!(told, "clocks go forward by 1h at 2026-03-29 04:00:00 +03:00");
        assert_eq!(clock_change(&kyiv, march, march + day), None);
    }
}
