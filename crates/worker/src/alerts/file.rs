//! `[alert]` of `waypost.toml`: policies and sinks.

use std::path::Path;

use waypost_kernel::Span;
use waypost_kernel::alert::{POLICIES, Policy, Severity};
use waypost_schema::{Kind, Node, Problems, Report, Shape, needed, optional, quoted};

use super::notice::{self, PAGERDUTY};
use super::{Alerts, Sink, Text};
use crate::playbook::format::{DURATION, NAME, TEXT, list};
use crate::playbook::{Reference, formats, text_of};
use crate::schedules::format::FILE;

pub(crate) static ALERT: Shape = Shape::of_file(
    "alerts",
    &[
        optional("sink", list(&Kind::Of(&SINK), 0, 50), "Who is told."),
        optional(
            "policy",
            list(&Kind::Of(&POLICY), 0, 50),
            "What counts as bad, where it is not the default.",
        ),
        optional("link", TEXT, "Where people look: the address of the server, for links in notices."),
    ],
);

pub(crate) static SINK: Shape = Shape::of_file(
    "a sink",
    &[
        needed("kind", Kind::Choice(&notice::Kind::NAMES), "What it understands."),
        optional("name", NAME, "What people call it, unique. Default: its kind."),
        optional(
            "url",
            TEXT,
            "Where it is, or a reference: env:NAME or file:/path. Slack's address is a secret, and must be a reference. Default of pagerduty: its own.",
        ),
        optional(
            "routing_key",
            Kind::Format(&formats::REFERENCE),
            "Of pagerduty: the integration's key, as a reference: env:NAME or file:/path.",
        ),
        optional(
            "token",
            Kind::Format(&formats::REFERENCE),
            "Of alertmanager and webhook: sent as `Authorization: Bearer …`; a reference: env:NAME or file:/path.",
        ),
        optional(
            "severity",
            Kind::Choice(&Severity::NAMES),
            "What is less severe is not told. Default: critical of pagerduty, warning of the others.",
        ),
        optional(
            "allow_private",
            Kind::Boolean,
            "It may be at http:// and at addresses of private networks.",
        ),
    ],
);

/// By the names of the policies there are.
const NAMES: [&str; POLICIES.len()] = {
    let mut names = [""; POLICIES.len()];
    let mut at = 0;
    while at < POLICIES.len() {
        names[at] = POLICIES[at].name;
        at += 1;
    }
    names
};

pub(crate) static POLICY: Shape = Shape::of_file(
    "a policy",
    &[
        needed("name", Kind::Choice(&NAMES), "Which one."),
        optional("enabled", Kind::Boolean, "Whether it is evaluated. Default: true."),
        optional("threshold", Kind::Integer(0, 1_000_000_000), "It fires beyond this: per cent, or a count."),
        optional(
            "clears_at",
            Kind::Integer(0, 1_000_000_000),
            "Once it fires, it is well again from here on.",
        ),
        optional("lasts", DURATION, "For how long it has to be bad, and well again."),
    ],
);

/// What a file says.
pub fn load(path: &Path) -> Result<Alerts, Problems> {
    let (root, report) = FILE.read(&text_of(path)?, path)?;
    let mut reader = Reader { report, found: Alerts::default() };
    if let Some(node) = root.get("alert") {
        reader.found.link = node.of("link");
        node.get("policy").map(Node::items).unwrap_or_default().iter().for_each(|node| reader.policy(node));
        node.get("sink").map(Node::items).unwrap_or_default().iter().for_each(|node| reader.sink(node));
    }
    reader.report.done(reader.found)
}

struct Reader {
    report: Report,
    found: Alerts,
}

impl Reader {
    fn wrong(&mut self, node: &Node, message: &str, mend: &str) {
        self.report.of_node(node, "bad-alert", message, mend);
    }

    fn policy(&mut self, node: &Node) {
        let Some(at) = self.found.policies.iter().position(|it| Some(it.name) == node.text_of("name")) else {
            // What is missing or unknown was told already; a second one finds none if the first disabled it.
            return;
        };
        if node.of::<bool>("enabled") == Some(false) {
            self.found.policies.remove(at);
            return;
        }
        let it = self.found.policies[at];
        let threshold_milli = node.of::<i64>("threshold").map_or(it.threshold_milli, |value| value * 1_000);
        // How far below or above the default was: what is not said moves along.
        let gap = it.clears_at_milli - it.threshold_milli;
        let own = (threshold_milli + gap).max(0);
        let own = if it.is_floor { own.min(100_000.max(threshold_milli)) } else { own };
        let clears_at_milli = node.of::<i64>("clears_at").map_or(own, |value| value * 1_000);
        let is_beyond =
            if it.is_floor { clears_at_milli < threshold_milli } else { clears_at_milli > threshold_milli };
        if is_beyond {
            let (word, mend) = match it.is_floor {
                true => ("below", "give a clears_at of the threshold or above"),
                false => ("above", "give a clears_at of the threshold or below"),
            };
            let message = format!("{} clears {word} its threshold: it would fire and clear at once", it.name);
            self.wrong(node, &message, mend);
        }
        let lasts = node.of::<Span>("lasts").unwrap_or(it.lasts);
        self.found.policies[at] = Policy { threshold_milli, clears_at_milli, lasts, ..it };
    }

