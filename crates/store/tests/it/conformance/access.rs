//! Tokens, and what people did.

use waypost_store::{CommandWrite, LimitOf, NewAudit, NewRun, NewToken, Secret, Store, Who};

use super::kit::*;

fn new_token(secret: &Secret, role: &str) -> NewToken {
    NewToken {
        id: secret.id.clone(),
        digest: secret.digest(),
        name: "ci".into(),
        role: role.into(),
        tenant: TENANT.into(),
        by: "ann".into(),
    }
}

pub async fn a_token_is_found_by_its_public_half(store: &dyn Store) {
    let secret = Secret::fresh();
    let row = store.add_token(new_token(&secret, "operator")).await.unwrap();
    assert_eq!((row.role.as_str(), row.created_by.as_str(), row.revoked_at), ("operator", "ann", None));
    let found = store.token(secret.id.clone()).await.unwrap().unwrap();
    assert_eq!(found, row);
    assert!(secret.fits(&found.digest) && !Secret::fresh().fits(&found.digest));
    assert_eq!(store.token("nothing".into()).await.unwrap(), None);
    assert_eq!(store.tokens().await.unwrap(), [row]);
}

pub async fn a_revoked_token_stays_revoked(store: &dyn Store) {
    let secret = Secret::fresh();
    store.add_token(new_token(&secret, "worker")).await.unwrap();
    let first = store.revoke_token(secret.id.clone(), "bob".into()).await.unwrap();
    assert_eq!(first.revoked_by.as_deref(), Some("bob"));
    advance(store, HOUR).await;
    assert_eq!(store.revoke_token(secret.id.clone(), "eve".into()).await.unwrap(), first);
    assert_eq!(code(&store.revoke_token("nothing".into(), "bob".into()).await), "NOT_FOUND");
}

pub async fn a_token_has_a_name_and_a_known_role(store: &dyn Store) {
    let secret = Secret::fresh();
    assert_eq!(invalid(store.add_token(new_token(&secret, "root")).await).0, "role");
    let nameless = NewToken { name: String::new(), ..new_token(&secret, "admin") };
    assert_eq!(invalid(store.add_token(nameless).await).0, "name");
    assert!(store.tokens().await.unwrap().is_empty());
}

pub async fn what_people_did_is_kept_in_order(store: &dyn Store) {
    let entry = |tenant: &str, action: &str| NewAudit {
        tenant: tenant.into(),
        by: "ann".into(),
        action: action.into(),
        subject: "run-1".into(),
        reason: Some("why".into()),
    };
    for (tenant, action) in [(TENANT, "cancel"), ("other", "retry"), (TENANT, "resume")] {
        store.audit(entry(tenant, action)).await.unwrap();
    }
    let all = store.audits(None, 0, 100).await.unwrap();
    let actions: Vec<&str> = all.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(actions, ["cancel", "retry", "resume"]);
    assert!(all.is_sorted_by(|one, next| one.number < next.number));
    let own = store.audits(Some(TENANT.into()), all[0].number, 100).await.unwrap();
    assert_eq!(own, [all[2].clone()]);
    assert_eq!(store.audits(None, 0, 1).await.unwrap().len(), 1);
    let long = NewAudit { reason: Some("r".repeat(2_000)), ..entry(TENANT, "cancel") };
    assert_eq!(invalid(store.audit(long).await).0, "reason");
}

pub async fn whatever_people_do_is_kept_with_who_and_why(store: &dyn Store) {
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
    store.order(order("promote", "no such command")).await.unwrap_err();
    store.order(order("cancel", "wrong branch")).await.unwrap();
    assert_eq!(store.close_queue("q".into(), who("upgrade")).await.unwrap().paused.unwrap().reason, "upgrade");
    store.open_queue("q".into(), who("done")).await.unwrap();
    store.set_limit(LimitOf::Queue, "q".into(), Some(3), who("slow disk")).await.unwrap();
    store.set_limit(LimitOf::Key, "k".into(), None, who("")).await.unwrap();
    let token = new_token(&Secret::fresh(), "viewer");
    let id = store.issue_token(token, who("")).await.unwrap().id;
    store.end_token(id.clone(), who("leaked")).await.unwrap();
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
        ("queue.limit", "q", "slow disk"),
        ("key.limit", "k", ""),
        ("token.create", &id, ""),
        ("token.revoke", &id, "leaked"),
    ];
    let expected = expected.map(|(action, subject, reason)| {
        ("ann".to_owned(), action.to_owned(), subject.to_owned(), reason.to_owned())
    });
    assert_eq!(told, expected, "what was refused is not there");
}

pub async fn a_claim_for_a_tenant_takes_only_its_runs(store: &dyn Store) {
    for tenant in ["a", "b", "a", "b"] {
        put(store, NewRun { tenant: tenant.into(), ..deploy() }).await;
    }
    let of = |tenant: &str| waypost_store::Claim { tenant: Some(tenant.into()), ..wants("w1", 10) };
    let taken = store.claim(of("b")).await.unwrap();
    assert_eq!(taken.iter().map(|it| it.run.tenant.as_str()).collect::<Vec<_>>(), ["b", "b"]);
    assert!(store.claim(of("b")).await.unwrap().is_empty());
    assert!(store.claim(of("c")).await.unwrap().is_empty());
    let rest = store.claim(wants("w2", 10)).await.unwrap();
    assert_eq!(rest.len(), 2, "what one tenant's claims passed over is there for the others");
    release(store, &taken[0]).await.unwrap();
    assert!(store.claim(of("a")).await.unwrap().is_empty());
    assert_eq!(store.claim(of("b")).await.unwrap().len(), 1);
}
