//! The files that the design shows.

use std::path::Path;

use serde_json::{Value, json};
use waypost_kernel::backoff::Backoff;
use waypost_kernel::{Decimal, Span};
use waypost_worker::actions::{Action, Body, Http};
use waypost_worker::playbook::{Pace, Playbook, Scope, Secrets, Source, TargetAction, Unattended, Way};

use super::{CLUSTER, PRICES, parse};

/// With the step that its cleanup names, which the design leaves out.
const UPDATE: &str = r#"
# a playbook: waypost run start update.toml --input cluster=c1 --wait
name = "update"
lifecycle = "job"

[inputs.cluster]
type = "string"            # string, number, boolean, list, object; default, required, description, secret

[[step]]
name = "scan"
exec = ["./scan.sh", "{{ inputs.cluster }}"]     # or http = { method, url, headers, json }
timeout = "30s"
retries = 3                                      # after the first try; backoff = ["1s", "2s", "4s"]

[[step]]
name = "disable HA"
exec = ["./ha.sh", "disable"]

[[step]]
name = "update {{ item.name }}"
for_each = "steps.scan.output.hosts"
when = "item.outdated"
exec = ["./update.sh", "{{ item.name }}"]

[[cleanup]]                                      # always runs: success, pause, failure, cancel
name = "restore HA"
after = "disable HA"                             # optional: only if that step ran; it runs again after a resume
exec = ["./ha.sh", "restore"]
"#;

const BULK: &str = r#"
# a bulk change: waypost run start prices.toml, look at the preview, waypost run queue ID
name = "prices"
lifecycle = "rule"

[targets]
csv = "prices.csv"         # id,before,after,…; or jsonl, http, exec; after = "{{ target.before * 1.1 }}" computes it
after = "{{ target.before * 1.1 }}"

[apply]                    # likewise [fetch] (value = a JSON pointer into the answer) and [rollback]
http = { method = "PUT", url = "{{ inputs.shop }}/products/{{ target.id }}", json = { price = "{{ target.after }}" } }

[limit]
rate = "2/s"
burst = 40

[breaker]
after = 5
pause = "60s"

[guardrails]
floor = 1                  # max_rise = "20%", max_fall = "30%", per_day = 2, timezone = "Europe/Kyiv", on_violation = "fail" | "stop"

[reconcile]
after = ["5m", "1h"]
daily_for = "30d"
tolerance = { amount = 0, percent = 0 }
"#;

#[test]
fn the_playbook_of_the_design_is_sound() {
    let playbook = parse(UPDATE);
    let keys: Vec<&str> = playbook.steps.iter().map(|step| step.key.as_str()).collect();
    assert_eq!(keys, ["scan", "disable HA", "update {{ item.name }}"]);
    let scan = playbook.step("scan").unwrap();
    assert_eq!((scan.timeout, scan.retries), (Some(Span::from_seconds(30)), 3));
    assert_eq!(scan.backoff, Backoff::step());
    assert_eq!(playbook.cleanups[0].after.as_deref(), Some("disable HA"));
    assert_eq!(playbook.unattended, Unattended::Fail);
}

#[test]
fn the_bulk_change_of_the_design_is_sound() {
    let rule = parse(BULK).rule.unwrap();
    assert_eq!(rule.targets.source, Source::Csv(Path::new("playbooks/prices.csv").to_owned()));
    assert_eq!((rule.limit.pace.unwrap().burst, rule.breaker.after, rule.parallel), (40, 5, 5));
    assert_eq!(rule.apply.retries, 3);
    let fetch = rule.fetch.expect("what is written over http can be read back");
    assert_eq!(fetch.value, "/price");
    assert!(matches!(&fetch.action.action.way, Way::Http(http) if http.method == "GET"));
    assert_eq!(rule.guardrails.floor, Some(Decimal::from(1)));
    assert_eq!(rule.targets.after.unwrap().source(), "target.before * 1.1");
    let reconcile = rule.reconcile.unwrap();
    assert_eq!(reconcile.after, [Span::from_seconds(300), Span::from_seconds(3_600)]);
    assert!(
        PRICES.contains("[fetch]") && parse(PRICES).rule.unwrap().fetch.unwrap().value == "/product/price"
    );
}

