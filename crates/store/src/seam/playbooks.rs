//! Playbooks that servers and workers have, as they offer them: whoever starts a run by a playbook's name reads here what it says.

use waypost_kernel::Time;
use waypost_kernel::text::{MAX_PAYLOAD_BYTES, refuse_text};

use crate::rules::intake::{check_given_name, check_name, check_playbook_name, check_text};
use crate::seam::access::EVERY_TENANT;
use crate::seam::error::{Result, StoreError};

/// How many versions of a playbook are kept: the latest ones.
pub const KEPT_VERSIONS: usize = 50;

/// Names that a tenant, or everybody together, may have playbooks under.
pub const MOST_PLAYBOOKS: usize = 1_000;
/// What their definitions may take together, in characters. Superseded versions leave before anything is refused.
pub const MOST_PLAYBOOK_TEXT: usize = 4 * 1024 * 1024;

/// A playbook that a process has, or the name of a handler that is compiled into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferedPlaybook {
    /// Whose runs it is for; `*`: everybody's.
    pub tenant: String,
    pub name: String,
    /// Of its content; empty for a handler.
    pub hash: String,
    /// Where it is on the machine of whoever offers it.
    pub file: String,
    /// Its definition; empty for a handler, of which nothing but the name is known.
    pub text: String,
    /// The process that offers it.
    pub by: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaybookRow {
    pub offered: OfferedPlaybook,
    /// When it became the latest version.
    pub offered_at: Time,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaybookFilter {
    /// What this tenant may use: its own, and those for everybody. All if it is not given.
    pub tenant: Option<String>,
    pub name: Option<String>,
    /// The beginning of a content's hash.
    pub hash: Option<String>,
    /// Older versions too; of each tenant and name the latest otherwise, unless a hash is asked for.
    pub all_versions: bool,
    /// Without their definitions, which are empty then.
    pub names_only: bool,
}

impl OfferedPlaybook {
    pub(crate) fn check(&self) -> Result<()> {
        if self.tenant != EVERY_TENANT {
            check_given_name("tenant", &self.tenant)?;
        }
        check_playbook_name("name", &self.name)?;
        check_name("by", &self.by)?;
        check_text("hash", &self.hash, 128)?;
        check_text("file", &self.file, 4_096)?;
        let too_long = |error: waypost_kernel::text::TextError| StoreError::Invalid {
            field: error.field,
            message: error.message,
        };
        refuse_text("text", &self.text, MAX_PAYLOAD_BYTES).map_err(too_long)
    }
}
