//! People's commands, looking things up, and care.

use std::sync::Arc;

use waypost_kernel::lifecycle::{Actor, Phase, Transition};
use waypost_kernel::render::toml::toml;
use waypost_kernel::{Catalog, Lifecycle, Span, Time};
use waypost_store::{
    CommandWrite, CommandedClaim, EVERY_TENANT, Filter, Page, Pause, Pruned, QueueRow, Reply, Result,
    Retention, RunRow, Setting, StoreError, Take, Verified, Who,
};

use super::MemoryStore;
use super::access::check_audit;
use super::rules::intake::{check_name, check_pause, check_tenant};
use super::state::State;

impl MemoryStore {
    pub(crate) fn command(&self, command: CommandWrite) -> Reply<'_, RunRow> {
        self.verb(move |state| state.audited_command(command))
    }

    /// Two verbs in a row are one transaction here: nobody comes in between.
    pub(crate) fn command_claimed(&self, command: CommandWrite, take: Take) -> Reply<'_, CommandedClaim> {
        self.verb(move |state| {
            check_name("worker", &take.worker)?;
            let run = state.audited_command(command)?;
            let claimed = match state.own_lease(&run, &take.worker) {
                Some(claimed) => Some(claimed),
                None => match state.claim_run(run.id(), &take) {
                    Err(StoreError::Refused(_)) => None,
                    claimed => Some(claimed?),
                },
            };
            let run = claimed.as_ref().map_or(run, |claimed| claimed.run.clone());
            Ok(CommandedClaim { run, claimed })
        })
    }

    /// What the engine does is no entry of the audit log.
    pub(crate) fn acknowledge(&self, tenant: String, run_id: String, by: String) -> Reply<'_, ()> {
        self.verb(move |state| {
            let row = state.row(state.number_of(&run_id)?)?;
            if row.tenant != tenant {
                return Err(StoreError::no_run(&run_id));
            }
            let by_engine = |way: &&Transition| {
                let is_the_engines = way.by.names() == ["engine"];
                is_the_engines && row.lifecycle.phase(way.to) == Phase::Ready
            };
            let way = row.lifecycle.transitions_from(row.run.state).find(by_engine);
            let Some(way) = way.filter(|_| row.phase() == Phase::Draft) else { return Ok(()) };
            let name = way.command.to_string();
            let actor = Some(Actor::Engine);
            let write = CommandWrite { tenant, run_id, name, actor, by, ..CommandWrite::default() };
            state.command(&write).map(drop)
        })
    }

    pub(crate) fn run(&self, tenant: String, id: String) -> Reply<'_, RunRow> {
        self.verb(move |state| state.run(&tenant, &id))
    }

    pub(crate) fn runs(&self, filter: Filter) -> Reply<'_, Page> {
        self.verb(move |state| state.runs(&filter))
    }

    pub(crate) fn queues(&self, tenant: Option<String>) -> Reply<'_, Vec<QueueRow>> {
        self.verb(move |state| {
            let mut rows = state.queue_rows();
            rows.retain(|row| tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant));
            Ok(rows)
        })
    }

    pub(crate) fn configure(&self, setting: Setting, who: Who) -> Reply<'_, ()> {
        self.verb(move |state| state.configure(&setting, who))
    }

    pub(crate) fn put_retention(&self, rules: Vec<Retention>) -> Reply<'_, ()> {
        self.verb(move |state| {
            for rule in &rules {
                check_name("lifecycle", &rule.lifecycle)?;
                let kept = [rule.success, rule.failure];
                if kept.into_iter().flatten().any(|kept| kept.ms() <= 0 || kept.ms() > 3_155_760_000_000) {
                    return Err(StoreError::invalid("retention", "nothing, or more than a century"));
                }
            }
            state.retention = rules.into_iter().map(|rule| (rule.lifecycle.clone(), rule)).collect();
            Ok(())
        })
    }

    pub(crate) fn retention(&self, lifecycle: Option<String>) -> Reply<'_, Vec<Retention>> {
        self.verb(move |state| {
            let is_asked_for =
                |rule: &&Retention| lifecycle.as_ref().is_none_or(|name| *name == rule.lifecycle);
            Ok(state.retention.values().filter(is_asked_for).cloned().collect())
        })
    }

    pub(crate) fn prune(&self, limit: usize) -> Reply<'_, Pruned> {
        self.verb(move |state| Ok(state.prune(limit)))
    }

    pub(crate) fn verify(&self, progress: Arc<dyn Fn(u64, u64) + Send + Sync>) -> Reply<'_, Verified> {
        self.verb(move |state| Ok(state.verify(&*progress)))
    }

    pub(crate) fn lifecycles(&self) -> Reply<'_, Catalog> {
        self.verb(|state| Ok(state.catalog.clone()))
    }

    pub(crate) fn add_lifecycle(&self, text: String, who: Who) -> Reply<'_, Arc<Lifecycle>> {
        self.verb(move |state| {
            check_tenant(&who.tenant)?;
            let added = state.catalog.of_tenant(&who.tenant).add(&text);
            let added = added.map_err(|problems| StoreError::invalid("lifecycle", problems.to_string()))?;
            let subject = format!("{}@{}", added.name, added.version);
            check_audit(&who, "lifecycle.add", &subject)?;
            // All that it names is resolved.
            let kept = state.catalog.add_stored(&toml(&added));
            kept.map_err(|problems| StoreError::Unusable(problems.to_string()))?;
            state.audit(who, "lifecycle.add", &subject);
            Ok(added)
        })
    }

    pub(crate) fn now(&self) -> Reply<'_, Time> {
        self.verb(|state| Ok(state.now))
    }

    pub(crate) fn advance_clock(&self, by: Span) -> Reply<'_, ()> {
        self.verb(move |state| {
            if by < Span::ZERO {
                return Err(StoreError::invalid("by", "the clock goes ahead only"));
            }
            state.writes += 1;
            state.now = state.now + by;
            Ok(())
        })
    }
}

