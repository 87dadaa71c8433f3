//! A step's command: given its secrets, and none of them seen in what it prints and answers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};
use tokio::time::Instant;
use waypost_kernel::Catalog;
use waypost_store::{Database, NewRun};
use waypost_testkit::oracle::MemoryStore;

use super::*;
use crate::lease::Lease;
use crate::options::Options;
use crate::playbook::Sealed;
use crate::report::journal::Journal;
use crate::report::reporter::Reporter;

#[tokio::test]
async fn secrets_reach_the_command_and_nobody_else() {
    let store: Arc<dyn Database> = Arc::new(MemoryStore::new(Catalog::shipped().expect("lifecycles")));
    let new = NewRun { lifecycle: "deploy".into(), ..NewRun::default() };
    let id = store.enqueue(vec![new]).await.expect("enqueued").remove(0).expect("a run").run.id().to_owned();
    let claimed = store.claim_run(id.clone(), "w1".into()).await.expect("claimed");
    let lease = Lease::new(&claimed, Instant::now(), Options::default().keeping());
    let journal = Journal::new(Reporter::new(store.clone(), Arc::default()), lease.clone(), "w1");
    let it = Try::of_run(&claimed.run, &lease, &journal, Duration::from_secs(1), 1);
    let script = r#"test "$TOKEN" = 's3cret "t0ken"' && echo "is $TOKEN" && echo "not $TOKEN" >&2
        test "$WAYPOST_STEP" = "log in" && cat | grep -q '"item":7' && echo item
        printf '{"outcome":"fail","message":"bad %s","output":["s3cret \\"t0ken\\""]}' 's3cret \"t0ken\"' > "$WAYPOST_OUTPUT""#;
    let exec = Exec {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        folder: std::env::temp_dir(),
        env: vec![
            ("TOKEN".into(), Sealed::new("s3cret \"t0ken\"")),
            ("WAYPOST_STEP".into(), Sealed::new("forged")),
        ],
    };
    let more: Map<_, _> = [("item".to_owned(), json!(7))].into_iter().collect();
    let call = Call { more, ..it.call("log in", "key".to_owned()) };
    let options = Options { guardian: None, ..Options::default() };
    let mask = Mask::new(["s3cret \"t0ken\""]);
    let answer = execute(&it, &exec, &call, &mask, &options).await.expect("it ended");
    let outcome = answer.outcome.clone().expect("written").expect("an outcome");
    assert_eq!((outcome.message.as_deref(), &outcome.output), (Some("bad ***"), &json!(["***"])));
    assert_eq!(answer.last_line.as_deref(), Some("not ***"));
    let events = store.events(id, 0, 100).await.expect("events");
    let shown = format!("{events:?}");
    assert!(shown.contains("is ***") && shown.contains("item") && !shown.contains("s3cret"), "{shown}");
}
