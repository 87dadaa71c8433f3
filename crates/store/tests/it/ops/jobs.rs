//! Seed 003's tables, written to as its executor and its console would.
// proves J1, J3, J6, J7

use super::kit::{Ops, Refused, open};
use crate::tables::{RUNS, is_declared};

pub const BLOCKERS: &str = r#"{"esx-1": {"choices": ["power_off", "skip"]}, "esx-2": {}}"#;

impl Ops {
    pub fn job(&self) -> String {
        self.psql(
            "INSERT INTO ops.jobs(job_type, details) VALUES ('rolling_cluster_update', '{\"cluster_name\": \"c1\"}') RETURNING id",
        )
    }

    pub fn set_job(&self, id: &str, set: &str) -> String {
        self.psql(&format!("UPDATE ops.jobs SET {set} WHERE id = '{id}' RETURNING status"))
    }

    pub fn set_job_refused(&self, id: &str, set: &str) -> Refused {
        self.refused(&format!("UPDATE ops.jobs SET {set} WHERE id = '{id}'"))
    }

    /// A job that somebody works from SQL.
    pub fn begun_job(&self) -> String {
        let id = self.job();
        assert_eq!(self.set_job(&id, "status = 'running', claimed_by = 'executor-1'"), "running");
        id
    }

    pub fn paused_job(&self) -> String {
        let id = self.begun_job();
        let details = format!(r#"{{"awaiting_blocker_resolution": true, "current_blockers": {BLOCKERS}}}"#);
        assert_eq!(
            self.set_job(&id, &format!("status = 'paused', details = details || '{details}'")),
            "paused"
        );
        id
    }

    pub fn of_job(&self, id: &str, expression: &str) -> String {
        self.psql(&format!("SELECT {expression} FROM ops.jobs WHERE id = '{id}'"))
    }

    pub fn steps(&self, id: &str) -> String {
        self.psql(&format!("SELECT string_agg(step_name || '=' || step_status, ' ' ORDER BY step_number) FROM ops.workflow_executions WHERE job_id = '{id}'"))
    }

    /// The commands in its log.
    fn log_of(&self, id: &str) -> String {
        self.psql(&format!("SELECT string_agg(e.command, ' ' ORDER BY e.seq) FROM waypost.events e JOIN waypost.runs r USING (rid) WHERE r.run_id = '{id}'"))
    }
}

/// Pre-flight, blockers, a pause, decisions in the console, the rest: every statement as the seed's programs make it.
#[test]
fn a_job_is_worked_from_sql_alone() {
    let ops = open();
    let id = ops.job();
    assert_eq!(
        ops.of_job(&id, "status, job_type, started_at IS NULL, completed_at IS NULL, schedule_at IS NULL"),
        "pending|rolling_cluster_update|t|t|t"
    );
    ops.psql(&format!(
        "INSERT INTO ops.workflow_executions(job_id, step_number, step_name, step_status, host_id)
           VALUES ('{id}', 1, 'Pre-flight checks', 'pending', NULL), ('{id}', 2, 'Update host: esx-1', NULL, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')"
    ));
    let steps = ops.psql("SELECT string_agg(step_number || ' ' || step_name, ', ' ORDER BY step_number) FROM ops.workflow_executions");
    assert_eq!(
        steps, "1 Pre-flight checks, 2 Update host: esx-1",
        "the numbers that were given, and no step that was made up"
    );
    ops.set_job(&id, "status = 'running', claimed_by = 'executor-1', started_at = now()");
    assert_eq!(ops.of_job(&id, "status, claimed_by, started_at IS NOT NULL"), "running|executor-1|t");
    let step = |name: &str, set: &str| {
        ops.psql(&format!(
            "UPDATE ops.workflow_executions SET {set} WHERE job_id = '{id}' AND step_name = '{name}'"
        ));
    };
    step("Pre-flight checks", "step_status = 'running', step_started_at = now()");
    step(
        "Pre-flight checks",
        r#"step_details = step_details || '{"progress_pct": 40, "host_name": "esx-1"}'"#,
    );
    step("Pre-flight checks", "step_status = 'completed', step_completed_at = now()");
    step("Update host: esx-1", "step_status = 'running'");
    ops.psql(&format!("INSERT INTO ops.job_tasks(job_id, task_name, server_id, status, progress) VALUES ('{id}', 'firmware', 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'running', 10)"));
    ops.psql("UPDATE ops.job_tasks SET progress = 60, log = 'BIOS 2.1'");
    assert_eq!(
        ops.psql("SELECT status, progress, log, server_id FROM ops.job_tasks"),
        "running|60|BIOS 2.1|b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    );
    let details = format!(
        r#"{{"awaiting_blocker_resolution": true, "current_blockers": {BLOCKERS}, "pause_reason": "2 hosts"}}"#
    );
    ops.set_job(&id, &format!("status = 'paused', details = details || '{details}'"));
    assert_eq!(ops.steps(&id), "Pre-flight checks=completed Update host: esx-1=paused");
    ops.set_job(
        &id,
        r#"status = 'pending', details = details || '{"awaiting_blocker_resolution": false, "maintenance_blocker_resolutions": {"esx-1": "skip", "esx-2": {"decision": "power_off", "reason": "tonight"}}}'"#,
    );
    assert_eq!(
        ops.of_job(&id, "details -> 'awaiting_blocker_resolution', details #>> '{maintenance_blocker_resolutions,esx-2,reason}', details ->> 'cluster_name'"),
        "false|tonight|c1"
    );
    assert_eq!(ops.steps(&id), "Pre-flight checks=completed Update host: esx-1=pending");
    ops.set_job(&id, "status = 'running', claimed_by = 'executor-2'");
    step("Update host: esx-1", "step_status = 'running'");
    step("Update host: esx-1", "step_status = 'skipped'");
    ops.psql("UPDATE ops.job_tasks SET status = 'completed'");
    ops.set_job(
        &id,
        r#"status = 'completed', completed_at = now(), details = details || '{"hosts_completed": 1}'"#,
    );
    assert_eq!(
        ops.of_job(&id, "status, completed_at >= started_at, claimed_by, attempt, error_code IS NULL"),
        "completed|t|executor-2|2|t"
    );
    assert_eq!(ops.steps(&id), "Pre-flight checks=completed Update host: esx-1=skipped");
    assert_eq!(ops.psql("SELECT status, progress FROM ops.job_tasks"), "completed|100");
    assert_eq!(
        ops.log_of(&id),
        "create items items claim items items items items items items items pause resume claim items items items complete"
    );
    assert_eq!(ops.verify(), 1);
}

#[test]
fn a_cancel_takes_steps_and_tasks_along() {
    let ops = open();
    for begin in ["", "status = 'running', claimed_by = 'executor-1'"] {
        let id = ops.job();
        if !begin.is_empty() {
            ops.set_job(&id, begin);
            ops.psql(&format!(
                "UPDATE ops.workflow_executions SET step_status = 'running' WHERE job_id = '{id}'"
            ));
        }
        ops.psql(&format!("INSERT INTO ops.job_tasks(job_id, task_name) VALUES ('{id}', 't')"));
        assert_eq!(
            ops.set_job(
                &id,
                r#"status = 'cancelled', details = details || '{"cancel_reason": "not today"}'"#
            ),
            "cancelled"
        );
        assert_eq!(
            ops.of_job(&id, "error_code, error_msg, completed_at IS NOT NULL"),
            "CANCELLED|not today|t"
        );
        let expected = if begin.is_empty() { "run=skipped" } else { "run=failed" };
        assert_eq!(ops.steps(&id), expected);
        let task = format!("SELECT status, error_code, log FROM ops.job_tasks WHERE job_id = '{id}'");
        assert_eq!(ops.psql(&task), "failed|CANCELLED|not today");
    }
    let id = ops.paused_job();
    assert_eq!(ops.set_job(&id, "status = 'cancelled'"), "cancelled");
    assert_eq!(ops.verify(), 3);
}

#[test]
fn details_are_merged_and_a_finished_jobs_stay() {
    let ops = open();
    let id = ops.job();
    let lines = "(SELECT jsonb_agg('line ' || n) FROM generate_series(1, 130) n)";
    ops.set_job(&id, r#"details = '{"current_step": "scan"}'"#);
    assert_eq!(ops.of_job(&id, "details"), r#"{"cluster_name": "c1", "current_step": "scan"}"#);
    ops.set_job(&id, &format!("details = jsonb_build_object('console_log', {lines})"));
    assert_eq!(
        ops.of_job(&id, "jsonb_array_length(details -> 'console_log'), details #>> '{console_log,0}', details #>> '{console_log,-1}', details ->> 'current_step'"),
        "100|line 31|line 130|scan"
    );
    ops.set_job_refused(&id, r#"details = '{"console_log": "text"}'"#).is("WP422", "details.console_log");
    ops.set_job_refused(&id, "details = '[]'").is("WP422", "details: is of type array");
    ops.set_job_refused(&id, "details = NULL").is("WP422", "details");
    let events = ops.of_job(&id, "(SELECT seq FROM waypost.runs r WHERE r.run_id = jobs.run_id)");
    ops.set_job(&id, "details = details");
    assert_eq!(
        ops.of_job(&id, "(SELECT seq FROM waypost.runs r WHERE r.run_id = jobs.run_id)"),
        events,
        "no event"
    );
    // It is still found: its place in the queue went along.
    ops.set_job(&id, "status = 'running', claimed_by = 'e'");
    ops.set_job(&id, "status = 'completed'");
    ops.set_job_refused(&id, r#"details = details || '{"late": 1}'"#).is("WP409", "SETTLED");
    ops.set_job_refused(&id, "details = '{}'").is("WP409", "SETTLED");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn the_first_decision_of_a_pause_counts() {
    let ops = open();
    let id = ops.paused_job();
    let decide =
        |what: &str| format!(r#"details = details || '{{"maintenance_blocker_resolutions": {what}}}'"#);
    ops.set_job(&id, &decide(r#"{"esx-1": {"decision": "skip", "by": "ann"}}"#));
    ops.set_job(&id, &decide(r#"{"esx-1": "skip"}"#));
    assert_eq!(ops.of_job(&id, "details #>> '{maintenance_blocker_resolutions,esx-1,by}'"), "ann");
    ops.set_job_refused(&id, &decide(r#"{"esx-1": "power_off"}"#))
        .is("WP409", "DECIDED: esx-1 was decided already: skip by ann");
    for (what, told) in [
        (r#"{"esx-2": ""}"#, "needs a decision"),
        (r#"{"esx-2": 7}"#, "needs a decision"),
        (r#"{"esx-9": "skip"}"#, "nothing is asked about 'esx-9'"),
        ("[]", "is of type array"),
    ] {
        ops.set_job_refused(&id, &decide(what)).is("WP422", told);
    }
    ops.set_job_refused(&id, "status = 'pending'").is("WP409", "waits for decisions about esx-2");
    ops.set_job(&id, &format!("status = 'pending', {}", decide(r#"{"esx-2": "skip"}"#)));
    ops.set_job_refused(&id, &decide(r#"{"esx-2": "power_off"}"#)).is("WP409", "DECIDED");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn a_forced_resume_is_forced_once() {
    let ops = open();
    let id = ops.paused_job();
    ops.set_job_refused(&id, "status = 'pending'").is("WP409", "waits for decisions about esx-1, esx-2");
    assert_eq!(
        ops.set_job(&id, r#"status = 'pending', details = details || '{"force_resumed": true}'"#),
        "pending"
    );
    ops.set_job(&id, "status = 'running', claimed_by = 'e'");
    ops.set_job(&id, r#"status = 'paused', details = details || '{"pause_reason": "again"}'"#);
    ops.set_job_refused(&id, "status = 'pending'").is("WP409", "waits for decisions");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn a_new_job_is_what_was_asked_for() {
    let ops = open();
    let id = "0190c5d2-7b5e-7000-8000-000000000001";
    ops.psql(&format!(
        "INSERT INTO ops.jobs(id, job_type, schedule_at, details, input, priority, queue, first_step)
           VALUES ('{id}', 'scan', now() + interval '1 hour', '{{\"cluster_id\": \"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\"}}', '{{\"cluster\": \"c1\"}}', 5, 'night', 'Pre-flight checks')"
    ));
    assert_eq!(
        ops.of_job(id, "job_type, status, schedule_at > now(), input, priority, queue, playbook, run_id"),
        format!("scan|pending|t|{{\"cluster\": \"c1\"}}|5|night|scan|{id}")
    );
    let step = ops.psql("SELECT step_number, step_name, step_status, workflow_type, cluster_id, host_id IS NULL, created_at <= now(), id = md5(run_id || chr(10) || 'step' || chr(10) || step_key)::uuid FROM ops.workflow_executions");
    assert_eq!(step, "1|Pre-flight checks|pending|scan|a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11|t|t|t");
    ops.set_job_refused(id, "status = 'running', claimed_by = 'e'").is("WP409", "NOT_DUE");
    ops.set_job_refused(id, "status = 'running'").is("WP422", "claimed_by: is null");
    for (columns, values, told) in [
        ("job_type, status", "'x', 'running'", "WP409 INVALID_TRANSITION: a job does not start as 'running'"),
        ("job_type", "NULL", "WP422 job_type: is null"),
        ("job_type", "''", "WP422 job_type: is empty"),
        ("job_type, details", "'x', '[]'", "WP422 details: is of type array"),
        ("job_type, input", "'x', '7'", "WP422 input: is of type number"),
        ("job_type, claimed_by", "'x', 'me'", "WP409 IMMUTABLE"),
        ("job_type, playbook", "'x', 'y@1'", "WP422 playbook"),
        ("job_type, parent_job_id", "'x', gen_random_uuid()", "WP404 parent_job_id"),
    ] {
        let (sqlstate, words) = told.split_once(' ').unwrap();
        ops.refused(&format!("INSERT INTO ops.jobs({columns}) VALUES ({values})")).is(sqlstate, words);
    }
    ops.refused("DELETE FROM ops.jobs").is("WP405", "APPEND_ONLY");
    ops.refused("DELETE FROM ops.workflow_executions").is("WP405", "APPEND_ONLY");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn only_status_and_details_of_a_job_are_anybodys() {
    let ops = open();
    let id = ops.begun_job();
    for set in [
        "id = gen_random_uuid()",
        "job_type = 'x'",
        "schedule_at = now()",
        "created_at = now()",
        "claimed_by = 'me'",
        "started_at = NULL",
        "completed_at = now()",
        "input = '{}', metadata = '{\"a\": 1}'",
        "queue = 'q'",
        "priority = 9",
        "error_code = 'X'",
        "lease_expires_at = now()",
    ] {
        ops.set_job_refused(&id, set).is("WP409", "IMMUTABLE");
    }
    let step = |set: &str| ops.refused(&format!("UPDATE ops.workflow_executions SET {set}"));
    step("step_name = 'x'").is("WP409", "IMMUTABLE");
    step("step_status = 'completed'").is("WP409", "INVALID_TRANSITION: no completed from pending");
    step("step_status = 'nonsense'").is("WP409", "INVALID_TRANSITION");
    step("step_details = '[]'").is("WP422", "step_details");
    ops.set_job(&id, "status = 'failed', error_code = 'NO_HOSTS', error_msg = 'none left'");
    assert_eq!(ops.of_job(&id, "error_code, error_msg"), "NO_HOSTS|none left");
    step("step_status = 'running'").is("WP409", "SETTLED");
    assert_eq!(ops.verify(), 1);
}

/// All pairs of states: what the seed's table has is accepted and verifies, all else is refused.
#[test]
fn every_pair_of_a_jobs_states_is_judged() {
    let ops = open();
    let catalog = waypost_kernel::Catalog::shipped().unwrap();
    let lifecycle = catalog.latest("job").unwrap();
    let mut judged = 0;
    for from in lifecycle.state_ids() {
        for to in lifecycle.state_ids().filter(|to| *to != from) {
            let (was, will) = (&*lifecycle.state(from).name, &*lifecycle.state(to).name);
            let id = match was {
                "pending" => ops.job(),
                "paused" => ops.paused_job(),
                _ => ops.begun_job(),
            };
            if was != ops.of_job(&id, "status") {
                ops.set_job(&id, &format!("status = '{was}'"));
            }
            let set = format!(
                r#"status = '{will}', claimed_by = coalesce(claimed_by, 'me'), details = details || '{{"pause_reason": "look", "force_resumed": true}}'"#
            );
            if is_declared(&RUNS, "job", was, will) {
                assert_eq!(ops.set_job(&id, &set), will);
            } else {
                ops.set_job_refused(&id, &set).is("WP409", "INVALID_TRANSITION");
                assert_eq!(ops.of_job(&id, "status"), was);
            }
            judged += 1;
        }
    }
    assert_eq!(ops.verify(), judged);
}

/// What one job is asked about is looked up alone, and views are joined without looking through one for each row of the other.
#[test]
fn jobs_and_their_parts_are_found_by_index_and_joined_by_hash() {
    let ops = open();
    ops.psql("INSERT INTO ops.jobs(job_type) SELECT 'x' FROM generate_series(1, 300); ANALYZE");
    let id = ops.psql("SELECT id FROM ops.jobs LIMIT 1");
    for (view, column) in [
        ("jobs", "id"),
        ("workflow_executions", "job_id"),
        ("workflow_executions", "run_id"),
        ("job_tasks", "job_id"),
    ] {
        let plan = ops.psql(&format!("EXPLAIN SELECT * FROM ops.{view} WHERE {column} = '{id}'"));
        let is_found = plan.contains("runs_uuid") || plan.contains("runs_id");
        assert!(is_found && !plan.contains("Seq Scan on runs"), "{view}.{column}: {plan}");
    }
    for parts in ["workflow_executions", "job_tasks"] {
        let plan = ops
            .psql(&format!("EXPLAIN SELECT count(*) FROM ops.{parts} w JOIN ops.jobs j ON j.id = w.job_id"));
        let compares_ids = |line: &str| line.contains("Join Filter") && line.contains("CASE WHEN");
        assert!(plan.contains("Hash Join") && !plan.lines().any(compares_ids), "{parts}: {plan}");
    }
}