impl State {
    fn audited_command(&mut self, command: CommandWrite) -> Result<RunRow> {
        let before = self.number_of(&command.run_id).and_then(|number| Ok(self.row(number)?.run.seq));
        let row = self.command_on_proposal(&command)?;
        // What was so already is nobody's action.
        if before.ok() != Some(row.run.seq) {
            let CommandWrite { tenant, by, reason, name, .. } = command;
            self.audit(Who { tenant, by, reason }, &name, row.id());
        }
        Ok(row)
    }

    fn configure(&mut self, setting: &Setting, who: Who) -> Result<()> {
        let (action, field, name) = match setting {
            Setting::PauseQueue(queue) => ("queue.pause", "queue", queue.clone()),
            Setting::ResumeQueue(queue) => ("queue.resume", "queue", queue.clone()),
            Setting::QueueLimit(queue, _) => ("queue.limit", "queue", queue.clone()),
            Setting::KeyLimit(key, _) => ("key.limit", "name", key.clone()),
        };
        check_name(field, &name)?;
        check_name("tenant", &who.tenant)?;
        if who.tenant == EVERY_TENANT {
            return Err(StoreError::invalid("tenant", "must be one"));
        }
        let pause =
            Pause { by: who.by.clone(), reason: who.reason.clone().unwrap_or_default(), at: Some(self.now) };
        if matches!(setting, Setting::PauseQueue(_)) {
            check_pause(Some(&pause))?;
        }
        check_audit(&who, action, &name)?;
        let of = (who.tenant.clone(), name.clone());
        let settings = self.queues.get(&of).cloned().unwrap_or_default();
        let paused = settings.paused.as_ref().map(|known| (known.by.clone(), known.reason.clone()));
        let (is_so, limit) = match setting {
            Setting::PauseQueue(_) => (paused == Some((pause.by.clone(), pause.reason.clone())), None),
            Setting::ResumeQueue(_) => (paused.is_none(), None),
            Setting::QueueLimit(_, at_most) => (settings.at_most == *at_most, Some(*at_most)),
            Setting::KeyLimit(_, at_most) => (self.key_limits.get(&of).copied() == *at_most, Some(*at_most)),
        };
        if is_so {
            return Ok(());
        }
        match setting {
            Setting::PauseQueue(_) => self.queues.entry(of).or_default().paused = Some(pause),
            Setting::ResumeQueue(_) => self.queues.entry(of).or_default().paused = None,
            Setting::QueueLimit(_, at_most) => self.queues.entry(of).or_default().at_most = *at_most,
            Setting::KeyLimit(_, Some(at_most)) => drop(self.key_limits.insert(of, *at_most)),
            Setting::KeyLimit(_, None) => drop(self.key_limits.remove(&of)),
        }
        self.forget_defaults();
        self.audit(with_limit(who, limit), action, &name);
        Ok(())
    }

    /// A queue for which nothing is set is none that anybody needs to see.
    fn forget_defaults(&mut self) {
        self.queues.retain(|_, settings| settings.at_most.is_some() || settings.paused.is_some());
    }
}

/// The entry of a limit begins with it.
fn with_limit(who: Who, limit: Option<Option<u32>>) -> Who {
    let Some(limit) = limit else { return who };
    let mut words = limit.map_or("no limit".to_owned(), |limit| format!("limit {limit}"));
    if let Some(reason) = who.reason.as_ref().filter(|reason| !reason.is_empty()) {
        words = format!("{words}: {reason}");
    }
    Who { reason: Some(waypost_kernel::text::clean_chars(&words, 1_024).text), ..who }
}
