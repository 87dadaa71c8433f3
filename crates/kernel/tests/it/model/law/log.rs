//! The log: numbered without a gap, and enough to make the row again.

use waypost_kernel::fold;

use super::{Faults, Law, Step};

pub fn check(step: &Step<'_>, faults: &mut Faults) {
    let mut seq = step.was().map_or(0, |was| was.seq);
    for event in &step.change.events {
        faults.unless(Law::Log, event.seq == seq + 1);
        seq = event.seq;
    }
    faults.unless(Law::Log, step.run.seq == seq);
    if let Some(was) = step.was().filter(|_| step.change.events.is_empty()) {
        // Without an event only the lease's end may move, which the log does not hold.
        faults.unless(Law::Log, fold::without_secrets(was) == fold::without_secrets(step.run));
        return;
    }
    let whole = fold::fold(&step.setup.lifecycle, step.after.log.events());
    faults.unless(Law::Log, whole == Some(fold::without_secrets(step.run)));
}
