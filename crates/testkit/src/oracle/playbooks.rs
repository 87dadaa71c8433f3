//! Playbooks that processes offer.

use std::collections::BTreeSet;

use waypost_kernel::Span;
use waypost_kernel::text::terminal::plain;
use waypost_store::{
    EVERY_TENANT, KEPT_VERSIONS, OfferedPlaybook, PlaybookFilter, PlaybookRow, Reply, Result, StoreError,
};

use super::MemoryStore;
use super::rules::intake::{check_name, check_tenant, check_text};
use super::state::State;

impl MemoryStore {
    pub(crate) fn offer_playbooks(&self, playbooks: Vec<OfferedPlaybook>) -> Reply<'_, ()> {
        self.verb(move |state| {
            playbooks.iter().try_for_each(check)?;
            // All or none.
            let before = state.playbooks.clone();
            for offered in playbooks {
                let tenant = offered.tenant.clone();
                state.offer(offered);
                if let Err(error) = state.make_room(&tenant) {
                    state.playbooks = before;
                    return Err(error);
                }
            }
            Ok(())
        })
    }

    pub(crate) fn withdraw_playbooks(&self, tenant: String, by: String, names: Vec<String>) -> Reply<'_, ()> {
        self.verb(move |state| {
            let is_gone =
                |it: &OfferedPlaybook| it.tenant == tenant && it.by == by && names.contains(&it.name);
            state.playbooks.retain(|row| !is_gone(&row.offered));
            Ok(())
        })
    }

    pub(crate) fn playbooks(&self, filter: PlaybookFilter) -> Reply<'_, Vec<PlaybookRow>> {
        self.verb(move |state| {
            let mut found = Vec::new();
            for row in &state.playbooks {
                let it = &row.offered;
                let is_latest = state.latest(it).is_some_and(|latest| latest.offered.hash == it.hash);
                let sees = |tenant: &String| it.tenant == *tenant || it.tenant == EVERY_TENANT;
                if filter.tenant.as_ref().is_none_or(sees)
                    && filter.name.as_ref().is_none_or(|name| *name == it.name)
                    && filter.hash.as_ref().is_none_or(|hash| it.hash.starts_with(hash))
                    && (filter.all_versions || filter.hash.is_some() || is_latest)
                {
                    let mut row = row.clone();
                    if filter.names_only {
                        row.offered.text.clear();
                    }
                    found.push(row);
                }
            }
            found.sort_by(|one, other| {
                let key = |row: &PlaybookRow| {
                    let OfferedPlaybook { name, tenant, .. } = &row.offered;
                    (name.clone(), tenant == EVERY_TENANT, tenant.clone())
                };
                key(one).cmp(&key(other)).then(other.offered_at.cmp(&one.offered_at))
            });
            Ok(found)
        })
    }
}

fn check(offered: &OfferedPlaybook) -> Result<()> {
    if offered.tenant != EVERY_TENANT {
        check_tenant(&offered.tenant)?;
    }
    let is_bad = |it: char| it == '@' || it.is_control();
    if offered.name.trim().is_empty() || offered.name.contains(is_bad) || plain(&offered.name) != offered.name
    {
        return Err(StoreError::invalid("name", "is no name of a playbook"));
    }
    check_name("name", &offered.name)?;
    check_name("by", &offered.by)?;
    check_text("hash", &offered.hash, 128)?;
    check_text("file", &offered.file, 4_096)?;
    check_text("text", &offered.text, 1_048_576)
}

impl State {
    fn offer(&mut self, offered: OfferedPlaybook) {
        let latest = self.latest(&offered).cloned();
        if latest.as_ref().is_some_and(|latest| latest.offered.hash == offered.hash) {
            return;
        }
        let after = latest.map(|latest| latest.offered_at + Span::from_ms(1));
        let offered_at = after.map_or(self.now, |after| after.max(self.now));
        let is_same = |it: &OfferedPlaybook| (&it.tenant, &it.name) == (&offered.tenant, &offered.name);
        self.playbooks.retain(|row| !is_same(&row.offered) || row.offered.hash != offered.hash);
        while self.playbooks.iter().filter(|row| is_same(&row.offered)).count() >= KEPT_VERSIONS {
            // They stand in the order of their coming.
            let oldest = self.playbooks.iter().position(|row| is_same(&row.offered)).unwrap_or_default();
            self.playbooks.remove(oldest);
        }
        self.playbooks.push(PlaybookRow { offered, offered_at });
        self.writes += 1;
    }

    /// They stand in the order of their coming, so the first that is not the latest of its name is the oldest of those.
    fn make_room(&mut self, tenant: &str) -> Result<()> {
        loop {
            let own = || self.playbooks.iter().filter(|row| row.offered.tenant == tenant);
            let names: BTreeSet<&str> = own().map(|row| row.offered.name.as_str()).collect();
            if names.len() > 1_000 {
                return Err(StoreError::invalid("playbooks", "too many names"));
            }
            if own().map(|row| row.offered.text.chars().count()).sum::<usize>() <= 4 << 20 {
                return Ok(());
            }
            let is_superseded = |row: &PlaybookRow| {
                row.offered.tenant == tenant
                    && self.latest(&row.offered).is_some_and(|latest| latest.offered.hash != row.offered.hash)
            };
            match self.playbooks.iter().position(is_superseded) {
                Some(oldest) => drop(self.playbooks.remove(oldest)),
                None => return Err(StoreError::invalid("playbooks", "too many characters")),
            }
        }
    }

    fn latest(&self, like: &OfferedPlaybook) -> Option<&PlaybookRow> {
        let is_it =
            |row: &&PlaybookRow| (&row.offered.tenant, &row.offered.name) == (&like.tenant, &like.name);
        self.playbooks.iter().rev().find(is_it)
    }
}
