//! How the parts of a row that have no column of their own are written as JSON: an intent, an event's effect,
//! items' counts. Small by design: what a command and its states tell is not written again.

use serde_json::{Map, Value, json};
use waypost_kernel::event::{Born, Effect, Event, Hold, Moved, Shift};
use waypost_kernel::item::{Item, Role};
use waypost_kernel::lifecycle::{Actor, Lifecycle, Phase, StateId};
use waypost_kernel::run::{Intent, Text, Want};
use waypost_kernel::{Failure, Time};

/// A token as people and databases see it: 32 hexadecimal digits.
pub fn token_text(token: waypost_kernel::Token) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    (0..32).rev().map(|place| char::from(DIGITS[(token.0 >> (place * 4)) as usize & 15])).collect()
}

pub fn token_from(text: &str) -> Option<waypost_kernel::Token> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let fits = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(&digits, 16).ok().filter(|_| fits).map(waypost_kernel::Token)
}

pub fn actor_named(name: &str) -> Option<Actor> {
    Actor::ALL.into_iter().find(|actor| actor.name() == name)
}

pub fn intent_json(intent: &Intent, lifecycle: &Lifecycle) -> Value {
    let mut out = Map::new();
    out.insert("want".into(), json!(intent.want.command()));
    out.insert("by".into(), json!(&*intent.by));
    put(&mut out, "reason", intent.reason.as_ref().map(|reason| json!(&**reason)));
    put(&mut out, "to", intent.to.map(|to| json!(&*lifecycle.state(to).name)));
    put(&mut out, "failure", intent.failure.as_ref().map(failure_json));
    put(&mut out, "graceful", intent.graceful.then_some(json!(true)));
    Value::Object(out)
}

pub fn intent_from(value: &Value, lifecycle: &Lifecycle) -> Option<Intent> {
    let want = match value["want"].as_str()? {
        "cancel" => Want::Cancel,
        "pause" => Want::Pause,
        "fail" => Want::Fail,
        _ => return None,
    };
    Some(Intent {
        want,
        by: value["by"].as_str()?.into(),
        reason: value["reason"].as_str().map(Into::into),
        to: value["to"].as_str().and_then(|name| lifecycle.state_named(name)),
        failure: failure_from(&value["failure"]),
        graceful: value["graceful"] == true,
    })
}

fn failure_json(failure: &Failure) -> Value {
    json!({ "code": &*failure.code, "message": &*failure.message })
}

fn failure_from(value: &Value) -> Option<Failure> {
    Some(Failure::new(value["code"].as_str()?, value["message"].as_str()?))
}

/// What an event did that its command and states do not tell; nothing for the common ones.
pub fn effect_json(event: &Event, lifecycle: &Lifecycle) -> Option<Value> {
    let effect = &event.effect;
    if says_nothing(effect) {
        return None;
    }
    let mut out = Map::new();
    put(&mut out, "expired", effect.expired.then_some(json!(true)));
    put(&mut out, "available_at", effect.available_at.map(|at| json!(at.micros())));
    put(&mut out, "expires_at", effect.expires_at.map(|at| json!(at.micros())));
    put(&mut out, "failure", effect.failure.as_ref().map(failure_json));
    put(&mut out, "reason", effect.reason.as_ref().map(|reason| json!(&**reason)));
    put(&mut out, "intent", effect.intent.as_ref().map(|intent| intent_json(intent, lifecycle)));
    put(&mut out, "requires_cleanup", effect.requires_cleanup.map(|required| json!(required)));
    put(&mut out, "cleanup_failed", effect.cleanup_failed.then_some(json!(true)));
    put(&mut out, "operating", effect.operating.map(|operating| json!(operating)));
    put(&mut out, "resolved", effect.resolved.then_some(json!(true)));
    put(&mut out, "forced", effect.forced.then_some(json!(true)));
    if let Some(born) = &effect.born {
        put(&mut out, "max_attempts", (born.max_attempts != 1).then_some(json!(born.max_attempts)));
        put(&mut out, "reentrant", born.reentrant.then_some(json!(true)));
    }
    put(&mut out, "shifts", shifts_json(event, lifecycle));
    put(&mut out, "moved", list(effect.moved.iter().map(|moved| moved_json(moved, lifecycle))));
    (!out.is_empty()).then_some(Value::Object(out))
}

