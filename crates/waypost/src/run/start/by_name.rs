//! What `run start` asks for: by a playbook's name, by its file, or by a command; and what that would do.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use waypost_kernel::lifecycle::Kind;
use waypost_kernel::{Catalog, Guard, Lifecycle, Phase, StateId, Time};
use waypost_store::{NewRun, Store, iso};
use waypost_worker::playbook::known::{self, LeftOpen, NotKnown};
use waypost_worker::playbook::{Opening, Outside, Playbook, Playbooks, Window, preview};

use super::brought::{of_playbook, with_typed};
use super::{Flags, bulk, common, of_command, split};
use crate::output::{BAD_INPUT, Failed, Format, NOT_FOUND, Result, print};
use crate::place::{lifecycles, tenant};
use crate::run::ids::find;
use crate::run::look::targets::in_words_of;
use crate::times::not_before;

/// A request for a run, and what this process knows of its playbook.
pub struct Planned {
    pub new: NewRun,
    pub playbook: Option<Arc<Playbook>>,
    /// What this process has itself.
    pub own: Playbooks,
}

pub async fn planned(store: &dyn Store, catalog: &Catalog, flags: &Flags) -> Result<Planned> {
    let own = folder(flags.playbooks.as_deref(), catalog)?;
    let Some(named) = &flags.playbook else {
        let new = related(store, flags, of_command(flags)?).await?;
        check_for_command(catalog, &new.lifecycle)?;
        return Ok(Planned { new, playbook: None, own });
    };
    let new = related(store, flags, common(flags)?).await?;
    if is_file(named) {
        check_lifecycle_flag(flags)?;
        let (queue, priority) = (flags.queue.as_deref(), flags.priority);
        let typed = split("input", &flags.inputs)?;
        let (new, playbook) = of_playbook(catalog, Path::new(named), &typed, new, queue, priority)?;
        return Ok(Planned { new, playbook: Some(Arc::new(playbook)), own });
    }
    let open = LeftOpen {
        queue: flags.queue.is_none(),
        priority: flags.priority.is_none(),
        lifecycle: flags.lifecycle.is_none(),
    };
    let mut new = NewRun {
        lifecycle: flags.lifecycle.clone().unwrap_or_default(),
        playbook: Some(named.clone()),
        input: Value::Object(super::pairs("input", &flags.inputs)?),
        ..new
    };
    new.asked = new.idempotency_key.is_some().then(|| known::asked(&new, open));
    match by_name(store, catalog, flags, named, &own, new.clone(), open).await {
        Ok((new, playbook)) => Ok(Planned { new, playbook, own }),
        // It is still answered by the run that its key has made.
        Err(failed) => match known::known_again(store, &new).await? {
            Some(new) => Ok(Planned { new, playbook: None, own }),
            None => Err(failed),
        },
    }
}

/// The same, with what the store would refuse.
pub async fn checked(store: &dyn Store, catalog: &Catalog, flags: &Flags) -> Result<Planned> {
    let planned = planned(store, catalog, flags).await?;
    store.dry_run(planned.new.clone()).await?;
    Ok(planned)
}

/// When it is due, and which run it is a part of.
async fn related(store: &dyn Store, flags: &Flags, mut new: NewRun) -> Result<NewRun> {
    if let Some(text) = &flags.schedule_at {
        new.schedule_at = Some(not_before("schedule-at", text, store.now().await?)?);
    }
    if let Some(parent) = &flags.parent {
        new.parent_run_id = Some(find(store, parent).await?.id().to_owned());
    }
    Ok(new)
}

/// With what the playbook says.
async fn by_name(
    store: &dyn Store,
    catalog: &Catalog,
    flags: &Flags,
    named: &str,
    own: &Playbooks,
    new: NewRun,
    open: LeftOpen,
) -> Result<(NewRun, Option<Arc<Playbook>>)> {
    let known = match known::find(store, own, catalog, tenant(), named).await {
        Ok(known) => known,
        Err(NotKnown::Unknown(_)) if flags.unknown_playbook => return Ok((new, None)),
        Err(error) => return Err(failed(error, true)),
    };
    let Some(playbook) = known.playbook else {
        // A handler that is compiled into a worker: only its name is known.
        if flags.lifecycle.is_none() {
            let words = known::of_handler(store, tenant(), &known.offered).await?;
            return Err(Failed::new(BAD_INPUT, format!("lifecycle: {words}")));
        }
        return Ok((new, None));
    };
    let input = with_typed(&playbook, &Value::Null, &split("input", &flags.inputs)?);
    let new = known::fill(&playbook, catalog, NewRun { input, ..new }, open)
        .map_err(|error| Failed::new(BAD_INPUT, error.to_string()))?;
    Ok((new, Some(playbook)))
}

