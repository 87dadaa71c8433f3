//! Messages from outside.

use waypost_kernel::Span;

/// A message from outside, such as a webhook's delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who sends such messages.
    pub source: String,
    /// As the sender calls it.
    pub id: String,
    /// Of its content.
    pub digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Under which its content came first.
    pub id: String,
    pub is_new: bool,
}

/// How long a message's content is remembered.
pub const REMEMBERED: Span = Span::from_seconds(7 * 24 * 3_600);
