//! Tenants in SQL: whoever calls sees the rows of its chosen tenant and moves those alone, by every view and function.
// proves U14

use std::sync::atomic::{AtomicU32, Ordering};

use waypost_store::postgres::migration_sql;

use super::kit::{Ops, open};

const CLIENT: &str = "waypost_client";
const WORKER: &str = "waypost_worker";
const ADMIN: &str = "waypost_admin";

/// Roles are the cluster's, and tests beside each other have their own.
struct World {
    ops: Ops,
    shop: String,
    both: String,
    none: String,
}

/// What a tenant has: a run in each state, a job with a step and a task, an execution.
struct Rows {
    queued: String,
    claimed: String,
    running: String,
    job: String,
    execution: String,
}

impl World {
    fn open() -> World {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let role = |name: &str| format!("waypost_test_{name}_{unique}");
        let world = World { ops: open(), shop: role("shop"), both: role("both"), none: role("none") };
        let World { ops, shop, both, none } = &world;
        ops.psql(&format!(
            "CREATE ROLE {shop} LOGIN IN ROLE {ADMIN}; CREATE ROLE {both} LOGIN IN ROLE {ADMIN}; CREATE ROLE {none} LOGIN IN ROLE {ADMIN};
             SELECT waypost.grant_tenant('{shop}', 'shop'), waypost.grant_tenant('{both}', 'shop'), waypost.grant_tenant('{both}', 'default')"
        ));
        world
    }

    fn rows(&self, tenant: &str) -> Rows {
        let ask = |sql: &str| self.ops.psql(&format!("SET waypost.tenant = '{tenant}'; {sql}"));
        let queue =
            || ask(&format!("SELECT run_id FROM ops.queue_run('p-{tenant}', 'e', '{tenant}', 'main')"));
        ask(&format!(
            "INSERT INTO ops.projects VALUES ('p-{tenant}'); INSERT INTO ops.environments VALUES ('e1', 'p-{tenant}', 'e')"
        ));
        let claim = || ask("SELECT run_id FROM ops.claim_next_run('w')");
        let (running, claimed) = (queue(), queue());
        assert_eq!([claim(), claim()], [running.clone(), claimed.clone()], "{tenant}");
        ask(&format!("SELECT ops.append_event('{running}', 'info', 'begun')"));
        let job = ask("INSERT INTO ops.jobs(job_type) VALUES ('scan') RETURNING id");
        ask(&format!("INSERT INTO ops.job_tasks(job_id, task_name) VALUES ('{job}', 't')"));
        let execution = ask("SELECT id FROM ops.claim_cron_execution('rollup', '2026-02-14 02:00+00', 'r')");
        Rows { queued: queue(), claimed, running, job, execution }
    }