/// A lifecycle whose runs are worked only after they were given items is none for a command, which has none. One that is not known is
/// for the store to refuse.
fn check_for_command(catalog: &Catalog, name: &str) -> Result {
    let Some(lifecycle) = catalog.latest(name).filter(|lifecycle| !is_worked_without_items(lifecycle)) else {
        return Ok(());
    };
    let is_fit = |it: &&Arc<Lifecycle>| it.kind == Kind::Run && is_worked_without_items(it);
    let is_begun_by_client = |it: &&Arc<Lifecycle>| it.phase(it.initial[0]) != Phase::Held;
    let fit = catalog.iter().filter(|it| is_fit(it) && is_begun_by_client(it));
    let mut fit: Vec<&str> = fit.map(|it| &*it.name).collect();
    fit.dedup();
    let first = &lifecycle.state(lifecycle.initial[0]).name;
    let message = format!(
        "lifecycle: a {name} run is worked once it has a {}, and a command has none: it would stay {first}; allowed for a command: {}",
        lifecycle.items.first().map_or("target", |kind| &kind.name),
        fit.join(", ")
    );
    Err(Failed::new(BAD_INPUT, message))
}

/// Whether a run comes from its first state to a worker by moves that ask for no items.
fn is_worked_without_items(lifecycle: &Lifecycle) -> bool {
    let mut reached = vec![lifecycle.initial[0]];
    let mut at = 0;
    while let Some(state) = reached.get(at).copied() {
        match lifecycle.phase(state) {
            Phase::Ready | Phase::Held => return true,
            // What is over is no way there.
            Phase::Settled => {}
            Phase::Draft | Phase::Parked => reached.extend(unguarded(lifecycle, state, &reached)),
        }
        at += 1;
    }
    false
}

/// Where moves that ask for no items lead, beside what is known.
fn unguarded(lifecycle: &Lifecycle, from: StateId, known: &[StateId]) -> Vec<StateId> {
    let moves = lifecycle.transitions_from(from).filter(|row| !row.guards.contains(&Guard::HasItems));
    moves.map(|row| row.to).filter(|to| !known.contains(to)).collect()
}

/// A path, or what is there as a file; anything else is a name.
pub fn is_file(named: &str) -> bool {
    let path = Path::new(named);
    named.contains('/') || path.extension().is_some_and(|it| it == "toml") || path.is_file()
}

fn check_lifecycle_flag(flags: &Flags) -> Result {
    if flags.lifecycle.is_some() || flags.unknown_playbook {
        let message =
            "lifecycle: a playbook's file names its own: leave --lifecycle and --unknown-playbook out";
        return Err(Failed::new(BAD_INPUT, message));
    }
    Ok(())
}

pub fn folder(folder: Option<&Path>, catalog: &Catalog) -> Result<Playbooks> {
    let Some(folder) = folder else { return Ok(Playbooks::default()) };
    Playbooks::load(folder, catalog).map_err(|problems| Failed::new(BAD_INPUT, problems.to_string()))
}

pub fn failed(error: NotKnown, may_be_unknown: bool) -> Failed {
    match error {
        NotKnown::Store(error) => error.into(),
        NotKnown::Unsound(words) => Failed::new(BAD_INPUT, words),
        NotKnown::Unknown(words) if may_be_unknown => {
            let hint = "a file is named by its path (./update.toml); --unknown-playbook takes a name that nobody has yet";
            Failed::new(NOT_FOUND, format!("{words}\n  {hint}"))
        }
        NotKnown::Unknown(words) => Failed::new(NOT_FOUND, words),
    }
}

