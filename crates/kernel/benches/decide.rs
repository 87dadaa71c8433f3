//! What a decision costs on the longest lifecycle. Reported, never asserted: `cargo bench -p waypost-kernel`.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use waypost_kernel::decide::NewRun;
use waypost_kernel::item::Item;
use waypost_kernel::request::{Finish, With};
use waypost_kernel::*;

fn decisions(criterion: &mut Criterion) {
    let catalog = Catalog::shipped().unwrap();
    let longest = catalog.iter().max_by_key(|lifecycle| lifecycle.transitions.len()).unwrap();
    let kind = &longest.items[0];
    let mut target = Item::new(0, "a", kind.state_named("QUEUED").unwrap());
    let client = Who { actor: Actor::Client, by: "ann", fresh: Token(1) };
    let worker = Who { actor: Actor::Worker, by: "w1", fresh: Token(2) };
    let engine = Who { actor: Actor::Engine, by: "engine", fresh: Token(3) };
    let token = Token(2);
    let now = Time::from_ms(1_000);
    let new = NewRun {
        id: "rule-1",
        state: Some("QUEUED"),
        items: std::slice::from_ref(&target),
        ..NewRun::default()
    };
    let queued = create(longest, &new, &client, now).unwrap().after;
    let claim = Request { who: worker, ask: Ask::Claim { lease: None, start: false } };
    let mut held = decide(longest, &queued, &claim, now).unwrap().after;
    target.state = kind.state_named("APPLIED").unwrap();
    held.tallies[0].remove(kind.state_named("QUEUED").unwrap(), 1);
    held.tallies[0].add(target.state, 1);
    let finish = Finish { to: "APPLIED", ..Finish::default() };
    let cases = [
        ("claim", &queued, claim),
        ("renew", &held, Request { who: worker, ask: Ask::Renew { token } }),
        ("finish", &held, Request { who: worker, ask: Ask::Finish { token, finish } }),
        (
            "cancel",
            &held,
            Request { who: client, ask: Ask::Command { name: "cancel", with: With::default() } },
        ),
        ("sweep", &held, Request { who: engine, ask: Ask::Sweep }),
        (
            "refusal",
            &held,
            Request { who: client, ask: Ask::Command { name: "retry", with: With::default() } },
        ),
    ];
    for (name, run, request) in cases {
        criterion.bench_function(&format!("decide/{}/{name}", longest.name), |bencher| {
            bencher.iter(|| black_box(decide(longest, black_box(run), black_box(&request), now)));
        });
    }
}

criterion_group!(benches, decisions);
criterion_main!(benches);
