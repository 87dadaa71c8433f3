//! Every situation that is looked at: states × leases × intents × what else matters there.

use super::scene::{Count, Instant, LeaseIs, Scene, Wish};
use super::table::{Row, Table};
use waypost_kernel::{Actor, Outcome, Phase};

type Items = &'static [&'static [Count]];

const NO_ITEMS: Items = &[];
const STEPS: [Items; 2] =
    [NO_ITEMS, &[&[("pending", 2, 0), ("running", 1, 0), ("completed", 3, 2), ("failed", 1, 0)]]];
const JOB_ITEMS: [Items; 4] = [
    NO_ITEMS,
    &[
        &[("pending", 2, 0), ("running", 1, 0), ("completed", 3, 2)],
        &[("pending", 1, 0), ("running", 2, 0), ("completed", 1, 0)],
    ],
    &[&[("completed", 2, 2), ("skipped", 1, 0)], &[("completed", 1, 0), ("failed", 1, 0)]],
    &[&[("paused", 2, 0), ("pending", 1, 0), ("completed", 1, 0)], &[("running", 1, 0)]],
];
const TARGETS: [Items; 9] = [
    NO_ITEMS,
    &[&[("APPLIED", 3, 0)]],
    &[&[("APPLIED", 2, 0), ("FAILED", 1, 0)]],
    &[&[("FAILED", 2, 1)]],
    &[&[("APPLIED", 1, 0), ("QUEUED", 2, 0), ("APPLYING", 1, 0)]],
    &[&[("QUEUED", 1, 0), ("APPLYING", 1, 0), ("FAILED", 1, 0)]],
    &[&[("APPLIED", 1, 0), ("FAILED", 2, 2)]],
    &[&[("ROLLED_BACK", 2, 0), ("FAILED", 1, 1)]],
    &[&[("ROLLED_BACK", 1, 0), ("APPLIED", 1, 0)]],
];
const PREVIEWED: [Items; 2] = [NO_ITEMS, &[&[("PREVIEW", 3, 0)]]];

pub fn scenes(table: &Table) -> Vec<Scene<'_>> {
    let mut scenes = Vec::new();
    for state in &table.states {
        for last in last_commands(table, state.name) {
            for items in items(table, state.name) {
                let scene = Scene { last, items, ..plain(table, state.name) };
                match state.phase {
                    Phase::Draft | Phase::Ready => waiting(scene, &mut scenes),
                    Phase::Held => held(scene, &mut scenes),
                    Phase::Parked => parked(scene, &mut scenes),
                    Phase::Settled => settled(scene, &mut scenes),
                }
            }
        }
    }
    scenes
}

/// A state with nothing special about it; held ones under a valid lease.
pub fn plain<'t>(table: &'t Table, state: &'static str) -> Scene<'t> {
    let held = table.phase(state) == Phase::Held;
    let ready = table.phase(state) == Phase::Ready;
    Scene {
        table,
        state,
        lease: if held { LeaseIs::Valid } else { LeaseIs::None },
        wish: Wish::None,
        required: false,
        attempt_left: true,
        take_overs: 0,
        reentrant: false,
        operating: false,
        resolved: false,
        available: if ready { Instant::Past } else { Instant::Never },
        expires: Instant::Never,
        last: last_commands(table, state)[0],
        none_chosen: false,
        items: NO_ITEMS,
    }
}

/// The commands that lead into a state.
fn last_commands(table: &Table, state: &str) -> Vec<&'static str> {
    let mut commands = Vec::new();
    if table.initial.contains(&state) {
        commands.push(if table.phase(state) == Phase::Held { "claim" } else { "create" });
    }
    for row in table.legal.iter().filter(|row| row.to == state) {
        if !commands.contains(&row.how) {
            commands.push(row.how);
        }
    }
    commands
}

fn items(table: &Table, state: &str) -> Vec<Items> {
    match table.items.first().map(|kind| kind.name) {
        None => vec![NO_ITEMS],
        Some("target") if table.phase(state) == Phase::Draft => PREVIEWED.to_vec(),
        Some("target") if state == "FAILED" => [&TARGETS[..], &PREVIEWED[1..]].concat(),
        Some("target") => TARGETS.to_vec(),
        Some(_) if table.items.len() > 1 => JOB_ITEMS.to_vec(),
        Some(_) => STEPS.to_vec(),
    }
}

fn waiting<'t>(scene: Scene<'t>, scenes: &mut Vec<Scene<'t>>) {
    const ALL: [Instant; 4] = [Instant::Never, Instant::Past, Instant::Now, Instant::Later];
    let draft = scene.phase() == Phase::Draft;
    for available in if draft { &ALL[..1] } else { &ALL[1..] } {
        for expires in ALL {
            for attempt_left in [true, false] {
                scenes.push(Scene { available: *available, expires, attempt_left, ..scene });
            }
        }
    }
}

fn held<'t>(scene: Scene<'t>, scenes: &mut Vec<Scene<'t>>) {
    let leases = [
        LeaseIs::Valid,
        LeaseIs::AtEnd,
        LeaseIs::Expired,
        LeaseIs::Vacant,
        LeaseIs::Waiting,
        LeaseIs::Abandoned,
    ];
    let steals = scene.table.state(scene.state).stale == "steal";
    for lease in leases {
        for wish in wishes(&scene) {
            for required in [false, true] {
                for take_overs in [0, 4, 5] {
                    let scene = Scene { lease, wish, required, take_overs, ..scene };
                    if !steals {
                        // Attempts do not matter there, so each take-over count stands for one of the two.
                        scenes.push(Scene { attempt_left: take_overs != 4, ..scene });
                        continue;
                    }
                    for (attempt_left, reentrant) in
                        [(true, true), (true, false), (false, true), (false, false)]
                    {
                        scenes.push(Scene { attempt_left, reentrant, ..scene });
                    }
                }
            }
        }
    }
}

/// The intents that the state can hold: a pause only where there is one, a failure only towards an end that
/// is no success.
fn wishes(scene: &Scene<'_>) -> Vec<Wish> {
    let mut wishes = vec![Wish::None, Wish::Cancel, Wish::GracefulCancel];
    let mut rows = scene.table.from(scene.state);
    if rows.any(|row| row.how == "pause") {
        wishes.push(Wish::Pause);
    }
    for state in &scene.table.states {
        let ends_badly = state.phase == Phase::Settled && state.outcome != Some(Outcome::Succeeded);
        let leads = |row: &Row| row.to == state.name && row.who == Actor::Worker;
        if ends_badly && scene.table.from(scene.state).any(leads) {
            wishes.push(Wish::Fail(state.name));
        }
    }
    wishes
}

fn parked<'t>(scene: Scene<'t>, scenes: &mut Vec<Scene<'t>>) {
    for resolved in [false, true] {
        for expires in [Instant::Never, Instant::Past, Instant::Now, Instant::Later] {
            for attempt_left in [true, false] {
                scenes.push(Scene { resolved, attempt_left, expires, ..scene });
            }
        }
    }
}

fn settled<'t>(scene: Scene<'t>, scenes: &mut Vec<Scene<'t>>) {
    let retried = scene.table.from(scene.state).any(|row| row.how == "retry");
    let times = [Instant::Never, Instant::Past, Instant::Now, Instant::Later];
    for available in times.into_iter().take(if retried { 4 } else { 1 }) {
        for attempt_left in [true, false] {
            for operating in [false, true] {
                scenes.push(Scene { available, attempt_left, operating, ..scene });
            }
        }
    }
}
