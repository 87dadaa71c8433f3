//! What is known to fail, by the names of the checks, until it is mended. A check outside of this list must hold.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub check: &'static str,
    pub why: &'static str,
}

const ON_POSTGRES: &[Known] = &[
    Known {
        check: "feed complete and in order for every reader",
        why: "readers of one process settle each other's gaps while their writers are still open",
    },
    Known { check: "streams complete and in order for every reader", why: "the same: streams read the feed" },
    Known {
        check: "claims are told to their worker",
        why: "a run of a lifecycle that another server added is claimed, and dropped from the answer",
    },
];

pub fn known(on_postgres: bool) -> &'static [Known] {
    if on_postgres { ON_POSTGRES } else { &[] }
}
