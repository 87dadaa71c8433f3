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
/// What does not fit does not compile: a field that is `optional` but has no type that says what it is when it was left out
///
/// ```compile_fail
/// waypost_schema::requests! {
///     RELEASE "Release" Release { optional reason: String = waypost_schema::Kind::Text(9), "Why."; }
/// }
/// ```
///
/// or a type that does not take all that its kind lets through.
///
/// ```compile_fail
/// waypost_schema::requests! {
///     RELEASE "Release" Release { needed hours: u8 = waypost_schema::Kind::Integer(0, 256), "How long."; }
/// }
/// ```
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
            $(pub $field: $value,)*
        }

        // A type that does not take all that its field lets through is refused here.
        const _: () = {
            $(assert!(
                <$value as $crate::FromNode>::TAKES.all_of(&$kind),
                concat!($name, ".", stringify!($field), ": the type does not take all of its kind"),
            );)*
        };

        impl $crate::FromNode for $type {
            const TAKES: $crate::Takes = $crate::Takes::Fields;

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
