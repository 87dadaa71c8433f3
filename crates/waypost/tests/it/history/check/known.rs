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
        check: "no deadlock",
        why: "a sweep takes the locks of all keys in one transaction, and of lanes between them; a limit locks the table before runs, \
              writers of items and ends the other way round; a begin by hand locks its run before its key",
    },
    Known {
        check: "limits at every position",
        why: "a claim looks at a queue's limit before it locks the runs, so a new limit does not count what it takes",
    },
    Known { check: "SQL begins keep limits", why: "a status that is set by hand asks for no slot" },
    Known { check: "SQL begins keep keys' slots", why: "a status that is set by hand asks for no slot" },
    Known { check: "SQL begins keep pauses", why: "a status that is set by hand does not look at the queue" },
    Known {
        check: "SQL begins keep times to live",
        why: "a status that is set by hand does not look at what has expired and is not yet swept",
    },
    Known { check: "SQL ends keep cancels", why: "a status that is set by hand does not look for a cancel" },
    Known {
        check: "claims are told to their worker",
        why: "a run of a lifecycle that another server added is claimed, and dropped from the answer",
    },
    Known {
        check: "children end with a cancelled parent",
        why: "a finish as cancelled without metadata leaves no word for the children",
    },
];

pub fn known(on_postgres: bool) -> &'static [Known] {
    if on_postgres { ON_POSTGRES } else { &[] }
}
