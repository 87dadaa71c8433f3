//! How far a bulk change is, while it is followed: a bar on a terminal, a line now and then elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;
use waypost_kernel::Phase;
use waypost_kernel::breaker::State;
use waypost_kernel::tally::Counts;
use waypost_kernel::text::terminal::plain;
use waypost_store::{DeadLetterFilter, RunRow, Store};
use waypost_worker::targets::has_targets;

use crate::output::tell;
use crate::run::times::age;

/// Between two lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(10);
/// Between two looks at what is not in the run's row.
const LOOK_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub struct Progress {
    bar: Option<ProgressBar>,
    /// When it was looked at first, and how many had ended by then.
    began: Option<(Instant, u32)>,
    told_at: Option<Instant>,
    looked_at: Option<Instant>,
    /// Failed targets by class.
    classes: Vec<(String, u64)>,
    /// That a breaker is open, in words.
    limiter: Option<String>,
}

/// What came to an end while it was looked at.
struct Made {
    held: u32,
    ended: u32,
    in_time: Duration,
}

impl Progress {
    pub async fn show(&mut self, store: &dyn Store, run: &RunRow) {
        if !has_targets(run) || run.phase() != Phase::Held {
            return;
        }
        let Some((kind, tally)) = run.lifecycle.items.first().zip(run.run.tallies.first()) else { return };
        let counts = tally.counts(kind);
        let held: u32 = kind
            .states
            .iter()
            .zip(&tally.by_state)
            .filter(|(state, _)| state.phase == Phase::Held)
            .map(|(_, count)| count)
            .sum();
        let ended = counts.ok + counts.failed;
        let (since, first) = *self.began.get_or_insert_with(|| (Instant::now(), ended));
        self.look(store, run, counts.failed).await;
        let made = Made { held, ended: ended - first.min(ended), in_time: since.elapsed() };
        let words = words(&counts, &made, &self.classes, self.limiter.as_deref());
        let bar = self.bar.get_or_insert_with(bar);
        bar.set_length(u64::from(counts.total));
        bar.set_position(u64::from(ended));
        bar.set_message(words.clone());
        let is_due = self.told_at.is_none_or(|at| at.elapsed() >= EVERY);
        if bar.is_hidden() && is_due {
            self.told_at = Some(Instant::now());
            tell(&format!("{ended}/{} {words}", counts.total));
        }
    }

    /// What is not in the run's row: why targets failed, and whether their destination makes them wait.
    async fn look(&mut self, store: &dyn Store, run: &RunRow, failed: u32) {
        if self.looked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked_at = Some(Instant::now());
        if failed > 0 {
            let filter = DeadLetterFilter {
                tenant: run.tenant.clone(),
                run_id: Some(run.id().to_owned()),
                code: None,
            };
            if let Ok(classes) = store.dead_letters(filter).await {
                self.classes = classes.into_iter().map(|class| (class.code, class.count)).collect();
            }
        }
        let now = store.now().await.ok();
        let rows = store.destinations(Some(run.tenant.clone())).await.unwrap_or_default();
        let paused = rows.iter().find_map(|row| match &row.state.breaker.state {
            State::Open { until } => {
                let left = now.map(|now| *until - now).filter(|left| left.ms() > 0)?;
                Some(format!("{} is left alone for {}", row.name, age(left)))
            }
            _ => None,
        });
        self.limiter = paused;
    }

    pub fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    // The form is our own: it cannot be wrong.
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// `480 applied, 12 failed (TIMEOUT 12), 5 under way, 503 wait, 24.0/s, 21s left`.
fn words(counts: &Counts, made: &Made, classes: &[(String, u64)], limiter: Option<&str>) -> String {
    let mut parts = vec![format!("{} applied", counts.ok)];
    if counts.failed > 0 {
        let classes: Vec<String> = classes.iter().map(|(code, count)| format!("{code} {count}")).collect();
        let classes = if classes.is_empty() { String::new() } else { format!(" ({})", classes.join(", ")) };
        parts.push(format!("{} failed{classes}", counts.failed));
    }
    parts.push(format!("{} under way", made.held));
    parts.push(format!("{} wait", counts.open.saturating_sub(made.held)));
    parts.extend(limiter.map(|words| plain(words).into_owned()));
    let rate = f64::from(made.ended) / made.in_time.as_secs_f64().max(0.001);
    if made.ended > 0 && made.in_time >= Duration::from_secs(1) {
        let left_ms = f64::from(counts.open) / rate * 1_000.0;
        parts.push(format!("{rate:.1}/s"));
        parts.push(format!("{} left", age(waypost_kernel::Span::from_ms(left_ms as i64))));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_in_words() {
        let counts = Counts { total: 1_000, open: 508, ok: 480, failed: 12 };
        let made = Made { held: 5, ended: 492, in_time: Duration::from_secs(20) };
        let classes = [("NOT_FOUND".to_owned(), 10), ("TIMEOUT".to_owned(), 2)];
        let said = words(&counts, &made, &classes, Some("shop is left alone for 42s"));
        assert_eq!(
            said,
            "480 applied, 12 failed (NOT_FOUND 10, TIMEOUT 2), 5 under way, 503 wait, shop is left alone for 42s, 24.6/s, 20s left"
        );
        let begun = Counts { total: 3, open: 3, ok: 0, failed: 0 };
        let none = Made { held: 0, ended: 0, in_time: Duration::ZERO };
        assert_eq!(words(&begun, &none, &[], None), "0 applied, 0 under way, 3 wait");
    }
}
