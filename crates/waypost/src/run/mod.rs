//! `waypost run …`: one folder per kind of verb.

mod act;
pub mod follow;
#[cfg(test)]
mod golden;
pub mod ids;
pub mod look;
pub mod start;
mod times;

use std::sync::OnceLock;

use clap::Subcommand;
use waypost_store::Who;

use look::{events, list, logs, show, targets};
use start::{by_name, replay};

pub use look::events::message;
pub use times::age;
pub use waypost_store::log::output_lines;

use crate::output::Result;
use crate::place::{Place, tenant};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Start a run of a playbook, or of a command: everything after `--`.
    Start(Box<start::Flags>),
    /// Let a draft loose: a bulk change whose preview you have seen.
    Queue(act::Queue),
    /// Runs, newest first.
    #[command(visible_aliases = ["ls", "ps"])]
    List(list::List),
    /// One run: how it is, what it waits for, its steps and what they gave.
    Show(show::Show),
    /// Follow a run until it is settled or waits for a person, and exit with its result.
    Watch(follow::Watch),
    /// What a run's commands printed and its workers said.
    Logs(logs::Logs),
    /// Everything that happened to a run.
    Events(events::Events),
    /// The targets of a bulk change: what they were, what they are to be, what became of each.
    Targets(targets::Targets),
    /// Ask that a run be cancelled. Waiting runs end at once; running ones are told within a second.
    Cancel(act::Cancel),
    /// Ask that a run stop and wait for a person.
    Pause(act::Pause),
    /// Let a run that waits for a person go on.
    Resume(act::Resume),
    /// Take up again what failed, in the same run.
    Retry(act::Retry),
    /// Undo a bulk change: all of its applied targets, or chosen ones.
    Rollback(act::operate::Rollback),
    /// Compare what a bulk change applied with what is there now.
    Reconcile(act::operate::Reconcile),
    /// Start a new run with the same input, or an edited one.
    Replay(replay::Replay),
    /// Give a run any command of its lifecycle: submit, approve, promote, …
    Do(act::Do),
}

pub async fn run(place: &Place, verb: Verb) -> Result<u8> {
    let opened = match &verb {
        Verb::Start(flags) if !flags.dry_run => start::opened(place, flags).await?,
        _ => place.opened_to_read().await?,
    };
    let store = opened.store();
    match verb {
        Verb::Start(flags) if flags.dry_run => by_name::dry_run(&*store, &flags).await.map(|()| 0),
        Verb::Start(flags) => start::start(opened, *flags).await,
        Verb::Queue(flags) => act::queue(opened, flags).await,
        Verb::Targets(flags) => targets::targets(&*store, flags).await.map(|()| 0),
        Verb::List(flags) => list::list(&opened, flags).await.map(|()| 0),
        Verb::Show(flags) => show::show(&*store, flags).await.map(|()| 0),
        Verb::Watch(flags) => follow::watch(&*store, flags).await,
        Verb::Logs(flags) => logs::logs(&*store, flags).await.map(|()| 0),
        Verb::Events(flags) => events::events(&*store, flags).await.map(|()| 0),
        Verb::Cancel(flags) => act::cancel(&*store, flags).await.map(|()| 0),
        Verb::Pause(flags) => act::pause(&*store, flags).await.map(|()| 0),
        Verb::Resume(flags) => act::resume(opened, flags).await,
        Verb::Retry(flags) => act::retry(opened, flags).await,
        Verb::Rollback(flags) => act::operate::rollback(opened, flags).await,
        Verb::Reconcile(flags) => act::operate::reconcile(opened, flags).await,
        Verb::Replay(flags) => replay::replay(opened, flags).await,
        Verb::Do(flags) => act::give(opened, flags).await,
    }
}

/// Who the log names for what this process asks for: as the environment says, or the system.
pub fn user() -> String {
    static USER: OnceLock<String> = OnceLock::new();
    let named =
        || ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok().filter(|it| !it.is_empty()));
    USER.get_or_init(|| named().unwrap_or_else(name_of_uid)).clone()
}

/// Containers, cron and systemd set no name: the uid has one, or is one.
fn name_of_uid() -> String {
    let uid = rustix::process::getuid().as_raw();
    let listed = std::fs::read_to_string("/etc/passwd").ok().and_then(|text| name_in(&text, uid));
    let asked = || {
        // Users that a directory service knows.
        let asked = std::process::Command::new("id").arg("-un").output().ok()?;
        let name = String::from_utf8(asked.stdout).ok()?.trim().to_owned();
        (asked.status.success() && !name.is_empty()).then_some(name)
    };
    listed.or_else(asked).unwrap_or_else(|| format!("uid-{uid}"))
}

/// `kim:x:1000:1000:…` of `/etc/passwd`.
fn name_in(passwd: &str, uid: u32) -> Option<String> {
    let of = |line: &str| {
        let mut fields = line.split(':');
        let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
        (id.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    };
    passwd.lines().find_map(of)
}

/// The same, with a reason, for what is kept in the audit log.
pub fn who(reason: Option<String>) -> Who {
    Who { tenant: tenant().to_owned(), by: user(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_has_the_name_that_the_system_gives_it() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n# no user\nkim:x:1000:1000::/home/kim:/bin/sh\n";
        assert_eq!(name_in(passwd, 1000).as_deref(), Some("kim"));
        assert_eq!(name_in(passwd, 1001), None);
    }
}
