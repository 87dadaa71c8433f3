//! Whatever bytes come in, the loader answers.

use proptest::prelude::*;
use waypost_kernel::lifecycle::SHIPPED;

use super::{catalog, judge};
use crate::prop::config;

/// Pieces of files that are nearly right get further than noise does.
fn soup() -> impl Strategy<Value = String> {
    let pieces: Vec<String> = SHIPPED
        .iter()
        .flat_map(|(_, text)| text.split_inclusive(['\n', '"', ',', ' ', '=', '[', ']', '{', '}']))
        .map(str::to_owned)
        .collect();
    prop::collection::vec(prop::sample::select(pieces), 0..120).prop_map(|pieces| pieces.concat())
}

/// The bones of a file with random flesh.
fn structured() -> impl Strategy<Value = String> {
    let name = prop_oneof![4 => "[a-d]", 1 => "[A-Za-z_-]{0,4}"];
    let phase = prop_oneof![
        Just("phase = \"draft\""),
        Just("phase = \"ready\""),
        Just("phase = \"held\", lease = \"60s\", on_stale = \"lose\""),
        Just("phase = \"held\", lease = \"60s\", on_stale = \"take-over\""),
        Just("phase = \"held\", deadline = \"5m\", on_stale = \"expire\""),
        Just("phase = \"parked\""),
        Just("phase = \"settled\", outcome = \"succeeded\""),
        Just("phase = \"settled\", outcome = \"failed\", retry = true"),
    ];
    let command = prop_oneof![
        Just("claim"),
        Just("lose"),
        Just("expire"),
        Just("cancel"),
        Just("pause"),
        Just("retry"),
        Just("go"),
    ];
    let by = prop_oneof![
        Just("worker"),
        Just("client"),
        Just("engine"),
        Just("client, worker"),
        Just("operator"),
    ];
    let guard = prop_oneof![6 => Just(""), 1 => Just("has-reason"), 1 => Just("has-items"), 1 => Just("attempts-left")];
    let row = ("[a-e]", command, "[a-e]", by, guard).prop_map(|(from, command, to, by, guard)| {
        format!("[\"{from}\",\"{command}\",\"{to}\",\"{by}\",\"{guard}\"]")
    });
    let states = prop::collection::btree_map(name, phase, 0..6);
    let top = prop_oneof![
        Just(""),
        Just("items = [\"step\"]\n"),
        Just("codes = { go = \"X\" }\n"),
        Just("x = [{}]\n")
    ];
    (top, "[a-d]", states, prop::collection::vec(row, 0..14)).prop_map(|(top, initial, states, rows)| {
        let states: String = states.iter().map(|(name, state)| format!("{name:?} = {{ {state} }}\n")).collect();
        let rows = rows.join(",\n");
        format!("name = \"fuzz\"\nversion = 1\nids = \"{{uuid7}}\"\ninitial = [\"{initial}\"]\n{top}[states]\n{states}transitions = [{rows}]\n")
    })
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn any_text_is_answered(text: String) {
        prop_assert!(judge(&text, &catalog()).is_err());
    }

    #[test]
    fn any_soup_of_pieces_is_answered(text in soup()) {
        let _ = judge(&text, &catalog());
    }

    #[test]
    fn any_structure_is_answered(text in structured()) {
        let _ = judge(&text, &catalog());
    }
}
