//! Tokens, and what people did.

use waypost_kernel::Span;
use waypost_store::{
    CommandWrite, Database, MAX_TOKEN_SPAN, NewRun, NewToken, ScheduleChange, ScheduleFilter, ScheduleWrite, Secret, Setting,
    TokenChange, USE_NOTED_EVERY, Who,
};

use super::kit::*;

fn new_token(secret: &Secret, role: &str) -> NewToken {
    NewToken {
        id: secret.id.clone(),
        digest: secret.digest(),
        name: "ci".into(),
        role: role.into(),
        tenant: TENANT.into(),
        lasts: None,
        by: "ann".into(),
    }
}

pub async fn a_token_is_found_by_its_public_half(store: &dyn Database) {
    let secret = Secret::fresh();
    let row =
        store.change_token(TokenChange::Issue(new_token(&secret, "operator")), "tests".into()).await.unwrap();
    assert_eq!((row.role.as_str(), row.created_by.as_str(), row.revoked_at), ("operator", "ann", None));
    let found = store.tokens(Some(secret.id.clone())).await.unwrap().remove(0);
    assert_eq!(found, row);
    assert!(secret.fits(&found.digest) && !Secret::fresh().fits(&found.digest));
    assert_eq!(store.tokens(Some("nothing".into())).await.unwrap(), []);
    assert_eq!(store.tokens(None).await.unwrap(), [row]);
}

pub async fn a_revoked_token_stays_revoked(store: &dyn Database) {
    let secret = Secret::fresh();
    store.change_token(TokenChange::Issue(new_token(&secret, "worker")), "tests".into()).await.unwrap();
    let first = store.change_token(TokenChange::Revoke(secret.id.clone()), "bob".into()).await.unwrap();
    assert_eq!(first.revoked_by.as_deref(), Some("bob"));
    advance(store, HOUR).await;
    assert_eq!(
        store.change_token(TokenChange::Revoke(secret.id.clone()), "eve".into()).await.unwrap(),
        first
    );
    assert_eq!(
        code(&store.change_token(TokenChange::Revoke("nothing".into()), "bob".into()).await),
        "NOT_FOUND"
    );
}

pub async fn a_token_may_expire_and_tells_its_last_use_by_the_minute(store: &dyn Database) {
    let secret = Secret::fresh();
    let lasting = |lasts| NewToken { lasts: Some(lasts), ..new_token(&secret, "worker") };
    for bad in [Span::ZERO, Span::from_ms(-1), Span::from_ms(MAX_TOKEN_SPAN.ms() + 1)] {
        let refused = store.change_token(TokenChange::Issue(lasting(bad)), "tests".into()).await;
        assert_eq!(invalid(refused).0, "expires");
    }
    let row = store.change_token(TokenChange::Issue(lasting(Span::from_seconds(HOUR))), "tests".into()).await.unwrap();
    let ends = row.created_at + Span::from_seconds(HOUR);
    assert_eq!((row.expires_at, row.last_used_at), (Some(ends), None));
    assert!(row.counts_at(row.created_at) && row.counts_at(ends - Span::from_ms(1)) && !row.counts_at(ends));
    let look = async || store.tokens(Some(secret.id.clone())).await.unwrap().remove(0);
    store.token_used(secret.id.clone()).await.unwrap();
    let first = look().await.last_used_at.unwrap();
    store.token_used(secret.id.clone()).await.unwrap();
    assert_eq!(look().await.last_used_at, Some(first), "one write a minute");
    advance(store, USE_NOTED_EVERY.ms() / 1_000).await;
    store.token_used(secret.id.clone()).await.unwrap();
    assert!(look().await.last_used_at.unwrap() > first);
    // A token that went meanwhile is nobody's mistake.
    store.token_used("nothing".into()).await.unwrap();
    let revoked = store.change_token(TokenChange::Revoke(secret.id.clone()), "bob".into()).await.unwrap();
    assert!(!revoked.counts_at(row.created_at) && revoked.expires_at == Some(ends));
}

