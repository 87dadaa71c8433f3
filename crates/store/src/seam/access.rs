//! Who may ask a server for what, and what people asked for. The secret half of a token is nowhere but with its owner.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use waypost_kernel::text::{MAX_NAME_BYTES, MAX_PAGE};
use waypost_kernel::{Span, Time};

use crate::rules::intake::{check_given_name, check_name, check_reason, check_text};
use crate::seam::error::{Result, StoreError};
use crate::seam::run::iso;
use crate::seam::verbs::DEFAULT_TENANT;
use crate::tokens::random;

pub const ROLES: [&str; 4] = ["viewer", "operator", "worker", "admin"];

/// A token of all tenants.
pub const EVERY_TENANT: &str = "*";

/// A token's last use is written no more often than this, however often it is used.
pub const USE_NOTED_EVERY: Span = Span::from_seconds(60);
/// What is meant to last longer is meant to last for good.
pub const MAX_TOKEN_SPAN: Span = Span::from_seconds(3_660 * 86_400);

const PREFIX: &str = "wp";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    pub id: String,
    /// Of the secret half.
    pub digest: String,
    pub name: String,
    pub role: String,
    pub tenant: String,
    /// It counts no longer than this from now on; for good if it is not given.
    pub lasts: Option<Span>,
    pub by: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenChange {
    Issue(NewToken),
    /// For good; by its public half. A second time changes nothing.
    Revoke(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    pub id: String,
    pub digest: String,
    /// Whom the log names.
    pub name: String,
    pub role: String,
    pub tenant: String,
    pub created_at: Time,
    pub created_by: String,
    /// From then on it does not count any more.
    pub expires_at: Option<Time>,
    /// To within [`USE_NOTED_EVERY`].
    pub last_used_at: Option<Time>,
    pub revoked_at: Option<Time>,
    pub revoked_by: Option<String>,
}

impl TokenRow {
    /// Whether it opens anything at that time.
    pub fn counts_at(&self, now: Time) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires_at| now < expires_at)
    }

    /// As everybody may see it: without its digest.
    pub fn object(&self) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "role": self.role,
            "tenant": self.tenant,
            "created_at": iso(self.created_at),
            "created_by": self.created_by,
            "expires_at": self.expires_at.map(iso),
            "last_used_at": self.last_used_at.map(iso),
            "revoked_at": self.revoked_at.map(iso),
            "revoked_by": self.revoked_by,
        })
    }
}

/// Who does something, for which tenant, and why: what the audit log is told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    pub tenant: String,
    pub by: String,
    pub reason: Option<String>,
}

/// What people did, kept for good: events leave with their run, these stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    pub number: u64,
    pub at: Time,
    pub tenant: String,
    pub by: String,
    /// `cancel`, `queue.pause`, `token.create`.
    pub action: String,
    /// The run, queue, token or schedule that it was about.
    pub subject: String,
    pub reason: Option<String>,
}

impl AuditRow {
    pub fn object(&self) -> Value {
        json!({
            "number": self.number,
            "at": iso(self.at),
            "tenant": self.tenant,
            "by": self.by,
            "action": self.action,
            "subject": self.subject,
            "reason": self.reason,
        })
    }
}

/// A token as its owner has it: `wp_<public half>_<256 random bits>`. It is shown once.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    pub id: String,
    secret: String,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Secret {
    pub fn fresh() -> Secret {
        let id = format!("{:012x}", random() >> 80);
        Secret { id, secret: format!("{:032x}{:032x}", random(), random()) }
    }

    pub fn parse(text: &str) -> Option<Secret> {
        let (id, secret) = text.strip_prefix(PREFIX)?.strip_prefix('_')?.split_once('_')?;
        let is_hex = |text: &str, digits: usize| {
            text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        (is_hex(id, 12) && is_hex(secret, 64))
            .then(|| Secret { id: id.to_owned(), secret: secret.to_owned() })
    }

    /// To show it, once.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}_{}_{}", self.id, self.secret)
    }

    /// What is stored of it. The secret is 256 random bits: a digest of it cannot be guessed back, and needs no salt.
    pub fn digest(&self) -> String {
        crate::json::codec::hex(&Sha256::digest(self.secret.as_bytes()))
    }

    /// However much of it is right, it takes as long.
    pub fn fits(&self, digest: &str) -> bool {
        self.digest().as_bytes().ct_eq(digest.as_bytes()).into()
    }
}

impl NewToken {
    pub(crate) fn check(&self) -> Result<()> {
        check_name("id", &self.id)?;
        check_name("digest", &self.digest)?;
        check_name("name", &self.name)?;
        check_given_name("tenant", &self.tenant)?;
        check_name("by", &self.by)?;
        if self.lasts.is_some_and(|lasts| lasts <= Span::ZERO || lasts > MAX_TOKEN_SPAN) {
            return Err(StoreError::invalid(
                "expires",
                "a token lasts longer than nothing, and at most ten years",
            ));
        }
        if !ROLES.contains(&self.role.as_str()) {
            let message = format!("{:?} is no role; allowed: {}", self.role, ROLES.join(", "));
            return Err(StoreError::invalid("role", message));
        }
        Ok(())
    }

    pub(crate) fn row(self, now: Time) -> TokenRow {
        TokenRow {
            id: self.id,
            digest: self.digest,
            name: self.name,
            role: self.role,
            tenant: self.tenant,
            created_at: now,
            created_by: self.by,
            expires_at: self.lasts.map(|lasts| now + lasts),
            last_used_at: None,
            revoked_at: None,
            revoked_by: None,
        }
    }
}

/// Somebody of the tenant that is there when nobody names one, without a reason.
impl From<&str> for Who {
    fn from(by: &str) -> Who {
        Who::new(DEFAULT_TENANT, by, None)
    }
}

impl Who {
    pub fn new(tenant: &str, by: &str, reason: Option<String>) -> Who {
        Who { tenant: tenant.to_owned(), by: by.to_owned(), reason }
    }

    /// What they change belongs to one tenant.
    pub(crate) fn check_tenant(&self) -> Result<()> {
        check_name("tenant", &self.tenant)?;
        if self.tenant == EVERY_TENANT {
            return Err(StoreError::invalid(
                "tenant",
                "queues, keys and their limits are one tenant's: name it",
            ));
        }
        Ok(())
    }

    pub(crate) fn check(&self, action: &str, subject: &str) -> Result<()> {
        check_given_name("tenant", &self.tenant)?;
        check_name("by", &self.by)?;
        check_name("action", action)?;
        check_text("subject", subject, MAX_NAME_BYTES)?;
        check_reason(self.reason.as_deref())
    }
}

pub(crate) fn no_token(id: &str) -> StoreError {
    StoreError::NotFound { what: "token", id: id.to_owned() }
}

pub(crate) fn page(limit: usize) -> usize {
    limit.min(MAX_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_shown_and_only_its_own_digest_fits() {
        let (one, other) = (Secret::fresh(), Secret::fresh());
        assert_eq!(Secret::parse(&one.reveal()), Some(one.clone()));
        assert!(one.fits(&one.digest()) && !one.fits(&other.digest()) && !one.fits(""));
        assert_ne!(one.id, other.id);
        assert!(!format!("{one:?}").contains(&one.reveal()[20..]));
        for text in ["", "wp__", "wp_0123456789ab_", &one.reveal()[1..], &one.reveal().to_uppercase()] {
            assert_eq!(Secret::parse(text), None, "{text}");
        }
    }
}
