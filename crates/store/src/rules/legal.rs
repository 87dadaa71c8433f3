//! Whether a lifecycle has the moves that a log tells of. Guards of the databases judge a move when it is made, by rows that the owner of the
//! file can change and change back; `verify` judges it by the lifecycle itself.

use waypost_kernel::Lifecycle;
use waypost_kernel::event::Event;
use waypost_kernel::lifecycle::StateId;
use waypost_kernel::render::sql::moves;

/// A line for each move of the run or of an item that is none.
pub(crate) fn illegal_moves(lifecycle: &Lifecycle, event: &Event) -> Vec<String> {
    let mut told = Vec::new();
    let seq = event.seq;
    let name = |state: StateId| &*lifecycle.state(state).name;
    match event.from {
        None if !lifecycle.initial.contains(&event.to) => {
            told.push(format!(
                "event {seq} begins it as {}, where {} does not",
                name(event.to),
                lifecycle.name
            ));
        }
        Some(from) if from != event.to && !has_move(lifecycle, from, &event.command, event.to) => {
            let (from, to) = (name(from), name(event.to));
            let (command, of, version) = (&event.command, &lifecycle.name, lifecycle.version);
            told.push(format!(
                "event {seq} is {command} from {from} to {to}, which is no move of {of} (version {version})"
            ));
        }
        _ => {}
    }
    let effect = &event.effect;
    for it in &effect.moved {
        let kind = &lifecycle.items[usize::from(it.item.kind)];
        // What a run is born with may have ended in the run that it repeats, which is looked at beside.
        let is_born = it.from.is_none() && event.from.is_none();
        if !is_born && !has_item_move(kind, it.from, it.item.state) {
            told.push(not_of(seq, kind, &it.item.key, it.from, it.item.state));
        }
    }
    for shift in &effect.shifts {
        let kind = &lifecycle.items[usize::from(shift.kind)];
        let follows = kind.state(shift.from).follows.iter().any(|(_, to)| *to == shift.to);
        if !follows && !has_item_move(kind, Some(shift.from), shift.to) {
            told.push(not_of(seq, kind, "", Some(shift.from), shift.to));
        }
    }
    told
}

fn not_of(seq: u64, kind: &Lifecycle, key: &str, from: Option<StateId>, to: StateId) -> String {
    let from = from.map_or("nothing", |from| &kind.state(from).name);
    let (of, to) = (&kind.name, &kind.state(to).name);
    let item = if key.is_empty() { format!("{of}s") } else { format!("{of} {key}") };
    format!(
        "event {seq} leads {item} from {from} to {to}, which is no move of {of} (version {})",
        kind.version
    )
}

fn has_move(lifecycle: &Lifecycle, from: StateId, command: &str, to: StateId) -> bool {
    let is_declared = |row: &waypost_kernel::lifecycle::Transition| row.to == to && &*row.command == command;
    lifecycle.transitions_from(from).any(is_declared)
}

/// An item may begin and end with one write; a new one comes from where its kind starts.
fn has_item_move(kind: &Lifecycle, from: Option<StateId>, to: StateId) -> bool {
    let Some(from) = from else {
        return kind.initial.contains(&to)
            || kind.initial.iter().any(|first| has_item_move(kind, Some(*first), to));
    };
    from == to
        || kind.transitions_from(from).any(|row| row.to == to)
        || moves(kind).iter().any(|it| (it.from, it.to) == (from, to))
}
