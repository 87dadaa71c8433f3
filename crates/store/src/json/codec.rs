//! How the parts of a row that have no column of their own are written as JSON: an intent, an event's effect,
//! items' counts. Small by design: what a command and its states tell is not written again.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use waypost_kernel::event::{Born, Effect, Event, Hold, Moved, Shift};
use waypost_kernel::item::{Item, Role};
use waypost_kernel::lifecycle::{Actor, Lifecycle, Phase, StateId};
use waypost_kernel::run::{Intent, Text, Want};
use waypost_kernel::{Failure, Time};

use crate::columns::{Cell, Field, Kind};
use crate::engine::Extra;
use crate::rules::replay::Written;

/// Two hexadecimal digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// JSON with members by name, whatever order they came in: another crate may switch serde_json to the order of insertion.
pub fn write_canonical(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(members) => write_members(members, out),
        Value::Array(values) => {
            out.push(b'[');
            for value in values {
                write_canonical(value, out);
                out.push(b',');
            }
            out.push(b']');
        }
        // To memory, and of texts and numbers: it cannot fail.
        plain => _ = serde_json::to_writer(&mut *out, plain),
    }
}

/// An object of these members.
pub fn write_members(members: &Map<String, Value>, out: &mut Vec<u8>) {
    out.push(b'{');
    if members.keys().is_sorted() {
        members.iter().for_each(|(name, value)| write_member(name, value, out));
    } else {
        let sorted: BTreeMap<&String, &Value> = members.iter().collect();
        sorted.into_iter().for_each(|(name, value)| write_member(name, value, out));
    }
    out.push(b'}');
}

fn write_member(name: &str, value: &Value, out: &mut Vec<u8>) {
    write_name(name, out);
    write_canonical(value, out);
    out.push(b',');
}

pub(crate) fn write_name(name: &str, out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(&mut *out, name);
    out.push(b':');
}

/// A token as people and databases see it: 32 hexadecimal digits.
pub fn token_text(token: waypost_kernel::Token) -> String {
    hex(&token.0.to_be_bytes())
}

pub fn token_from(text: &str) -> Option<waypost_kernel::Token> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let fits = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(&digits, 16).ok().filter(|_| fits).map(waypost_kernel::Token)
}

pub fn actor_named(name: &str) -> Option<Actor> {
    Actor::ALL.into_iter().find(|actor| actor.name() == name)
}

/// Members of an object that are left out while they are as usual: how they are written, and read again. `beside` names
/// the fields that have other ways.
macro_rules! members {
    ($put:ident, $take:ident of $of:ident { $($field:ident = $usual:expr),+ } beside $($beside:ident),+) => {
        fn $put(it: &$of, out: &mut Map<String, Value>) {
            let $of { $($field,)+ $($beside: _,)+ } = it;
            $(put(out, stringify!($field), $field, &$usual);)+
        }

        fn $take(it: &mut $of, object: &Value) {
            $(it.$field = take(object, stringify!($field), $usual);)+
        }
    };
}

members!(put_intent, take_intent of Intent { reason = None, failure = None, graceful = false } beside want, by, to);
members!(put_effect, take_effect of Effect {
    expired = false, available_at = None, expires_at = None, failure = None, reason = None, requires_cleanup = None,
    cleanup_failed = false, operating = None, resolved = false, forced = false
} beside hold, intent, born, shifts, moved);
members!(put_born, take_born of Born { max_attempts = 1, reentrant = false } beside id);
members!(put_shift, take_shift of Shift { count = 0, failure = None } beside kind, from, to, chosen);
members!(put_moved, take_moved of Moved { was_staying = false, stays = false } beside from, item);
members!(put_item, take_item of Item {
    attempts = 0, max_retries = 3, try_no = 1, throttled = 0, waited_ms = 0, in_doubt = false, not_before = None, discarded = false, reruns = false, role = Role::Step,
    progress = 0, failure = None, started_at = None, finished_at = None
} beside kind, key, state);

fn put<T: Field + PartialEq>(out: &mut Map<String, Value>, name: &str, value: &T, usual: &T) {
    if value != usual {
        out.insert(name.to_owned(), exactly(value.cell()));
    }
}

