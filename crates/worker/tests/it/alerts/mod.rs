//! Alerts: figures of real bulk changes and destinations, evaluated on both databases with a moved clock, and told to servers that
//! check what they are sent.

mod flood;
mod receiver;

use std::path::Path;
use std::sync::Arc;

use waypost_kernel::alert::{Delivery, Severity, Status};
use waypost_kernel::breaker::Settings;
use waypost_kernel::destination::{CallAnswer, Limit};
use waypost_kernel::{Phase, Span};
use waypost_store::{Admit, AlertRow, Answered, Database, SilenceAlert, Who};
use waypost_worker::alerts::{Alerts, Kind, Sink, Text};
use waypost_worker::loops::{Alerter, Loop};
use waypost_worker::playbook::Reference;

use crate::support::{On, open};
use crate::targets::kit::{REST, Stage, settings};
use receiver::{ROUTING_KEY, Receiver};

const OK: CallAnswer = CallAnswer { throttled: false, retry_after: None, reported: None };
const THROTTLED: CallAnswer = CallAnswer { throttled: true, ..OK };

fn secret(folder: &Path, name: &str, text: &str) -> Reference {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    Reference::File(path)
}

/// One of each kind.
fn sinks(receiver: &Receiver, folder: &Path) -> Vec<Sink> {
    let sink = |kind: Kind, url: Text, token: Option<Reference>, severity: Severity| Sink {
        name: kind.name().to_owned(),
        kind,
        url,
        token,
        severity,
        allow_private: true,
    };
    let slack = Text::Secret(secret(folder, "slack", &receiver.url("/services/T0/B0/secret")));
    let key = Some(secret(folder, "pagerduty", ROUTING_KEY));
    let token = Some(secret(folder, "hook", "s3cret-token"));
    vec![
        sink(Kind::Slack, slack, None, Severity::Warning),
        sink(Kind::PagerDuty, Text::Plain(receiver.url("/v2/enqueue")), key, Severity::Critical),
        sink(Kind::Alertmanager, Text::Plain(receiver.url("/")), None, Severity::Warning),
        sink(Kind::Webhook, Text::Plain(receiver.url("/hook")), token, Severity::Warning),
    ]
}

struct Bench {
    store: Arc<dyn Database>,
    receiver: Receiver,
    alerts: Alerts,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn new(store: Arc<dyn Database>) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let receiver = Receiver::start().await;
        let link = Some("https://waypost.example".to_owned());
        let alerts = Alerts { sinks: sinks(&receiver, folder.path()), link, ..Alerts::default() };
        Bench { store, receiver, alerts, _folder: folder }
    }

    fn with_only(mut self, kind: Kind) -> Bench {
        self.alerts.sinks.retain(|sink| sink.kind == kind);
        self
    }

    fn alerter(&self) -> Alerter {
        Alerter::new(self.store.clone(), self.alerts.clone())
    }

    /// Half a minute later, three processes look at once; gives what was taken, as kind and word.
    async fn looked(&self) -> Vec<String> {
        self.store.advance_clock(Span::from_seconds(31)).await.unwrap();
        self.looked_now().await
    }

    async fn looked_now(&self) -> Vec<String> {
        let (mut a, mut b, mut c) = (self.alerter(), self.alerter(), self.alerter());
        let (a, b, c) = tokio::join!(a.run_once(), b.run_once(), c.run_once());
        for looked in [a, b, c] {
            looked.unwrap();
        }
        let mut told: Vec<String> = self.receiver.taken().iter().map(in_words).collect();
        told.sort();
        told
    }

    async fn alert(&self, name: &str) -> Option<AlertRow> {
        self.store.alerts(None).await.unwrap().into_iter().find(|row| row.name == name)
    }

    async fn answered(&self, answers: &[CallAnswer]) {
        let report = Answered {
            tenant: "default".into(),
            destination: "shop".into(),
            answers: answers.to_vec(),
            unused_milli: 0,
        };
        self.store.answered(report).await.unwrap();
    }

    async fn admitted(&self) -> u32 {
        let limit = Limit { capacity_milli: 40_000, rate_milli_per_s: 2_000, breaker: Settings::default() };
        let ask = Admit {
            tenant: "default".into(),
            destination: "shop".into(),
            limit,
            calls: 5,
            cost_milli: 1_000,
        };
        self.store.admit(ask).await.unwrap().granted
    }

    async fn pace(&self) -> u8 {
        self.store.destinations(None).await.unwrap()[0].state.bucket.pace_percent
    }
}

