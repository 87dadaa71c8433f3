//! Random requests. They name nothing of a lifecycle: a number picks one of its words when they are asked.

use std::ops::Range;

use proptest::prelude::*;
use waypost_kernel::Actor;

#[derive(Clone, Debug)]
pub struct Script {
    pub births: Vec<Birth>,
    pub steps: Vec<Step>,
}

/// How a run begins. Another one begins when the run before has come to its end.
#[derive(Clone, Debug)]
pub struct Birth {
    pub state: u8,
    /// For each item: its kind, its state and whether it runs again on resume.
    pub items: Vec<(u8, u8, bool)>,
    pub max_attempts: u32,
    pub reentrant: bool,
    pub ttl_seconds: Option<i64>,
    pub delay_seconds: Option<i64>,
}

#[derive(Clone, Debug)]
pub enum Step {
    Wait {
        ms: i64,
    },
    /// To the very end of the lease, time to live or wait, and a little further.
    WaitForEnd {
        micros: i64,
    },
    /// The holder is heard of no more, and another worker comes.
    Die {
        worker: u8,
    },
    Worker {
        worker: u8,
        token: Pick,
        verb: Verb,
    },
    Command {
        actor: Actor,
        pick: u8,
        extras: Extras,
    },
    Sweep,
    OperationEnded,
    Items {
        actor: Actor,
        worker: u8,
        token: Pick,
        moves: Vec<ItemMove>,
    },
    AddItem {
        actor: Actor,
        worker: u8,
        token: Pick,
        kind: u8,
        state: u8,
    },
}

/// Whose token a worker shows.
#[derive(Clone, Copy, Debug)]
pub enum Pick {
    Right,
    Own,
    OwnFirst,
    Foreign,
    Zero,
}

#[derive(Clone, Debug)]
pub enum Verb {
    Claim { lease_seconds: Option<i64>, start: bool },
    Renew,
    Note,
    Finish { pick: u8, failure: bool, reason: Option<bool>, retry_seconds: Option<i64> },
    Release { wait_seconds: Option<i64> },
    RequireCleanup { required: bool, failing: Option<u8> },
}

#[derive(Clone, Debug)]
pub struct Extras {
    /// A blank one, or a real one.
    pub reason: Option<bool>,
    pub force: bool,
    pub resolved: bool,
    pub graceful: bool,
    pub delay_seconds: Option<i64>,
    /// Some of the items that would follow.
    pub chosen: Option<u8>,
}

#[derive(Clone, Debug)]
pub struct ItemMove {
    pub item: u8,
    pub state: u8,
    pub command: Option<u8>,
    pub progress: Option<u8>,
    pub failure: bool,
    pub answered: bool,
    pub discard: bool,
    pub retry_seconds: Option<i64>,
    /// For which try: the next (0), this one, or one before.
    pub try_no: Option<u8>,
}

/// What a script is mostly about. Scripts of one mood alone would leave parts of every table unvisited.
#[derive(Clone, Copy)]
struct Mood {
    waits: u32,
    deaths: u32,
    workers: u32,
    people: u32,
    items: u32,
    /// How often a move of an item is a good one.
    good: f64,
}

const EVEN: Mood = Mood { waits: 6, deaths: 3, workers: 20, people: 12, items: 10, good: 0.5 };
const DEADLY: Mood = Mood { waits: 0, deaths: 20, workers: 2, people: 2, items: 24, good: 0.5 };
const DILIGENT: Mood = Mood { waits: 1, deaths: 1, workers: 12, people: 6, items: 30, good: 0.5 };

pub fn any_script(steps: Range<usize>) -> impl Strategy<Value = Script> {
    let births = prop::collection::vec(birth(), 3);
    let steps_of = move |mood| prop::collection::vec(step(mood), steps.clone());
    let steps = prop_oneof![3 => steps_of(EVEN), 1 => steps_of(DEADLY), 2 => steps_of(DILIGENT)];
    (births, steps).prop_map(|(births, steps)| Script { births, steps })
}

/// Little else than moves of four items, by their worker and by people.
pub fn item_script(steps: Range<usize>) -> impl Strategy<Value = Script> {
    let steps = prop::collection::vec(step(Mood { items: 200, good: 0.1, ..DILIGENT }), steps);
    let items = prop::collection::vec(any::<(u8, u8, bool)>(), 4);
    (birth(), items, steps).prop_map(|(birth, items, mut steps)| {
        steps.retain(|step| matches!(step, Step::Items { actor, .. } if *actor != Actor::Engine));
        Script { births: vec![Birth { items, ..birth }], steps }
    })
}

fn birth() -> impl Strategy<Value = Birth> {
    // Mostly few: many seldom all come to the same end.
    let items = prop_oneof![2 => 0..=1_usize, 2 => 1..=2_usize, 1 => 3..=4_usize]
        .prop_flat_map(|count| prop::collection::vec(any::<(u8, u8, bool)>(), count));
    let waits = (prop::option::weighted(0.2, 1..200_000_i64), prop::option::weighted(0.2, 0..100_000_i64));
    (any::<u8>(), items, 0..5_u32, any::<bool>(), waits).prop_map(
        |(state, items, max_attempts, reentrant, (ttl_seconds, delay_seconds))| Birth {
            state,
            items,
            max_attempts,
            reentrant,
            ttl_seconds,
            delay_seconds,
        },
    )
}

