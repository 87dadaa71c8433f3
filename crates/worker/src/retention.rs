//! `[retention.NAME]` of `waypost.toml`: for how long settled runs of a lifecycle are kept.

use std::path::Path;

use waypost_kernel::lifecycle::Kind as Of;
use waypost_kernel::{Catalog, Span};
use waypost_schema::{Keys, Kind, Node, Problems, Report, Shape, instead_of, optional, quoted};
use waypost_store::Retention;

use crate::playbook::format::DURATION;
use crate::playbook::text_of;
use crate::schedules::format::FILE;

pub(crate) static RETENTION: Shape = Shape::of_file(
    "a retention",
    &[
        optional(
            "success",
            DURATION,
            "How long runs that succeeded are kept. Default: what the lifecycle says, or 30d.",
        ),
        optional(
            "failure",
            DURATION,
            "How long all others that are settled are kept. Default: what the lifecycle says, or 90d.",
        ),
    ],
);

/// Names of lifecycles; whether there is one is seen when it is read.
pub(crate) static NAMES: Keys = Keys { pattern: None, not: None, check: |_| Ok(None) };
pub(crate) const KIND: Kind = Kind::Map { of: &Kind::Of(&RETENTION), keys: Some(&NAMES), most: 1_000 };

/// What a file says, about lifecycles of the catalog.
pub fn load(path: &Path, catalog: &Catalog) -> Result<Vec<Retention>, Problems> {
    let (root, mut report) = FILE.read(&text_of(path)?, path)?;
    let rules = rules(&root, &mut report, catalog);
    report.done(rules)
}

/// The same of a file that is read already: whatever else is taken from it, what is wrong here is told.
pub(crate) fn rules(root: &Node, report: &mut Report, catalog: &Catalog) -> Vec<Retention> {
    let mut rules = Vec::new();
    for (name, node) in root.get("retention").map(Node::entries).unwrap_or_default() {
        if catalog.latest(name).is_none_or(|lifecycle| lifecycle.kind == Of::Item) {
            let runs = catalog.iter().filter(|lifecycle| lifecycle.kind == Of::Run);
            let known: Vec<&str> = runs.map(|lifecycle| &*lifecycle.name).collect();
            let message = format!("there is no lifecycle of runs {}", quoted(name));
            report.add(
                node.line,
                &format!("retention.{name}"),
                "unknown-name",
                &message,
                &instead_of(name, &known),
            );
        }
        let span = |key: &str| node.of::<Span>(key);
        rules.push(Retention { lifecycle: name.clone(), success: span("success"), failure: span("failure") });
    }
    rules
}
