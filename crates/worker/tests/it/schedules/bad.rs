//! Hand-written mistakes: each an edit of the sound file, with the rule, the line and the field that must be told.

use waypost_worker::playbook::Problem;

use super::{SOUND, judge};

/// What stands in the sound file, what stands there instead, the rule, how many lines below the edit's first it
/// is told, and the field.
type Edit = (&'static str, &'static str, &'static str, isize, &'static str);

// proves C8
#[test]
fn a_hundred_bad_files_are_told_with_line_and_field() {
    assert!(EDITS.len() >= 100, "{}", EDITS.len());
    let mut wrong = Vec::new();
    for (old, new, rule, below, field) in EDITS {
        let at = SOUND.find(old).unwrap_or_else(|| panic!("{old:?} is not in the sound file"));
        let line = (1 + SOUND[..at].matches('\n').count()).saturating_add_signed(*below);
        let text = SOUND.replacen(old, new, 1);
        match judge(&text) {
            Ok(_) => wrong.push(format!("{new:?} is accepted, not {rule}")),
            Err(problems) => {
                let told = |problem: &Problem| {
                    (problem.rule, problem.line, problem.field.as_str()) == (*rule, line, *field)
                };
                if !problems.0.iter().any(told) {
                    wrong.push(format!("{new:?} should be {rule} of {field} in line {line}:\n{problems}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[rustfmt::skip]
const EDITS: &[Edit] = &[
    ("name = \"nightly-backup\"", "name = \"\"", "empty", 0, "schedule[0].name"),
    ("name = \"nightly-backup\"", "name = \"a b\"", "bad-name", 0, "schedule[0].name"),
    ("name = \"nightly-backup\"", "name = 7", "wrong-type", 0, "schedule[0].name"),
    ("name = \"nightly-backup\"", "name = \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"", "bad-name", 0, "schedule[0].name"),
    ("name = \"rollup\"", "name = \"nightly-backup\"", "duplicate-name", 0, "schedule[1].name"),
    ("[[schedule]]\nname = \"nightly-backup\"\n", "[[schedule]]\n", "missing-key", 0, "schedule[0].name"),
    ("cron = \"0 2 * * *\"", "cron = \"\"", "empty", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 2 * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 0 2 * * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"60 2 * * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 24 * * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 2 0 * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 2 32 * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 2 * 13 *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 2 * * 8\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 2 * * MOND\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"@daily\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"*/0 * * * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"*/90 * * * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"5/15 2 * * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 5-2 * * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 2 30 2 *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 2 L * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 2 ? * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"a b c d e\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 2 * * 1-\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0,,5 2 * * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"-1 2 * * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 2 1.5 * *\"", "bad-cron", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = 5", "wrong-type", 0, "schedule[0].cron"),
    ("cron = \"0 2 * * *\"", "cron = \"0 2 * * *\"\ncadence = \"5m\"", "bad-schedule", 1, "schedule[0].cadence"),
    ("cron = \"0 2 * * *\"", "", "bad-schedule", -3, "schedule[0]"),
    ("cron = \"0 2 * * *\"", "crom = \"0 2 * * *\"", "unknown-key", 0, "schedule[0].crom"),
    ("timezone = \"Europe/Kyiv\"", "timezone = \"Europe/Nowhere\"", "bad-timezone", 0, "schedule[0].timezone"),
    ("timezone = \"Europe/Kyiv\"", "timezone = \"+02:00\"", "bad-timezone", 0, "schedule[0].timezone"),
    ("timezone = \"Europe/Kyiv\"", "timezone = \"CEST-1\"", "bad-timezone", 0, "schedule[0].timezone"),
    ("timezone = \"Europe/Kyiv\"", "timezone = \"../etc\"", "bad-timezone", 0, "schedule[0].timezone"),
    ("timezone = \"Europe/Kyiv\"", "timezone = 2", "wrong-type", 0, "schedule[0].timezone"),
    ("timezone = \"Europe/Kyiv\"", "delay = \"5m\"", "misplaced-key", 0, "schedule[0].delay"),
    ("catch_up = \"latest_only\"", "catch_up = \"all\"", "unknown-word", 0, "schedule[0].catch_up"),
    ("catch_up = \"latest_only\"", "catch_up = true", "wrong-type", 0, "schedule[0].catch_up"),
    ("overlap = \"skip\"", "overlap = \"wait\"", "unknown-word", 0, "schedule[0].overlap"),
    ("run_timeout = \"25m\"", "run_timeout = \"0s\"", "bad-duration", 0, "schedule[0].run_timeout"),
    ("run_timeout = \"25m\"", "run_timeout = \"5\"", "bad-duration", 0, "schedule[0].run_timeout"),
    ("run_timeout = \"25m\"", "run_timeout = \"-5m\"", "bad-duration", 0, "schedule[0].run_timeout"),
    ("run_timeout = \"25m\"", "run_timeout = 5", "wrong-type", 0, "schedule[0].run_timeout"),
    ("stale_timeout = \"30m\"", "stale_timeout = \"0s\"", "bad-duration", 0, "schedule[0].stale_timeout"),
    ("stale_timeout = \"30m\"", "stale_timeout = \"5\"", "bad-duration", 0, "schedule[0].stale_timeout"),
    ("stale_timeout = \"30m\"", "stale_timeout = \"-5m\"", "bad-duration", 0, "schedule[0].stale_timeout"),
    ("stale_timeout = \"30m\"", "stale_timeout = 5", "wrong-type", 0, "schedule[0].stale_timeout"),
    ("heartbeat = \"30s\"", "heartbeat = \"0s\"", "bad-duration", 0, "schedule[0].heartbeat"),
    ("heartbeat = \"30s\"", "heartbeat = \"5\"", "bad-duration", 0, "schedule[0].heartbeat"),
    ("heartbeat = \"30s\"", "heartbeat = \"-5m\"", "bad-duration", 0, "schedule[0].heartbeat"),
    ("heartbeat = \"30s\"", "heartbeat = 5", "wrong-type", 0, "schedule[0].heartbeat"),
    ("catch_up_window = \"24h\"", "catch_up_window = \"0s\"", "bad-duration", 0, "schedule[0].catch_up_window"),
    ("catch_up_window = \"24h\"", "catch_up_window = \"5\"", "bad-duration", 0, "schedule[0].catch_up_window"),
    ("catch_up_window = \"24h\"", "catch_up_window = \"-5m\"", "bad-duration", 0, "schedule[0].catch_up_window"),
    ("catch_up_window = \"24h\"", "catch_up_window = 5", "wrong-type", 0, "schedule[0].catch_up_window"),
    ("run_timeout = \"25m\"", "run_timeout = \"30m\"", "bad-schedule", 1, "schedule[0].stale_timeout"),
    ("stale_timeout = \"30m\"", "stale_timeout = \"25m\"", "bad-schedule", 0, "schedule[0].stale_timeout"),
    ("stale_timeout = \"30m\"", "stale_timeout = \"20s\"", "bad-schedule", 1, "schedule[0].heartbeat"),
    ("heartbeat = \"30s\"", "heartbeat = \"30m\"", "bad-schedule", 0, "schedule[0].heartbeat"),
    ("catch_up_window = \"24h\"", "catch_up_window = \"48h\"", "misplaced-key", 0, "schedule[0].catch_up_window"),
    ("max_attempts = 3", "max_attempts = 0", "bad-number", 0, "schedule[0].max_attempts"),
    ("max_attempts = 3", "max_attempts = 101", "bad-number", 0, "schedule[0].max_attempts"),
    ("max_attempts = 3", "max_attempts = \"3\"", "wrong-type", 0, "schedule[0].max_attempts"),
    ("max_attempts = 3", "max_attempts = 2.5", "wrong-type", 0, "schedule[0].max_attempts"),
    ("backoff = [\"1m\", \"5m\", \"15m\"]", "backoff = \"1m\"", "wrong-type", 0, "schedule[0].backoff"),
    ("backoff = [\"1m\", \"5m\", \"15m\"]", "backoff = [\"1m\", \"soon\"]", "bad-duration", 0, "schedule[0].backoff[1]"),
    ("backoff = [\"1m\", \"5m\", \"15m\"]", "backoff = [60]", "wrong-type", 0, "schedule[0].backoff[0]"),
    ("reentry = true", "reentry = \"yes\"", "wrong-type", 0, "schedule[0].reentry"),
    ("max_plans_per_tick = 3", "max_plans_per_tick = 0", "bad-number", 0, "schedule[0].max_plans_per_tick"),
    ("max_plans_per_tick = 3", "max_plans_per_tick = 5", "misplaced-key", 0, "schedule[0].max_plans_per_tick"),
    ("max_lateness = \"never\"", "max_lateness = \"soon\"", "bad-duration", 0, "schedule[0].max_lateness"),
    ("max_lateness = \"never\"", "max_lateness = 10", "wrong-type", 0, "schedule[0].max_lateness"),
    ("jitter = \"0s\"", "jitter = \"much\"", "bad-duration", 0, "schedule[0].jitter"),
    ("jitter = \"0s\"", "jitter = \"2h\"", "bad-schedule", 0, "schedule[0].jitter"),
    ("jitter = \"0s\"", "jitter = 0", "wrong-type", 0, "schedule[0].jitter"),
    ("delay = \"5m\"\n", "delay = \"5m\"\njitter = \"6m\"\n", "bad-schedule", 1, "schedule[1].jitter"),
    ("scopes = { kind = \"global\" }", "scopes = { kind = \"global\", ids = [\"a\"] }", "bad-scopes", 0, "schedule[0].scopes.ids"),
    ("scopes = { kind = \"global\" }", "scopes = { kind = \"shop\" }", "bad-scopes", 0, "schedule[0].scopes"),
    ("scopes = { kind = \"global\" }", "scopes = { }", "missing-key", 0, "schedule[0].scopes.kind"),
    ("scopes = { kind = \"global\" }", "scopes = \"global\"", "wrong-type", 0, "schedule[0].scopes"),
    ("scopes = { kind = \"global\" }", "scopes = { kind = \"shop\", ids = [\"a\", \"a\"] }", "bad-scopes", 0, "schedule[0].scopes.ids[1]"),
    ("scopes = { kind = \"global\" }", "scopes = { kind = \"shop\", ids = [] }", "empty", 0, "schedule[0].scopes.ids"),
    ("scopes = { kind = \"global\" }", "scopes = { kind = \"shop\", ids = [1] }", "wrong-type", 0, "schedule[0].scopes.ids[0]"),
    ("scopes = { kind = \"global\" }", "scopes = { kind = \"shop\", ids = [\"a\"], sql = \"SELECT 1\" }", "bad-scopes", 0, "schedule[0].scopes.sql"),
    ("scopes = { kind = \"global\" }", "scopes = { kind = \"shop\", sql = \"\" }", "empty", 0, "schedule[0].scopes.sql"),
    ("scopes = { kind = \"global\" }", "scopes = { kind = \"shop\", file = \"x\" }", "unknown-key", 0, "schedule[0].scopes.file"),
    ("scopes = { kind = \"global\" }", "scopes = { kind = \"shop\", http = { method = \"GET\" } }", "missing-key", 0, "schedule[0].scopes.http.url"),
    ("scopes = { kind = \"global\" }", "scopes = { kind = \"shop\", ids = [\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"] }", "bad-scopes", 0, "schedule[0].scopes.ids[0]"),
    ("secrets = { token = \"env:BACKUP_TOKEN\" }", "secrets = { token = \"hunter2\" }", "bad-reference", 0, "schedule[0].secrets.token"),
    ("exec = [\"./backup.sh\", \"{{ inputs.plan_time }}\"]", "exec = \"./backup.sh\"", "wrong-type", 0, "schedule[0].exec"),
    ("exec = [\"./backup.sh\", \"{{ inputs.plan_time }}\"]", "exec = []", "empty", 0, "schedule[0].exec"),
    ("exec = [\"./backup.sh\", \"{{ inputs.plan_time }}\"]", "exec = [\"{{ inputs.x }}\"]", "bad-command", 0, "schedule[0].exec[0]"),
    ("exec = [\"./backup.sh\", \"{{ inputs.plan_time }}\"]", "exec = [\"sh\", \"-c\", \"echo {{ inputs.x }}\"]", "shell-template", 0, "schedule[0].exec[2]"),
    ("exec = [\"./backup.sh\", \"{{ inputs.plan_time }}\"]", "exec = [\"a\", \"{{ inputs. }}\"]", "template-syntax", 0, "schedule[0].exec[1]"),
    ("exec = [\"./backup.sh\", \"{{ inputs.plan_time }}\"]", "exec = [\"a\", \"{{ secrets.token }}\"]", "secret-exposed", 0, "schedule[0].exec[1]"),
    ("exec = [\"./backup.sh\", \"{{ inputs.plan_time }}\"]", "exec = [\"a\", \"{{ scope }}\"]", "unknown-variable", 0, "schedule[0].exec[1]"),
    ("exec = [\"./backup.sh\", \"{{ inputs.plan_time }}\"]", "exec = [\"a\"]\nhttp = { url = \"https://x.y\" }", "one-action", 1, "schedule[0].http"),
    ("exec = [\"./backup.sh\", \"{{ inputs.plan_time }}\"]\nenv = { TOKEN = \"{{ secrets.token }}\" }\n", "", "one-action", -19, "schedule[0]"),
    ("env = { TOKEN = \"{{ secrets.token }}\" }", "env = { WAYPOST_X = \"1\" }", "bad-variable", 0, "schedule[0].env.WAYPOST_X"),
    ("url = \"https://example.com/rollup/{{ inputs.scope_id }}\"", "url = \"ftp://x\"", "bad-url", 0, "schedule[1].http.url"),
    ("lifecycle = \"deploy\"", "lifecycle = \"deplyo\"", "unknown-lifecycle", 0, "schedule[2].run.lifecycle"),
    ("lifecycle = \"deploy\"", "lifecycle = \"cron\"", "unknown-lifecycle", 0, "schedule[2].run.lifecycle"),
    ("queue = \"builds\"", "quueue = \"builds\"", "unknown-key", 0, "schedule[2].run.quueue"),
    ("exec = [\"./deploy.sh\"], ", "", "one-action", 0, "schedule[2].run"),
    ("cadence = \"1h\"", "cadence = \"1500ms\"", "bad-schedule", 0, "schedule[3].cadence"),
    ("cadence = \"1h\"", "cadence = \"1h\"\ntimezone = \"UTC\"", "misplaced-key", 1, "schedule[3].timezone"),
    ("handler = \"tidy-up\"", "handler = \"tidy up\"", "bad-name", 0, "schedule[3].handler"),
    ("[[schedule]]\nname = \"tidy\"", "[[schedul]]\nname = \"tidy\"", "unknown-key", 0, "schedul"),
    ("handler = \"tidy-up\"", "handler = \"tidy-up", "syntax", 0, ""),
];
