//! A client that does everything right, against everything that goes wrong: no change twice, none missing.

use std::collections::VecDeque;

use serde_json::json;

use super::*;

const PRODUCTS: u64 = 2_000;

/// What a client of the engine's kind does: a new key after a known answer, the same after an unknown one, and no call
/// before it was told to come again.
#[test]
fn ten_thousand_calls_leave_every_price_changed_once() {
    let all =
        ["permanent=3%", "transient=10%", "lost=5%", "late=2%", "cut=2%", "timeout=2%", "server_error=3%"];
    let mut shop = of(PRODUCTS, 0.0, Settings { rate: 2.0, burst: 40.0, ..settings(&all) });
    let doomed: Vec<u64> = (1..=PRODUCTS).filter(|&id| shop.is_hit("permanent", id)).collect();
    let mut waiting: VecDeque<(u64, u32)> = (1..=PRODUCTS).map(|id| (id, 1)).collect();
    let (mut failed, mut now_ms) = (Vec::new(), 0);
    while let Some((id, attempt)) = waiting.pop_front() {
        let asked = request(
            "PUT",
            &format!("/products/{id}"),
            Some(&format!("{id}:{attempt}")),
            &json!({ "unit_amount": id }),
        );
        match shop.answer(&asked, at(now_ms)) {
            Reply::Answer(Answer { status: 200, .. }) => now_ms += 500,
            Reply::Answer(Answer { status: 400..=428 | 430..=499, .. }) => failed.push(id),
            Reply::Answer(answer) if answer.status == 429 => {
                now_ms += header(&answer, "retry-after").unwrap().parse::<u64>().unwrap() * 1_000;
                waiting.push_front((id, attempt));
            }
            Reply::Answer(_) => waiting.push_back((id, attempt + 1)),
            Reply::Cut | Reply::Held { .. } => waiting.push_back((id, attempt)),
        }
    }
    failed.sort_unstable();
    assert_eq!(failed, doomed);
    for id in (1..=PRODUCTS).filter(|id| !doomed.contains(id)) {
        assert_eq!(shop.price_cents(id), Some(id as i64), "product {id}");
    }
    let stats = get(&mut shop, "/admin/stats");
    assert_eq!(stats["changes"]["by_clients"], PRODUCTS - doomed.len() as u64);
    assert_eq!(stats["changes"]["products"], stats["changes"]["by_clients"]);
    assert!(stats["replayed"].as_u64().unwrap() > 50, "{stats}");
    assert!(stats["after"]["rest_calls"]["used_share"].as_f64().unwrap() > 0.9, "{stats}");
}
