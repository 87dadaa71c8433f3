//! Whether two requests under one idempotency key ask for the same: a digest of what they ask for.

use std::sync::LazyLock;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::columns::{COLUMNS, Cell, Field};
use crate::json::codec::{exactly, hex, write_canonical, write_members, write_name};
use crate::seam::verbs::{NewItem, NewRun};

/// Columns that do not say what is asked for: whose key it is, the key, and what the run repeats.
const BESIDE: [&str; 3] = ["tenant", "idempotency_key", "retry_of"];

/// What is asked for, by name; written as it is made, since every run with a key has one.
static MEMBERS: LazyLock<Vec<(&str, Member)>> = LazyLock::new(|| {
    let columns = COLUMNS.iter().filter(|column| !BESIDE.contains(&column.name));
    let given =
        columns.filter_map(|column| Some((column.name, Member::Column(column.given.as_ref()?.asked))));
    let mut members: Vec<(&str, Member)> = given.collect();
    members.push(("input", Member::Input));
    members.push(("items", Member::Items));
    members.push(("lifecycle", Member::Column(|new| new.lifecycle.cell())));
    members.push(("metadata", Member::Metadata));
    members.push(("status", Member::Column(|new| new.status.cell())));
    members.push(("version", Member::Column(|new| new.version.cell())));
    members.sort_by_key(|(name, _)| *name);
    members
});

enum Member {
    /// Unless it was left out.
    Column(for<'a> fn(&'a NewRun) -> Cell<'a>),
    Input,
    Items,
    Metadata,
}

pub(crate) fn fingerprint(new: &NewRun) -> String {
    match &new.asked {
        Some(asked) => asked_for(asked),
        None => digest(new),
    }
}

/// Of a request in the caller's own words.
pub(crate) fn asked_for(asked: &str) -> String {
    hex(&Sha256::digest(format!("asked {asked}")))
}

/// What a request says itself, before anything is filled in, as one word.
pub fn digest(new: &NewRun) -> String {
    let mut out = Vec::with_capacity(1_024);
    out.push(b'{');
    for (name, member) in MEMBERS.iter() {
        let cell = if let Member::Column(asked) = member { asked(new) } else { Cell::Null };
        if matches!(member, Member::Column(_)) && cell == Cell::Null {
            continue;
        }
        write_name(name, &mut out);
        match member {
            Member::Column(_) => write_canonical(&exactly(cell), &mut out),
            Member::Input => write_canonical(&new.input, &mut out),
            Member::Items => {
                write_canonical(&new.items.iter().map(|it| item(it, &new.retry_of)).collect(), &mut out);
            }
            Member::Metadata => write_members(&new.metadata, &mut out),
        }
        out.push(b',');
    }
    out.push(b'}');
    hex(&Sha256::digest(&out))
}

/// Whose copy it is says what is asked for.
fn item(item: &NewItem, retry_of: &Option<String>) -> serde_json::Value {
    let NewItem { kind, key, name, status, max_retries, reruns, role, details, copied } = item;
    let copy_of = retry_of.as_ref().filter(|_| *copied);
    json!([kind, key, name, status, max_retries, reruns, role.name(), details, copy_of])
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves X7
    #[test]
    fn equal_bodies_have_equal_fingerprints() {
        let of = |text: &str| {
            let input = serde_json::from_str(text).unwrap_or_default();
            fingerprint(&NewRun { input, ..NewRun::default() })
        };
        assert_eq!(of(r#"{"a": {"b": 1, "c": [2]}, "d": null}"#), of(r#"{"d":null,"a":{"c":[2],"b":1}}"#));
        assert_ne!(of(r#"{"a": 1}"#), of(r#"{"a": 2}"#));
        assert_ne!(of(r#"{"a": [1, 2]}"#), of(r#"{"a": [2, 1]}"#));
        assert_ne!(of(r#"["a,b"]"#), of(r#"["a","b"]"#));
    }
}
