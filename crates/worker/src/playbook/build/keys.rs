//! What a run calls its steps and cleanups: no two alike, and none too long to be stored. A `for_each` has one for each
//! of its items, `update[1]`, `update[2]`, and a cleanup's begins with `cleanup: `.

use waypost_kernel::text::MAX_NAME_BYTES;
use waypost_schema::quoted;
use waypost_store::PLACEHOLDER;

use super::{Builder, key_of};
use crate::playbook::render::MAX_ITEMS;
use crate::steps::CLEANUP;
use waypost_schema::Node;

impl Builder<'_> {
    pub(super) fn keys_of_steps(&mut self, nodes: &[Node]) {
        for node in nodes.iter().filter(|node| key_of(node).starts_with(CLEANUP)) {
            let message = format!("names that begin with {} are those of cleanups", quoted(CLEANUP));
            self.problem(said_at(node), "bad-name", &message, "name it otherwise, or give it an id");
        }
        for node in nodes.iter().filter(|node| key_of(node) == PLACEHOLDER) {
            let message =
                format!("{} is what stands for a run that comes without steps", quoted(PLACEHOLDER));
            self.problem(said_at(node), "bad-name", &message, "name it otherwise, or give it an id");
        }
        self.keys(nodes, "step", "");
    }

    pub(super) fn keys_of_cleanups(&mut self, nodes: &[Node]) {
        self.keys(nodes, "cleanup", CLEANUP);
    }

    fn keys(&mut self, nodes: &[Node], kind: &str, prefix: &str) {
        let or_id = ", or an id";
        for (at, node) in nodes.iter().enumerate() {
            let key = key_of(node);
            if key.is_empty() {
                continue;
            }
            if nodes[..at].iter().any(|other| key_of(other) == key) {
                let message = format!("there are two {kind}s {}", quoted(&key));
                let mend = format!("give one of them another name{or_id}");
                self.problem(said_at(node), "duplicate-name", &message, &mend);
            }
            if let Some(each) = nodes.iter().find(|each| is_part_of(&key, each)) {
                let message =
                    format!("a run has a {kind} {} already: a part of the `for_each`", quoted(&key));
                let mend = format!("give this one or {} another name{or_id}", quoted(&key_of(each)));
                self.problem(said_at(node), "duplicate-name", &message, &mend);
            }
            let suffix = node.get("for_each").map_or(0, |_| format!("[{MAX_ITEMS}]").len());
            let room = MAX_NAME_BYTES - prefix.len() - suffix;
            if key.len() > room {
                let message =
                    format!("this name is {} bytes long; here at most {room} can be stored", key.len());
                let mend = format!("give it a shorter name{or_id}");
                self.problem(said_at(node), "too-long", &message, &mend);
            }
        }
    }
}

/// Where the key stands.
fn said_at(node: &Node) -> &Node {
    node.get("id").or(node.get("name")).unwrap_or(node)
}

/// `update[1]` of a `for_each` that is called `update`.
fn is_part_of(key: &str, each: &Node) -> bool {
    let rest = key.strip_prefix(&key_of(each)).filter(|_| each.get("for_each").is_some());
    let number = rest.and_then(|rest| rest.strip_prefix('[')?.strip_suffix(']'));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}
