//! Run lifecycles with kinds of items of their own. Each begins as a shipped one and is changed in a few places: where items
//! go when their run moves, who may make which move, what a state means, what it is called. What the loader lets pass stays.

use waypost_kernel::lifecycle::{Kind, SHIPPED};
use waypost_kernel::{Catalog, Lifecycle};

use super::mutations::{self, Mutation};
use super::table::{is_state, rows, state_names};

/// Files of one run lifecycle and of its items.
#[derive(Clone, Debug)]
pub struct Family {
    /// The run lifecycle's name.
    pub name: String,
    /// Items first, because the run refers to them.
    pub files: Vec<String>,
}

const ITEMS: [&str; 3] = ["step", "task", "target"];
const RUNS: [&str; 5] = ["job", "rule", "deploy", "agent", "job"];
/// So many changes of one file are tried, and so many of those that load are kept.
const TRIES: usize = 40;
const ITEM_TWISTS: u64 = 4;
const RUN_TWISTS: u64 = 3;

/// The first `count` of them: the same each time.
pub fn families(count: usize) -> Vec<Family> {
    let shipped = Catalog::shipped().expect("the shipped files load");
    (0..).filter_map(|seed| family(seed, &shipped)).take(count).collect()
}

fn family(seed: u64, shipped: &Catalog) -> Option<Family> {
    let mut random = Random(seed);
    let run_base = random.one_of(&RUNS);
    let run_text = shipped_text(run_base);
    let mut catalog = shipped.clone();
    let mut files = Vec::new();
    // Their names come in another order than their kinds do.
    let kinds: Vec<String> = ["part", "bit"].iter().map(|name| format!("{name}{seed}")).collect();
    let kinds = &kinds[..1 + usize::from(random.below(3) == 0)];
    for kind in kinds {
        let base = random.one_of(&ITEMS);
        let text = renamed(shipped_text(base), base, kind);
        let text = with_other_states(&text, &mut random);
        let loads = |text: &str| is_sound(text, Kind::Item, &catalog);
        let text = twisted(text, 1 + random.below(ITEM_TWISTS), &mut random, loads, |text, random| {
            if random.below(4) == 0 { twist(text, random) } else { follow_up(text, run_text, random) }
        });
        catalog.add(&text).ok()?;
        files.push(text);
    }
    let name = format!("made{seed}");
    let text = with_items(&renamed(run_text, run_base, &name), kinds);
    let text = with_other_states(&text, &mut random);
    let loads = |text: &str| is_sound(text, Kind::Run, &catalog);
    let text = twisted(text, random.below(RUN_TWISTS), &mut random, loads, twist);
    catalog.add(&text).ok()?;
    files.push(text);
    Some(Family { name, files })
}

fn shipped_text(name: &str) -> &'static str {
    SHIPPED.iter().find(|(shipped, _)| *shipped == name).map_or("", |(_, text)| text)
}

fn is_sound(text: &str, kind: Kind, catalog: &Catalog) -> bool {
    Lifecycle::load(text, catalog).is_ok_and(|lifecycle| lifecycle.kind == kind)
}

/// Makes changes of a file, as many as asked for if so many are found that load.
fn twisted(
    mut text: String,
    wanted: u64,
    random: &mut Random,
    loads: impl Fn(&str) -> bool,
    change: impl Fn(&str, &mut Random) -> Option<String>,
) -> String {
    let mut kept = 0;
    for _ in 0..TRIES {
        if kept >= wanted {
            break;
        }
        if let Some(changed) = change(&text, random).filter(|changed| loads(changed)) {
            text = changed;
            kept += 1;
        }
    }
    text
}

/// A row or a state, changed.
fn twist(text: &str, random: &mut Random) -> Option<String> {
    let twists: Vec<Mutation> = mutations::twists(text);
    (!twists.is_empty()).then(|| random.one_of(&twists).text.clone())
}

