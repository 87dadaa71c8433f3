//! Kinds of values that many objects of the API have.

use waypost_kernel::Token;
use waypost_kernel::format::TIME as A_TIME;
use waypost_kernel::item::Role;
use waypost_kernel::text::{MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_PAGE};
use waypost_schema::{Fault, Format, FromNode, Kind, MayBeAbsent, Node, Takes};
use waypost_store::codec::token_from;

pub const NAME: Kind = Kind::Text(MAX_NAME_BYTES);
pub const KEY: Kind = Kind::Text(MAX_KEY_BYTES);
pub const LONG: Kind = Kind::Text(4 * 1024 * 1024);
/// What a person says; the store keeps at most 1,024 characters.
pub const REASON: Kind = Kind::Text(8_192);
pub const COUNT: Kind = Kind::Integer(0, i64::MAX);
/// A year of milliseconds.
pub const MS: Kind = Kind::Integer(0, 366 * 86_400_000);
pub const TIME: Kind = Kind::Format(&A_TIME);
pub const ROLE: Kind = Kind::Choice(&[Role::Step.name(), Role::Optional.name(), Role::Cleanup.name()]);
pub const LEASE: Kind = Kind::Integer(1_000, 86_400_000);
pub const WAIT: Kind = Kind::Integer(0, 60_000);
pub const TOKEN: Kind = Kind::Format(&A_TOKEN);
pub const PAGE: Kind = Kind::Integer(1, MAX_PAGE as i64);

static A_TOKEN: Format = Format {
    name: "a lease's token",
    wanted: "32 hexadecimal digits",
    pattern: Some("^-*([0-9a-fA-F]-*){32}$"),
    check: |text| match token_from(text) {
        Some(_) => Ok(None),
        None => Err(Fault::new("bad-token", "this is no token", "send the one that the claim gave")),
    },
    ..Format::TEXT
};

pub const fn list(of: &'static Kind, most: usize) -> Kind {
    Kind::List { of, least: 0, most }
}

/// With dashes or without, as the claim gave it.
#[derive(Clone, Copy, Debug)]
pub struct LeaseToken(pub Token);

impl FromNode for LeaseToken {
    const TAKES: Takes = Takes::Text;

    fn from_node(node: Node) -> Option<LeaseToken> {
        token_from(node.text()).map(LeaseToken)
    }
}

/// How many entries of a list, 50 if the caller does not say.
#[derive(Clone, Copy, Debug)]
pub struct Limit(pub usize);

impl FromNode for Limit {
    const TAKES: Takes = usize::TAKES;

    fn from_node(node: Node) -> Option<Limit> {
        usize::from_node(node).map(Limit)
    }
}

impl MayBeAbsent for Limit {
    fn absent() -> Limit {
        Limit(50)
    }
}