fn list(values: impl ExactSizeIterator<Item = Value>) -> Option<Value> {
    (values.len() > 0).then(|| values.collect())
}

/// Which items an event made follow their run.
pub fn shifts_json(event: &Event, lifecycle: &Lifecycle) -> Option<Value> {
    list(event.effect.shifts.iter().map(|shift| shift_json(shift, lifecycle)))
}

/// The common case, told without building anything: every claim, begin and plain end.
fn says_nothing(effect: &Effect) -> bool {
    let Effect {
        hold: _,
        expired,
        available_at,
        expires_at,
        failure,
        reason,
        intent,
        requires_cleanup,
        cleanup_failed,
        operating,
        resolved,
        forced,
        born,
        shifts,
        moved,
    } = effect;
    let flags = [expired, cleanup_failed, resolved, forced].into_iter().any(|is| *is);
    let times = available_at.is_some() || expires_at.is_some();
    let words = failure.is_some() || reason.is_some() || intent.is_some();
    let marks = requires_cleanup.is_some() || operating.is_some();
    let birth = born.as_ref().is_some_and(|born| born.max_attempts != 1 || born.reentrant);
    !(flags || times || words || marks || birth) && shifts.is_empty() && moved.is_empty()
}

/// The event as the kernel folds it.
pub fn event_from(found: Found<'_>, lifecycle: &Lifecycle) -> Option<Event> {
    let to = lifecycle.state_named(found.to)?;
    let from = match found.from {
        Some(name) => Some(lifecycle.state_named(name)?),
        None => None,
    };
    let actor = actor_named(found.actor)?;
    let value = found.effect.unwrap_or(&Value::Null);
    let time = |key: &str| value[key].as_i64().map(Time::from_micros);
    let born = from.is_none().then(|| Born {
        id: found.run_id.into(),
        max_attempts: value["max_attempts"].as_u64().unwrap_or(1) as u32,
        reentrant: value["reentrant"] == true,
    });
    let each = |key: &str| value[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let effect = Effect {
        hold: hold_of(found.command, from, to, actor, lifecycle, value),
        expired: value["expired"] == true,
        available_at: time("available_at"),
        expires_at: time("expires_at"),
        failure: failure_from(&value["failure"]),
        reason: value["reason"].as_str().map(Into::into),
        intent: intent_from(&value["intent"], lifecycle),
        requires_cleanup: value["requires_cleanup"].as_bool(),
        cleanup_failed: value["cleanup_failed"] == true,
        operating: value["operating"].as_bool(),
        resolved: value["resolved"] == true,
        forced: value["forced"] == true,
        born,
        shifts: each("shifts").iter().map(|it| shift_from(it, lifecycle)).collect::<Option<_>>()?,
        moved: each("moved").iter().map(|it| moved_from(it, lifecycle)).collect::<Option<_>>()?,
    };
    Some(Event {
        seq: found.seq,
        at: found.at,
        command: found.command.into(),
        from,
        to,
        actor,
        by: found.by.into(),
        note: None,
        effect,
    })
}

/// An event's columns.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    pub run_id: &'a str,
    pub seq: u64,
    pub at: Time,
    pub command: &'a str,
    pub from: Option<&'a str>,
    pub to: &'a str,
    pub actor: &'a str,
    pub by: &'a str,
    pub effect: Option<&'a Value>,
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
    out.insert("kind".into(), json!(&*kind.name));
    out.insert("from".into(), json!(&*kind.state(shift.from).name));
    out.insert("to".into(), json!(&*kind.state(shift.to).name));
    out.insert("count".into(), json!(shift.count));
    put(&mut out, "chosen", shift.chosen.as_ref().map(|keys| json!(keys)));
    put(&mut out, "failure", shift.failure.as_ref().map(failure_json));
    Value::Object(out)
}

