//! The lifecycles that a connection knows, and the numbers by which the tables name their states. Both only grow:
//! what is not known is read again, because another process may have added it.

use std::sync::Arc;

use rusqlite::Connection;
use waypost_kernel::lifecycle::StateId;
use waypost_kernel::{Catalog, Lifecycle};

use crate::seam::error::StoreError;
use crate::sqlite::link::fault::{Fault, Result};
use crate::sqlite::link::hash::{QuickMap, QuickSet};
use crate::sqlite::link::open;
use crate::sqlite::link::session::Tx;

#[derive(Debug)]
pub struct LifecycleCodes {
    catalog: Catalog,
    states: QuickMap<i64, Named>,
    codes: Vec<(Arc<Lifecycle>, Vec<i64>)>,
    /// The moves that need no guard.
    steps: QuickSet<i64>,
}

/// A state by its code. The lifecycle is missing if this binary cannot read it.
#[derive(Clone, Debug)]
pub struct Named {
    pub name: Arc<str>,
    pub of: Option<(Arc<Lifecycle>, StateId)>,
}

impl LifecycleCodes {
    pub fn read(conn: &Connection) -> Result<LifecycleCodes> {
        // Of one moment: a code whose lifecycle another process adds in between would be taken for one that nobody can read.
        let one_moment = conn.is_autocommit().then(|| conn.unchecked_transaction()).transpose();
        let _one_moment = one_moment?;
        let mut known = LifecycleCodes {
            catalog: open::catalog(conn)?,
            states: QuickMap::default(),
            codes: Vec::new(),
            steps: QuickSet::default(),
        };
        let mut statement = conn.prepare("SELECT code, lifecycle, version, state FROM state_codes")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let read = || -> rusqlite::Result<(i64, String, u32, String)> {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            };
            let (code, lifecycle, version, state) = read()?;
            known.add(code, &lifecycle, version, &state);
        }
        let mut statement = conn.prepare("SELECT step FROM steps")?;
        let steps = statement.query_map([], |row| row.get(0));
        known.steps = steps.and_then(Iterator::collect)?;
        Ok(known)
    }

    fn add(&mut self, code: i64, lifecycle: &str, version: u32, state: &str) {
        let lifecycle = self.catalog.get(lifecycle, version).cloned();
        let of = lifecycle.and_then(|lifecycle| {
            let id = lifecycle.state_named(state)?;
            Some((lifecycle, id))
        });
        if let Some((lifecycle, id)) = &of {
            let place = self.codes.iter().position(|(known, _)| Arc::ptr_eq(known, lifecycle));
            let place = place.unwrap_or_else(|| {
                self.codes.push((lifecycle.clone(), vec![0; lifecycle.states.len()]));
                self.codes.len() - 1
            });
            self.codes[place].1[usize::from(id.0)] = code;
        }
        self.states.insert(code, Named { name: state.into(), of });
    }

    fn code(&self, lifecycle: &Lifecycle, state: StateId) -> Option<i64> {
        let is = |known: &Lifecycle| {
            std::ptr::eq(known, lifecycle)
                || known.name == lifecycle.name && known.version == lifecycle.version
        };
        let (_, codes) = self.codes.iter().find(|(known, _)| is(known))?;
        codes.get(usize::from(state.0)).copied()
    }
}

impl Tx<'_> {
    pub fn read_again(&self) -> Result<()> {
        self.cache.lifecycles.replace(LifecycleCodes::read(self.conn)?);
        Ok(())
    }

    pub fn code(&self, lifecycle: &Lifecycle, state: StateId) -> Result<i64> {
        let known = self.cache.lifecycles.borrow().code(lifecycle, state);
        known.ok_or_else(|| unknown(&lifecycle.name, lifecycle.version))
    }

    /// Whether the guard of a move has to be asked.
    pub fn is_guarded(&self, src: i64, dst: i64, rise: i64) -> bool {
        let step = (src * 1_048_576 + dst) * 4 + rise;
        rise > 3 || !self.cache.lifecycles.borrow().steps.contains(&step)
    }

    /// The state that a code stands for.
    pub fn named(&self, code: i64) -> Result<Named> {
        if let Some(named) = self.cache.lifecycles.borrow().states.get(&code) {
            return Ok(named.clone());
        }
        self.read_again()?;
        let known = self.cache.lifecycles.borrow().states.get(&code).cloned();
        let unknown = || StoreError::Unusable(format!("run_now.state holds {code}, which is no state"));
        Ok(known.ok_or_else(unknown)?)
    }

    /// The lifecycle that a run was born with, read again from the database if another process added it.
    pub fn lifecycle(&self, name: &str, version: u32) -> Result<Arc<Lifecycle>> {
        if let Some(known) = self.cache.lifecycles.borrow().catalog.get(name, version) {
            return Ok(known.clone());
        }
        self.read_again()?;
        let known = self.cache.lifecycles.borrow().catalog.get(name, version).cloned();
        known.ok_or_else(|| unknown(name, version))
    }

    /// The latest version of a lifecycle by name.
    pub fn latest(&self, name: &str) -> Option<Arc<Lifecycle>> {
        if self.cache.lifecycles.borrow().catalog.latest(name).is_none() {
            let _ = self.read_again();
        }
        self.cache.lifecycles.borrow().catalog.latest(name).cloned()
    }

    pub fn catalog(&self) -> Catalog {
        self.cache.lifecycles.borrow().catalog.clone()
    }

    pub fn add_lifecycle(&self, source: &str) -> Result<Arc<Lifecycle>> {
        let added = open::catalog(self.conn)?.add(source);
        let lifecycle = added.map_err(|problems| StoreError::invalid("lifecycle", problems.to_string()))?;
        open::add_lifecycle(self.conn, &lifecycle, source)?;
        self.read_again()?;
        self.lifecycle(&lifecycle.name, lifecycle.version)
    }
}

fn unknown(name: &str, version: u32) -> Fault {
    StoreError::Unusable(format!("this binary does not understand lifecycle {name} version {version}")).into()
}
