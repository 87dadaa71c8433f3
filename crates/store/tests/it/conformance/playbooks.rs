//! Playbooks that processes have, for those who start runs by name.

use waypost_kernel::Span;
use waypost_store::{
    Database, KEPT_VERSIONS, MOST_PLAYBOOK_TEXT, MOST_PLAYBOOKS, OfferedPlaybook, PlaybookFilter, StoreError,
};

fn book(tenant: &str, name: &str, hash: &str) -> OfferedPlaybook {
    OfferedPlaybook {
        tenant: tenant.into(),
        name: name.into(),
        hash: hash.into(),
        file: format!("/books/{name}.toml"),
        text: format!("name = \"{name}\" # {hash}\n"),
        by: "w1".into(),
    }
}

async fn offer(store: &dyn Database, books: &[OfferedPlaybook]) {
    store.offer_playbooks(books.to_vec()).await.unwrap();
}

/// Tenant, name and hash of each.
async fn found(store: &dyn Database, filter: PlaybookFilter) -> Vec<String> {
    let rows = store.playbooks(filter).await.unwrap();
    rows.iter().map(|row| format!("{} {} {}", row.offered.tenant, row.offered.name, row.offered.hash)).collect()
}

fn of(tenant: &str) -> PlaybookFilter {
    PlaybookFilter { tenant: Some(tenant.into()), ..PlaybookFilter::default() }
}

// proves U1
pub async fn what_a_process_has_no_more_is_withdrawn(store: &dyn Database) {
    let of_other = OfferedPlaybook { by: "w2".into(), ..book("*", "update", "cc") };
    offer(store, &[book("*", "update", "aa"), book("*", "old", "bb"), book("shop", "old", "bb")]).await;
    offer(store, &[of_other]).await;
    let gone = || vec!["old".to_owned(), "update".to_owned(), "never".to_owned()];
    store.withdraw_playbooks("*".into(), "w1".into(), gone()).await.unwrap();
    assert_eq!(found(store, of("shop")).await, ["shop old bb", "* update cc"], "another's and a tenant's stay");
    store.withdraw_playbooks("*".into(), "w1".into(), gone()).await.unwrap();
    store.withdraw_playbooks("*".into(), "w2".into(), Vec::new()).await.unwrap();
    assert_eq!(found(store, of("other")).await, ["* update cc"]);
}

// proves U1
pub async fn the_version_that_was_offered_last_is_the_one(store: &dyn Database) {
    offer(store, &[book("*", "update", "aa11"), book("*", "backup", "bb")]).await;
    let first = store.playbooks(of("default")).await.unwrap();
    assert_eq!(first[1].offered, book("*", "update", "aa11"));
    store.advance_clock(Span::from_seconds(1)).await.unwrap();
    offer(store, &[book("*", "update", "aa11")]).await;
    assert_eq!(store.playbooks(of("default")).await.unwrap(), first, "the same again is not written");
    // In one transaction, and so in one instant: the later one is the later one.
    offer(store, &[book("*", "update", "cc"), book("*", "update", "aa22")]).await;
    assert_eq!(found(store, of("default")).await, ["* backup bb", "* update aa22"]);
    offer(store, &[book("*", "update", "aa11")]).await;
    assert_eq!(found(store, of("default")).await, ["* backup bb", "* update aa11"], "an older one came back");
    let update = || PlaybookFilter { name: Some("update".into()), ..of("default") };
    let all = found(store, PlaybookFilter { all_versions: true, ..update() }).await;
    assert_eq!(all, ["* update aa11", "* update aa22", "* update cc"]);
    let by_hash = found(store, PlaybookFilter { hash: Some("aa".into()), ..update() }).await;
    assert_eq!(by_hash, ["* update aa11", "* update aa22"]);
    assert_eq!(found(store, PlaybookFilter { hash: Some("x%".into()), ..update() }).await, [""; 0]);
}