fn shift_from(value: &Value, lifecycle: &Lifecycle) -> Option<Shift> {
    let (kind, of) = kind_named(value["kind"].as_str()?, lifecycle)?;
    let chosen = value["chosen"]
        .as_array()
        .map(|keys| keys.iter().filter_map(Value::as_str).map(Text::from).collect());
    Some(Shift {
        kind,
        from: of.state_named(value["from"].as_str()?)?,
        to: of.state_named(value["to"].as_str()?)?,
        count: value["count"].as_u64()? as u32,
        chosen,
        failure: failure_from(&value["failure"]),
    })
}

fn moved_json(moved: &Moved, lifecycle: &Lifecycle) -> Value {
    let item = &moved.item;
    let kind = &lifecycle.items[usize::from(item.kind)];
    let mut out = Map::new();
    out.insert("kind".into(), json!(&*kind.name));
    out.insert("key".into(), json!(&*item.key));
    put(&mut out, "from", moved.from.map(|from| json!(&*kind.state(from).name)));
    out.insert("to".into(), json!(&*kind.state(item.state).name));
    put(&mut out, "was_staying", moved.was_staying.then_some(json!(true)));
    put(&mut out, "stays", moved.stays.then_some(json!(true)));
    put(&mut out, "attempts", (item.attempts != 0).then_some(json!(item.attempts)));
    put(&mut out, "max_retries", (item.max_retries != 3).then_some(json!(item.max_retries)));
    put(&mut out, "try_no", (item.try_no != 1).then_some(json!(item.try_no)));
    put(&mut out, "not_before", item.not_before.map(|at| json!(at.micros())));
    put(&mut out, "discarded", item.discarded.then_some(json!(true)));
    put(&mut out, "reruns", item.reruns.then_some(json!(true)));
    put(&mut out, "role", (item.role != Role::Step).then(|| json!(item.role.name())));
    put(&mut out, "progress", (item.progress != 0).then_some(json!(item.progress)));
    put(&mut out, "failure", item.failure.as_ref().map(failure_json));
    put(&mut out, "started_at", item.started_at.map(|at| json!(at.micros())));
    put(&mut out, "finished_at", item.finished_at.map(|at| json!(at.micros())));
    Value::Object(out)
}

fn moved_from(value: &Value, lifecycle: &Lifecycle) -> Option<Moved> {
    let (kind, of) = kind_named(value["kind"].as_str()?, lifecycle)?;
    let time = |key: &str| value[key].as_i64().map(Time::from_micros);
    let number = |key: &str, default: u64| value[key].as_u64().unwrap_or(default) as u32;
    Some(Moved {
        from: value["from"].as_str().and_then(|name| of.state_named(name)),
        was_staying: value["was_staying"] == true,
        stays: value["stays"] == true,
        item: Item {
            kind,
            key: value["key"].as_str()?.into(),
            state: of.state_named(value["to"].as_str()?)?,
            attempts: number("attempts", 0),
            max_retries: number("max_retries", 3),
            try_no: number("try_no", 1),
            not_before: time("not_before"),
            discarded: value["discarded"] == true,
            reruns: value["reruns"] == true,
            role: value["role"].as_str().and_then(Role::named).unwrap_or_default(),
            progress: number("progress", 0) as u8,
            failure: failure_from(&value["failure"]),
            started_at: time("started_at"),
            finished_at: time("finished_at"),
        },
    })
}

fn kind_named<'l>(name: &str, lifecycle: &'l Lifecycle) -> Option<(u8, &'l Lifecycle)> {
    let at = lifecycle.items.iter().position(|kind| &*kind.name == name)?;
    Some((at as u8, &lifecycle.items[at]))
}

fn put(out: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        out.insert(key.to_owned(), value);
    }
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
