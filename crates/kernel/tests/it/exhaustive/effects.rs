//! What a move or a stay must do to the row: leases, attempts and fences (X5), intents (X8), times, codes.

use super::cases::{Case, RETRY_IN};
use super::oracle::what_happens;
use super::scene::{LEASE, LeaseIs, NOW, OURS, RECORDED, Scene, Wish};
use super::verdict::{Stay, Verdict};
use waypost_kernel::request::{Finish, Wait, With};
use waypost_kernel::run::Want;
use waypost_kernel::{Actor, Ask, Change, Lease, Lifecycle, Outcome, Phase, Run, Time};

type Differences = Vec<(&'static str, String)>;

/// A change, and what it says in the tables' words.
struct View<'a> {
    case: &'a Case<'a>,
    before: &'a Run,
    stay: Option<Stay>,
    /// The last command of the table that was carried out, if one was, and the first.
    how: &'a str,
    first: &'a str,
    from_phase: Phase,
    phase: Phase,
    state: &'a str,
}

pub fn check(
    case: &Case<'_>,
    lifecycle: &Lifecycle,
    before: &Run,
    change: &Change,
    verdict: &Verdict<'_>,
) -> Differences {
    let state = &*lifecycle.state(change.after.state).name;
    let (first, how, stay) = match verdict {
        Verdict::Moves(moves) => {
            (moves.first().map_or("", |(how, _)| *how), moves.last().map_or("", |(how, _)| *how), None)
        }
        Verdict::Stays(stay) => ("", "", Some(*stay)),
        Verdict::Refused(_) => ("", "", None),
    };
    let (from_phase, phase) = (case.scene.phase(), case.scene.table.phase(state));
    let view = View { case, before, stay, how, first, from_phase, phase, state };
    let mut differences = Vec::new();
    let mut same = |what, is: String, should: String| {
        if is != should {
            differences.push((what, format!("is {is}, should be {should}")));
        }
    };
    let after = &change.after;
    same("attempt", text(after.attempt), text(before.attempt + u32::from(view.begins())));
    same("take_overs", text(after.take_overs), text(view.take_overs()));
    same("fence", text(after.fence), text(before.fence + u64::from(view.is_granted())));
    same("lease", text(&after.lease), text(view.lease()));
    same("started_at", text(after.started_at), text(view.started_at()));
    same("finished_at", text(after.finished_at), text(view.finished_at()));
    same("available_at", text(after.available_at), text(view.available_at()));
    same("expires_at", text(after.expires_at), text(view.expires_at()));
    same("ended_by", text(after.ended_by), text(view.ended_by()));
    same("intent", text(after.intent.as_ref().map(|intent| intent.want)), text(view.want()));
    same("required", text(after.requires_cleanup), text(view.required()));
    same("cleanup_failed", text(after.cleanup_failed), text(view.settles() && before.requires_cleanup));
    same("failure", text(after.failure.as_ref().map(|failure| &*failure.code)), text(view.code()));
    same("reason", text(after.reason.as_deref()), text(view.reason()));
    same("operating", text(after.operating), text(view.operating()));
    let last = if how.is_empty() { &before.last_command } else { how };
    same("last_command", text(&after.last_command), text(last));
    same("resolved", text((after.resolved, after.forced)), text(view.resolved()));
    same("events", text(events_are_sound(case, before, change)), text(true));
    same("items", text(items(lifecycle, after)), text(view.items()));
    same("item failures", text(codes_of_failed_items(&view, lifecycle, change)), text(Vec::<&str>::new()));
    differences
}

fn text(value: impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

/// X4: numbered without a gap, each beginning where the last ended, by whoever asked.
fn events_are_sound(case: &Case<'_>, before: &Run, change: &Change) -> bool {
    let mut state = before.state;
    let chained = change.events.iter().zip(before.seq + 1..).all(|(event, seq)| {
        let sound = event.seq == seq
            && event.from == Some(state)
            && event.at == NOW
            && event.actor == case.actor
            && &*event.by == "w9";
        state = event.to;
        sound
    });
    let count = change.events.len() as u64;
    chained && state == change.after.state && change.after.seq == before.seq + count
}

fn items<'a>(lifecycle: &'a Lifecycle, run: &Run) -> Vec<Vec<(&'a str, u32)>> {
    let kinds = lifecycle.items.iter().zip(&*run.tallies);
    kinds
        .map(|(kind, tally)| {
            kind.states.iter().map(|state| &*state.name).zip(tally.by_state.iter().copied()).collect()
        })
        .collect()
}

/// J6, R1: items that a cancel ends are failed with the code of their run. Lists those that are not.
fn codes_of_failed_items(view: &View<'_>, lifecycle: &Lifecycle, change: &Change) -> Vec<String> {
    let failed = |kind: u8, to| lifecycle.items[usize::from(kind)].state(to).outcome == Some(Outcome::Failed);
    let shifts = change.events.iter().filter(|_| view.how == "cancel").flat_map(|event| &event.effect.shifts);
    shifts
        .filter(|shift| failed(shift.kind, shift.to))
        .map(|shift| shift.failure.as_ref().map_or("none", |failure| &*failure.code).to_owned())
        .filter(|code| Some(&**code) != view.code())
        .collect()
}

