use super::*;
use proptest::prelude::*;
use serde_json::json;

fn context() -> Value {
    from_json(&json!({
        "inputs": {"n": 5, "name": "c1", "list": [1, "a", null], "none": null, "big": "x".repeat(50_000)},
        "item": {"name": "h1", "outdated": true},
        "steps": {"disable HA": {"output": {"was": true}}},
    }))
}

#[test]
fn a_lone_expression_keeps_its_type() {
    for (text, expected) in [
        ("{{ inputs.n }}", json!(5)),
        ("{{inputs.list}}", json!([1, "a", null])),
        ("{{ inputs.none }}", json!(null)),
        ("{{ item.outdated }}", json!(true)),
        ("{{ steps['disable HA'].output }}", json!({"was": true})),
        (" {{ inputs.n }}", json!(" 5")),
        ("n={{ inputs.n }}, {{ inputs.name|upper }}", json!("n=5, C1")),
        ("{{ inputs.list }}{{ inputs.none }}", json!("[1,\"a\",null]")),
        ("", json!("")),
        ("{ a: {# not a comment #} }", json!("{ a: {# not a comment #} }")),
        ("${#name} {{ '{{' }}", json!("${#name} {{")),
        ("{{ {'a': {'b': inputs.n}} }}", json!({"a": {"b": 5}})),
        ("{{ 'yes' if item.outdated else 'no' }}", json!("yes")),
    ] {
        let template = Template::parse(text).unwrap_or_else(|trouble| panic!("{text}: {trouble:?}"));
        assert_eq!(template.value(&context()), Ok(expected), "{text}");
    }
}

#[test]
fn troubles_have_their_line() {
    for (text, line, rule) in [
        ("a\n{{ b", 1, "template-syntax"),
        ("{{ a }}\n\n{{ b +\n }}", 2, "template-syntax"),
        ("a\n{% if x %}", 1, "template-syntax"),
        ("{{ }}", 0, "template-syntax"),
        ("{{ a b }}", 0, "template-syntax"),
        ("{{ a\n|nope }}", 1, "unknown-filter"),
    ] {
        let trouble = Template::parse(text).expect_err(text);
        // The engine tells an end that comes too soon of the line where it noticed.
        assert!(
            (trouble.line == line || trouble.line == line + 1) && trouble.rule == rule,
            "{text}: {trouble:?}"
        );
    }
    let named: Vec<(usize, String)> = Template::parse("{{ a }}\n{{ b\n.c }}")
        .expect("a template")
        .named()
        .map(|named| (named.line, named.path.join(".")))
        .collect();
    assert_eq!(named, [(0, "a".to_owned()), (1, "b.c".to_owned())]);
}

/// Pieces of expressions that are nearly right get further than noise does.
fn soup() -> impl Strategy<Value = String> {
    let pieces = [
        "{{",
        "}}",
        " ",
        "inputs",
        ".",
        "n",
        "big",
        "[",
        "]",
        "(",
        ")",
        "'a'",
        "\"",
        "'",
        "|",
        "replace",
        "join",
        "upper",
        "~",
        "+",
        "-",
        "*",
        "/",
        "%",
        "//",
        "if",
        "else",
        "not",
        "in",
        "is",
        "defined",
        "item",
        ",",
        "1",
        "99999999999999999999",
        "1e308",
        "{",
        "}",
        ":",
        "==",
        "<",
        "map",
        "list",
        "é",
        "\\",
        "\n",
        "sort",
        "sum",
        "attribute=",
        "{%",
        "{#",
        "0",
        "times",
        "split",
        "int",
        "round",
        "b64encode",
        "none",
        "true",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..40).prop_map(|pieces| pieces.concat())
}

/// Wide enough to grow: every operand is a long text, every step a filter or a join of two.
fn growing() -> impl Strategy<Value = String> {
    let operand =
        prop::sample::select(vec!["inputs.big", "inputs.list", "inputs.name", "[inputs.big, inputs.big]"]);
    let step = prop::sample::select(vec![
        "|replace('x', inputs.big)",
        "|join(inputs.big)",
        "|list",
        " ~ inputs.big",
        " + inputs.big",
        "|tojson",
        "|urlencode",
        "|b64encode",
        "|map('replace', 'x', inputs.big)",
        "|split('x')",
        "|string",
        "|sort",
        "|sum",
    ]);
    (operand, prop::collection::vec(step, 0..8))
        .prop_map(|(operand, steps)| format!("{{{{ {operand}{} }}}}", steps.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_answered(text in "\\PC{0,200}") {
        if let Ok(template) = Template::parse(&text) {
            let _ = template.value(&context());
        }
    }

    #[test]
    fn any_soup_is_answered(text in soup()) {
        if let Ok(template) = Template::parse(&text) {
            let _ = template.value(&context());
        }
        if let Ok(expression) = Expression::parse(&text) {
            let _ = expression.evaluate(&context());
        }
    }

    #[test]
    fn whatever_grows_stays_bounded(text in growing()) {
        if let Ok(value) = Template::parse(&text).expect("it is sound").value(&context()) {
            prop_assert!(value.to_string().len() < 4 * 1024 * 1024, "{text}");
        }
    }

    #[test]
    fn depth_is_bounded(open in prop::sample::select(vec!["(", "[", "{'a':", "not ", "-", "1 if 1 else "]), depth in 1..900usize) {
        let _ = Expression::parse(&format!("{}1", open.repeat(depth)));
    }
}
