//! The shipped lifecycle files are sound, and a run can be walked through them.

use waypost_kernel::decide::NewRun;
use waypost_kernel::lifecycle::{Kind, SHIPPED};
use waypost_kernel::request::{Finish, Level, Note, With};
use waypost_kernel::*;

pub fn catalog() -> Catalog {
    match Catalog::shipped() {
        Ok(catalog) => catalog,
        Err(problems) => panic!("{problems}"),
    }
}

#[test]
fn the_shipped_files_load_under_their_own_names() {
    let catalog = catalog();
    for (name, _) in SHIPPED {
        assert_eq!(&*catalog.latest(name).unwrap().name, name);
    }
    assert_eq!(catalog.iter().filter(|lifecycle| lifecycle.kind == Kind::Item).count(), 3);
}

// proves D4: claiming does not start the run, the worker's first own event does
#[test]
fn a_deploy_run_goes_from_queued_to_success() {
    let catalog = catalog();
    let deploy = catalog.latest("deploy").unwrap();
    let client = Who { actor: Actor::Client, by: "ann", fresh: Token(1) };
    let worker = Who { actor: Actor::Worker, by: "w1", fresh: Token(2) };
    let now = Time::from_ms(1_000);
    let new = NewRun { id: "run-1", ..NewRun::default() };
    let created = create(deploy, &new, &client, now).unwrap();
    let mut events = created.events;
    let mut run = created.after;
    let note =
        Note { level: Level::Info, message: "building".into(), payload: serde_json::json!({}), key: None };
    let token = Token(2);
    let asks = [
        Ask::Claim { lease: None, start: false },
        Ask::Renew { token },
        Ask::Note { token, note: &note },
        Ask::Finish { token, finish: Finish { to: "success", ..Finish::default() } },
    ];
    let mut path = vec!["queued".to_owned()];
    for ask in asks {
        let change = decide(deploy, &run, &Request { who: worker, ask }, now).unwrap();
        events.extend(change.events);
        run = change.after;
        path.push(deploy.state(run.state).name.to_string());
    }
    assert_eq!(path, ["queued", "claimed", "claimed", "running", "success"]);
    assert_eq!(fold::fold(deploy, &events).unwrap(), fold::without_secrets(&run));
    let cancel = Request { who: client, ask: Ask::Command { name: "cancel", with: With::default() } };
    let refusal = decide(deploy, &run, &cancel, now).unwrap_err();
    assert_eq!((refusal.code, &*refusal.current), (Code::InvalidTransition, "success"));
}