/// What a notice says, in the words of its kind.
fn in_words(notice: &receiver::Notice) -> String {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let body = &notice.body;
    match notice.path.as_str() {
        "/v2/enqueue" => {
            format!("pagerduty {} {}", text(&body["event_action"]), text(&body["payload"]["class"]))
        }
        "/api/v2/alerts" => format!("alertmanager {}", text(&body[0]["labels"]["alertname"])),
        "/hook" => {
            assert_eq!(notice.authorization.as_deref(), Some("Bearer s3cret-token"));
            assert_eq!(Some(text(&body["id"])), notice.key, "who knows ids takes it once");
            format!("webhook {} {}", text(&body["type"]), text(&body["title"]))
        }
        _ => format!("slack {}", text(&body["text"]).replace("<https://waypost.example|Waypost>", "").trim()),
    }
}

// proves R13
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_bulk_change_is_told_to_each_kind_of_sink_once_and_so_is_its_end() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let bench = Bench::new(store.clone()).await;
        assert_eq!(bench.looked().await, Vec::<String>::new());
        assert!(store.alerts(None).await.unwrap().is_empty(), "no targets: no alert");
        let mut stage = Stage::new(store.clone(), 40, settings(&["permanent=30%"]));
        let id = stage.queued(REST).await;
        let run = stage.worked(&id).await;
        let refused = stage.refused_for_good().len();
        assert!(refused >= 5 && run.phase() == Phase::Settled, "{refused}");
        assert_eq!(bench.looked().await, Vec::<String>::new());
        let low = bench.alert("low-success-rate").await.unwrap();
        assert_eq!(low.condition.status, Status::Pending, "{low:?}");
        bench.looked().await;
        let mut told = bench.looked().await;
        told.extend(bench.looked().await.into_iter().filter(|told| !told.starts_with("alertmanager")));
        let critical = "critical-success-rate";
        let mut expected: Vec<String> = [
            "alertmanager critical-success-rate",
            "alertmanager low-success-rate",
            "pagerduty trigger critical-success-rate",
            "slack :rotating_light: *firing* critical-success-rate",
            "slack :warning: *firing* low-success-rate",
            "webhook alert.firing critical-success-rate",
            "webhook alert.firing low-success-rate",
        ]
        .map(str::to_owned)
        .to_vec();
        expected.sort();
        assert_eq!(told, expected, "{on:?}: each once, whoever looks");
        let fired = bench.alert(critical).await.unwrap();
        assert_eq!((fired.condition.episode, fired.deliveries.len()), (1, 4), "{fired:?}");
        // An hour later nothing of it is recent.
        store.advance_clock(Span::from_seconds(3_600)).await.unwrap();
        bench.looked().await;
        bench.looked().await;
        bench.receiver.taken();
        bench.looked().await;
        let over = bench.alert(critical).await.unwrap();
        assert_eq!(over.condition.status, Status::Ok, "{over:?}");
        assert!(over.deliveries.values().all(|it| !it.is_firing && it.sent_at.is_some()), "{over:?}");
    }
}