pub async fn a_token_has_a_name_and_a_known_role(store: &dyn Database) {
    let secret = Secret::fresh();
    assert_eq!(
        invalid(store.change_token(TokenChange::Issue(new_token(&secret, "root")), "tests".into()).await).0,
        "role"
    );
    let nameless = NewToken { name: String::new(), ..new_token(&secret, "admin") };
    assert_eq!(invalid(store.change_token(TokenChange::Issue(nameless), "tests".into()).await).0, "name");
    assert!(store.tokens(None).await.unwrap().is_empty());
}

fn who_of(tenant: &str, reason: &str) -> Who {
    Who { tenant: tenant.into(), by: "ann".into(), reason: Some(reason.into()) }
}

pub async fn what_people_did_is_kept_in_order(store: &dyn Database) {
    let q = || "q".to_owned();
    let asked = [
        (TENANT, Setting::PauseQueue(q())),
        ("other", Setting::QueueLimit(q(), Some(1))),
        (TENANT, Setting::ResumeQueue(q())),
    ];
    for (tenant, setting) in asked {
        store.configure(setting, who_of(tenant, "why")).await.unwrap();
    }
    let all = store.audits(None, 0, 100).await.unwrap();
    let actions: Vec<&str> = all.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(actions, ["queue.pause", "queue.limit", "queue.resume"]);
    assert_eq!(all[1].reason.as_deref(), Some("limit 1: why"));
    assert!(all.is_sorted_by(|one, next| one.number < next.number));
    let own = store.audits(Some(TENANT.into()), all[0].number, 100).await.unwrap();
    assert_eq!(own, [all[2].clone()]);
    assert_eq!(store.audits(None, 0, 1).await.unwrap().len(), 1);
}

pub async fn what_is_so_already_is_not_done_again(store: &dyn Database) {
    let (q, k) = (|| "q".to_owned(), || "k".to_owned());
    let asked = [
        (Setting::ResumeQueue(q()), 0),
        (Setting::QueueLimit(q(), None), 0),
        (Setting::KeyLimit(k(), None), 0),
        (Setting::PauseQueue(q()), 1),
        (Setting::PauseQueue(q()), 1),
        (Setting::QueueLimit(q(), Some(0)), 2),
        (Setting::QueueLimit(q(), Some(0)), 2),
        (Setting::KeyLimit(k(), Some(2)), 3),
        (Setting::KeyLimit(k(), Some(2)), 3),
        (Setting::QueueLimit(q(), None), 4),
        (Setting::ResumeQueue(q()), 5),
        (Setting::ResumeQueue(q()), 5),
    ];
    for (setting, entries) in asked {
        let told = format!("{setting:?}");
        store.configure(setting, who_of(TENANT, "why")).await.unwrap();
        assert_eq!(store.audits(None, 0, 100).await.unwrap().len(), entries, "{told}");
    }
    let other = Who { by: "bob".into(), ..who_of(TENANT, "why") };
    store.configure(Setting::PauseQueue(q()), who_of(TENANT, "why")).await.unwrap();
    store.configure(Setting::PauseQueue(q()), other).await.unwrap();
    assert_eq!(store.audits(None, 0, 100).await.unwrap().len(), 7, "another person's is another pause");
}

pub async fn what_cannot_be_kept_is_not_done(store: &dyn Database) {
    let too_long = || who_of(TENANT, &"r".repeat(2_000));
    store
        .put_schedule(ScheduleWrite {
            name: "nightly".into(),
            kind: "global".into(),
            ..ScheduleWrite::default()
        })
        .await
        .unwrap();
    store.configure(Setting::PauseQueue("q".into()), who_of(TENANT, "why")).await.unwrap();
    assert_eq!(invalid(store.configure(Setting::ResumeQueue("q".into()), too_long()).await).0, "reason");
    let queues = store.queues(None).await.unwrap();
    assert!(queues.iter().any(|row| row.name == "q" && row.paused.is_some()), "{queues:?}");
    for change in [ScheduleChange::Pause("nightly".into()), ScheduleChange::Resume("nightly".into())] {
        assert_eq!(invalid(store.change_schedule(change, too_long()).await).0, "reason");
    }
    let row = store.schedules(ScheduleFilter::named("nightly")).await.unwrap().remove(0).row;
    assert_eq!(row.paused, None);
    assert_eq!(store.audits(None, 0, 100).await.unwrap().len(), 1);
}

