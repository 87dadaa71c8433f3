//! A property that no script comes near proves nothing: the scripts make every move of every table, and are
//! refused in every way.

use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::test_runner::{Config, RngSeed, TestRunner};
use waypost_kernel::*;

use super::world::World;
use super::{config, script, subjects};

const CASES: u32 = 160;

type Move = (StateId, String, StateId);

#[derive(Default)]
struct Reached {
    moves: BTreeSet<Move>,
    codes: BTreeSet<&'static str>,
    stays: BTreeSet<String>,
}

fn reached(lifecycle: &'static Lifecycle) -> Reached {
    let reached = RefCell::new(Reached::default());
    // Fewer or other scripts than these might miss a rare move: here alone the environment has no say.
    let config = Config { cases: CASES, rng_seed: RngSeed::Fixed(20_260_214), ..config(CASES) };
    let played = TestRunner::new(config).run(&script::any_script(50..300), |script| {
        let mut world = World::new(lifecycle, &script, false);
        let mut reached = reached.borrow_mut();
        for step in &script.steps {
            let taken = world.step(step);
            for event in taken.events() {
                let command = event.command.to_string();
                match event.from {
                    Some(from) if from != event.to || command == "steal" => {
                        reached.moves.insert((from, command, event.to));
                    }
                    _ => drop(reached.stays.insert(command)),
                }
            }
            reached.codes.extend(taken.answer.err().map(|refusal| refusal.code.name()));
        }
        Ok(())
    });
    assert!(played.is_ok());
    reached.into_inner()
}

#[test]
fn the_scripts_make_every_move_of_every_table() {
    let mut codes = BTreeSet::new();
    let mut stays = BTreeSet::new();
    let mut missing = Vec::new();
    for lifecycle in subjects::all() {
        let reached = reached(lifecycle);
        for row in &lifecycle.transitions {
            if !reached.moves.contains(&(row.from, row.command.to_string(), row.to)) {
                let (from, to) = (&lifecycle.state(row.from).name, &lifecycle.state(row.to).name);
                missing.push(format!("{}: {from} {} {to}", lifecycle.name, row.command));
            }
        }
        codes.extend(reached.codes);
        stays.extend(reached.stays);
    }
    assert!(missing.is_empty(), "never made:\n{}", missing.join("\n"));
    // How old a preview is, is judged by who takes the command.
    let decided = Code::ALL.into_iter().filter(|code| *code != Code::OutOfDate);
    let all: BTreeSet<&str> = decided.map(Code::name).collect();
    assert_eq!(codes, all, "refusals");
    for command in ["take-over", "release", "note", "require-cleanup", "items", "operation", "create"] {
        assert!(stays.contains(command), "{command} in {stays:?}");
    }
}