/// Nothing is written.
pub async fn dry_run(store: &dyn Store, flags: &Flags) -> Result {
    let catalog = lifecycles(store).await?;
    let Planned { new, playbook, .. } = checked(store, &catalog, flags).await?;
    let Some(lifecycle) = catalog.latest(&new.lifecycle) else {
        return Err(Failed::new(BAD_INPUT, format!("lifecycle: there is no {:?}", new.lifecycle)));
    };
    let mut plan = preview(&new, lifecycle, playbook.as_deref());
    let looked = match &playbook {
        Some(playbook) => bulk::looked_at(playbook, &new).await?,
        None => None,
    };
    if let Some(looked) = &looked {
        plan["preview"] = looked.object();
    }
    let window = playbook.as_ref().and_then(|playbook| playbook.window.as_ref());
    let window = match window {
        Some(window) => Some(window_in_words(window, store.now().await?)),
        None => None,
    };
    print(&match flags.waiting.output {
        Format::Table => {
            let words = looked.as_ref().map(|looked| format!("\n{}", in_words_of(looked)));
            format!("{}{}", in_words(&plan, window), words.unwrap_or_default())
        }
        format => format.object(&plan),
    })
}

/// `mon, tue 22:00 to 04:00 (Europe/Kyiv); it is closed, and steps wait until it opens at …`.
fn window_in_words(window: &Window, now: Time) -> String {
    let told = window.to_json();
    let days: Vec<&str> =
        told["weekdays"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let text = |name: &str| told[name].as_str().unwrap_or_default();
    let days = if days.len() == 7 { "every day".to_owned() } else { days.join(", ") };
    let becomes = match window.outside {
        Outside::Wait => "steps wait until then",
        Outside::Fail => "a step that is due fails",
    };
    let is_now = match window.at(now) {
        Opening::Open { until } => format!("open until {}", iso(until)),
        Opening::Closed { opens: Some(opens) } => format!("closed until {}: {becomes}", iso(opens)),
        Opening::Closed { opens: None } => "closed".to_owned(),
    };
    format!("{days} {} to {} ({}); {is_now}", text("from"), text("to"), text("timezone"))
}

fn in_words(plan: &Value, window: Option<String>) -> String {
    let text = |name: &str| plan[name].as_str().map(str::to_owned);
    let what = text("playbook").unwrap_or_else(|| "a command".to_owned());
    let mut lines = vec![format!(
        "Nothing was written. It would be a {} run of {what}.",
        plan["lifecycle"].as_str().unwrap_or_default()
    )];
    let mut line = |name: &str, value: String| lines.push(format!("{name:<10}{value}"));
    line("status", text("status").unwrap_or_default());
    line("queue", format!("{}, priority {}", text("queue").unwrap_or_default(), plan["priority"]));
    if let Some(key) = text("concurrency_key") {
        line("key", format!("{key}: one run at a time"));
    }
    if let Some(at) = text("schedule_at") {
        line("not before", format!(" {at}"));
    }
    if let Some(window) = window {
        line("window", window);
    }
    line("input", plan["input"].to_string());
    lines.extend(steps_in_words(&plan["steps"]));
    lines.join("\n")
}

pub fn steps_in_words(steps: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, step) in steps.as_array().into_iter().flatten().enumerate() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind =
            if step["kind"] == "cleanup" { "cleanup ".to_owned() } else { format!("step {} ", at + 1) };
        let mut about = Vec::new();
        if step["after"].is_string() {
            about.push(format!("after {}", text(&step["after"])));
        }
        if step["for_each"].is_object() {
            let items = &step["for_each"]["items"];
            let items = items
                .as_array()
                .map_or_else(|| "known later".to_owned(), |items| format!("{} items", items.len()));
            about.push(format!("for each of {} ({items})", text(&step["for_each"]["expression"])));
        }
        if step["when"].is_object() {
            let is = match step["when"]["is"].as_bool() {
                Some(true) => "true",
                Some(false) => "not true: it is skipped",
                None => "known later",
            };
            about.push(format!("when {} ({is})", text(&step["when"]["expression"])));
        }
        let needs: Vec<String> = step["needs_output_of"].as_array().into_iter().flatten().map(text).collect();
        if !needs.is_empty() {
            about.push(format!("made of the output of {}", needs.join(", ")));
        }
        let about = if about.is_empty() { String::new() } else { format!("  [{}]", about.join("; ")) };
        lines.push(format!("{kind}{}{about}", text(&step["name"])));
        let does = match &step["does"] {
            it if it["ask"].is_string() => format!("asks a person: {}", text(&it["ask"])),
            it if it["exec"].is_array() => {
                it["exec"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" ")
            }
            it => format!("{} {}", text(&it["http"]["method"]), text(&it["http"]["url"])),
        };
        lines.push(format!("    {does}"));
    }
    lines
}
