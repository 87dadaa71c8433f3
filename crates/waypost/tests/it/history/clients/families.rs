//! Runs that have a child while they are worked, and end as cancelled: nobody works the child any more.

use std::sync::Arc;

use super::super::plan::FAMILIES;
use super::super::record::NewRun;
use super::super::shared::Shared;
use super::Client;

/// Parents are claimed here at once; what their children's queue has left is worked at the end of the history.
pub async fn cancel_parents(shared: Arc<Shared>) {
    let mut client = Client::new(&shared, "family", 0);
    let [parents, children] = FAMILIES;
    while !shared.is_over() {
        shared.rest(500 + client.dice.below(1_000)).await;
        let new = |queue: &str, parent: Option<&str>| NewRun {
            lifecycle: "deploy".to_owned(),
            queue: queue.to_owned(),
            parent: parent.map(str::to_owned),
            ..NewRun::default()
        };
        client.start(&new(parents, None)).await;
        for hold in client.claim(&[parents], 1, 0).await {
            client.start(&new(children, Some(&hold.run_id))).await;
            client.finish(&hold, "cancelled").await;
        }
    }
}
