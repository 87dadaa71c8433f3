//! Requests, as data: runs and leases are meant by how lately they appeared.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use waypost_kernel::Actor;

use super::client::TEMPLATES;

#[derive(Clone, Debug)]
pub enum Op {
    Enqueue(Enqueue),
    Claim {
        worker: u8,
        queues: u8,
        /// Of one tenant alone.
        tenant: Option<u8>,
        limit: u8,
        lease: Option<u8>,
        start: bool,
    },
    ClaimRun {
        run: u8,
        worker: u8,
        start: bool,
    },
    ClaimPlan {
        plan: u8,
        worker: u8,
        attempts: u8,
        reentrant: bool,
    },
    Renew(Lease),
    Note {
        lease: Lease,
        message: u8,
        repeat: u8,
        patch: bool,
    },
    Finish {
        lease: Lease,
        to: Pick,
        reason: bool,
        failure: bool,
        retry: bool,
        items: Vec<ItemMove>,
    },
    Release {
        lease: Lease,
        /// In minutes after the lease would have ended.
        wait: Option<u8>,
    },
    RequireCleanup {
        lease: Lease,
        required: bool,
        failing: Option<Pick>,
    },
    PutItems {
        lease: Lease,
        items: Vec<ItemMove>,
    },
    /// An item fails, and then others are moved.
    FailThenBegin {
        lease: Lease,
        fails: ItemMove,
        then: Vec<ItemMove>,
    },
    /// All open items moved on, then the first end that is let through.
    Work {
        lease: Lease,
        failing: u8,
    },
    Command(Command),
    Targets(Targets),
    Sweep,
    Advance {
        by: u8,
    },
    Pause {
        tenant: u8,
        queue: u8,
        paused: bool,
    },
    Limit {
        tenant: u8,
        of_queue: bool,
        name: u8,
        at_most: Option<u8>,
    },
    Prune,
    Look {
        text: u8,
        limit: u8,
    },
}

#[derive(Clone, Debug, Default)]
pub struct Enqueue {
    pub template: u8,
    pub tenant: u8,
    /// Which roles its items have.
    pub roles: u8,
    pub queue: u8,
    pub priority: i8,
    pub key: Option<u8>,
    pub input: u8,
    pub concurrency_key: Option<u8>,
    pub delayed: bool,
    pub mortal: bool,
    /// A run to be the parent.
    pub parent: Option<u8>,
}

/// About targets of bulk changes, and what they are sent to.
#[derive(Clone, Debug)]
pub enum Targets {
    Add { run: u8, mask: u8, last: bool, behind: bool },
    Work { lease: Lease, dice: u8, take: u8, end: u8 },
    Discard { run: u8, mask: Option<u8>, code: Option<u8> },
    RollBack { lease: Lease, mask: u8 },
    Letters { tenant: u8, code: Option<u8> },
    Destination { tenant: u8, calls: u8, throttled: u8, burst: bool },
}

/// Zero is the latest one that was granted, of all or of those that still hold.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    pub back: u8,
    pub any: bool,
    pub wrong_token: bool,
}

/// One of what the table has from here, or of all that there is.
#[derive(Clone, Copy, Debug)]
pub struct Pick {
    pub at: u8,
    pub any: bool,
}

#[derive(Clone, Debug)]
pub struct ItemMove {
    pub kind: u8,
    pub key: u8,
    pub state: Pick,
    pub progress: Option<u8>,
    pub answered: bool,
    pub retry: bool,
    pub output: bool,
    /// Of a new one.
    pub role: u8,
}

#[derive(Clone, Debug)]
pub struct Command {
    pub run: u8,
    /// Of those that wait for a person or are done, and what is allowed there.
    pub ended: bool,
    pub name: Pick,
    pub actor: Option<Actor>,
    /// Somebody who may, rather than the one named.
    pub fitting: bool,
    pub force: bool,
    pub resolved: bool,
    pub graceful: bool,
    pub reason: bool,
    /// A bit for each of the first keys.
    pub items: Option<u8>,
}

/// Requests, and which two generated lifecycles some of them are about.
#[derive(Clone, Debug)]
pub struct Story {
    pub made: [u8; 2],
    pub ops: Vec<Op>,
}

pub fn story() -> impl Strategy<Value = Story> {
    (any::<[u8; 2]>(), vec(op(), 1..120)).prop_map(|(made, ops)| Story { made, ops })
}

/// Near the latest more often than far from it.
fn back() -> impl Strategy<Value = u8> {
    prop_oneof![4 => 0..2_u8, 3 => 0..5_u8, 1 => 0..40_u8]
}

fn lease() -> impl Strategy<Value = Lease> {
    (back(), prop::bool::weighted(0.15), prop::bool::weighted(0.03))
        .prop_map(|(back, any, wrong_token)| Lease { back, any, wrong_token })
}

