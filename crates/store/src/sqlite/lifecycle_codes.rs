//! The lifecycles that a connection knows, and the numbers by which the tables name their states. Both only grow:
//! what is not known is read again, because another process may have added it.

use std::borrow::Cow;
use std::sync::Arc;

use rusqlite::Connection;
use waypost_kernel::lifecycle::StateId;
use waypost_kernel::{Catalog, Lifecycle};

use crate::rules::lifecycles::{added, stored_source};
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
    /// How many versions there were, those included that this binary cannot read.
    count: i64,
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
            count: conn.query_row("SELECT count(*) FROM lifecycles", [], |row| row.get(0))?,
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

    /// The first of these names that there is, in this version or the latest.
    pub fn first_lifecycle(&self, names: &[Cow<'_, str>], version: Option<u32>) -> Option<Arc<Lifecycle>> {
        let find = || {
            let known = self.cache.lifecycles.borrow();
            names.iter().find_map(|name| known.catalog.find(name, version).cloned())
        };
        find().or_else(|| {
            let _ = self.read_again();
            find()
        })
    }

    /// Reads them again if another process added some. A version or a tenant's own that came so would be passed over otherwise,
    /// since there is an older or the installation's.
    pub fn learn(&self) -> Result<()> {
        let count: i64 = self.prepare("SELECT count(*) FROM lifecycles")?.query_row([], |row| row.get(0))?;
        if count == self.cache.lifecycles.borrow().count { Ok(()) } else { self.read_again() }
    }

    pub fn catalog(&self) -> Catalog {
        self.cache.lifecycles.borrow().catalog.clone()
    }

    pub fn add_lifecycle(&self, tenant: &str, source: &str) -> Result<Arc<Lifecycle>> {
        let lifecycle = added(&open::catalog(self.conn)?, tenant, source)?;
        open::add_lifecycle(self.conn, &lifecycle, &stored_source(&lifecycle, source))?;
        self.read_again()?;
        self.lifecycle(&lifecycle.name, lifecycle.version)
    }
}

fn unknown(name: &str, version: u32) -> Fault {
    StoreError::Unusable(format!("this binary does not understand lifecycle {name} version {version}")).into()
}
