//! Requests as types: the shape and the struct are made of the same lines.

use crate::node::{FromNode, MayBeAbsent, Node};
use crate::shape::Shape;

/// A struct that a request of its shape becomes.
pub trait Request: FromNode + Send + 'static {
    const SHAPE: &'static Shape;
}

pub fn take_needed<T: FromNode>(node: &mut Node, name: &str) -> Option<T> {
    T::from_node(node.remove(name)?)
}

pub fn take_optional<T: MayBeAbsent>(node: &mut Node, name: &str) -> Option<T> {
    match node.remove(name) {
        Some(node) => T::from_node(node),
        None => Some(T::absent()),
    }
}

/// Shapes of requests, and the structs that they become:
///
/// ```
/// use waypost_schema::{Kind, Request, read_request, requests};
///
/// requests! {
///     /// Gives a run back.
///     RELEASE "Release" Release {
///         needed token: String = Kind::Text(32), "The lease's token.";
///         optional reason: Option<String> = Kind::Text(100), "Why it is given back.";
///         optional is_forced "force": bool = Kind::Boolean, "Whether a guard is passed over.";
///     }
/// }
///
/// let sent = serde_json::json!({ "token": "t", "force": true });
/// let node = read_request(sent.as_object().cloned().unwrap(), Release::SHAPE).unwrap();
/// let release: Release = node.typed().unwrap();
/// assert_eq!((release.token.as_str(), release.reason, release.is_forced), ("t", None, true));
/// ```
///
/// A field that is `optional` has a type that says what it is when it was left out: a plain `String` does not compile.
#[macro_export]
macro_rules! requests {
    ($(
        $(#[$meta:meta])*
        $shape:ident $name:literal $type:ident {
            $($need:ident $field:ident $($wire:literal)? : $value:ty = $kind:expr, $description:expr;)*
        }
    )+) => {$(
        pub const $shape: $crate::Shape = $crate::Shape::of_api($name, &[
            $($crate::$need($crate::requests!(@name $field $($wire)?), $kind, $description)),*
        ]);

        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $type {
            $(#[doc = $description] pub $field: $value,)*
        }

        impl $crate::FromNode for $type {
            #[allow(unused_mut, unused_variables)]
            fn from_node(mut node: $crate::Node) -> Option<$type> {
                Some($type {
                    $($field: $crate::requests!(
                        @take $need node $crate::requests!(@name $field $($wire)?)
                    )?,)*
                })
            }
        }

        impl $crate::Request for $type {
            const SHAPE: &'static $crate::Shape = &$shape;
        }
    )+};
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $wire:literal) => { $wire };
    (@take needed $node:ident $name:expr) => { $crate::take_needed(&mut $node, $name) };
    (@take optional $node:ident $name:expr) => { $crate::take_optional(&mut $node, $name) };
}