fn pick() -> impl Strategy<Value = Pick> {
    (any::<u8>(), prop::bool::weighted(0.1)).prop_map(|(at, any)| Pick { at, any })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        14 => enqueue().prop_map(Op::Enqueue),
        14 => (0..3_u8, 1..4_u8, option::weighted(0.2, tenant()), 0..5_u8, option::weighted(0.5, 0..2_u8), any::<bool>())
            .prop_map(|(worker, queues, tenant, limit, lease, start)| {
                Op::Claim { worker, queues, tenant, limit, lease, start }
            }),
        2 => (back(), 0..3_u8, any::<bool>())
            .prop_map(|(run, worker, start)| Op::ClaimRun { run, worker, start }),
        3 => (0..2_u8, 0..3_u8, 1..4_u8, any::<bool>()).prop_map(|(plan, worker, attempts, reentrant)| {
            Op::ClaimPlan { plan, worker, attempts, reentrant }
        }),
        4 => lease().prop_map(Op::Renew),
        6 => (lease(), 0..2_u8, 0..3_u8, any::<bool>())
            .prop_map(|(lease, message, repeat, patch)| Op::Note { lease, message, repeat, patch }),
        12 => (lease(), pick(), any::<bool>(), any::<bool>(), any::<bool>(), vec(item_move(), 0..3)).prop_map(
            |(lease, to, reason, failure, retry, items)| {
                Op::Finish { lease, to, reason, failure, retry, items }
            }
        ),
        6 => (lease(), item_move(), vec(item_move(), 1..4))
            .prop_map(|(lease, fails, then)| Op::FailThenBegin { lease, fails, then }),
        4 => (lease(), option::of(0..120_u8)).prop_map(|(lease, wait)| Op::Release { lease, wait }),
        3 => (lease(), any::<bool>(), option::weighted(0.3, pick()))
            .prop_map(|(lease, required, failing)| Op::RequireCleanup { lease, required, failing }),
        16 => (lease(), vec(item_move(), 0..4)).prop_map(|(lease, items)| Op::PutItems { lease, items }),
        8 => (lease(), 0..4_u8).prop_map(|(lease, failing)| Op::Work { lease, failing }),
        16 => command().prop_map(Op::Command),
        12 => targets().prop_map(Op::Targets),
        5 => Just(Op::Sweep),
        6 => prop_oneof![8 => 0..3_u8, 1 => 3..5_u8].prop_map(|by| Op::Advance { by }),
        1 => (tenant(), 0..2_u8, prop::bool::weighted(0.3))
            .prop_map(|(tenant, queue, paused)| Op::Pause { tenant, queue, paused }),
        1 => (tenant(), any::<bool>(), 0..2_u8, option::of(0..3_u8))
            .prop_map(|(tenant, of_queue, name, at_most)| Op::Limit { tenant, of_queue, name, at_most }),
        1 => Just(Op::Prune),
        2 => (0..4_u8, 1..6_u8).prop_map(|(text, limit)| Op::Look { text, limit }),
    ]
}

fn targets() -> impl Strategy<Value = Targets> {
    let flag = any::<bool>;
    prop_oneof![
        3 => (back(), 0..32_u8, flag(), prop::bool::weighted(0.2))
            .prop_map(|(run, mask, last, behind)| Targets::Add { run, mask, last, behind }),
        6 => (lease(), any::<u8>(), 0..4_u8, 0..4_u8)
            .prop_map(|(lease, dice, take, end)| Targets::Work { lease, dice, take, end }),
        1 => (back(), option::of(0..8_u8), option::of(0..2_u8))
            .prop_map(|(run, mask, code)| Targets::Discard { run, mask, code }),
        2 => (lease(), 0..8_u8).prop_map(|(lease, mask)| Targets::RollBack { lease, mask }),
        1 => (tenant(), option::of(0..2_u8)).prop_map(|(tenant, code)| Targets::Letters { tenant, code }),
        1 => (tenant(), 1..9_u8, 0..9_u8, flag()).prop_map(|(tenant, calls, throttled, burst)| {
            Targets::Destination { tenant, calls, throttled, burst }
        }),
    ]
}

/// The default one more often than others.
fn tenant() -> impl Strategy<Value = u8> {
    prop_oneof![2 => Just(0_u8), 3 => 0..3_u8]
}

fn enqueue() -> impl Strategy<Value = Enqueue> {
    let rare = |probability| prop::bool::weighted(probability);
    (
        ((0..TEMPLATES, tenant(), 0..9_u8), 0..2_u8, -1..2_i8, option::weighted(0.2, 0..3_u8), 0..2_u8),
        (option::weighted(0.3, 0..2_u8), rare(0.15), rare(0.1), option::weighted(0.5, back())),
    )
        .prop_map(
            |(
                ((template, tenant, roles), queue, priority, key, input),
                (concurrency_key, delayed, mortal, parent),
            )| Enqueue {
                template,
                tenant,
                roles,
                queue,
                priority,
                key,
                input,
                concurrency_key,
                delayed,
                mortal,
                parent,
            },
        )
}

fn item_move() -> impl Strategy<Value = ItemMove> {
    let progress = option::weighted(0.2, prop_oneof![9 => 0..=100_u8, 1 => 101..=255_u8]);
    let key = prop_oneof![8 => 0..2_u8, 1 => 0..5_u8];
    let kind = prop_oneof![14 => Just(0_u8), 1 => 0..3_u8];
    (kind, key, pick(), progress, any::<bool>(), any::<bool>(), any::<bool>(), 0..3_u8).prop_map(
        |(kind, key, state, progress, answered, retry, output, role)| ItemMove {
            kind,
            key,
            state,
            progress,
            answered,
            retry,
            output,
            role,
        },
    )
}

fn command() -> impl Strategy<Value = Command> {
    let actor = prop_oneof![
        4 => Just(None),
        3 => Just(Some(Actor::Client)),
        2 => Just(Some(Actor::Engine)),
        1 => Just(Some(Actor::Worker)),
    ];
    let flag = any::<bool>;
    let who = (actor, prop::bool::weighted(0.8));
    let run = (back(), prop::bool::weighted(0.4));
    (run, pick(), who, flag(), flag(), flag(), flag(), option::weighted(0.15, 0..8_u8)).prop_map(
        |((run, ended), name, (actor, fitting), force, resolved, graceful, reason, items)| Command {
            run,
            ended,
            name,
            actor,
            fitting,
            force,
            resolved,
            graceful,
            reason,
            items,
        },
    )
}