/// An item's state says where it goes when its run ends, is lost, or is moved by one of its commands. If the table has no
/// such move, it gets one, now and then with a guard.
fn follow_up(text: &str, run: &str, random: &mut Random) -> Option<String> {
    let states = state_names(text);
    let (from, to) = (random.one_of(&states), random.one_of(&states));
    let mut whens: Vec<String> = vec!["end".into(), "end".into(), "lost".into()];
    whens.extend(rows(run).map(|row| row[1].replace('-', "_")));
    let key = format!("on_{}", random.one_of(&whens));
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = lines.iter().position(|line| is_state(line, from))?;
    let old = lines[at].split(", ").find(|part| part.starts_with(&format!("{key} = "))).map(str::to_owned);
    let new = format!("{key} = \"{to}\"");
    lines[at] = match old {
        Some(old) => lines[at].replace(old.trim_end_matches(" }"), &new),
        None => lines[at].replacen(" }", &format!(", {new} }}"), 1),
    };
    if from != to && !rows(text).any(|row| row[0] == *from && row[2] == *to) {
        let guard = random.one_of(&["", "", "", "attempts-left", "reruns", "not-discarded"]);
        let by = random.one_of(&["engine", "worker, engine"]);
        let end = lines.iter().rposition(|line| line.trim() == "]")?;
        let command = format!("go-{}-{}", from.to_lowercase(), to.to_lowercase()).replace('_', "-");
        lines.insert(end, format!("  [\"{from}\", \"{command}\", \"{to}\", \"{by}\", \"{guard}\"],"));
    }
    Some(lines.join("\n") + "\n")
}

/// Half of them keep the names that people know.
fn with_other_states(text: &str, random: &mut Random) -> String {
    let mut text = text.to_owned();
    if random.below(2) == 0 {
        return text;
    }
    for (at, name) in state_names(&text).into_iter().enumerate() {
        let other = format!("s{at}_{}", random.below(1_000));
        let lines = text.lines().map(|line| {
            if is_state(line, &name) { line.replacen(&*name, &other, 1) } else { line.to_owned() }
        });
        text = lines.collect::<Vec<_>>().join("\n") + "\n";
        text = text.replace(&format!("\"{name}\""), &format!("\"{other}\""));
        // What a state means is said in words that are no state's.
        for key in ["phase", "outcome"] {
            text = text.replace(&format!("{key} = \"{other}\""), &format!("{key} = \"{name}\""));
        }
    }
    text
}

fn with_items(text: &str, kinds: &[String]) -> String {
    let items = format!("items = {kinds:?}");
    let without = text.lines().filter(|line| !line.starts_with("items "));
    let mut lines: Vec<&str> = without.collect();
    let at = lines.iter().position(|line| line.starts_with("initial")).unwrap_or(0);
    lines.insert(at + 1, &items);
    lines.join("\n") + "\n"
}

fn renamed(text: &str, old: &str, new: &str) -> String {
    text.replacen(&format!("= \"{old}\""), &format!("= \"{new}\""), 1)
}

/// Numbers that look random and are the same each time (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_kernel::lifecycle::Outcome;

    #[test]
    fn families_load_are_many_and_lead_items_where_no_shipped_one_does() {
        let families = families(60);
        let (mut into_success, mut into_held, mut settled_to_settled, mut guarded) = (0, 0, 0, 0);
        for family in &families {
            let mut catalog = Catalog::shipped().expect("the shipped files load");
            for file in &family.files {
                let lifecycle = catalog.add(file).unwrap_or_else(|problems| panic!("{problems}\n{file}"));
                for (at, state) in lifecycle.states.iter().enumerate() {
                    for (_, to) in &state.follows {
                        use waypost_kernel::Phase::{Held, Settled};
                        let to_state = lifecycle.state(*to);
                        let from = waypost_kernel::StateId(at as u8);
                        into_success += u32::from(to_state.outcome == Some(Outcome::Succeeded));
                        into_held += u32::from(to_state.phase == Held && state.phase != Held);
                        settled_to_settled +=
                            u32::from(to_state.phase == Settled && state.phase == Settled && *to != from);
                        let row = lifecycle.transitions_from(from).find(|row| row.to == *to);
                        guarded += u32::from(row.is_some_and(|row| !row.guards.is_empty()));
                    }
                }
            }
        }
        println!(
            "{into_success} into success, {into_held} into held, {settled_to_settled} between ends, {guarded} guarded"
        );
        assert!(into_success > 5 && into_held > 5 && settled_to_settled > 5 && guarded > 5);
        let two_kinds = families.iter().filter(|family| family.files.len() == 3).count();
        assert!(families.len() == 60 && two_kinds > 5, "{two_kinds} have two kinds of items");
    }
}
