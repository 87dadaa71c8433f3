//! What is easy to lose and no compiler keeps: sizes, borders between crates, words that must not appear.
//! Each rule is a function over a [`tree::Tree`], so that one test runs it on this repository and another
//! on a small planted tree, to see that it can complain.

mod boundaries;
mod evidence;
mod executed;
mod leftovers;
mod licences;
mod links;
mod mentions;
mod oracle;
mod readme;
mod requirements;
mod rust;
mod size;
mod states;
mod tree;
