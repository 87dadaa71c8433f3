//! A shop in a folder.

use std::io::Write;
use std::path::Path;

use serde_json::json;

use super::*;

fn open(dir: &Path, products: Option<u64>) -> std::io::Result<Shop> {
    let catalogue = CatalogueFlags { products, ..CatalogueFlags::default() };
    Shop::open(Options {
        dir: Some(dir.to_owned()),
        catalogue,
        settings: settings(&["drift=10%"]),
        token: None,
    })
}

#[test]
fn the_ledger_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut shop = open(folder.path(), Some(50)).unwrap();
    let mut answers = Vec::new();
    for id in 1..=50 {
        let asked = json!({ "unit_amount": id * 10 });
        answers.push(ask(&mut shop, "PUT", &format!("/products/{id}"), Some(&format!("k{id}")), &asked));
    }
    let (ledger, products) = (get(&mut shop, "/admin/ledger"), get(&mut shop, "/products?limit=250"));
    drop(shop);
    // A line that was being written when the process was killed.
    let path = folder.path().join("ledger.jsonl");
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(br#"{"at_ms":1,"via":"rest","changes":[[1,"#).unwrap();

    let mut shop = open(folder.path(), None).unwrap();
    assert_eq!(get(&mut shop, "/admin/ledger"), ledger);
    assert_eq!(get(&mut shop, "/products?limit=250"), products);
    for (id, answer) in (1..=50).zip(answers) {
        let asked = json!({ "unit_amount": id * 10 });
        assert_eq!(
            ask(&mut shop, "PUT", &format!("/products/{id}"), Some(&format!("k{id}")), &asked),
            answer
        );
    }
    assert_eq!(get(&mut shop, "/admin/ledger"), ledger);
    ask(&mut shop, "PUT", "/products/1", Some("new"), &json!({ "price": 1 }));
    drop(shop);
    let last =
        open(folder.path(), None).unwrap().changes().iter().map(|change| change.key.clone()).next_back();
    assert_eq!(last.flatten().as_deref(), Some("new"));
}

#[test]
fn a_folder_is_one_shops_and_stays_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let shop = open(folder.path(), Some(50)).unwrap();
    let problem = open(folder.path(), None).unwrap_err().to_string();
    assert!(problem.contains("another shop is served from this folder"), "{problem}");
    drop(shop);
    let problem = open(folder.path(), Some(60)).unwrap_err().to_string();
    assert!(problem.contains("its products: 50, and 60 was given"), "{problem}");
    std::fs::write(folder.path().join("ledger.jsonl"), "{}\n").unwrap();
    let problem = open(folder.path(), None).unwrap_err().to_string();
    assert!(problem.contains("ledger.jsonl, line 1: missing field"), "{problem}");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let with =
        |settings: Settings| Shop::open(Options { settings, ..Options::default() }).unwrap_err().to_string();
    assert!(with(Settings { rate: 0.0, ..Settings::default() }).contains("rate: 0 is not from"));
    assert!(with(Settings { burst: f64::NAN, ..Settings::default() }).contains("burst"));
    assert!(with(Settings { hold_ms: u64::MAX, ..Settings::default() }).contains("more than an hour"));
    let products = |products| {
        let catalogue = CatalogueFlags { products: Some(products), ..CatalogueFlags::default() };
        Shop::open(Options { catalogue, ..Options::default() }).unwrap_err().to_string()
    };
    assert!(products(0).contains("not from 1 to"));
    assert!(products(u64::MAX).contains("not from 1 to"));
}
