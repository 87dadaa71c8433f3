//! Where `decide` and the oracle are known to differ, each with the line of SPEC that it is about. Both answers
//! pass until somebody settles it; then the arm goes, and the oracle (or `decide`) changes.

use super::cases::Case;
use super::scene::Wish;
use super::verdict::{Stay, Verdict};
use waypost_kernel::{Ask, Code};

pub fn verdict(case: &Case<'_>, expected: &Verdict<'_>, observed: &Verdict<'_>) -> Option<&'static str> {
    let (scene, failing) = (case.scene, matches!(case.scene.wish, Wish::Fail(_)));
    let nothing = Verdict::Stays(Stay::Nothing);
    let refused = Verdict::Refused(Code::InvalidTransition);
    match case.ask {
        Ask::Command { name, .. } if *name == scene.last && *expected == refused && *observed == nothing => {
            Some("X3: a command that only others may give is answered as a repeat")
        }
        Ask::Sweep if scene.expires.is_here() && *expected == nothing && *observed == refused => {
            Some("X5: a time to live where nothing can expire makes every sweep fail")
        }
        Ask::Owe { failing: Some(_), .. }
            if *expected == refused && *observed == Verdict::Stays(Stay::Owes) =>
        {
            Some("X8: a failure may be recorded towards a success")
        }
        Ask::Finish { .. } if *observed == Verdict::Moves(vec![("steal", scene.state)]) => {
            Some("C3: a holder's finish to RUNNING steals its own run and burns an attempt")
        }
        Ask::Sweep | Ask::Release { .. } | Ask::Finish { .. } if failing && scene.table.name == "rule" => {
            Some("R1: a recorded failure that the counts contradict can never be carried out")
        }
        _ => None,
    }
}

pub fn allowed(case: &Case<'_>) -> Option<&'static str> {
    let rule = case.scene.table.name == "rule" && ["FAILED", "PARTIAL"].contains(&case.scene.state);
    rule.then_some("X3: retry is offered although no target can be retried")
}

pub fn effect(case: &Case<'_>, what: &str) -> Option<&'static str> {
    let finishes = matches!(case.ask, Ask::Finish { .. });
    match (what, case.scene.wish) {
        ("ended_by", _) if !finishes => {
            Some("X3: a run that the engine or a client ended keeps an earlier token")
        }
        ("available_at", Wish::Cancel | Wish::GracefulCancel) if finishes => {
            Some("C7: a canceled execution keeps the retry time of its finish")
        }
        ("failure" | "item failures", Wish::Cancel | Wish::GracefulCancel) if finishes => {
            Some("A, X8: a cancelled run takes the error code of its finish, not CANCELLED")
        }
        ("failure" | "item failures", Wish::Fail(_)) if finishes => {
            Some("X8: the finish replaces the failure that was recorded")
        }
        ("failure" | "item failures", Wish::None | Wish::Pause) if finishes => {
            Some("J6: a worker's own finish as cancelled leaves no CANCELLED code")
        }
        _ => None,
    }
}