// proves U1
pub async fn a_tenant_sees_its_own_playbooks_and_everybodys(store: &dyn Database) {
    offer(store, &[book("*", "p", "1"), book("b", "p", "2"), book("a", "p", "3"), book("b", "q", "4")]).await;
    assert_eq!(found(store, of("a")).await, ["a p 3", "* p 1"], "its own first");
    assert_eq!(found(store, of("b")).await, ["b p 2", "* p 1", "b q 4"]);
    assert_eq!(found(store, of("c")).await, ["* p 1"]);
    assert_eq!(found(store, PlaybookFilter::default()).await, ["a p 3", "b p 2", "* p 1", "b q 4"]);
}

pub async fn what_is_no_playbook_is_not_kept(store: &dyn Database) {
    let good = book("*", "p", "1");
    for bad in [
        OfferedPlaybook { name: String::new(), ..good.clone() },
        OfferedPlaybook { tenant: "a/b".into(), ..good.clone() },
        OfferedPlaybook { text: "x".repeat(1_048_577), ..good.clone() },
        OfferedPlaybook { text: "a\0b".into(), ..good.clone() },
        OfferedPlaybook { by: String::new(), ..good.clone() },
    ] {
        let offered = store.offer_playbooks(vec![good.clone(), bad.clone()]).await;
        assert!(matches!(offered, Err(StoreError::Invalid { .. })), "{bad:?}");
    }
    assert_eq!(found(store, PlaybookFilter::default()).await, [""; 0], "all or none");
}

pub async fn only_the_latest_versions_are_kept(store: &dyn Database) {
    let versions: Vec<_> = (0..KEPT_VERSIONS + 3).map(|at| book("*", "p", &format!("{at:03}"))).collect();
    offer(store, &versions).await;
    let all = store.playbooks(PlaybookFilter { all_versions: true, ..of("a") }).await.unwrap();
    assert_eq!(all.len(), KEPT_VERSIONS);
    assert_eq!((all[0].offered.hash.as_str(), all.last().unwrap().offered.hash.as_str()), ("052", "003"));
}

fn is_refused(offered: waypost_store::Result<()>, words: &str) {
    let Err(StoreError::Invalid { field, message }) = offered else { panic!("{offered:?}") };
    assert!(field == "playbooks" && message.contains(words), "{field}: {message}");
}

pub async fn a_tenant_has_as_many_as_whoever_lists_them_can_hold(store: &dyn Database) {
    let names: Vec<_> = (0..MOST_PLAYBOOKS).map(|at| book("a", &format!("p{at}"), "1")).collect();
    offer(store, &names).await;
    is_refused(store.offer_playbooks(vec![book("a", "p0", "2"), book("a", "more", "1")]).await, "names");
    assert_eq!(store.playbooks(of("a")).await.unwrap().len(), MOST_PLAYBOOKS);
    assert_eq!(store.playbooks(of("a")).await.unwrap()[0].offered.hash, "1", "all or none");
    offer(store, &[book("a", "p0", "2"), book("b", "more", "1")]).await;
}

pub async fn superseded_versions_leave_before_a_definition_is_refused(store: &dyn Database) {
    let large = |name: &str, hash: &str| OfferedPlaybook {
        text: "x".repeat(MOST_PLAYBOOK_TEXT / 4),
        ..book("a", name, hash)
    };
    offer(store, &[large("p", "1"), large("p", "2"), large("q", "1"), large("q", "2")]).await;
    let all = || PlaybookFilter { all_versions: true, ..of("a") };
    assert_eq!(found(store, all()).await, ["a p 2", "a p 1", "a q 2", "a q 1"], "they fit");
    offer(store, &[large("r", "1"), large("s", "1")]).await;
    assert_eq!(found(store, all()).await, ["a p 2", "a q 2", "a r 1", "a s 1"]);
    is_refused(store.offer_playbooks(vec![book("a", "t", "1")]).await, "characters");
    assert_eq!(found(store, all()).await, ["a p 2", "a q 2", "a r 1", "a s 1"]);
    let names = store.playbooks(PlaybookFilter { names_only: true, ..of("a") }).await.unwrap();
    assert!(names.iter().all(|row| row.offered.text.is_empty()) && names.len() == 4);
}
