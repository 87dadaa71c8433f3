//! What tests and people behind the counter ask: no limit, no fault and no token here.

use serde_json::{Value, json};

use super::settings::{FAULTS, Settings};
use super::stats::Stats;
use super::{Change, Shop};
use crate::serving::{Answer, Asked, Faults, Reply, Route, Subject, merge, share_of};

const MAX_PAGE: u64 = 100_000;

pub const ROUTES: &[Route<Shop>] = &[
    Route {
        method: "GET",
        path: "/admin/faults",
        what: "How the shop behaves now: limits, faults, seed.",
        act: |shop, _| Answer::ok(&json!(shop.settings)).into(),
    },
    Route {
        method: "PATCH",
        path: "/admin/faults",
        what: "Changes what is given and leaves the rest; `null` takes a fault away. `only` of a fault names whom it hits: ids of products, keys of requests, or `/products/ID` for requests about that product.",
        act: patch,
    },
    Route {
        method: "DELETE",
        path: "/admin/faults",
        what: "Nothing goes wrong any more, and faults count from the beginning.",
        act: |shop, _| {
            shop.heal();
            Answer::ok(&json!(shop.settings)).into()
        },
    },
    Route {
        method: "GET",
        path: "/admin/faults/{name}",
        what: "A fault, and the ids of the products that it hits, if it is one of products.",
        act: fault,
    },
    Route {
        method: "GET",
        path: "/admin/ledger",
        what: "Every change of a price: `seq`, `at_ms`, `via`, `key`, `id`, `from_cents`, `to_cents`. `after` (a seq), `limit` (10000), `id`, `key`. `next` is the `after` of the next page.",
        act: |shop, asked| ledger(shop, asked).unwrap_or_else(|problem| Answer::bad_request(&problem)).into(),
    },
    Route {
        method: "GET",
        path: "/admin/stats",
        what: "Calls, answers, how often each fault hit, 429s, the longest interval without a call, and the rate `after` the first 60 seconds (`after_s`).",
        act: stats,
    },
    Route {
        method: "DELETE",
        path: "/admin/stats",
        what: "Counts calls from here; the ledger stays.",
        act: |shop, _| {
            shop.stats = Stats::default();
            Answer::ok(&json!({})).into()
        },
    },
    Route {
        method: "POST",
        path: "/admin/drift",
        what: "Something else changes prices now: `{\"products\": [12]}` or `{\"share\": 0.05}` of those that were changed, by `percent`.",
        act: |shop, asked| drift(shop, asked).unwrap_or_else(|problem| Answer::bad_request(&problem)).into(),
    },
];

fn patch(shop: &mut Shop, asked: &Asked<'_>) -> Reply {
    let merged = asked.request.json().and_then(|patch| merge(&shop.settings, patch));
    let merged = merged.and_then(|settings: Settings| settings.check().map(|()| settings));
    let settings = match merged {
        Ok(settings) => settings,
        Err(problem) => return Answer::bad_request(&problem).into(),
    };
    shop.requests.resize(settings.rate, settings.burst, asked.now.elapsed_us);
    shop.costs.resize(settings.cost_rate, settings.cost_burst, asked.now.elapsed_us);
    shop.settings = settings;
    Answer::ok(&json!(shop.settings)).into()
}

fn fault(shop: &mut Shop, asked: &Asked<'_>) -> Reply {
    let name = asked.parts.first().copied().unwrap_or_default();
    let Some(kind) = FAULTS.iter().find(|kind| kind.name == name) else {
        let names: Vec<&str> = FAULTS.iter().map(|kind| kind.name).collect();
        let message = format!("there is no fault {name}: {}", names.join(", "));
        return Answer::refusal(404, "NOT_FOUND", &message).into();
    };
    let products = (kind.of == Subject::Product)
        .then(|| (1..=shop.catalogue.products).filter(|&id| shop.is_hit(name, id)).collect::<Vec<u64>>());
    let chance = shop.settings.faults.0.get(name).cloned().unwrap_or_default();
    let times = chance.times.unwrap_or(kind.times);
    let shown = json!({ "name": name, "what": kind.what, "share": chance.share, "times": times, "products": products });
    Answer::ok(&shown).into()
}

fn ledger(shop: &Shop, asked: &Asked<'_>) -> Result<Answer, String> {
    let request = asked.request;
    request.only(&["after", "limit", "id", "key"])?;
    let limit = request.number("limit")?.unwrap_or(10_000);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(format!("limit={limit}: from 1 to {MAX_PAGE}"));
    }
    let after = request.number("after")?.unwrap_or(0);
    let (id, key) = (request.number("id")?, request.text("key"));
    let is_meant = |change: &&Change| {
        id.is_none_or(|id| id == change.id) && key.is_none_or(|key| change.key.as_deref() == Some(key))
    };
    let first = after.min(shop.changes().len() as u64) as usize;
    let mut found = shop.changes()[first..].iter().filter(is_meant);
    let changes: Vec<&Change> = found.by_ref().take(limit as usize).collect();
    let next = found.next().and(changes.last()).map(|last| last.seq);
    Ok(Answer::ok(&json!({ "changes": changes, "next": next })))
}

fn stats(shop: &mut Shop, asked: &Asked<'_>) -> Reply {
    let after_s = asked.request.only(&["after_s"]).and_then(|()| asked.request.number("after_s"));
    match after_s {
        Ok(after_s) => {
            let after_s = after_s.unwrap_or(60).min(1_000_000);
            Answer::ok(&shop.stats.shown(after_s, &shop.settings, shop.ledger.changes())).into()
        }
        Err(problem) => Answer::bad_request(&problem).into(),
    }
}

fn drift(shop: &mut Shop, asked: &Asked<'_>) -> Result<Answer, String> {
    let body = asked.request.json()?;
    let body = body.as_object().ok_or("the body is an object with products or share")?;
    if let Some(name) = body.keys().find(|name| !["products", "share", "percent"].contains(&name.as_str())) {
        return Err(format!("{name} is unknown: products, share, percent"));
    }
    let percent = match body.get("percent") {
        None => shop.settings.drift_percent,
        Some(percent) => percent.as_f64().ok_or("percent is a number")?,
    };
    let ids = match (body.get("products"), body.get("share")) {
        (Some(products), None) => chosen(shop, products)?,
        (None, Some(share)) => {
            let share = share_of(&share.to_string().replace('"', ""))?;
            let mut changed: Vec<u64> = shop.changes().iter().map(|change| change.id).collect();
            changed.sort_unstable();
            changed.dedup();
            let mut faults = Faults::default();
            faults.set(&format!("drift={share}"), FAULTS)?;
            let seed = shop.settings.seed;
            changed.into_iter().filter(|id| faults.is_drawn(seed, "drift", &format!("admin {id}"))).collect()
        }
        _ => return Err("give products or share".to_owned()),
    };
    Ok(match shop.drift(&ids, percent, asked.now) {
        Ok(drifted) => Answer::ok(&json!({ "drifted": drifted })),
        Err(problem) => problem,
    })
}

fn chosen(shop: &Shop, products: &Value) -> Result<Vec<u64>, String> {
    let problem = || "products is a list of ids".to_owned();
    let mut ids = Vec::new();
    for id in products.as_array().ok_or_else(problem)? {
        let id = id.as_u64().ok_or_else(problem)?;
        shop.catalogue.index(id).ok_or_else(|| format!("there is no product {id}"))?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}
