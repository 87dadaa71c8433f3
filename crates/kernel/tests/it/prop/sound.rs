//! What the loader lets pass is safe to run: files that were broken by machine and load all the same keep the
//! properties of the shipped ones.

use waypost_kernel::Lifecycle;
use waypost_kernel::lifecycle::Kind;
use waypost_testkit::lifecycles::families;

use super::{holds_for, intent, leases, log, refusals, row, script, subjects};
use crate::broken::mutations;
use crate::shipped::catalog;

#[test]
fn what_the_loader_lets_pass_is_sound() {
    let catalog = catalog();
    let mut seen: Vec<Lifecycle> = Vec::new();
    for mutation in mutations::all() {
        let Ok(lifecycle) = Lifecycle::load(&mutation.text, &catalog) else { continue };
        if lifecycle.kind == Kind::Run && !seen.contains(&lifecycle) {
            seen.push(lifecycle);
        }
    }
    println!("{} lifecycles that nobody meant", seen.len());
    assert!(seen.len() > 50);
    seen.into_iter().for_each(|lifecycle| is_sound(lifecycle, 1));
}

/// Items that go where no shipped ones do when their run moves.
#[test]
fn what_the_loader_lets_pass_of_items_is_sound() {
    for family in families(60) {
        let mut catalog = catalog();
        let added: Vec<_> = family.files.iter().map(|file| catalog.add(file).unwrap()).collect();
        is_sound(Lifecycle::clone(added.last().unwrap()), 2);
    }
}

fn is_sound(lifecycle: Lifecycle, cases: u32) {
    holds_for(subjects::leak(lifecycle), cases, script::any_script(100..101), |world, taken| {
        row::check(world, taken)?;
        leases::check(world, taken)?;
        intent::check(world, taken)?;
        refusals::check(world, taken)?;
        if world.events.len() % 8 == 0 { log::check(world, taken) } else { Ok(()) }
    });
}