fn take<T: Field>(object: &Value, name: &str, usual: T) -> T {
    match &object[name] {
        Value::Null => usual,
        Value::Number(micros) if T::KIND == Kind::Time => {
            T::of(micros.as_i64().map_or(Cell::Null, |micros| Cell::Time(Time::from_micros(micros))))
        }
        value => T::KIND.cell_of(value).map_or(usual, T::of),
    }
}

/// With times to the microsecond.
pub(crate) fn exactly(cell: Cell<'_>) -> Value {
    if let Cell::Time(time) = cell { time.micros().into() } else { cell.into_json() }
}

impl Field for Failure {
    const KIND: Kind = Kind::Json;
    const API: waypost_schema::Kind = waypost_schema::Kind::Object;

    fn cell(&self) -> Cell<'_> {
        Cell::json(json!({ "code": &*self.code, "message": &*self.message }))
    }

    fn of(cell: Cell<'_>) -> Failure {
        let value = Value::of(cell);
        let text = |name: &str| value[name].as_str().unwrap_or_default();
        Failure::new(text("code"), text("message"))
    }
}

fn insert(out: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    out.insert(name.to_owned(), value.into());
}

fn insert_list(out: &mut Map<String, Value>, name: &str, values: impl ExactSizeIterator<Item = Value>) {
    if values.len() > 0 {
        insert(out, name, values.collect::<Value>());
    }
}

pub fn intent_json(intent: &Intent, lifecycle: &Lifecycle) -> Value {
    let mut out = Map::new();
    insert(&mut out, "want", intent.want.command());
    insert(&mut out, "by", &*intent.by);
    if let Some(to) = intent.to {
        insert(&mut out, "to", &*lifecycle.state(to).name);
    }
    put_intent(intent, &mut out);
    out.into()
}

pub fn intent_from(value: &Value, lifecycle: &Lifecycle) -> Option<Intent> {
    let want = value["want"].as_str()?;
    let mut intent = Intent {
        want: [Want::Cancel, Want::Pause, Want::Fail].into_iter().find(|known| known.command() == want)?,
        by: value["by"].as_str()?.into(),
        to: value["to"].as_str().and_then(|name| lifecycle.state_named(name)),
        reason: None,
        failure: None,
        graceful: false,
    };
    take_intent(&mut intent, value);
    Some(intent)
}

/// What an event did that its command and states do not tell. `None` for the common events (claims, begins, plain ends), for which
/// nothing is built.
pub fn effect_json(event: &Event, lifecycle: &Lifecycle) -> Option<Value> {
    let effect = &event.effect;
    let mut out = Map::new();
    put_effect(effect, &mut out);
    if let Some(intent) = &effect.intent {
        insert(&mut out, "intent", intent_json(intent, lifecycle));
    }
    if let Some(born) = &effect.born {
        put_born(born, &mut out);
    }
    insert_list(&mut out, "shifts", effect.shifts.iter().map(|shift| shift_json(shift, lifecycle)));
    insert_list(&mut out, "moved", effect.moved.iter().map(|moved| moved_json(moved, lifecycle)));
    (!out.is_empty()).then_some(out.into())
}

/// Which items an event made follow their run.
pub fn shifts_json(event: &Event, lifecycle: &Lifecycle) -> Option<Value> {
    let shifts = &event.effect.shifts;
    (!shifts.is_empty()).then(|| shifts.iter().map(|shift| shift_json(shift, lifecycle)).collect())
}