/// The connector is a request like any other.
#[test]
fn shopify_is_a_request_of_the_generic_kind() {
    let text = r#"
name = "prices"
lifecycle = "rule"
secrets = { token = "env:SHOPIFY_TOKEN" }
[targets]
csv = "prices.csv"
[apply]
shopify = { shop = "https://{{ inputs.shop }}.myshopify.com/", token = "{{ secrets.token }}", version = "2025-10" }
"#;
    let playbook = parse(text);
    let rule = playbook.rule.as_ref().unwrap();
    assert_eq!(rule.limit.pace, Some(Pace::of_points()));
    let scope = Scope {
        inputs: playbook.accept(&json!({"shop": "hats"})).unwrap(),
        target: Some(json!({"id": "5", "product_id": "gid://shopify/Product/2", "before": 9, "after": 12.5})),
        ..Scope::default()
    };
    let context = playbook.context(&scope);
    let request = |action: &TargetAction| {
        let needs = playbook.needs(&action.action, &context).unwrap();
        let secrets = Secrets::resolve(&needs, |_| Ok("shpat-1".to_owned())).unwrap();
        match playbook.render(&action.action, &context, &secrets).unwrap().action {
            Action::Http(request) => *request,
            other => panic!("{other:?}"),
        }
    };
    let body = |request: &Http| match &request.body {
        Body::Json(body) => serde_json::from_str::<Value>(body.open()).unwrap(),
        other => panic!("{other:?}"),
    };
    let apply = request(&rule.apply);
    assert_eq!(apply.url, "https://hats.myshopify.com/admin/api/2025-10/graphql.json");
    assert_eq!(
        (apply.headers[0].0.as_str(), apply.headers[0].1.open()),
        ("X-Shopify-Access-Token", "shpat-1")
    );
    let expected = json!({
        "productId": "gid://shopify/Product/2",
        "variants": [{"id": "gid://shopify/ProductVariant/5", "price": "12.5"}],
    });
    assert_eq!(body(&apply)["variables"], expected);
    let fetch = rule.fetch.as_ref().expect("what is written can be read");
    assert_eq!(fetch.value, "/data/productVariant/price");
    assert_eq!(body(&request(&fetch.action))["variables"], json!({"id": "gid://shopify/ProductVariant/5"}));
}

#[test]
fn a_hash_is_of_the_meaning() {
    let pin = |text: &str| parse(text).pin();
    let first = pin(UPDATE);
    assert!(first.starts_with("update@") && first.len() == "update@".len() + 64, "{first}");
    let quoted = UPDATE
        .replace("[inputs.cluster]\ntype = \"string\" ", "[inputs]\n\"cluster\" = { type = 'string' } ");
    assert_ne!(quoted, UPDATE);
    for same in [quoted, UPDATE.replace("30s", "30000ms"), format!("# more words\n{UPDATE}\n\n")] {
        assert_eq!(pin(&same), first, "{same}");
    }
    for other in [
        UPDATE.replace("30s", "31s"),
        UPDATE.replace("\"restore\"", "\"restore\", \"all\""),
        UPDATE.replace("retries = 3", "retries = 2"),
        UPDATE.replace("item.outdated", "not item.outdated"),
        UPDATE.replace("type = \"string\"", "type = \"string\"\ndefault = \"c1\""),
    ] {
        assert_ne!(pin(&other), first, "{other}");
    }
}

#[test]
fn files_are_read_and_folders_are_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.toml");
    std::fs::write(&path, CLUSTER).unwrap();
    let playbook = Playbook::load(&path).unwrap();
    assert_eq!((playbook.folder.as_path(), playbook.pin()), (folder.path(), parse(CLUSTER).pin()));
    for (bytes, rule) in [(&b"name = \"\xff\""[..], "syntax"), (&[b' '; 300_000], "too-large")] {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(Playbook::load(&path).unwrap_err().0[0].rule, rule);
    }
    for missing in [folder.path().to_owned(), folder.path().join("missing.toml")] {
        assert_eq!(Playbook::load(&missing).unwrap_err().0[0].rule, "unreadable");
    }
}