impl View<'_> {
    fn moves(&self) -> bool {
        let stays_settled = self.from_phase == Phase::Settled && self.phase == Phase::Settled;
        !self.how.is_empty() && !stays_settled
    }

    fn settles(&self) -> bool {
        self.moves() && self.phase == Phase::Settled
    }

    /// X5: a claim, a client's retry into a held state and a steal count an attempt; a take-over does not.
    fn begins(&self) -> bool {
        matches!(self.first, "claim" | "retry" | "apply" | "steal")
    }

    /// By itself, or with the beginning of what nobody had begun.
    fn is_taken_over(&self) -> bool {
        let begun = matches!(self.case.ask, Ask::Claim { .. }) && self.first == "start";
        self.stay == Some(Stay::TakenOver) || begun
    }

    fn is_granted(&self) -> bool {
        self.is_taken_over() || self.begins() && self.case.actor == Actor::Worker
    }

    fn is_vacated(&self) -> bool {
        matches!(self.stay, Some(Stay::Released | Stay::CleanupFirst))
            || self.begins() && self.case.actor != Actor::Worker
    }

    fn take_overs(&self) -> u32 {
        let expired = self.case.scene.lease == LeaseIs::Expired;
        match self.stay {
            _ if self.is_taken_over() => self.before.take_overs + u32::from(expired),
            Some(Stay::CleanupFirst) => 0,
            _ if self.begins() => 0,
            _ => self.before.take_overs,
        }
    }

    fn lease(&self) -> Option<Lease> {
        let state = self.case.scene.table.state(self.state);
        if self.phase != Phase::Held {
            return None;
        }
        let held = self.before.lease.as_ref();
        if self.is_vacated() {
            let length = held.map_or(LEASE, |lease| lease.length);
            let until = self.waits().map_or(NOW, |wait| wait.until);
            return Some(Lease { token: self.case.fresh, worker: None, length, until });
        }
        if self.is_granted() {
            let asked = match self.case.ask {
                Ask::Claim { lease, .. } => *lease,
                _ => None,
            };
            // The fixed time is for starting; the lease that follows is a worker's usual one.
            let usual = if state.fixed || self.how == "start" { LEASE } else { state.lease.unwrap() };
            let length = asked.unwrap_or(usual);
            let until = NOW + if state.fixed { state.lease.unwrap() } else { length };
            return Some(Lease { token: self.case.fresh, worker: Some("w9".into()), length, until });
        }
        let mut lease = held?.clone();
        if self.stay == Some(Stay::Wanted) && lease.is_vacant() {
            // U6: whoever comes to clean up need not wait.
            lease.until = lease.until.min(NOW);
        }
        if matches!(self.case.ask, Ask::QueuePaused) {
            // X9: it begins to wait anew.
            lease.until = if self.stay == Some(Stay::Heartbeat) { NOW } else { lease.until };
            return Some(lease);
        }
        let renews = matches!(self.stay, Some(Stay::Heartbeat | Stay::Noted | Stay::Owes)) && !state.fixed;
        if renews || self.how == "start" {
            lease.until = lease.until.max(NOW + LEASE);
        }
        Some(lease)
    }

    /// U6: what a run that is given back waits for, unless somebody wants something of it.
    fn waits(&self) -> Option<Wait<'_>> {
        match self.case.ask {
            Ask::Release { wait, .. } if self.case.scene.wish == Wish::None => {
                wait.filter(|wait| wait.until > NOW)
            }
            _ => None,
        }
    }

    fn started_at(&self) -> Option<Time> {
        match self.first {
            "claim" => self.before.started_at.or(Some(NOW)),
            "retry" | "apply" | "steal" => Some(NOW),
            _ => self.before.started_at,
        }
    }

    fn finished_at(&self) -> Option<Time> {
        match self.phase {
            Phase::Settled if self.moves() => Some(NOW),
            Phase::Settled => self.before.finished_at,
            _ => None,
        }
    }

    /// C7: a FAILED that its worker reported keeps its retry time, and one that was lost may be taken up again at
    /// once if its job allows re-entry; a canceled one never is.
    fn available_at(&self) -> Option<Time> {
        let scene = self.case.scene;
        match self.phase {
            _ if !self.moves() => self.before.available_at,
            Phase::Ready => Some(self.with().available_at.unwrap_or(NOW)),
            Phase::Settled => {
                let again = match self.how {
                    "fail" => self.finish().retry_in.map(|_| NOW + RETRY_IN),
                    "lose" => scene.reentrant.then_some(NOW),
                    _ => None,
                };
                again.filter(|_| scene.table.name == "cron" && scene.attempt_left)
            }
            _ => None,
        }
    }

    /// U4: until when a person may answer.
    fn expires_at(&self) -> Option<Time> {
        match self.phase {
            _ if !self.moves() => self.before.expires_at,
            Phase::Parked => self.finish().goes_on_at,
            _ => None,
        }
    }

    /// X3: the token that settled the run, and no other: every move forgets it.
    fn ended_by(&self) -> Option<waypost_kernel::Token> {
        match self.case.ask {
            _ if self.how.is_empty() => self.before.ended_by,
            Ask::Finish { .. } if self.phase != Phase::Held => Some(OURS),
            _ => None,
        }
    }

    fn want(&self) -> Option<Want> {
        let before = self.before.intent.as_ref().map(|intent| intent.want);
        match (self.stay, self.case.ask) {
            _ if self.moves() && self.phase != Phase::Held => None,
            (Some(Stay::Wanted), Ask::Command { name, .. }) => {
                Some(if *name == "cancel" { Want::Cancel } else { Want::Pause })
            }
            (Some(Stay::CleanupFirst), _) => Some(Want::Fail),
            (Some(Stay::Owes), Ask::RequireCleanup { failing: Some(_), .. })
                if before != Some(Want::Cancel) =>
            {
                Some(Want::Fail)
            }
            _ => before,
        }
    }

    fn required(&self) -> bool {
        match self.case.ask {
            Ask::RequireCleanup { required, .. } => *required,
            _ => self.before.requires_cleanup && !self.settles(),
        }
    }

    fn code(&self) -> Option<&str> {
        let scene = self.case.scene;
        if !self.settles() || scene.table.state(self.state).outcome == Some(Outcome::Succeeded) {
            return None;
        }
        match (self.how, scene.wish) {
            ("cancel", _) if self.is_command() => scene.table.code("cancel"),
            ("cancel", Wish::Cancel | Wish::GracefulCancel) => scene.table.code("cancel"),
            (_, Wish::Fail(_)) => Some(RECORDED),
            // A worker's own doing: its own words, if it has any.
            ("cancel", _) => {
                self.finish().failure.map_or(scene.table.code("cancel"), |failure| Some(&*failure.code))
            }
            ("lose" | "expire", _) => scene.table.code(self.how),
            _ => self.finish().failure.map(|failure| &*failure.code),
        }
    }

    fn is_command(&self) -> bool {
        matches!(self.case.ask, Ask::Command { .. })
    }

    fn reason(&self) -> Option<&str> {
        let waited = self.before.lease.as_ref().is_some_and(Lease::is_vacant);
        match self.stay {
            Some(Stay::Released) => return self.waits().map(|wait| wait.reason),
            _ if self.is_granted() => return None,
            Some(Stay::Wanted | Stay::CleanupFirst) if waited => return None,
            Some(_) if self.phase == Phase::Held => return self.before.reason.as_deref(),
            _ => {}
        }
        // A8: a rejection keeps the note that it needs.
        let needs = |row: &super::table::Row| row.to == self.state && row.when.contains(&"a reason");
        let is_needed = self.case.scene.table.legal.iter().any(|row| row.how == self.how && needs(row));
        if self.phase != Phase::Parked {
            return if is_needed { self.with().reason } else { None };
        }
        let wished = self.before.intent.as_ref().and_then(|intent| intent.reason.as_deref());
        match self.case.ask {
            _ if !self.moves() => self.before.reason.as_deref(),
            Ask::Command { with, .. } => with.reason,
            _ => self.finish().reason.or(wished),
        }
    }

    fn resolved(&self) -> (bool, bool) {
        match self.phase {
            Phase::Parked if self.moves() => (false, false),
            Phase::Ready if self.moves() => {
                let is_forced = self.with().force || matches!(self.case.ask, Ask::Sweep);
                (self.before.resolved || self.with().resolved, is_forced)
            }
            _ => (self.before.resolved, self.before.forced),
        }
    }

    fn operating(&self) -> bool {
        match self.stay {
            Some(Stay::OperationBegun) => true,
            Some(Stay::OperationOver) => false,
            _ => self.before.operating,
        }
    }

    fn items(&self) -> Vec<Vec<(&'static str, u32)>> {
        let scene = self.case.scene;
        let row = scene.table.legal.iter().find(|row| row.how == self.how && row.to == self.state);
        let when = match (self.stay, row) {
            _ if self.is_taken_over() => "is lost",
            (Some(Stay::Released | Stay::CleanupFirst), _) => "is lost",
            (_, Some(row)) => what_happens(scene, row),
            _ => "",
        };
        Scene { none_chosen: self.with().chosen.is_some(), ..*scene }.items_after(when)
    }

    fn with(&self) -> With<'_> {
        match self.case.ask {
            Ask::Command { with, .. } => *with,
            _ => With::default(),
        }
    }

    fn finish(&self) -> Finish<'_> {
        match self.case.ask {
            Ask::Finish { finish, .. } => *finish,
            _ => Finish::default(),
        }
    }
}