/// The event as the kernel folds it.
pub fn event_from(run_id: &str, written: &Written, lifecycle: &Lifecycle) -> Option<Event> {
    let to = lifecycle.state_named(&written.to)?;
    let from = match &written.from {
        Some(name) => Some(lifecycle.state_named(name)?),
        None => None,
    };
    let actor = actor_named(&written.actor)?;
    let value = written.effect.as_ref().unwrap_or(&Value::Null);
    let each = |key: &str| value[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut effect = Effect {
        hold: hold_of(&written.command, from, to, actor, lifecycle, value),
        intent: intent_from(&value["intent"], lifecycle),
        shifts: each("shifts").iter().map(|it| shift_from(it, lifecycle)).collect::<Option<_>>()?,
        moved: each("moved").iter().map(|it| moved_from(it, lifecycle)).collect::<Option<_>>()?,
        ..Effect::default()
    };
    take_effect(&mut effect, value);
    if from.is_none() {
        let born = effect.born.insert(Born { id: run_id.into(), max_attempts: 1, reentrant: false });
        take_born(born, value);
    }
    Some(Event {
        seq: written.seq,
        at: written.at,
        command: written.command.as_str().into(),
        from,
        to,
        actor,
        by: written.by.as_str().into(),
        note: None,
        effect,
    })
}

/// Who has the lease afterwards follows from the command: workers take it, anybody else leaves it vacant.
fn hold_of(
    command: &str,
    from: Option<StateId>,
    to: StateId,
    actor: Actor,
    lifecycle: &Lifecycle,
    effect: &Value,
) -> Hold {
    let enters = from.is_none_or(|from| lifecycle.phase(from) != Phase::Held);
    match (lifecycle.phase(to), actor) {
        (Phase::Held, Actor::Worker) if enters || matches!(command, "take-over" | "steal") => Hold::Grant,
        (Phase::Held, Actor::Worker) if command == "release" => Hold::Vacate,
        (Phase::Held, Actor::Client | Actor::Operator) if enters => Hold::Vacate,
        // The engine left it for another worker's cleanup.
        (Phase::Held, Actor::Engine) if enters || effect["intent"].is_object() => Hold::Vacate,
        _ => Hold::Keep,
    }
}

fn shift_json(shift: &Shift, lifecycle: &Lifecycle) -> Value {
    let kind = &lifecycle.items[usize::from(shift.kind)];
    let mut out = Map::new();
    insert(&mut out, "kind", &*kind.name);
    insert(&mut out, "from", &*kind.state(shift.from).name);
    insert(&mut out, "to", &*kind.state(shift.to).name);
    if let Some(keys) = &shift.chosen {
        insert(&mut out, "chosen", json!(keys));
    }
    put_shift(shift, &mut out);
    out.into()
}

fn shift_from(value: &Value, lifecycle: &Lifecycle) -> Option<Shift> {
    let (kind, of) = kind_named(value["kind"].as_str()?, lifecycle)?;
    let state = |name: &str| of.state_named(value[name].as_str()?);
    let keys = value["chosen"].as_array();
    let chosen = keys.map(|keys| keys.iter().filter_map(Value::as_str).map(Text::from).collect());
    let mut shift = Shift { kind, from: state("from")?, to: state("to")?, count: 0, chosen, failure: None };
    take_shift(&mut shift, value);
    Some(shift)
}

fn moved_json(moved: &Moved, lifecycle: &Lifecycle) -> Value {
    let item = &moved.item;
    let kind = &lifecycle.items[usize::from(item.kind)];
    let mut out = Map::new();
    insert(&mut out, "kind", &*kind.name);
    insert(&mut out, "key", &*item.key);
    if let Some(from) = moved.from {
        insert(&mut out, "from", &*kind.state(from).name);
    }
    insert(&mut out, "to", &*kind.state(item.state).name);
    put_moved(moved, &mut out);
    put_item(item, &mut out);
    out.into()
}

fn moved_from(value: &Value, lifecycle: &Lifecycle) -> Option<Moved> {
    let (kind, of) = kind_named(value["kind"].as_str()?, lifecycle)?;
    let state = |name: &str| of.state_named(value[name].as_str()?);
    let mut item = Item::new(kind, value["key"].as_str()?, state("to")?);
    take_item(&mut item, value);
    let mut moved = Moved { from: state("from"), was_staying: false, stays: false, item };
    take_moved(&mut moved, value);
    Some(moved)
}

fn kind_named<'l>(name: &str, lifecycle: &'l Lifecycle) -> Option<(u8, &'l Lifecycle)> {
    let at = lifecycle.items.iter().position(|kind| &*kind.name == name)?;
    Some((at as u8, &lifecycle.items[at]))
}

/// The same, with what the event merged into the row.
pub(crate) fn effect_with(event: &Event, lifecycle: &Lifecycle, extra: &Extra) -> Option<Value> {
    let mut effect = effect_json(event, lifecycle);
    add_patch(&mut effect, "metadata", &extra.metadata);
    add_patch(&mut effect, "details", &extra.details);
    effect
}

/// Keeps what was merged into the row beside the event that merged it.
pub fn add_patch(effect: &mut Option<Value>, key: &str, patch: &Map<String, Value>) {
    if patch.is_empty() {
        return;
    }
    let effect = effect.get_or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(map) = effect {
        map.insert(key.to_owned(), Value::Object(patch.clone()));
    }
}

/// Nothing worth a column.
pub fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}
