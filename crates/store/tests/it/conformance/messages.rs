//! Messages from outside: each content once, under the id that it came under first.

use futures_util::future::join_all;
use waypost_kernel::Span;
use waypost_store::{Database, Message, Received, StoreError};

fn message(id: &str, digest: &str) -> Message {
    Message { source: "github".into(), id: id.into(), digest: digest.into() }
}

async fn receive(store: &dyn Database, id: &str, digest: &str) -> (String, bool) {
    let Received { id, is_new } = store.receive(message(id, digest)).await.unwrap();
    (id, is_new)
}

// proves D10
pub async fn a_content_is_known_by_the_id_that_it_came_under_first(store: &dyn Database) {
    assert_eq!(receive(store, "1", "a").await, ("1".into(), true));
    assert_eq!(receive(store, "1", "a").await, ("1".into(), false), "sent again");
    assert_eq!(receive(store, "2", "a").await, ("1".into(), false), "an id need not be signed");
    assert_eq!(receive(store, "2", "b").await, ("2".into(), true), "that id came with nothing new before");
    let refused = store.receive(message("1", "c")).await;
    assert!(matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == "id"), "{refused:?}");
    let elsewhere = Message { source: "other".into(), ..message("1", "a") };
    assert!(store.receive(elsewhere).await.unwrap().is_new);
    let unfit = store.receive(message("", "d")).await;
    assert!(matches!(&unfit, Err(StoreError::Invalid { field, .. }) if field == "id"), "{unfit:?}");
}

pub async fn of_many_at_once_one_is_first(store: &dyn Database) {
    let ids: Vec<String> = (0..16).map(|number| number.to_string()).collect();
    let all = join_all(ids.iter().map(|id| receive(store, id, "same"))).await;
    assert_eq!(all.iter().filter(|(_, is_new)| *is_new).count(), 1);
    assert!(all.iter().all(|(id, _)| *id == all[0].0), "{all:?}");
}

pub async fn a_content_is_forgotten_after_a_week(store: &dyn Database) {
    receive(store, "1", "a").await;
    store.advance_clock(Span::from_seconds(6 * 24 * 3_600)).await.unwrap();
    assert_eq!(receive(store, "2", "a").await, ("1".into(), false));
    store.advance_clock(Span::from_seconds(25 * 3_600)).await.unwrap();
    assert_eq!(receive(store, "2", "a").await, ("2".into(), true));
}