    fn sink(&mut self, node: &Node) {
        let Some(kind) = node.text_of("kind").and_then(notice::Kind::parse) else { return };
        let name = node.of::<String>("name").unwrap_or_else(|| kind.name().to_owned());
        if self.found.sinks.iter().any(|known| known.name == name) {
            let message = format!("there are two sinks {}", quoted(&name));
            self.report.of_node(node, "duplicate-name", &message, "give one of them another name");
        }
        let is_pagerduty = kind == notice::Kind::PagerDuty;
        let Some(url) = self.url(node, kind) else { return };
        let key = if is_pagerduty { "routing_key" } else { "token" };
        let other = if is_pagerduty { "token" } else { "routing_key" };
        if let Some(unused) = node.get(other) {
            let mend = if is_pagerduty { "write routing_key" } else { "write token, or leave it out" };
            self.wrong(unused, &format!("{} takes no {other}", kind.name()), mend);
        }
        let token = node.text_of(key).and_then(|text| Reference::parse(text).ok());
        if is_pagerduty && node.get(key).is_none() {
            let mend = "write routing_key = \"env:WAYPOST_SECRET_PAGERDUTY\"";
            self.wrong(node, "pagerduty has no routing_key", mend);
        }
        let usual = if is_pagerduty { Severity::Critical } else { Severity::Warning };
        let severity = node.text_of("severity").and_then(Severity::parse).unwrap_or(usual);
        let allow_private = node.of("allow_private").unwrap_or(false);
        self.found.sinks.push(Sink { name, kind, url, token, severity, allow_private });
    }

    fn url(&mut self, node: &Node, kind: notice::Kind) -> Option<Text> {
        let Some(given) = node.get("url") else {
            if kind == notice::Kind::PagerDuty {
                return Some(Text::Plain(PAGERDUTY.to_owned()));
            }
            self.wrong(
                node,
                &format!("{} has no url", kind.name()),
                "write url = \"env:NAME\", or an address",
            );
            return None;
        };
        let text = given.text();
        if let Ok(reference) = Reference::parse(text) {
            return Some(Text::Secret(reference));
        }
        // Not quoted: it may be a secret.
        if kind == notice::Kind::Slack {
            let mend = "write env:NAME or file:/path, and keep the address there";
            self.wrong(given, "whoever has Slack's address may write: it must be a reference", mend);
            return None;
        }
        if !(text.starts_with("https://") || text.starts_with("http://")) {
            self.wrong(given, "this is no address", "write https://…, env:NAME or file:/path");
            return None;
        }
        Some(Text::Plain(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Alerts, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("waypost.toml");
        std::fs::write(&path, text).expect("written");
        load(&path).map_err(|problems| problems.to_string())
    }

    // proves R13
    #[test]
    fn sinks_and_policies_are_what_the_file_says() {
        assert_eq!(read("").expect("nothing").policies, POLICIES);
        let file = r#"
[alert]
link = "https://waypost.example"
[[alert.sink]]
kind = "slack"
url = "env:WAYPOST_SECRET_SLACK"
[[alert.sink]]
kind = "pagerduty"
routing_key = "file:/run/secrets/pagerduty"
[[alert.sink]]
kind = "alertmanager"
name = "am"
url = "http://am:9093"
severity = "critical"
allow_private = true
[[alert.policy]]
name = "dlq-backlog"
threshold = 20
[[alert.policy]]
name = "low-success-rate"
threshold = 100
lasts = "5m"
[[alert.policy]]
name = "429-burst"
enabled = false
"#;
        let found = read(file).expect("sound");
        let told: Vec<_> = found.sinks.iter().map(|it| (it.name.as_str(), it.severity)).collect();
        let (warning, critical) = (Severity::Warning, Severity::Critical);
        assert_eq!(told, [("slack", warning), ("pagerduty", critical), ("am", critical)]);
        let of = |name: &str| found.policies.iter().find(|it| it.name == name).copied();
        let backlog = of("dlq-backlog").expect("there");
        assert_eq!((backlog.threshold_milli, backlog.clears_at_milli), (20_000, 15_000));
        let low = of("low-success-rate").expect("there");
        assert_eq!(
            (low.threshold_milli, low.clears_at_milli, low.lasts),
            (100_000, 100_000, Span::from_seconds(300))
        );
        assert_eq!(of("429-burst"), None);
    }

    // proves R13
    #[test]
    fn what_is_no_sink_is_told_by_its_line() {
        for (file, words) in [
            (
                "[[alert.sink]]\nkind = \"slack\"\nurl = \"https://hooks.slack.com/services/T0/B0/s3cr3t\"",
                "must be a reference",
            ),
            ("[[alert.sink]]\nkind = \"slack\"", "slack has no url"),
            ("[[alert.sink]]\nkind = \"pagerduty\"", "no routing_key"),
            ("[[alert.sink]]\nkind = \"pagerduty\"\nrouting_key = \"s3cr3t\"", "reference"),
            ("[[alert.sink]]\nkind = \"webhook\"\nurl = \"gopher://x\"", "no address"),
            (
                "[[alert.sink]]\nkind = \"webhook\"\nurl = \"https://x\"\nrouting_key = \"env:A\"",
                "takes no routing_key",
            ),
            ("[[alert.sink]]\nkind = \"mail\"", "slack"),
            (
                "[[alert.sink]]\nkind = \"webhook\"\nurl = \"https://x\"\n[[alert.sink]]\nkind = \"webhook\"\nurl = \"https://y\"",
                "two sinks",
            ),
            ("[[alert.policy]]\nname = \"dlq\"", "dlq-backlog"),
            ("[[alert.policy]]\nname = \"dlq-backlog\"\nthreshold = 10\nclears_at = 11", "fire and clear"),
        ] {
            let told = read(file).expect_err(file);
            assert!(told.contains("waypost.toml:") && told.contains(words), "{told}");
            assert!(!told.contains("s3cr3t"), "{told}");
        }
    }
}
