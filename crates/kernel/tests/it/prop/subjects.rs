//! What the properties are proven of: the shipped run lifecycles and the user's own of the docs.

use std::sync::OnceLock;

use waypost_kernel::Lifecycle;
use waypost_kernel::lifecycle::Kind;

use crate::examples::RELEASE;
use crate::shipped::catalog;

/// Leaked, so that requests may borrow their words from it for as long as they like.
pub fn all() -> &'static [&'static Lifecycle] {
    static ALL: OnceLock<Vec<&'static Lifecycle>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut catalog = catalog();
        catalog.add(RELEASE).unwrap();
        let runs = catalog.iter().filter(|lifecycle| lifecycle.kind == Kind::Run);
        runs.map(|lifecycle| leak(Lifecycle::clone(lifecycle))).collect()
    })
}

pub fn leak(lifecycle: Lifecycle) -> &'static Lifecycle {
    Box::leak(Box::new(lifecycle))
}

#[test]
fn there_are_nine() {
    let names: Vec<&str> = all().iter().map(|lifecycle| &*lifecycle.name).collect();
    assert_eq!(
        names,
        ["deploy", "agent", "cron", "job", "rule", "operation", "proposal", "inbox", "release"]
    );
}
