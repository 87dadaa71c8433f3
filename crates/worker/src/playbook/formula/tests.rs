use super::*;
use serde_json::json;

fn formula(source: &str) -> Formula {
    Formula::parse(&format!("{{{{ {source} }}}}")).unwrap_or_else(|trouble| panic!("{source}: {trouble:?}"))
}

fn value(source: &str) -> Result<Option<Json>, String> {
    let scope = json!({
        "target": { "before": 19.99, "cost": "7.50", "zero": 0, "name": "hat", "tags": ["a"] },
        "inputs": { "percent": 10, "sale": true },
    });
    let find = |path: &[String]| scope.pointer(&format!("/{}", path.join("/"))).cloned();
    formula(source).value(&find)
}

#[test]
fn values_are_computed_exactly() {
    for (source, expected) in [
        ("target.before * 1.1", json!(21.989)),
        ("(target.before * 1.1)|round(2)", json!(21.99)),
        ("target.before|percent(10)|round(2)", json!(21.99)),
        ("target.before|percent(inputs.percent)", json!(21.989)),
        ("target.before|percent(-50)|round_to(0.05)", json!(10)),
        ("target.before|plus(-20)|at_least(1)", json!(1)),
        ("target.before|at_most(9.5)", json!(9.5)),
        ("0.1 + 0.2", json!(0.3)),
        ("1.005|round(2)", json!(1.01)),
        ("(target.cost * 2)|floor + 0.99", json!(15.99)),
        ("10 / 3", json!(3.333333)),
        ("2 + 3 * 4 - 6 / 2", json!(11)),
        ("-target.zero", json!(0)),
        ("target.zero|percent(10)", json!(0)),
        ("target.before if inputs.sale and target.before > 5 else 0", json!(19.99)),
        ("1 if not inputs.sale else 2 if target.zero == 0 else 3", json!(2)),
        ("target['cost']|ceil", json!(8)),
        ("target.missing|default(target.before)", json!(19.99)),
        ("'sold out' if target.name == 'hat' else target.name", json!("sold out")),
        ("target.cost == 7.5", json!(true)),
        ("target.before - (target.cost|round(0))", json!(11.99)),
    ] {
        assert_eq!(value(source), Ok(Some(expected)), "{source}");
    }
    for source in ["target.missing", "none", "target.missing or none"] {
        assert_eq!(value(source), Ok(None), "{source}");
    }
}

#[test]
fn what_cannot_be_computed_says_why() {
    for (source, words) in [
        ("target.missing * 2", "no value"),
        ("target.name * 2", "\"hat\" is no number"),
        ("target.before / target.zero", "division by 0"),
        ("target.tags + 1", "target.tags is no single value"),
        ("target.before|round(7)", "from 0 to 6"),
        ("target.before|round_to(0)", "cannot be computed"),
        ("9999999999999999 * 0.123456", "more digits"),
    ] {
        let error = value(source).expect_err(source);
        assert!(error.contains(words), "{source}: {error}");
    }
}

#[test]
fn what_is_not_clear_is_refused() {
    for (text, rule, words) in [
        ("{{ target.before * 1.1|round(2) }}", "template-syntax", "not clear"),
        ("{{ target.before + target.cost|round }}", "template-syntax", "not clear"),
        ("{{ target.before|upper }}", "unknown-filter", "no filter"),
        ("{{ target.before|percent }}", "template-syntax", "takes 1 value"),
        ("{{ target.before|floor(2) }}", "template-syntax", "takes 0 values"),
        ("{{ range(3) }}", "unknown-filter", "no function"),
        ("{{ target.before * }}", "template-syntax", "missing"),
        ("{{ (target.before }}", "template-syntax", "missing"),
        ("{{ target.before 2 }}", "template-syntax", "cannot stand"),
        ("{{ target.before ** 2 }}", "template-syntax", "cannot stand"),
        ("{{ 'open }}", "template-syntax", "cannot stand"),
        ("{{ }}", "template-syntax", "no expression"),
        ("12.99", "template-syntax", "no expression"),
        ("{{ a }} and {{ b }}", "template-syntax", "cannot stand"),
    ] {
        let trouble = Formula::parse(text).expect_err(text);
        assert!(trouble.rule == rule && trouble.message.contains(words), "{text}: {trouble:?}");
    }
    assert!(Formula::parse(&format!("{{{{ {}1{} }}}}", "(".repeat(99), ")".repeat(99))).is_err());
}

#[test]
fn variables_are_named() {
    let formula = formula("target.before * inputs['rate'] if run.id else 0");
    let paths: Vec<String> = formula.named().iter().map(|named| named.path.join("/")).collect();
    assert_eq!(paths, ["target/before", "inputs/rate", "run/id"]);
}