// proves R6, R13
#[tokio::test(flavor = "multi_thread")]
async fn a_breaker_that_opens_is_told_once_and_one_call_probes() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let bench = Bench::new(store.clone()).await.with_only(Kind::PagerDuty);
        assert_eq!(bench.admitted().await, 5);
        // Six in a row, of three processes.
        for answers in [[THROTTLED; 2]; 3] {
            bench.answered(&answers).await;
        }
        assert_eq!(bench.looked_now().await, ["pagerduty trigger breaker-open"], "{on:?}");
        for second in [1, 20, 20] {
            store.advance_clock(Span::from_seconds(second)).await.unwrap();
            assert_eq!(bench.admitted().await, 0, "nobody calls for 60 s");
            assert_eq!(bench.looked_now().await, Vec::<String>::new(), "it was told");
        }
        store.advance_clock(Span::from_seconds(20)).await.unwrap();
        let granted = [bench.admitted().await, bench.admitted().await, bench.admitted().await];
        assert_eq!(granted, [1, 0, 0], "one call probes");
        bench.answered(&[THROTTLED]).await;
        assert_eq!(bench.looked().await, Vec::<String>::new(), "it is the same trouble");
        store.advance_clock(Span::from_seconds(61)).await.unwrap();
        assert_eq!(bench.admitted().await, 1);
        bench.answered(&[OK]).await;
        assert_eq!(bench.looked().await, ["pagerduty resolve breaker-open"]);
        assert_eq!(bench.looked().await, Vec::<String>::new());
    }
}

// proves R6, R13
#[tokio::test(flavor = "multi_thread")]
async fn a_breaker_that_opened_and_closed_between_two_looks_is_told() {
    let (store, _kept) = open(On::Sqlite).await;
    let bench = Bench::new(store.clone()).await.with_only(Kind::PagerDuty);
    bench.admitted().await;
    bench.answered(&[&[THROTTLED; 6][..], &[OK]].concat()).await;
    assert_eq!(bench.looked().await, ["pagerduty trigger breaker-open"]);
    assert_eq!(bench.looked().await, ["pagerduty resolve breaker-open"]);
    assert_eq!(bench.looked().await, Vec::<String>::new());
}

// proves R12, R13
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_429s_slows_the_destination_down_until_it_passes() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let bench = Bench::new(store.clone()).await.with_only(Kind::Webhook);
        bench.admitted().await;
        bench.answered(&[THROTTLED, OK, THROTTLED, OK, THROTTLED, OK]).await;
        assert_eq!((bench.looked().await, bench.pace().await), (Vec::new(), 100), "three are no burst");
        bench.answered(&[THROTTLED, OK]).await;
        assert_eq!(bench.looked().await, ["webhook alert.firing 429-burst: shop"]);
        let mut paces = vec![bench.pace().await];
        let mut told = Vec::new();
        for _ in 0..22 {
            told.extend(bench.looked().await);
            paces.push(bench.pace().await);
        }
        // One step for each evaluation, whoever looks: down to half while it lasts, and back.
        let down: Vec<u8> = paces.iter().copied().take_while(|pace| *pace > 50).collect();
        assert_eq!(down, [90, 80, 70, 60], "{on:?} {paces:?}");
        let up: Vec<u8> =
            paces.iter().copied().skip_while(|pace| *pace > 50).skip_while(|pace| *pace == 50).collect();
        assert_eq!(&up[..3], [55, 60, 65], "{paces:?}");
        assert_eq!(
            (paces.last(), told),
            (Some(&100), vec!["webhook alert.resolved 429-burst: shop".to_owned()])
        );
    }
}

// proves R13
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_process_sent_is_sent_again_under_the_same_key() {
    let (store, _kept) = open(On::Sqlite).await;
    let bench = Bench::new(store.clone()).await.with_only(Kind::Webhook);
    bench.admitted().await;
    bench.answered(&[THROTTLED; 6]).await;
    let silent = Alerts { sinks: Vec::new(), ..bench.alerts.clone() };
    Alerter::new(store.clone(), silent).run_once().await.unwrap();
    // It has taken the notice, and dies before it can write that it was sent.
    let mut row = bench.alert("breaker-open").await.unwrap();
    let now = store.now().await.unwrap();
    let taken = Delivery {
        episode: 1,
        is_firing: true,
        next_at: now + Span::from_seconds(60),
        tries: 1,
        ..Delivery::default()
    };
    row.deliveries.insert("webhook".into(), taken);
    assert!(store.put_alert(row.clone()).await.unwrap());
    assert!(!store.put_alert(row.clone()).await.unwrap(), "who read it before is late");
    let breaker =
        |told: Vec<String>| told.into_iter().filter(|told| told.contains("breaker")).collect::<Vec<_>>();
    assert_eq!(breaker(bench.looked_now().await), Vec::<String>::new());
    store.advance_clock(Span::from_seconds(61)).await.unwrap();
    let (mut a, mut b) = (bench.alerter(), bench.alerter());
    let (a, b) = tokio::join!(a.run_once(), b.run_once());
    for looked in [a, b] {
        looked.unwrap();
    }
    let again: Vec<_> =
        bench.receiver.taken().into_iter().filter(|it| in_words(it).contains("breaker")).collect();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].key.as_deref(), Some("waypost/default/breaker-open/shop/1/firing"));
}

