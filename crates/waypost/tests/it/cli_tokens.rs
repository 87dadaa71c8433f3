//! Tokens from the command line: how long they count, and when they were used.

use crate::support::{Ran, Shop, eventually};

// proves U13
#[test]
fn a_token_is_made_with_an_end_and_listed_with_it_and_its_last_use() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let token = shop.ok(&["token", "create", "ci", "--role", "admin", "--expires", "90d"]);
        shop.ok(&["token", "create", "old", "--role", "viewer"]);
        let rows = shop.json(&["token", "list"]);
        let instant = |name: &str| waypost_store::parse_time(rows[0][name].as_str().unwrap()).unwrap();
        assert_eq!((instant("expires_at") - instant("created_at")).ms(), 90 * 86_400_000);
        assert!(rows[0]["last_used_at"].is_null() && rows[1]["expires_at"].is_null(), "{rows}");
        let table = shop.ok(&["token", "list"]);
        assert!(
            table.contains("EXPIRES") && table.contains("LAST USED") && table.contains("never"),
            "{table}"
        );
        let (_server, url) = shop.serve(&["serve", "--require-tokens"]);
        let elsewhere = Shop::new();
        let mut command =
            elsewhere.command(&["token", "create", "child", "--role", "viewer", "--expires", "1h"]);
        let ran =
            Ran::from(command.env("WAYPOST_URL", &url).env("WAYPOST_TOKEN", token.trim()).output().unwrap());
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let rows = shop.json(&["token", "list"]);
        assert!(rows[2]["expires_at"].is_string(), "{rows}");
        eventually("its use is kept", std::time::Duration::from_secs(30), || {
            shop.ok(&["token", "list"]).contains("s ago")
        });
    }
    let shop = Shop::new();
    for bad in ["0s", "90", "soon"] {
        shop.run(&["token", "create", "x", "--role", "viewer", "--expires", bad])
            .expect(2, &["--expires", "7d"]);
    }
    shop.run(&["token", "create", "x", "--role", "viewer", "--expires", "9999d"])
        .expect(2, &["expires", "ten years"]);
}

/// A server that nobody can open is refused as one without tokens is.
// proves U13
#[tokio::test(flavor = "multi_thread")]
async fn expired_tokens_are_none_for_a_server_that_begins() {
    let shop = Shop::new();
    shop.ok(&["token", "create", "ci", "--role", "admin", "--expires", "1h"]);
    let store = shop.store().await;
    store.advance_clock(waypost_kernel::Span::from_seconds(3_601)).await.unwrap();
    drop(store);
    shop.run(&["serve", "--require-tokens", "--listen", "127.0.0.1:0"])
        .expect(2, &["needs tokens", "there are none"]);
    assert!(shop.ok(&["token", "list"]).contains("(expired)"));
}
