//! A database with the interface in it, and short words for what the tests do there.

use waypost_kernel::{Catalog, Lifecycle};
use waypost_store::postgres::migration_sql;
use waypost_testkit::Postgres;

pub struct Ops {
    pub server: Postgres,
}

/// A statement that was refused, as psql shows it.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    pub sqlstate: String,
    pub message: String,
    pub hint: String,
    pub field: String,
}

pub fn open() -> Ops {
    Ops { server: Postgres::with_schema(&migration_sql()).unwrap() }
}

pub fn deploy() -> Lifecycle {
    Catalog::shipped().unwrap().latest("deploy").unwrap().as_ref().clone()
}

impl Ops {
    pub fn psql(&self, sql: &str) -> String {
        self.server.psql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// One statement that has to be refused.
    pub fn refused(&self, sql: &str) -> Refused {
        let script = format!("\\set VERBOSITY verbose\n{sql}");
        let Err(error) = self.server.psql(&script) else { panic!("was accepted: {sql}") };
        let after = |mark: &str| {
            let found = error.lines().find_map(|line| line.split_once(mark));
            found.map(|(_, rest)| rest.trim().to_owned()).unwrap_or_default()
        };
        let told = after("ERROR:");
        let (sqlstate, message) = told.split_once(": ").unwrap_or_else(|| panic!("{sql}: {error}"));
        Refused {
            sqlstate: sqlstate.into(),
            message: message.into(),
            hint: after("HINT:"),
            field: after("COLUMN NAME:"),
        }
    }

    /// The names of a statement's columns, as psql heads them.
    pub fn columns(&self, sql: &str) -> String {
        let shown = self.psql(&format!("\\pset tuples_only off\n\\pset footer off\n{sql}"));
        shown.lines().next().unwrap_or_default().to_owned()
    }

    pub fn queue(&self) -> String {
        self.psql("SELECT run_id FROM ops.queue_run('proj-123', 'staging', 'abc123def456', 'main')")
    }

    /// A new run, claimed by `worker-001`.
    pub fn claimed(&self) -> String {
        let run_id = self.queue();
        let claimed = self.psql("SELECT run_id FROM ops.claim_next_run('worker-001')");
        assert_eq!(claimed, run_id, "another run waits in the queue");
        run_id
    }

    /// A new run whose worker has begun.
    pub fn running(&self) -> String {
        let run_id = self.claimed();
        self.psql(&format!("SELECT ops.append_event('{run_id}', 'info', 'begun')"));
        run_id
    }

    /// Claimed with a token, as a worker of waypost's own does. Gives the run and the token.
    pub fn fenced(&self) -> (String, String) {
        let run_id = self.queue();
        let token = self
            .psql("SELECT (c.run).lease_token FROM waypost.claim_one('ops', 'deploy', 'fenced', 60000) c");
        (run_id, token)
    }

    pub fn status(&self, run_id: &str) -> String {
        self.one(run_id, "status")
    }

    /// A column of a run.
    pub fn one(&self, run_id: &str, expression: &str) -> String {
        self.psql(&format!("SELECT {expression} FROM ops.runs WHERE run_id = '{run_id}'"))
    }

    /// A run's events: `level message` by line.
    pub fn events(&self, run_id: &str) -> Vec<String> {
        let sql = format!(
            "SELECT level || ' ' || message FROM ops.run_events WHERE run_id = '{run_id}' ORDER BY seq"
        );
        self.psql(&sql).lines().map(str::to_owned).collect()
    }

    /// Moves the database's clock, ahead or back.
    pub fn clock(&self, ahead: &str) {
        self.psql(&format!("DELETE FROM waypost.clock; INSERT INTO waypost.clock VALUES ('{ahead}')"));
    }
}

impl Refused {
    pub fn is(&self, sqlstate: &str, words: &str) {
        assert!(
            self.sqlstate == sqlstate && self.message.contains(words),
            "{self:?}: not {sqlstate} {words}"
        );
        assert!(!self.hint.is_empty(), "{self:?}: says nothing of what to do next");
    }
}