fn step(mood: Mood) -> impl Strategy<Value = Step> {
    let worker = || (0..3_u8, token());
    let by_worker =
        (worker(), verb()).prop_map(|((worker, token), verb)| Step::Worker { worker, token, verb });
    let by_person = (person(), any::<u8>(), extras()).prop_map(|(actor, pick, extras)| Step::Command {
        actor,
        pick,
        extras,
    });
    let moves = prop_oneof![
        3 => item_move(mood.good).prop_map(|one| vec![one]),
        1 => prop::collection::vec(item_move(mood.good), 2..4),
    ];
    let items = (asker(), worker(), moves).prop_map(|(actor, (worker, token), moves)| Step::Items {
        actor,
        worker,
        token,
        moves,
    });
    let more = (asker(), worker(), any::<(u8, u8)>()).prop_map(|(actor, (worker, token), (kind, state))| {
        Step::AddItem { actor, worker, token, kind, state }
    });
    prop_oneof![
        mood.waits => wait().prop_map(|ms| Step::Wait { ms }),
        mood.waits => (-1..=1_i64).prop_map(|micros| Step::WaitForEnd { micros }),
        mood.deaths => (0..3_u8).prop_map(|worker| Step::Die { worker }),
        mood.workers => by_worker,
        mood.people => by_person,
        mood.items => items,
        3 => Just(Step::Sweep),
        1 => Just(Step::OperationEnded),
        1 => more,
    ]
}

/// Past leases, deadlines, times to live and the day after which a vacant lease counts as lost.
fn wait() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => 0..2_000_i64,
        6 => 1_000..40_000_i64,
        4 => 60_000..100_000_i64,
        2 => 300_000..320_000_i64,
        2 => 1_800_000..4_000_000_i64,
        1 => 86_400_000..90_000_000_i64,
        1 => 600_000_000..1_300_000_000_i64,
    ]
}

fn token() -> impl Strategy<Value = Pick> {
    prop_oneof![
        8 => Just(Pick::Right),
        3 => Just(Pick::Own),
        1 => Just(Pick::OwnFirst),
        1 => Just(Pick::Foreign),
        1 => Just(Pick::Zero),
    ]
}

fn person() -> impl Strategy<Value = Actor> {
    prop_oneof![4 => Just(Actor::Client), 4 => Just(Actor::Operator), 2 => Just(Actor::Engine), 1 => Just(Actor::Worker)]
}

fn asker() -> impl Strategy<Value = Actor> {
    prop_oneof![6 => Just(Actor::Worker), 1 => Just(Actor::Client), 2 => Just(Actor::Engine)]
}

fn verb() -> impl Strategy<Value = Verb> {
    let finish = (any::<u8>(), any::<bool>(), any::<Option<bool>>(), prop::option::of(0..400_i64));
    prop_oneof![
        7 => (prop::option::of(-1..400_i64), any::<bool>())
            .prop_map(|(lease_seconds, start)| Verb::Claim { lease_seconds, start }),
        2 => Just(Verb::Renew),
        3 => Just(Verb::Note),
        5 => finish.prop_map(|(pick, failure, reason, retry_seconds)| {
            Verb::Finish { pick, failure, reason, retry_seconds }
        }),
        1 => prop::option::of(0..400_i64).prop_map(|wait_seconds| Verb::Release { wait_seconds }),
        2 => (prop::bool::weighted(0.3), prop::option::weighted(0.2, any::<u8>()))
            .prop_map(|(required, failing)| Verb::RequireCleanup { required, failing }),
    ]
}

fn extras() -> impl Strategy<Value = Extras> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let reason = prop_oneof![2 => Just(None), 1 => Just(Some(false)), 5 => Just(Some(true))];
    let delay = prop::option::weighted(0.2, 0..100_000_i64);
    let chosen = prop::option::weighted(0.2, any::<u8>());
    (reason, flags, delay, chosen).prop_map(|(reason, (force, resolved, graceful), delay_seconds, chosen)| {
        Extras { reason, force, resolved, graceful, delay_seconds, chosen }
    })
}

fn item_move(good: f64) -> impl Strategy<Value = ItemMove> {
    let what = (any::<u8>(), any::<u8>(), prop::option::weighted(0.2, any::<u8>()));
    let progress = prop::option::weighted(0.2, 0..=101_u8);
    let flags = (any::<bool>(), prop::bool::weighted(good), prop::bool::weighted(0.04));
    let retry = prop::option::weighted(0.3, 0..100_i64);
    let try_no = prop_oneof![6 => Just(None), 3 => Just(Some(1)), 1 => (0..3_u8).prop_map(Some)];
    (what, progress, flags, retry, try_no).prop_map(
        |((item, state, command), progress, (failure, answered, discard), retry_seconds, try_no)| ItemMove {
            item,
            state,
            command,
            progress,
            failure,
            answered,
            discard,
            retry_seconds,
            try_no,
        },
    )
}
