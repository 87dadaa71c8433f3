//! Encrypted connections: what is checked of a server, and that every connection is of that sort.

use std::time::Duration;

use waypost_store::doctor::{Finding, Health};
use waypost_store::postgres::{ListenState, PostgresStore, doctor, migrate, status};
use waypost_store::{FinishWrite, Held, Store, StoreError};
use waypost_testkit::{Certificate, Cluster, Issuer};

use super::{assert_clean, deploy, wants};

const NAME: &str = "db.waypost.test";

fn encrypted(certificate: &Certificate) -> Cluster {
    let cluster = Cluster::on_port().unwrap();
    cluster.encrypt(certificate).unwrap();
    cluster.restart().unwrap();
    cluster
}

/// Opens a store, or says why not.
async fn opens(address: &str) -> Result<(), String> {
    PostgresStore::open(address).await.map(drop).map_err(|error| error.to_string())
}

#[track_caller]
fn assert_said(answer: &Result<(), String>, words: &str, of: &str) {
    match (answer, words) {
        (Ok(()), "") => {}
        (Err(said), words) if !words.is_empty() && said.contains(words) => {}
        _ => panic!("{of}: {answer:?}, not {words:?}"),
    }
}

async fn encryption(address: &str) -> Finding {
    let found = doctor(address).await.unwrap();
    found.into_iter().find(|finding| finding.what == "encryption").unwrap()
}

#[tokio::test]
async fn a_server_is_checked_as_far_as_the_address_says() {
    let (issuer, stranger) = (Issuer::new("issuer").unwrap(), Issuer::new("stranger").unwrap());
    let cluster = encrypted(&issuer.issue(NAME).unwrap());
    let [known, unknown] = [&issuer, &stranger].map(|it| it.certificate().file.display().to_string());
    let (issued_by, another) = ("issued by nobody in sslrootcert", "is for another name");
    for (name, words, said) in [
        (NAME, String::new(), ""),
        (NAME, "sslmode=disable".into(), ""),
        (NAME, "sslmode=require".into(), ""),
        ("other.test", "sslmode=require".into(), ""),
        ("other.test", format!("sslmode=require sslrootcert={known}"), ""),
        ("other.test", format!("sslmode=require sslrootcert={unknown}"), issued_by),
        ("other.test", format!("sslmode=verify-ca sslrootcert={known}"), ""),
        (NAME, format!("sslmode=verify-ca sslrootcert={unknown}"), issued_by),
        (NAME, format!("sslmode=verify-full sslrootcert={known}"), ""),
        (NAME, format!("sslmode=verify-full sslrootcert={unknown}"), issued_by),
        (NAME, "sslmode=verify-full sslrootcert=system".into(), issued_by),
        ("other.test", format!("sslmode=verify-full sslrootcert={known}"), another),
        ("127.0.0.1", format!("sslmode=verify-full sslrootcert={known}"), another),
    ] {
        assert_said(&opens(&format!("{} {words}", cluster.named(name))).await, said, &words);
    }
    // A socket of this machine has no TLS, whatever is asked for.
    assert_said(&opens(&format!("{} sslmode=verify-full", cluster.url())).await, "", "a socket");

    // Whoever wants a password bound to the connection gets that, and no plain connection is taken instead.
    cluster.psql("CREATE ROLE bound LOGIN SUPERUSER PASSWORD 'secret'").unwrap();
    cluster.admit("host all bound all scram-sha-256").unwrap();
    cluster.restart().unwrap();
    let bound = format!("{} user=bound password=secret channel_binding=require", cluster.named(NAME));
    assert_said(&opens(&bound).await, "", "channel binding");
    assert!(opens(&format!("{bound} sslmode=disable")).await.is_err());

    // A certificate that its owner made is its own issuer, and one of the first version can only be taken unread.
    cluster.encrypt(&issuer.certificate()).unwrap();
    cluster.restart().unwrap();
    let own = |words: &str| format!("{} sslmode={words}", cluster.named(NAME));
    assert_said(&opens(&own(&format!("verify-ca sslrootcert={known}"))).await, "", "self-signed");
    assert_said(&opens(&own(&format!("verify-ca sslrootcert={unknown}"))).await, "certificate", "strange");
    cluster.encrypt(&issuer.issue_old(NAME).unwrap()).unwrap();
    cluster.restart().unwrap();
    assert_said(&opens(&own("require")).await, "", "version 1");
    assert_said(&opens(&own(&format!("verify-ca sslrootcert={known}"))).await, "not accepted", "version 1");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_it_is_required() {
    let cluster = Cluster::on_port().unwrap();
    assert_said(&opens(&cluster.named(NAME)).await, "", "prefer");
    let refused = opens(&format!("{} sslmode=require", cluster.named(NAME))).await;
    assert_said(&refused, "does not offer encrypted connections; switch ssl on there", "require");
    let found = encryption(&cluster.named(NAME)).await;
    assert_eq!(found.health, Health::Warning, "{found:?}");
    assert!(found.advice.unwrap().contains("sslmode=verify-full"));
    assert_eq!(encryption(&cluster.url()).await.health, Health::Ok);
}

/// The pools, the one that listens, migrations and the doctor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_is_encrypted() {
    let issuer = Issuer::new("issuer").unwrap();
    let cluster = encrypted(&issuer.issue(NAME).unwrap());
    // Whatever comes over the network in plain is turned away.
    cluster.admit("hostnossl all all all reject").unwrap();
    cluster.restart().unwrap();
    let file = issuer.certificate().file;
    let address = format!("{} sslmode=verify-full sslrootcert='{}'", cluster.named(NAME), file.display());
    assert_eq!(migrate(&address).await, Ok(vec![1]));
    assert!(status(&address).await.is_ok());
    let plain = PostgresStore::open(&format!("{} sslmode=disable", cluster.named(NAME))).await;
    assert!(
        matches!(&plain, Err(StoreError::Unavailable(said)) if said.contains("no encryption")),
        "{plain:?}"
    );

    let store = PostgresStore::open(&address).await.unwrap();
    while store.listen_state() != ListenState::Listening {
        store.changed(Duration::from_secs(1)).await;
    }
    store.enqueue(vec![deploy(); 100]).await.unwrap();
    for claimed in store.claim(wants("w", 100)).await.unwrap() {
        let held = Held { run_id: claimed.run.id().to_owned(), token: claimed.token };
        store.renew(vec![held]).await.unwrap().remove(0).unwrap();
        let end = FinishWrite {
            run_id: claimed.run.id().to_owned(),
            token: Some(claimed.token),
            by: "w".into(),
            status: "success".into(),
            ..FinishWrite::default()
        };
        store.finish(vec![end]).await.unwrap().remove(0).unwrap();
    }
    let plain = "SELECT count(*) FILTER (WHERE NOT ssl), count(*) > 2 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                 WHERE application_name = 'waypost'";
    assert_eq!(cluster.psql(plain).unwrap(), "0|t");
    let found = encryption(&address).await;
    assert_eq!(found.health, Health::Ok);
    assert!(found.found.contains("TLS 1.3") && found.found.contains("issuer and name"), "{found:?}");
    assert_clean(&store).await;
}
