//! docs/ops.md: its statements run as they stand there, and its table of refusals has them all.
// proves D2

use std::collections::BTreeSet;

use super::kit::open;

const GUIDE: &str = include_str!("../../../../../docs/ops.md");

/// The statements of a guide, block by block.
fn blocks() -> Vec<&'static str> {
    GUIDE.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn the_guides_statements_run() {
    let ops = open();
    let mut run_id = String::new();
    // Roles are the cluster's: tests beside this one have it too.
    let role = format!("waypost_test_shop_app_{}", std::process::id());
    for block in blocks() {
        ops.psql(&block.replace("run-…", &run_id).replace("shop_app", &role));
        if run_id.is_empty() {
            run_id = ops.psql("SELECT run_id FROM ops.runs");
        }
    }
    ops.psql(&format!("DROP ROLE {role}"));
    assert_eq!(blocks().len(), 11);
    assert_eq!(ops.status(&run_id), "success");
    assert_eq!(
        ops.psql("SELECT count(*) FROM releases JOIN ops.runs USING (run_id) WHERE status = 'queued'"),
        "1"
    );
    ops.psql("REVOKE waypost_client FROM CURRENT_USER");
    assert_eq!(ops.psql("SELECT status FROM ops.jobs"), "pending");
    assert_eq!(ops.verify(), 5);
}

#[test]
fn every_sqlstate_of_ours_is_in_the_guide_and_no_other() {
    let sources = waypost_store::postgres::migration_sql();
    let named = |text: &str, mark: char| -> BTreeSet<String> {
        let codes = text.split(mark).filter(|word| word.len() == 5 && word.starts_with("WP"));
        codes.map(str::to_owned).collect()
    };
    assert_eq!(named(GUIDE, '`'), named(&sources, '\''));
}