    /// As this caller, with this tenant chosen. Taken back, so that the next one finds the same rows.
    fn try_as(&self, caller: &str, tenant: &str, sql: &str) -> Result<String, String> {
        let become_it = match caller {
            "" => String::new(),
            CLIENT | WORKER | ADMIN => format!("SET ROLE {caller};"),
            login => format!("SET SESSION AUTHORIZATION {login};"),
        };
        let choose =
            if tenant == UNSET { String::new() } else { format!("SET waypost.tenant = '{tenant}';") };
        self.ops
            .server
            .psql(&format!("\\set VERBOSITY verbose\nBEGIN; {become_it} {choose} {sql}; ROLLBACK;"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let World { ops, shop, both, none } = self;
        let _ = ops.server.psql(&format!("DROP ROLE IF EXISTS {shop}, {both}, {none}"));
    }
}

const UNSET: &str = "(unset)";
const SUPERUSER: &str = "";

/// What each view is asked: whose rows it shows.
const VIEWS: [(&str, &str); 8] = [
    ("runs", "SELECT string_agg(DISTINCT git_sha, ' ' ORDER BY git_sha) FROM ops.runs"),
    ("run_events", WHOSE),
    ("jobs", WHOSE),
    ("workflow_executions", WHOSE),
    ("job_tasks", WHOSE),
    (
        "sys_cron_executions",
        "SELECT string_agg(job_name, ' ' ORDER BY job_name) FROM ops.sys_cron_executions",
    ),
    ("projects", "SELECT string_agg(project_id, ' ' ORDER BY project_id) FROM ops.projects"),
    ("environments", "SELECT string_agg(project_id, ' ' ORDER BY project_id) FROM ops.environments"),
];
const WHOSE: &str = "SELECT string_agg(DISTINCT coalesce(w.tenant, 'nobody'), ' ') FROM ops.VIEW v LEFT JOIN whose w ON w.run_id = v.run_id";

fn expected(view: &str, seen: &str) -> String {
    let of = |tenant: &str| match view {
        "sys_cron_executions" if tenant == "default" => "rollup".to_owned(),
        "sys_cron_executions" => format!("{tenant}/rollup"),
        "projects" | "environments" => format!("p-{tenant}"),
        _ => tenant.to_owned(),
    };
    seen.split_whitespace().map(of).collect::<Vec<_>>().join(" ")
}

#[test]
fn views_show_the_chosen_tenant_and_nobody_elses() {
    let world = World::open();
    world.rows("default");
    world.rows("shop");
    world.ops.psql(
        "CREATE TABLE whose AS SELECT run_id, tenant FROM waypost.runs; GRANT SELECT ON whose TO PUBLIC",
    );
    const REFUSED: Option<&str> = None;
    let (shop, both, none) = (&*world.shop, &*world.both, &*world.none);
    let mut cases = Vec::new();
    for role in [CLIENT, WORKER, ADMIN, none] {
        cases.extend([
            (role, UNSET, Some("default")),
            (role, "", Some("default")),
            (role, "default", Some("default")),
            (role, "shop", REFUSED),
        ]);
    }
    cases.extend([
        (shop, UNSET, REFUSED),
        (shop, "default", REFUSED),
        (shop, "shop", Some("shop")),
        (shop, "bank", REFUSED),
        (both, UNSET, Some("default")),
        (both, "shop", Some("shop")),
        (both, "bank", REFUSED),
        (SUPERUSER, UNSET, Some("default shop")),
        (SUPERUSER, "default", Some("default")),
        (SUPERUSER, "shop", Some("shop")),
        (SUPERUSER, "bank", Some("")),
    ]);
    for (caller, tenant, seen) in cases {
        for (view, sql) in VIEWS {
            let may = view != "sys_cron_executions" || caller != CLIENT;
            let told = world.try_as(caller, tenant, &sql.replace("VIEW", view));
            match (seen, told) {
                (Some(seen), Ok(told)) if may => {
                    assert_eq!(told, expected(view, seen), "{caller} {tenant} {view}");
                }
                (_, Err(error)) if !may => assert!(error.contains("permission denied"), "{error}"),
                (None, Err(error)) => {
                    assert!(error.contains("42501: FORBIDDEN: waypost.tenant"), "{error}");
                    assert!(error.contains("HINT:"), "{error}");
                }
                (_, told) => panic!("{caller} {tenant} {view}: {told:?}"),
            }
        }
    }
}

/// A statement on one of a tenant's own; who may give it; and what becomes of it on one of another tenant's: the words of an error, or no row.
/// What does not exist is answered alike.
type Case = (&'static str, &'static [&'static str], &'static str);
const NO_ROW: &str = "";
const CASES: &[Case] = &[
    ("SELECT ops.append_event('CLAIMED', 'info', 'm')", &[WORKER, ADMIN], "WP404"),
    ("SELECT status FROM ops.heartbeat('RUNNING')", &[WORKER, ADMIN], "WP404"),
    ("SELECT status FROM ops.heartbeat('RUNNING', 'w')", &[WORKER, ADMIN], "WP404"),
    ("SELECT ops.finish_run('RUNNING', 'success')", &[WORKER, ADMIN], "WP404"),
    ("SELECT ops.finish_run('RUNNING', 'cancelled', '{}', 'w')", &[WORKER, ADMIN], "WP404"),
    ("SELECT ops.finish_run('RUNNING', 'cancelled')", &[CLIENT, WORKER, ADMIN], "WP404"),
    ("SELECT ops.finish_run('QUEUED', 'cancelled')", &[CLIENT, WORKER, ADMIN], "WP404"),
    ("SELECT waypost.ops_cancel('QUEUED', '{}')", &[CLIENT, WORKER, ADMIN], "WP404"),
    ("SELECT waypost.ops_finish('RUNNING', 'failed', '{}', NULL, NULL)", &[WORKER, ADMIN], "WP404"),
    ("SELECT status FROM ops.runs WHERE run_id = 'QUEUED'", &[CLIENT, WORKER, ADMIN], NO_ROW),
    ("SELECT status FROM ops.runs WHERE run_id = 'QUEUED' FOR UPDATE", &[ADMIN], NO_ROW),
    ("SELECT DISTINCT 1 FROM ops.run_events WHERE run_id = 'QUEUED'", &[CLIENT, WORKER, ADMIN], NO_ROW),
    ("UPDATE ops.runs SET status = 'cancelled' WHERE run_id = 'CLAIMED' RETURNING 1", &[ADMIN], NO_ROW),
    ("UPDATE ops.runs SET metadata = '{\"a\": 1}' WHERE run_id = 'CLAIMED' RETURNING 1", &[ADMIN], NO_ROW),
    ("SELECT status FROM ops.jobs WHERE id = 'JOB'", &[CLIENT, WORKER, ADMIN], NO_ROW),
    ("UPDATE ops.jobs SET status = 'cancelled' WHERE id = 'JOB' RETURNING 1", &[ADMIN], NO_ROW),
    (
        "INSERT INTO ops.jobs(job_type, parent_job_id) VALUES ('scan', 'JOB') RETURNING 1",
        &[CLIENT, ADMIN],
        "WP404",
    ),
    ("SELECT 1 FROM ops.workflow_executions WHERE job_id = 'JOB'", &[CLIENT, WORKER, ADMIN], NO_ROW),
    (
        "INSERT INTO ops.workflow_executions(job_id, step_name) VALUES ('JOB', 's') RETURNING 1",
        &[ADMIN],
        "WP404",
    ),
    (
        "UPDATE ops.workflow_executions SET step_status = 'running' WHERE job_id = 'JOB' RETURNING 1",
        &[ADMIN],
        NO_ROW,
    ),
    ("SELECT 1 FROM ops.job_tasks WHERE job_id = 'JOB'", &[CLIENT, WORKER, ADMIN], NO_ROW),
    ("INSERT INTO ops.job_tasks(job_id, task_name) VALUES ('JOB', 'u') RETURNING 1", &[ADMIN], "WP404"),
    ("UPDATE ops.job_tasks SET progress = 50 WHERE job_id = 'JOB' RETURNING 1", &[ADMIN], NO_ROW),
    ("SELECT 1 FROM ops.sys_cron_executions WHERE id = 'EXECUTION'", &[WORKER, ADMIN], NO_ROW),
    (
        "UPDATE ops.sys_cron_executions SET status = 'SUCCESS' WHERE id = 'EXECUTION' RETURNING 1",
        &[WORKER, ADMIN],
        NO_ROW,
    ),
    ("UPDATE ops.projects SET name = 'n' WHERE project_id = 'p-TENANT' RETURNING 1", &[ADMIN], NO_ROW),
    ("DELETE FROM ops.environments WHERE project_id = 'p-TENANT' RETURNING 1", &[ADMIN], NO_ROW),
    ("DELETE FROM ops.projects WHERE project_id = 'p-TENANT' RETURNING 1", &[ADMIN], NO_ROW),
    ("SELECT 1 FROM ops.queue_run('p-TENANT', 'e', 's', 'r')", &[CLIENT, ADMIN], "WP422"),
];

fn on(sql: &str, tenant: &str, rows: &Rows) -> String {
    let named = [
        ("QUEUED", &*rows.queued),
        ("CLAIMED", &rows.claimed),
        ("RUNNING", &rows.running),
        ("JOB", &rows.job),
        ("EXECUTION", &rows.execution),
        ("TENANT", tenant),
    ];
    named.into_iter().fold(sql.to_owned(), |sql, (name, value)| sql.replace(name, value))
}

/// What was answered, without the names that were asked for.
fn told(answer: Result<String, String>, rows: &Rows, tenant: &str) -> Result<String, String> {
    answer.map_err(|error| {
        let error =
            error.lines().find_map(|line| line.split_once("ERROR:")).map_or(&*error, |(_, told)| told);
        let ids = [&rows.queued, &rows.claimed, &rows.running, &rows.job, &rows.execution];
        let named = ids.into_iter().fold(error.to_owned(), |error, id| error.replace(&**id, "ID"));
        named.replace(&format!("p-{tenant}"), "ID")
    })
}

#[test]
fn functions_act_on_the_chosen_tenants_and_anothers_is_not_there() {
    let world = World::open();
    let (default, shop) = (world.rows("default"), world.rows("shop"));
    let uuid = "0190c5d2-7b5e-7000-8000-000000000001".to_owned();
    let run = "run-0190c5d2-7b5e-7000-8000-000000000001".to_owned();
    let nothing =
        Rows { queued: run.clone(), claimed: run.clone(), running: run, job: uuid.clone(), execution: uuid };
    let callers = [
        (CLIENT, UNSET, CLIENT),
        (WORKER, UNSET, WORKER),
        (ADMIN, UNSET, ADMIN),
        (&*world.none, UNSET, ADMIN),
        (&*world.both, "default", ADMIN),
        (&*world.both, "shop", ADMIN),
        (&*world.shop, "shop", ADMIN),
        (SUPERUSER, "default", ADMIN),
        (SUPERUSER, "shop", ADMIN),
    ];
    for (caller, tenant, rights) in callers {
        let (own, other) =
            if tenant == "shop" { (("shop", &shop), "default") } else { (("default", &default), "shop") };
        let foreign = if other == "shop" { &shop } else { &default };
        for (sql, may, on_foreign) in CASES {
            let ask = |tenant_of_it: &str, rows: &Rows| {
                told(world.try_as(caller, tenant, &on(sql, tenant_of_it, rows)), rows, tenant_of_it)
            };
            let [own, foreign, absent] = [ask(own.0, own.1), ask(other, foreign), ask("absent", &nothing)];
            if !may.contains(&rights) {
                let denied = own.unwrap_err();
                assert!(denied.contains("permission denied"), "{caller}: {sql}: {denied}");
                continue;
            }
            assert!(own.as_ref().is_ok_and(|told| !told.is_empty()), "{caller} {tenant}: {sql}: {own:?}");
            assert_eq!(foreign, absent, "{caller} {tenant}: {sql}");
            match foreign {
                Ok(rows) => assert_eq!((rows.as_str(), *on_foreign), ("", NO_ROW), "{caller}: {sql}"),
                Err(error) => assert!(!on_foreign.is_empty() && error.contains(on_foreign), "{sql}: {error}"),
            }
        }
    }
}

/// Who may choose any and has chosen none sees all, moves all, and makes what is new in `default`.
#[test]
fn superusers_and_the_owner_reach_all_tenants() {
    let world = World::open();
    let (default, shop) = (world.rows("default"), world.rows("shop"));
    for (sql, _, _) in
        CASES.iter().filter(|(sql, ..)| !sql.contains("queue_run") && !sql.contains("parent_job_id"))
    {
        for (tenant, rows) in [("default", &default), ("shop", &shop)] {
            let told = world.try_as(SUPERUSER, UNSET, &on(sql, tenant, rows));
            assert!(told.as_ref().is_ok_and(|told| !told.is_empty()), "{tenant}: {sql}: {told:?}");
        }
    }
    let made = "DO $$ BEGIN PERFORM ops.queue_run('p-default', 'e', 'new', 'r'); END $$; SELECT tenant FROM ops.runs WHERE git_sha = 'new'";
    assert_eq!(world.try_as(SUPERUSER, UNSET, made).as_deref(), Ok("default"));
    let claimed = "SELECT run_id FROM ops.claim_next_run('w')";
    assert_eq!(world.try_as(SUPERUSER, UNSET, claimed), Ok(default.queued.clone()));
    assert_eq!(world.try_as(SUPERUSER, "shop", claimed), Ok(shop.queued.clone()));
    let job = "INSERT INTO ops.jobs(job_type, tenant) VALUES ('scan', 'bank') RETURNING tenant";
    assert_eq!(world.try_as(SUPERUSER, UNSET, job).as_deref(), Ok("bank"));
    for tenant in ["a/b", "*"] {
        let refused = world.try_as(SUPERUSER, tenant, claimed).unwrap_err();
        assert!(refused.contains("WP422: INVALID_INPUT: waypost.tenant"), "{refused}");
    }
}

#[test]
fn an_owner_who_is_no_superuser_sees_all_and_grants() {
    let ops = open();
    let owner = format!("waypost_test_landlord_{}", std::process::id());
    let guest = format!("waypost_test_guest_{}", std::process::id());
    ops.psql(&format!("CREATE ROLE {owner}; CREATE ROLE {guest}; CREATE DATABASE {owner} OWNER {owner}"));
    let told = ops.psql(&format!(
        "\\c {owner}\nSET ROLE {owner};\n{}\nRESET ROLE; GRANT {ADMIN} TO {guest}; SET SESSION AUTHORIZATION {owner};
         DO $$ BEGIN PERFORM waypost.grant_tenant('{guest}', 'shop'); PERFORM ops.queue_run('p', 'e', 'default', 'r'); END $$;
         SET waypost.tenant = 'shop'; DO $$ BEGIN PERFORM ops.queue_run('p', 'e', 'shop', 'r'); END $$;
         SELECT string_agg(git_sha, ' ') FROM ops.runs; RESET waypost.tenant;
         SELECT string_agg(git_sha, ' ' ORDER BY git_sha) FROM ops.runs;
         RESET SESSION AUTHORIZATION; SET SESSION AUTHORIZATION {guest}; SET waypost.tenant = 'shop';
         SELECT string_agg(git_sha, ' ') FROM ops.runs;",
        migration_sql()
    ));
    ops.psql(&format!("DROP DATABASE {owner}"));
    ops.psql(&format!("DROP ROLE {owner}, {guest}"));
    assert_eq!(told.lines().rev().take(3).collect::<Vec<_>>(), ["shop", "default shop", "shop"]);
}

#[test]
fn new_rows_are_the_chosen_tenants() {
    let world = World::open();
    let ask = |caller: &str, tenant: &str, sql: &str| world.try_as(caller, tenant, sql);
    let key =
        "DO $$ BEGIN PERFORM ops.queue_run('p', 'e', 's', 'r', '{}', 'k') FROM generate_series(1, 2); END $$;
        SELECT tenant FROM ops.runs";
    let shop = &*world.shop;
    world.ops.psql("SELECT 1 FROM ops.queue_run('p', 'e', 'another body', 'r', '{}', 'k')");
    assert_eq!(ask(shop, "shop", key).as_deref(), Ok("shop"), "keys are a tenant's own");
    let job = "INSERT INTO ops.jobs(job_type) VALUES ('scan') RETURNING tenant";
    assert_eq!(ask(shop, "shop", job).as_deref(), Ok("shop"));
    let refused =
        ask(shop, "shop", "INSERT INTO ops.jobs(job_type, tenant) VALUES ('scan', 'default')").unwrap_err();
    assert!(refused.contains("WP422: INVALID_INPUT: tenant: is not the chosen one, 'shop'"), "{refused}");
    for sql in [
        "INSERT INTO ops.projects(project_id, tenant) VALUES ('p', 'default')",
        "INSERT INTO ops.projects VALUES ('p'); UPDATE ops.projects SET tenant = 'default'",
    ] {
        let refused = ask(shop, "shop", sql).unwrap_err();
        assert!(refused.contains("44000"), "{refused}");
    }
    let registered = "INSERT INTO ops.projects VALUES ('p1'); SELECT tenant FROM ops.projects";
    assert_eq!(ask(shop, "shop", registered).as_deref(), Ok("shop"));
    world.ops.psql("SET waypost.tenant = 'bank'; INSERT INTO ops.projects VALUES ('p1')");
    let any = "SELECT 1 FROM ops.queue_run('any', 'e', 's', 'r')";
    assert_eq!(ask(shop, "shop", any).as_deref(), Ok("1"), "another tenant's projects bind nobody else");
}

// proves C1
#[test]
fn a_plan_is_unique_within_a_tenant() {
    let world = World::open();
    let plan = "'2026-02-14 02:00+00'";
    let claim = |name: &str| format!("SELECT count(*) FROM ops.claim_cron_execution('{name}', {plan}, 'r')");
    let insert = |name: &str| {
        format!(
            "INSERT INTO ops.sys_cron_executions(job_name, plan_time, status) VALUES ('{name}', {plan}, 'RUNNING')
             ON CONFLICT (job_name, scope_kind, scope_id, plan_time) DO NOTHING RETURNING job_name"
        )
    };
    let (shop, none) = (&*world.shop, &*world.none);
    world.ops.psql(&claim("rollup"));
    assert_eq!(world.try_as(none, UNSET, &claim("rollup")).as_deref(), Ok("0"));
    assert_eq!(world.try_as(none, UNSET, &insert("rollup")).as_deref(), Ok(""));
    assert_eq!(world.try_as(shop, "shop", &insert("shop/rollup")).as_deref(), Ok("shop/rollup"));
    world.ops.psql(&format!("SET waypost.tenant = 'shop'; {}", claim("rollup")));
    for sql in [claim("rollup"), claim("shop/rollup")] {
        assert_eq!(world.try_as(shop, "shop", &sql).as_deref(), Ok("0"));
    }
    assert_eq!(world.try_as(shop, "shop", &insert("shop/rollup")).as_deref(), Ok(""));
    assert_eq!(
        world.ops.psql("SELECT string_agg(tenant, ' ' ORDER BY tenant) FROM waypost.runs"),
        "default shop"
    );
    for (caller, tenant, sql) in [
        (shop, "shop", insert("rollup")),
        (shop, "shop", insert("bank/rollup")),
        (shop, "shop", claim("bank/rollup")),
        (shop, "shop", claim("shop/a/b")),
        (none, UNSET, insert("shop/rollup")),
        (none, UNSET, claim("default/rollup")),
        (SUPERUSER, UNSET, insert("/rollup")),
    ] {
        let refused = world.try_as(caller, tenant, &sql).unwrap_err();
        assert!(refused.contains("WP422: INVALID_INPUT: job_name"), "{sql}: {refused}");
    }
    assert_eq!(world.ops.verify(), 2);
}

/// Who calls is whoever logged in, or the role that they set: nothing else makes a tenant theirs.
#[test]
fn nobody_pretends_to_be_somebody_else() {
    let world = World::open();
    let (shop, none) = (&*world.shop, &*world.none);
    let group = format!("{shop}_group");
    world.rows("default");
    world.ops.psql(&format!(
        "CREATE ROLE {group}; GRANT {group} TO {shop};
         CREATE SCHEMA shadow; GRANT ALL ON SCHEMA shadow TO PUBLIC;
         CREATE FUNCTION shadow.wrapped() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET waypost.tenant = 'default' RETURN (SELECT count(*) FROM ops.runs);
         ALTER FUNCTION shadow.wrapped OWNER TO {none}; GRANT EXECUTE ON FUNCTION shadow.wrapped TO PUBLIC"
    ));
    let count = "SELECT count(*) FROM ops.runs";
    for pretence in [
        format!("SET ROLE {ADMIN}; {count}"),
        format!("SET ROLE {group}; {count}"),
        format!("SET ROLE {ADMIN}; SELECT ops.queue_run('p-default', 'e', 's', 'r')"),
        "SELECT shadow.wrapped()".to_owned(),
        format!("SELECT set_config('waypost.tenant', 'default', true); {count}"),
        "CREATE FUNCTION shadow.mine() RETURNS bigint LANGUAGE sql SET waypost.tenant = 'default' RETURN (SELECT count(*) FROM ops.runs); SELECT shadow.mine()".to_owned(),
        format!(
            "CREATE FUNCTION shadow.pg_has_role(name, name, text) RETURNS boolean LANGUAGE sql RETURN true;
             CREATE FUNCTION shadow.pg_has_role(name, oid, text) RETURNS boolean LANGUAGE sql RETURN true;
             CREATE FUNCTION shadow.current_setting(text) RETURNS text LANGUAGE sql RETURN 'postgres';
             CREATE FUNCTION shadow.tenant() RETURNS text LANGUAGE sql RETURN 'default';
             CREATE TEMP TABLE tenant_grants AS SELECT 'default' AS tenant; CREATE TEMP VIEW callers_grants AS SELECT 'default' AS tenant, true AS holds;
             SET search_path = shadow, pg_temp, waypost, pg_catalog; {count}"
        ),
        format!("INSERT INTO waypost.tenant_grants VALUES (session_user::regrole, 'default'); {count}"),
        format!("SELECT waypost.grant_tenant(session_user::text, 'default'); {count}"),
        format!("SELECT waypost.revoke_tenant(session_user::text, 'shop'); {count}"),
        format!("SET ROLE {none}; {count}"),
    ] {
        let refused = world.try_as(shop, UNSET, &pretence).unwrap_err();
        assert!(refused.contains("42501"), "{pretence}: {refused}");
    }
    // A role that was granted it, and that the caller is a member of, is no pretence.
    world.ops.psql(&format!("SELECT waypost.grant_tenant('{group}', 'default')"));
    assert_eq!(world.try_as(shop, UNSET, count).as_deref(), Ok("3"), "what a group has its members have");
    let other = world.try_as(shop, UNSET, &format!("SET ROLE {ADMIN}; {count}")).unwrap_err();
    assert!(other.contains("42501"), "{other}");
    world.ops.psql(&format!("DROP OWNED BY {none}; DROP ROLE {group}"));
}

/// Whoever lost all that was granted has none, also not what those have to whom none was ever granted.
#[test]
fn what_is_revoked_is_gone() {
    let world = World::open();
    let shop = &*world.shop;
    let count = "SELECT count(*) FROM ops.claim_next_run('w')";
    assert_eq!(world.try_as(shop, "shop", count).as_deref(), Ok("0"));
    world.ops.psql(&format!("SELECT waypost.revoke_tenant('{shop}', 'shop')"));
    for tenant in ["shop", "default", UNSET] {
        let refused = world.try_as(shop, tenant, count).unwrap_err();
        assert!(refused.contains("42501: FORBIDDEN") && refused.contains("None is granted"), "{refused}");
    }
    let again = world.ops.refused(&format!("SELECT waypost.revoke_tenant('{shop}', 'shop')"));
    again.is("WP404", "p_tenant: 'shop' was not granted");
    world.ops.psql(&format!("SELECT waypost.grant_tenant('{shop}', 'shop')"));
    assert_eq!(world.try_as(shop, "shop", count).as_deref(), Ok("0"));
    world.ops.psql(&format!("ALTER ROLE {shop} RENAME TO {shop}_renamed"));
    assert_eq!(world.try_as(&format!("{shop}_renamed"), "shop", count).as_deref(), Ok("0"));
    world.ops.psql(&format!("DROP ROLE {shop}_renamed; CREATE ROLE {shop} LOGIN IN ROLE {ADMIN}"));
    assert!(
        world.try_as(shop, "shop", count).unwrap_err().contains("42501"),
        "it is another role of that name"
    );
    for (sql, code, words) in [
        ("SELECT waypost.grant_tenant('nobody at all', 'shop')", "WP404", "there is no role 'nobody at all'"),
        ("SELECT waypost.grant_tenant(NULL, 'shop')", "WP404", "there is no role null"),
        ("SELECT waypost.grant_tenant('waypost_client', 'a/b')", "WP422", "p_tenant: is no tenant"),
        ("SELECT waypost.grant_tenant('waypost_client', '')", "WP422", "p_tenant"),
        ("SELECT waypost.grant_tenant('waypost_client', '*')", "WP422", "p_tenant"),
        ("SELECT waypost.grant_tenant('waypost_client', NULL)", "WP422", "p_tenant"),
    ] {
        world.ops.refused(sql).is(code, words);
    }
    let kept = "SELECT string_agg(action || ' ' || tenant, ', ' ORDER BY number) FROM waypost.audit WHERE tenant = 'shop'";
    assert_eq!(
        world.ops.psql(kept),
        "tenant.grant shop, tenant.grant shop, tenant.revoke shop, tenant.grant shop"
    );
}

/// A condition of the caller's own is not asked about rows that are not shown.
#[test]
fn a_callers_function_sees_no_other_tenants_rows() {
    let world = World::open();
    world.rows("default");
    world.rows("shop");
    let peek = "CREATE FUNCTION pg_temp.peek(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$ BEGIN
        PERFORM set_config('peek.saw', coalesce(current_setting('peek.saw', true), '') || $1 || ' ', false); RETURN true; END $$;";
    let secrets =
        world.ops.psql("SELECT run_id FROM waypost.runs WHERE tenant = 'default' UNION SELECT 'p-default'");
    for (view, column) in [
        ("runs", "metadata::text || run_id"),
        ("run_events", "run_id"),
        ("jobs", "run_id"),
        ("workflow_executions", "run_id"),
        ("job_tasks", "run_id"),
        ("sys_cron_executions", "id::text"),
        ("projects", "project_id"),
        ("environments", "project_id"),
    ] {
        let sql = format!(
            "{peek} DO $$ BEGIN PERFORM 1 FROM ops.{view} WHERE pg_temp.peek({column}); END $$; SELECT current_setting('peek.saw')"
        );
        let saw = world.try_as(&world.shop, "shop", &sql).unwrap();
        assert!(!saw.is_empty(), "{view}");
        for secret in secrets.lines() {
            assert!(!saw.contains(secret), "{view}: {saw}");
        }
    }
}

/// Keys that the engine works out are its own: nobody takes one beforehand.
// proves X7
#[test]
fn a_clients_key_is_none_of_the_engines() {
    let world = World::open();
    for key in ["waypost:", "waypost:schedule:nightly:global:global:2026-11-15T18:09:16Z"] {
        let refused =
            world.ops.refused(&format!("SELECT ops.queue_run('p', 'e', 's', 'r', '{{}}', '{key}')"));
        refused.is("WP422", "p_idempotency_key: begins with waypost:");
        assert_eq!(refused.field, "p_idempotency_key");
    }
    world.ops.psql("SELECT ops.queue_run('p', 'e', 's', 'r', '{}', 'Waypost:x'), ops.queue_run('p', 'e', 's', 'r', '{}', 'my waypost:x')");
    assert_eq!(world.ops.psql("SELECT count(*) FROM ops.runs"), "2");
}

/// What concerns all tenants is not for somebody who was granted some.
#[test]
fn pruning_is_the_installations() {
    let world = World::open();
    let prune = "SELECT runs FROM waypost.prune()";
    for caller in [ADMIN, &world.none, SUPERUSER] {
        assert_eq!(world.try_as(caller, UNSET, prune).as_deref(), Ok("0"), "{caller}");
    }
    for caller in [&world.shop, &world.both] {
        let refused = world.try_as(caller, "shop", prune).unwrap_err();
        assert!(refused.contains("42501: FORBIDDEN: pruning"), "{refused}");
        let refused = world.try_as(caller, "shop", &format!("SET ROLE {ADMIN}; {prune}")).unwrap_err();
        assert!(refused.contains("42501: FORBIDDEN: pruning"), "{refused}");
    }
}
