//! The lifecycles of a database, and the numbers that their states have there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio_postgres::Client;
use waypost_kernel::lifecycle::Kind;
use waypost_kernel::render::postgres::base;
use waypost_kernel::run::Text;
use waypost_kernel::{Catalog, Lifecycle, StateId};

use crate::postgres::link::fault::{Result, damaged};
use crate::postgres::link::session::Tx;
use crate::postgres::sql::{Columns, args};
use crate::seam::error::StoreError;

/// Numbers of each kind of states, all lifecycles and tenants together.
const ROOM: i64 = 1_000;

/// A state's number tells its phase. What does not fit into the room of its phase would be taken for another's.
pub async fn check_room(tx: &Tx, lifecycle: &Lifecycle) -> Result<()> {
    let mut needed: BTreeMap<i16, i64> = BTreeMap::new();
    for state in lifecycle.states.iter().filter(|_| lifecycle.kind == Kind::Run) {
        *needed.entry(base(state.phase, state.outcome)).or_default() += 1;
    }
    for (first, count) in needed {
        let sql = "SELECT count(code) FROM waypost.lifecycle_states WHERE code BETWEEN $1 AND $1 + 999";
        let taken: i64 = Columns(&tx.one(sql, args![first]).await?).get(0)?;
        if taken + count > ROOM {
            let message = format!(
                "has {count} states of a phase of which the database has {taken}; allowed: {ROOM} in all lifecycles together"
            );
            return Err(StoreError::invalid("lifecycle", message).into());
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
pub struct LifecycleCodes {
    pub catalog: Catalog,
    /// Rises with every lifecycle that is added.
    pub revision: i64,
    states: HashMap<i16, (Arc<Lifecycle>, StateId)>,
    /// By lifecycle and version, in the order of its states.
    codes: HashMap<(Text, u32), Vec<i16>>,
}

impl LifecycleCodes {
    /// A version that this binary cannot read is left alone: its runs stay where they are.
    pub async fn read(client: &Client) -> Result<LifecycleCodes> {
        // First: a lifecycle that is added meanwhile makes this one old.
        let row = client.query_typed_one("SELECT waypost.known()", &[]).await?;
        let mut known = LifecycleCodes { revision: Columns(&row).get(0)?, ..LifecycleCodes::default() };
        let sources = client
            .query_typed(
                "SELECT source FROM waypost.lifecycles WHERE source IS NOT NULL ORDER BY kind <> 'item', name, version",
                &[],
            )
            .await?;
        for row in &sources {
            let _ = known.catalog.add_stored(Columns(row).get(0)?);
        }
        let rows = client
            .query_typed(
                "SELECT lifecycle, version, state, code FROM waypost.lifecycle_states WHERE code IS NOT NULL",
                &[],
            )
            .await?;
        let mut codes: HashMap<(String, u32, String), i16> = HashMap::new();
        for row in &rows {
            let columns = Columns(row);
            let version = columns.get::<i32>(1)?.unsigned_abs();
            codes.insert((columns.get(0)?, version, columns.get(2)?), columns.get(3)?);
        }
        let runs = known.catalog.iter().filter(|lifecycle| lifecycle.kind == Kind::Run);
        for lifecycle in runs.cloned().collect::<Vec<_>>() {
            known.add(&lifecycle, &codes);
        }
        Ok(known)
    }

    fn add(&mut self, lifecycle: &Arc<Lifecycle>, codes: &HashMap<(String, u32, String), i16>) {
        let code = |id: StateId| {
            let name = (lifecycle.name.to_string(), lifecycle.version, lifecycle.state(id).name.to_string());
            codes.get(&name).copied()
        };
        let Some(own) = lifecycle.state_ids().map(code).collect::<Option<Vec<i16>>>() else { return };
        for (id, code) in lifecycle.state_ids().zip(&own) {
            self.states.insert(*code, (lifecycle.clone(), id));
        }
        self.codes.insert((lifecycle.name.clone(), lifecycle.version), own);
    }

    pub fn state(&self, code: i16) -> Option<&(Arc<Lifecycle>, StateId)> {
        self.states.get(&code)
    }

    pub fn code(&self, lifecycle: &Lifecycle, state: StateId) -> Result<i16> {
        let codes = self.codes.get(&(lifecycle.name.clone(), lifecycle.version));
        let code = codes.and_then(|codes| codes.get(usize::from(state.0))).copied();
        code.ok_or_else(|| damaged(&format!("{} {} has no numbers", lifecycle.name, lifecycle.version)))
    }

    /// The numbers of all states that fit.
    pub fn codes(&self, fits: impl Fn(&Lifecycle, StateId) -> bool) -> Vec<i16> {
        let mut codes: Vec<i16> =
            self.states.iter().filter(|(_, (of, state))| fits(of, *state)).map(|(code, _)| *code).collect();
        codes.sort_unstable();
        codes
    }
}