// proves R13
#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_away_is_tried_again_and_a_silence_is_kept() {
    let (store, _kept) = open(On::Sqlite).await;
    let bench = Bench::new(store.clone()).await.with_only(Kind::Slack);
    let silence = SilenceAlert {
        name: "429-burst".into(),
        lasts: Some(Span::from_seconds(600)),
        ..SilenceAlert::default()
    };
    let who = Who { tenant: "default".into(), by: "ann".into(), reason: Some("known".into()) };
    store.silence_alert(silence.clone(), who.clone()).await.unwrap();
    bench.admitted().await;
    bench.answered(&[THROTTLED; 6]).await;
    *bench.receiver.refuses.lock().unwrap() = Some(503);
    bench.looked().await;
    let row = bench.alert("breaker-open").await.unwrap();
    let failed = &row.deliveries["slack"];
    assert!(
        failed.sent_at.is_none() && failed.error.as_deref().is_some_and(|error| error.contains("503")),
        "{failed:?}"
    );
    assert!(!failed.error.as_deref().unwrap().contains("/services/"), "its address is a secret: {failed:?}");
    *bench.receiver.refuses.lock().unwrap() = None;
    assert_eq!(bench.looked().await, Vec::<String>::new(), "it said to wait for two minutes");
    store.advance_clock(Span::from_seconds(120)).await.unwrap();
    let told = bench.looked_now().await;
    assert_eq!(
        told,
        ["slack :rotating_light: *firing* breaker-open: shop"],
        "and nothing of the burst, which is silenced"
    );
    let burst = store
        .alerts(None)
        .await
        .unwrap()
        .into_iter()
        .find(|row| row.name == "429-burst" && row.subject == "shop");
    assert_eq!(burst.unwrap().condition.status, Status::Firing);
    store.silence_alert(SilenceAlert { lasts: None, ..silence }, who).await.unwrap();
    bench.answered(&[THROTTLED; 4]).await;
    assert_eq!(bench.looked().await, ["slack :warning: *firing* 429-burst: shop"]);
}

// proves R13
#[tokio::test(flavor = "multi_thread")]
async fn a_test_reaches_every_sink_and_private_addresses_need_leave() {
    let (store, _kept) = open(On::Sqlite).await;
    let mut bench = Bench::new(store.clone()).await;
    let now = store.now().await.unwrap();
    let tested = bench.alerts.test(None, "default", now).await.unwrap();
    assert_eq!(tested.iter().filter(|it| it.error.is_none()).count(), 4, "{tested:?}");
    let told: Vec<String> = bench.receiver.taken().iter().map(in_words).collect();
    let expected = [
        "slack :white_check_mark: *test* test",
        "pagerduty trigger test",
        "alertmanager waypost-test",
        "webhook alert.test test",
    ];
    assert_eq!(told, expected);
    assert_eq!(bench.alerts.test(Some("mail"), "default", now).await, None);
    for sink in &mut bench.alerts.sinks {
        sink.allow_private = false;
    }
    bench.alerts.allow_private = false;
    let refused = bench.alerts.test(None, "default", now).await.unwrap();
    assert!(
        refused.iter().all(|it| it.error.as_deref().is_some_and(|error| error.contains("allow_private"))),
        "{refused:?}"
    );
    assert!(!format!("{refused:?}").contains("/services/"), "{refused:?}");
    assert!(bench.receiver.taken().is_empty());
}