pub async fn whatever_people_do_is_kept_with_who_and_why(store: &dyn Database) {
    let who = |reason: &str| Who { tenant: TENANT.into(), by: "ann".into(), reason: Some(reason.into()) };
    let run = put(store, deploy()).await;
    let order = |name: &str, reason: &str| CommandWrite {
        tenant: TENANT.into(),
        run_id: run.id().into(),
        name: name.into(),
        by: "ann".into(),
        reason: Some(reason.into()),
        ..CommandWrite::default()
    };
    store.command(order("promote", "no such command")).await.unwrap_err();
    store.command(order("cancel", "wrong branch")).await.unwrap();
    let settings = [
        (Setting::PauseQueue("q".into()), "upgrade"),
        (Setting::ResumeQueue("q".into()), "done"),
        (Setting::QueueLimit("q".into(), Some(3)), "slow disk"),
        (Setting::KeyLimit("k".into(), Some(2)), ""),
    ];
    for (setting, reason) in settings {
        store.configure(setting, who(reason)).await.unwrap();
    }
    let token = new_token(&Secret::fresh(), "viewer");
    let id = store.change_token(TokenChange::Issue(token), who("")).await.unwrap().id;
    store.change_token(TokenChange::Revoke(id.clone()), who("leaked")).await.unwrap();
    let told: Vec<_> = store
        .audits(Some(TENANT.into()), 0, 100)
        .await
        .unwrap()
        .into_iter()
        .map(|row| (row.by, row.action, row.subject, row.reason.unwrap_or_default()))
        .collect();
    let expected = [
        ("cancel", run.id(), "wrong branch"),
        ("queue.pause", "q", "upgrade"),
        ("queue.resume", "q", "done"),
        ("queue.limit", "q", "limit 3: slow disk"),
        ("key.limit", "k", "limit 2"),
        ("token.create", &id, ""),
        ("token.revoke", &id, "leaked"),
    ];
    let expected = expected.map(|(action, subject, reason)| {
        ("ann".to_owned(), action.to_owned(), subject.to_owned(), reason.to_owned())
    });
    assert_eq!(told, expected, "what was refused is not there");
}

pub async fn a_claim_for_a_tenant_takes_only_its_runs(store: &dyn Database) {
    for tenant in ["a", "b", "a", "b"] {
        put(store, NewRun { tenant: tenant.into(), ..deploy() }).await;
    }
    let of = |tenant: &str| waypost_store::Claim { tenant: Some(tenant.into()), ..wants("w1", 10) };
    let keyed = |tenant: &str| waypost_store::Claim { idempotency_key: Some("k".into()), ..of(tenant) };
    let taken = store.claim(keyed("b")).await.unwrap();
    assert_eq!(taken.iter().map(|it| it.run.tenant.as_str()).collect::<Vec<_>>(), ["b", "b"]);
    assert!(store.claim(of("b")).await.unwrap().is_empty());
    assert!(store.claim(keyed("c")).await.unwrap().is_empty(), "another tenant's key is another one");
    let rest = store.claim(wants("w2", 10)).await.unwrap();
    assert_eq!(rest.len(), 2, "what one tenant's claims passed over is there for the others");
    release(store, &taken[0]).await.unwrap();
    assert!(store.claim(of("a")).await.unwrap().is_empty());
    assert_eq!(store.claim(of("b")).await.unwrap().len(), 1);
}
