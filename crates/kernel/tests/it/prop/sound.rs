//! What the loader lets pass is safe to run: files that were broken by machine and load all the same keep the
//! properties of the shipped ones.

use waypost_kernel::Lifecycle;
use waypost_kernel::lifecycle::{Kind, Phase};

use super::{holds_for, intent, leases, log, refusals, row, script, subjects};
use crate::broken::mutations;
use crate::shipped::catalog;

/// From settled back to waiting: the fold keeps `finished_at` then.
fn reopens(lifecycle: &Lifecycle) -> bool {
    lifecycle.transitions.iter().any(|row| {
        let to = lifecycle.phase(row.to);
        lifecycle.phase(row.from) == Phase::Settled && to != Phase::Settled && to != Phase::Held
    })
}

#[test]
fn what_the_loader_lets_pass_is_sound() {
    let catalog = catalog();
    let mut seen: Vec<Lifecycle> = Vec::new();
    for mutation in mutations::all() {
        let Ok(lifecycle) = Lifecycle::load(&mutation.text, &catalog) else { continue };
        if lifecycle.kind == Kind::Run && !reopens(&lifecycle) && !seen.contains(&lifecycle) {
            seen.push(lifecycle);
        }
    }
    println!("{} lifecycles that nobody meant", seen.len());
    assert!(seen.len() > 50);
    for lifecycle in seen {
        let lifecycle = subjects::leak(lifecycle);
        holds_for(lifecycle, 1, script::any_script(100..101), |world, taken| {
            row::check(world, taken)?;
            leases::check(world, taken)?;
            intent::check(world, taken)?;
            refusals::check(world, taken)?;
            if world.events.len() % 8 == 0 { log::check(world, taken) } else { Ok(()) }
        });
    }
}
