//! Five schedulers on one database, killed and frozen at random: every due plan has one success, or is counted.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Running, Shop, eventually};

const SCHEDULERS: usize = 5;
const SETTLED: Duration = Duration::from_secs(120);

/// `./scripts/soak cron` asks for more.
fn asked(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// The same numbers each time; whom they meet is up to the machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn jobs(count: u64) -> String {
    let job = |number: u64| {
        // Of both kinds: what is missed is counted, or made up for.
        let catch_up = if number.is_multiple_of(2) { "latest_only" } else { "every_plan" };
        format!(
            "[[schedule]]\nname = \"job{number}\"\ncadence = \"1s\"\ncatch_up = \"{catch_up}\"\noverlap = \"allow\"\n\
             run_timeout = \"2s\"\nstale_timeout = \"3s\"\nheartbeat = \"500ms\"\nmax_attempts = 50\nbackoff = [\"1s\"]\n\
             exec = [\"sleep\", \"0.3\"]\n\n"
        )
    };
    (0..count).map(job).collect()
}

fn scheduler(shop: &Shop) -> Running {
    shop.spawn(&["schedule", "run", "--file", "jobs.toml", "--grace", "1s"])
}

/// One that executes something just now, if one does.
fn at_work(shop: &Shop, schedulers: &[Running]) -> Option<usize> {
    let holders =
        shop.psql("SELECT DISTINCT runner_id FROM ops.sys_cron_executions WHERE status = 'RUNNING'");
    schedulers.iter().position(|it| holders.contains(&format!("-{}-", it.0.id())))
}

/// Kills or freezes one after the other; a frozen one wakes up after its leases ran out, and must write nothing.
fn torment(shop: &Shop, schedulers: &mut [Running], for_s: u64) -> (u64, u64) {
    let mut dice = Dice(11);
    let (mut kills, mut freezes) = (0, 0);
    let ends_at = Instant::now() + Duration::from_secs(for_s);
    while Instant::now() < ends_at {
        let victim = at_work(shop, schedulers).unwrap_or_else(|| dice.below(SCHEDULERS as u64) as usize);
        let until = Instant::now() + Duration::from_millis(200 + dice.below(600));
        if dice.below(3) > 0 {
            schedulers[victim].kill();
            schedulers[victim] = scheduler(shop);
            kills += 1;
            eventually("a moment", Duration::from_secs(10), || Instant::now() >= until);
        } else {
            schedulers[victim].signal("STOP");
            eventually("leases run out", Duration::from_secs(10), || {
                Instant::now() >= until + Duration::from_millis(3_500)
            });
            schedulers[victim].signal("CONT");
            freezes += 1;
        }
    }
    (kills, freezes)
}

/// One line per job, in one snapshot: planned through, skipped, executions, the first plan.
const ACCOUNT: &str = "SELECT c.schedule, extract(epoch FROM c.through)::bigint, c.counts, \
    (SELECT count(*) FROM waypost.executions e WHERE e.schedule = c.schedule AND e.plan_time <= c.through), \
    (SELECT extract(epoch FROM min(e.plan_time))::bigint FROM waypost.executions e WHERE e.schedule = c.schedule) \
  FROM waypost.schedule_scopes c WHERE c.schedule LIKE 'job%' ORDER BY 1";

/// Executions whose log tells of more than one success, or of one that is not a plan's: all are whole seconds.
const TWICE: &str = "SELECT count(*) FROM (SELECT e.plan_time FROM waypost.executions e JOIN waypost.runs r ON r.run_id = e.run_id \
    JOIN waypost.events v ON v.rid = r.rid AND v.command = 'succeed' WHERE e.schedule LIKE 'job%' \
    GROUP BY e.schedule, e.kind, e.id, e.plan_time HAVING count(*) <> 1 OR e.plan_time <> date_trunc('second', e.plan_time)) t";

fn open_until(shop: &Shop, cutoff: &str) -> u64 {
    let sql = format!(
        "SELECT count(*) FROM ops.sys_cron_executions WHERE job_name LIKE 'job%' AND created_at <= '{cutoff}' AND status <> 'SUCCESS'"
    );
    shop.psql(&sql).parse().unwrap()
}

// proves C11, C4 and C5
#[test]
fn five_schedulers_that_are_killed_and_frozen_run_every_plan_once() {
    let (count, for_s) = (asked("WAYPOST_CRON_JOBS", 6), asked("WAYPOST_CRON_SECONDS", 10));
    let shop = Shop::on_postgres();
    fs::write(shop.path("jobs.toml"), jobs(count)).unwrap();
    let mut schedulers: Vec<Running> = (0..SCHEDULERS).map(|_| scheduler(&shop)).collect();
    eventually("all jobs have begun", SETTLED, || {
        shop.psql("SELECT count(DISTINCT job_name) FROM ops.sys_cron_executions WHERE job_name LIKE 'job%' AND status = 'SUCCESS'")
            == count.to_string()
    });
    let (kills, freezes) = torment(&shop, &mut schedulers, for_s);
    let cutoff = shop.psql("SELECT waypost.now()");
    eventually("every execution begun until then has its success", SETTLED * 3, || {
        open_until(&shop, &cutoff) == 0
    });
    assert_eq!(shop.psql(TWICE), "0", "no plan succeeded twice");
    let (mut executed, mut skipped) = (0, 0);
    for line in shop.psql(ACCOUNT).lines() {
        let words: Vec<&str> = line.split('|').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let counts: Value = serde_json::from_str(words[2]).unwrap();
        let of = |name: &str| counts[name].as_u64().unwrap_or(0);
        let missed = of("superseded") + of("outside_window") + of("late") + of("overlap");
        // Second by second, without the planner: from the first plan to where planning got to.
        let owed = (number(4)..=number(1)).count() as u64;
        assert_eq!(number(3) + missed, owed, "{line}");
        executed += number(3);
        skipped += missed;
    }
    drop(schedulers);
    shop.verifies();
    let taken =
        shop.psql("SELECT count(*) FILTER (WHERE attempt > 1), max(attempt) FROM ops.sys_cron_executions");
    assert!(!taken.starts_with("0|"), "no kill met an execution");
    println!(
        "{SCHEDULERS} schedulers, {count} jobs of a second's cadence, {for_s} s, {kills} kills, {freezes} freezes: {executed} plans executed \
         with one success each, {skipped} counted as skipped; begun again | most attempts: {taken}; verify is clean"
    );
    assert!(executed > count * for_s / 4, "{executed}");
}
