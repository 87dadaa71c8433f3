//! What agents propose, and the inbox in which people find it: both are runs of lifecycles of their own.

use serde_json::{Map, Value};

/// The lifecycle of what agents propose.
pub const PROPOSAL: &str = "proposal";
/// The lifecycle of an inbox's entries.
pub const INBOX: &str = "inbox";

/// A proposal's commands.
pub const APPROVE: &str = "approve";
pub const REJECT: &str = "reject";
pub(crate) const APPLY: &str = "apply";
/// An entry's.
pub(crate) const PROCESS: &str = "process";

/// The member of a proposal's metadata that names its entry in the inbox.
pub const INBOX_ID: &str = "inbox_id";

/// What a proposal is about, and the revision of that which it was made for, as its metadata say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    pub target: String,
    pub base: String,
}

impl Revision {
    /// None of a proposal that does not name both.
    pub fn of(metadata: &Map<String, Value>) -> Option<Revision> {
        let text = |name: &str| Some(plain(metadata.get(name)?));
        Some(Revision { target: text("target")?, base: text("base_revision")? })
    }
}

/// A text as it is, and anything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
