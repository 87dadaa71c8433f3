//! Handlers in Rust go through the same pipeline.

use serde_json::json;
use waypost_kernel::request::Level;
use waypost_store::NewRun;
use waypost_worker::{Context, Handler, Handlers, Outcome};

use crate::support::{Shop, code, message};

fn shop(handler: impl Handler + 'static) -> Shop {
    let mut shop = Shop::new();
    shop.options.allow_commands = false;
    shop.options.handlers = Handlers::default().with("greet", handler);
    shop
}

fn greeting() -> NewRun {
    NewRun {
        lifecycle: "deploy".into(),
        playbook: Some("greet".into()),
        input: json!({"name": "Ann"}),
        ..NewRun::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_sees_its_run_and_leaves_its_result() {
    let shop = shop(|context: Context| async move {
        context.note(Level::Info, "greeting", json!({"key": context.idempotency_key})).await;
        Outcome { output: json!({"hello": context.input["name"]}), ..Outcome::done() }
    });
    let id = shop.enqueue(greeting()).await;
    assert_eq!(shop.work().await.succeeded, 1);
    let row = shop.run(&id).await;
    assert_eq!(row.details["output"], json!({"hello": "Ann"}));
    let messages = shop.messages(&id).await;
    assert!(
        messages.iter().any(|it| it == "Run started by w1") && messages.iter().any(|it| it == "greeting")
    );
}

// proves X10
#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_of_a_hundred_megabytes_is_cut_and_marked() {
    let shop = shop(|_: Context| async move {
        let long = "é\0".repeat(33_000_000);
        Outcome { output: json!([&long]), ..Outcome::fail("LONG", &long) }
    });
    let id = shop.enqueue(greeting()).await;
    assert_eq!(shop.work().await.failed, 1);
    let row = shop.run(&id).await;
    assert_eq!(row.details["output"]["cut"], true);
    let message = message(&row).unwrap();
    assert!(message.starts_with("é\u{fffd}") && message.len() < 16_384, "{} bytes", message.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_ends_the_run_and_not_the_worker() {
    let shop = shop(|context: Context| async move {
        assert!(context.input.is_null(), "the planted panic of this test");
        Outcome::done()
    });
    let (first, second) = (shop.enqueue(greeting()).await, shop.enqueue(greeting()).await);
    assert_eq!(shop.work().await.failed, 1);
    assert_eq!(shop.work().await.failed, 1);
    for id in [first, second] {
        let row = shop.run(&id).await;
        assert_eq!((row.status(), code(&row)), ("failed", Some("HANDLER_PANIC")));
    }
}

// proves X8
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_reaches_a_handler_whether_it_listens_or_not() {
    for listens in [true, false] {
        let shop = shop(move |context: Context| async move {
            context.note(Level::Info, "waiting", json!({})).await;
            if listens {
                context.stopped().await;
                context.note(Level::Info, "heard", json!({})).await;
            } else {
                std::future::pending::<()>().await;
            }
            Outcome::done()
        });
        let id = shop.enqueue(greeting()).await;
        let running = shop.start();
        crate::support::eventually("it waits", async || {
            shop.messages(&id).await.iter().any(|it| it == "waiting").then_some(())
        })
        .await;
        shop.cancel(&id).await;
        assert_eq!(shop.until_settled(&id).await.status(), "cancelled");
        assert_eq!(shop.messages(&id).await.iter().any(|it| it == "heard"), listens);
        running.stop().await;
    }
}
