//! Why a run that may be taken is not: its queue, its key, and who could take it, in the order in which a claim looks at them.

use super::{Ahead, Around, Reason, Waiting, WorkerFacts, at, of};
use crate::lifecycle::Lifecycle;
use crate::run::Run;
use crate::text::shell_word;
use crate::time::{Span, Time};

/// A worker with a free slot looks about every second: whoever was not taken for this long may have to wait for another.
pub(super) const PATIENCE: Span = Span::from_seconds(5);
/// Workers give a sign of life every 15 seconds: one that was silent for longer than this missed one.
const SILENCE: Span = Span::from_seconds(20);

pub(super) fn ready(lifecycle: &Lifecycle, run: &Run, around: &Around<'_>) -> Option<Waiting> {
    in_line(lifecycle, run, around, run.available_at.unwrap_or(run.created_at))
}

/// Of one that may be taken since `due`.
pub(super) fn in_line(lifecycle: &Lifecycle, run: &Run, around: &Around<'_>, due: Time) -> Option<Waiting> {
    let of_queue = of_queue(around, due);
    let of_key = || {
        let (key, limit) = around.key_limit.filter(|(_, limit)| limit.is_reached())?;
        let text = match limit.held {
            0 => format!("concurrency key {key} has a limit of 0"),
            _ => format!("concurrency key {key} is held by {}", limit.holders()),
        };
        Some(of(Reason::KeyLimit, due, text))
    };
    of_queue.or_else(of_key).or_else(|| of_workers(lifecycle, run, around, due))
}

fn of_queue(around: &Around<'_>, due: Time) -> Option<Waiting> {
    let queue = around.queue;
    if let Some(pause) = around.pause {
        let why = if pause.reason.is_empty() { String::new() } else { format!(": {}", pause.reason) };
        let since = pause.at.map_or(due, |at| at.max(due));
        let at = pause.at.map(|at| format!(" at {}", self::at(at))).unwrap_or_default();
        let text = format!("queue {queue} was paused by {}{at}{why}", pause.by);
        return Some(of(Reason::QueuePaused, since, text).hint(around.resume_the_queue()));
    }
    let limit = around.queue_limit.filter(|limit| limit.is_reached())?;
    let holders = if limit.held == 0 { String::new() } else { format!("; held: {}", limit.holders()) };
    let text = format!("queue {queue} is at its limit of {}{holders}", limit.at_most);
    // As many more as there are held: one that is printed can be given as it stands.
    let more = limit.held.max(limit.at_most) + 1;
    let hint = format!("waypost queue limit {} {more}{}", shell_word(queue), around.tenant_option());
    Some(of(Reason::QueueLimit, due, text).hint(hint))
}

fn of_workers(lifecycle: &Lifecycle, run: &Run, around: &Around<'_>, due: Time) -> Option<Waiting> {
    let Around { queue, tenant, .. } = *around;
    let takers: Vec<&WorkerFacts> =
        around.workers.iter().filter(|worker| worker.takes(lifecycle, run, around)).collect();
    if takers.is_empty() {
        let whose =
            if tenant == crate::tenant::DEFAULT { String::new() } else { format!(" for tenant {tenant}") };
        let text = format!("no live worker takes from queue {queue}{whose}");
        return Some(of(Reason::NoWorker, due, text).hint(around.start_a_worker(run)));
    }
    let able: Vec<&WorkerFacts> = takers.into_iter().filter(|worker| worker.executes(run, around)).collect();
    if able.is_empty() {
        let text = match (around.brings, around.playbook) {
            (false, Some(playbook)) => format!("no live worker of queue {queue} has {playbook}"),
            (true, _) => format!("no live worker of queue {queue} may execute what runs bring along"),
            (false, None) => format!("no live worker of queue {queue} executes runs that name no playbook"),
        };
        return Some(of(Reason::NoPlaybook, due, text).hint(around.start_a_worker(run)));
    }
    busy(&able, run, due, around)
}

fn busy(able: &[&WorkerFacts], run: &Run, due: Time, around: &Around<'_>) -> Option<Waiting> {
    let slots: u64 = able.iter().map(|worker| worker.slots).sum();
    let free: u64 = able.iter().map(|worker| worker.free()).sum();
    let Ahead { count: ahead, is_cut } = around.ahead;
    if free > ahead && !is_cut {
        return not_taken(able, run, due, around);
    }
    let place = match (ahead, is_cut) {
        (ahead, true) => format!("more than {ahead} come before it"),
        (0, false) => "it is next".to_owned(),
        (ahead, false) => format!("{ahead} before it"),
    };
    let workers = if able.len() == 1 { "one worker".to_owned() } else { format!("{} workers", able.len()) };
    let seen = able.iter().map(|worker| worker.seen_at).max().filter(|seen| around.now - *seen >= SILENCE);
    let seen = seen.map(|seen| format!(", last seen at {},", at(seen))).unwrap_or_default();
    let text = match free {
        0 if slots == 1 => format!("the one slot of {workers}{seen} is busy; {place}"),
        0 => format!("all {slots} slots of {workers}{seen} are busy; {place}"),
        free => format!("{free} of {slots} slots of {workers}{seen} are free; {place}"),
    };
    Some(of(Reason::SlotsBusy, due, text))
}

/// One that is next, and for which there is a slot, is about to be taken. If it is not for a while, whoever should may be gone.
fn not_taken(able: &[&WorkerFacts], run: &Run, due: Time, around: &Around<'_>) -> Option<Waiting> {
    if around.now - due < PATIENCE {
        return None;
    }
    let free: Vec<&&WorkerFacts> = able.iter().filter(|worker| worker.free() > 0).collect();
    let last = free.iter().max_by_key(|worker| worker.seen_at)?;
    let silent = around.now - last.seen_at;
    let name = if last.is_own { format!("worker {}", last.name) } else { "a worker".to_owned() };
    let text = match free.len() {
        1 => format!("{name}, last seen at {}, may take it", at(last.seen_at)),
        count => format!("{count} workers may take it, the last of them seen at {}", at(last.seen_at)),
    };
    let waiting = of(Reason::NotTaken, due, text);
    Some(match silent >= SILENCE {
        true => waiting.hint(around.start_a_worker(run)),
        false => waiting,
    })
}

impl WorkerFacts {
    fn free(&self) -> u64 {
        self.slots.saturating_sub(self.busy)
    }

    /// Whether it asks for such runs, whatever they execute.
    fn takes(&self, lifecycle: &Lifecycle, run: &Run, around: &Around<'_>) -> bool {
        match &self.only {
            Some(only) => **only == *run.id,
            None => {
                let fits = |name: &String| crate::tenant::may_mean(around.tenant, name, &lifecycle.name);
                self.queues.iter().any(|queue| queue == around.queue)
                    && (self.lifecycles.is_empty() || self.lifecycles.iter().any(fits))
            }
        }
    }

    fn executes(&self, run: &Run, around: &Around<'_>) -> bool {
        let is_own = self.only.as_deref() == Some(&*run.id);
        is_own
            || self.can.as_ref().is_none_or(|(playbooks, carried)| {
                let named =
                    around.playbook.is_some_and(|named| playbooks.iter().any(|playbook| playbook == named));
                named || *carried && around.brings
            })
    }

    pub(super) fn serves(&self, lifecycle: &Lifecycle, run: &Run, around: &Around<'_>) -> bool {
        self.takes(lifecycle, run, around) && self.executes(run, around)
    }
}
