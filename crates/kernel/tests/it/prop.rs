//! Properties that hold for every lifecycle after every request, whoever asks and whatever the clock says.
//! One random script drives them all; nothing here but `seeds` knows a lifecycle by name.

mod ask;
mod course;
mod intent;
mod items;
mod leases;
mod liveness;
mod log;
mod reach;
mod refusals;
mod row;
mod script;
mod seeds;
mod sound;
mod store;
mod subjects;
mod world;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use waypost_kernel::Lifecycle;

use script::Script;
use world::{Taken, World};

/// What is wrong after a step, if anything is.
pub type Check = fn(&World, &Taken) -> Result<(), String>;

/// Ends a check with words.
macro_rules! ensure {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err(format!($($words)+));
        }
    };
}
pub(crate) use ensure;

/// The same cases each time, so that a red run is a bug and not bad luck; `PROPTEST_CASES` asks for more of
/// them and `PROPTEST_RNG_SEED` for others.
pub fn config(cases: u32) -> Config {
    let mut config = Config { failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(20_260_214);
    }
    config
}

/// Plays random scripts on every subject and checks after each step.
fn holds_always(cases: u32, check: Check) {
    for lifecycle in subjects::all() {
        holds_for(lifecycle, cases, script::any_script(50..300), check);
    }
}

fn holds_for(
    lifecycle: &'static Lifecycle,
    cases: u32,
    scripts: impl Strategy<Value = Script>,
    check: Check,
) {
    let mut runner = TestRunner::new(config(cases));
    let result = runner.run(&scripts, |script| {
        let played = play(lifecycle, &script, check);
        played.map(|_| ()).map_err(TestCaseError::fail)
    });
    if let Err(error) = result {
        panic!("{}: {error}", lifecycle.name);
    }
}

/// Plays a script to its end. Only a failure is worth its story, so that one is played again.
fn play(lifecycle: &'static Lifecycle, script: &Script, check: Check) -> Result<World, String> {
    played(World::new(lifecycle, script, false), script, check)
        .map_err(|_| played(World::new(lifecycle, script, true), script, check).expect_err("it fails again"))
}

fn played(mut world: World, script: &Script, check: Check) -> Result<World, String> {
    for step in &script.steps {
        let taken = world.step(step);
        if let Err(wrong) = check(&world, &taken) {
            return Err(format!("{wrong}\n{}", world.story.unwrap_or_default().join("\n")));
        }
    }
    Ok(world)
}
