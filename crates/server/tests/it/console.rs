//! The console without a browser: who sees which page, what forms are taken, and that nobody's text is markup.

mod bulk;
mod figures;
mod forms;
mod people;

use std::sync::Arc;

use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};

use crate::roles::{token, with_tokens};
use crate::support::{Answer, On, Server, open, send};
use waypost_server::Options;
use waypost_worker::projection::Projection;
use waypost_worker::projection::objects::Folder;

/// One that shows redirects, as they are what is tested.
fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().redirect(Policy::none()).build().unwrap()
}

/// Somebody with a browser.
pub struct Person<'s> {
    server: &'s Server,
    client: Client,
    cookie: String,
}

impl Person<'_> {
    pub fn at<'s>(server: &'s Server, token: &str) -> Person<'s> {
        let cookie = if token.is_empty() { String::new() } else { format!("waypost-token={token}") };
        Person { server, client: client(), cookie }
    }

    fn with_cookie(&self, request: RequestBuilder) -> RequestBuilder {
        if self.cookie.is_empty() { request } else { request.header("cookie", &self.cookie) }
    }

    pub async fn get(&self, path: &str) -> Answer {
        send(self.with_cookie(self.client.get(self.server.url(path)))).await
    }

    /// As a page of this server's would.
    fn form(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        let encoded = |text: &str| percent_encoded(text);
        let body = fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
        self.with_cookie(self.client.post(self.server.url(path)))
            .header("origin", self.server.url(""))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body.collect::<Vec<_>>().join("&"))
    }

    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let token = form_token(&self.get("/").await.text);
        send(self.form(path, &[&[("form_token", token.as_str())], fields].concat())).await
    }
}

pub fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn form_token(page: &str) -> String {
    let found = page.split("name=\"form_token\" value=\"").nth(1).expect("a form");
    found.split('"').next().unwrap().to_owned()
}

const PAGES: [&str; 16] = [
    "/",
    "/runs",
    "/waiting",
    "/playbooks",
    "/schedules",
    "/queues",
    "/workers",
    "/dlq",
    "/agents",
    "/reconciliations",
    "/destinations",
    "/alerts",
    "/proposals",
    "/lifecycles",
    "/audit",
    "/runs?filter=status%3Aqueued+lifecycle%3Adeploy+queue%3Adefault+x",
];

// proves D12 and U2
#[tokio::test]
async fn every_page_is_there_on_every_store() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let run = server.start_with(json!({ "title": "ship it", "input": { "a": 1 } })).await;
        let id = run["run_id"].as_str().unwrap();
        let person = Person::at(&server, "");
        let tabs = ["log", "timeline", "items", "events", "data", "lease"]
            .map(|tab| format!("/runs/{id}?tab={tab}"));
        let more = [format!("/runs/{id}"), format!("/runs/{id}/replay")];
        for path in PAGES.iter().map(|path| (*path).to_owned()).chain(tabs).chain(more) {
            let page = person.get(&path).await;
            assert_eq!(page.status, 200, "{on:?} {path}: {}", page.text);
            assert_eq!(page.header("content-type"), "text/html; charset=utf-8", "{path}");
            let policy = page.header("content-security-policy");
            assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
            assert!(page.text.len() < 300_000, "{path} has {} bytes", page.text.len());
            assert!(!page.text.contains(" style=") && !page.text.contains("<script>"), "{path}");
        }
        let page = person.get(&format!("/runs/{id}")).await.text;
        assert!(page.contains("ship it") && page.contains("no live worker"), "it says why it waits: {page}");
    }
}

#[tokio::test]
async fn what_pages_load_is_kept_for_good_and_named_by_what_it_says() {
    let server = Server::new().await;
    let person = Person::at(&server, "");
    let page = person.get("/").await.text;
    let mut found = 0;
    for part in page.split("\"/assets/").skip(1) {
        let name = part.split('"').next().unwrap();
        let asset = person.get(&format!("/assets/{name}")).await;
        assert_eq!(asset.status, 200, "{name}");
        assert!(asset.header("cache-control").contains("immutable"), "{name}");
        found += 1;
    }
    assert!(found >= 3, "{found}");
    assert_eq!(person.get("/assets/console-000000000000.css").await.status, 404);
    assert_eq!(page.matches("://").count(), 0, "nothing is loaded from elsewhere");
}

#[tokio::test]
async fn a_command_is_a_form_and_leads_back_to_the_run() {
    for on in [On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let id = server.start().await["run_id"].as_str().unwrap().to_owned();
        let person = Person::at(&server, "");
        let done = person.post(&format!("/runs/{id}/cancel"), &[("reason", "not today & <b>")]).await;
        assert_eq!((done.status, done.header("location")), (303, format!("/runs/{id}").as_str()));
        let run = server.get(&format!("/v1/runs/{id}")).await.expect(200);
        assert_eq!((&run["status"], &run["error_msg"]), (&json!("cancelled"), &json!("not today & <b>")));
        // Asked again it is done already; what the state does not take is refused on a page.
        let refused = person.post(&format!("/runs/{id}/frobnicate"), &[]).await;
        assert_eq!(refused.status, 409, "{}", refused.text);
        assert!(refused.header("content-type").starts_with("text/html"));
        assert_eq!(person.get("/runs/run-nothing").await.status, 404);
        let wrong = person.get("/runs?filter=status%3Anonsense").await;
        assert!(
            wrong.status == 400 && wrong.text.contains("nonsense") && wrong.text.contains("id=\"filter\"")
        );
    }
}

#[tokio::test]
async fn forms_of_others_are_refused() {
    let server = Server::new().await;
    let id = server.start().await["run_id"].as_str().unwrap().to_owned();
    let person = Person::at(&server, "");
    let path = format!("/runs/{id}/cancel");
    let token = form_token(&person.get("/").await.text);
    let fields = [("form_token", token.as_str())];
    let without_origin =
        person.client.post(server.url(&path)).header("content-type", "application/x-www-form-urlencoded");
    let cases = [
        ("no token", person.form(&path, &[])),
        ("another's token", person.form(&path, &[("form_token", "00ff")])),
        ("another origin", person.form(&path, &fields).header("origin", "https://evil.example")),
        ("no origin", without_origin.body(format!("form_token={token}"))),
        (
            "origin null",
            person
                .client
                .post(server.url(&path))
                .header("origin", "null")
                .body(format!("form_token={token}")),
        ),
    ];
    for (what, request) in cases {
        let answer = send(request).await;
        assert_eq!(answer.status, 403, "{what}: {}", answer.text);
    }
    let json = person
        .client
        .post(server.url(&path))
        .header("origin", server.url(""))
        .header("content-type", "application/json");
    assert_eq!(send(json.body("{}")).await.status, 415);
    assert_eq!(server.get(&format!("/v1/runs/{id}")).await.expect(200)["status"], "queued");
    assert_eq!(send(person.form(&path, &fields)).await.status, 303);
}

#[tokio::test]
async fn who_is_not_signed_in_is_asked_to() {
    let server = with_tokens().await;
    let stranger = Person::at(&server, "");
    let led = stranger.get("/runs?filter=x").await;
    assert_eq!((led.status, led.header("location")), (303, "/sign-in?to=%2Fruns%3Ffilter%3Dx"));
    let page = stranger.get("/sign-in?to=%2Fruns").await;
    assert!(
        page.status == 200
            && page.text.contains("value=\"/runs\"")
            && !page.text.contains("aria-label=\"Pages\"")
    );
    for wrong in ["", "nonsense", "wp_aaaaaaaaaaaa_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"] {
        let answer = send(stranger.form("/sign-in", &[("token", wrong), ("to", "/runs")])).await;
        assert!(answer.status == 403 && answer.header("set-cookie").is_empty(), "{wrong}: {}", answer.status);
    }
    let own = token(&*server.store, "operator", "default").await;
    let answer = send(stranger.form("/sign-in", &[("token", &own), ("to", "//evil.example")])).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/"));
    let cookie = answer.header("set-cookie").to_owned();
    for part in ["waypost-token=wp_", "HttpOnly", "SameSite=Strict", "Max-Age=43200", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "over plain HTTP a browser would not send it back");
    // A cookie is for pages alone: another site's form reaches nothing of the API by it.
    let person = Person::at(&server, &own);
    assert_eq!(person.get("/runs").await.status, 200);
    assert_eq!(person.get("/v1/runs").await.status, 401);
    let out = person.post("/sign-out", &[]).await;
    assert!(out.status == 303 && out.header("set-cookie").contains("Max-Age=0"));
}

// proves U14
#[tokio::test]
async fn roles_and_tenants_hold_on_pages() {
    let server = with_tokens().await;
    let admin = token(&*server.store, "admin", "default").await;
    let body = json!({ "lifecycle": "deploy", "title": "only ours" });
    let id =
        crate::roles::ask(&server, &admin, "POST", "/v1/runs", &body).await.expect(201)["run_id"].clone();
    let path = format!("/runs/{}", id.as_str().unwrap());
    let viewer = Person::at(&server, &token(&*server.store, "viewer", "default").await);
    let page = viewer.get(&path).await;
    assert_eq!(page.status, 200);
    let actions = page.text.split("id=\"actions\"").nth(1).unwrap().split("id=\"drawing\"").next().unwrap();
    assert!(!actions.contains("<button") && !actions.contains("<form"), "a viewer has no buttons: {actions}");
    assert!(!page.text.contains("href=\"/audit\""));
    assert_eq!(viewer.get("/audit").await.status, 403);
    for forged in [format!("{path}/cancel"), "/queues/default/pause".into(), format!("{path}/replay")] {
        assert_eq!(viewer.post(&forged, &[]).await.status, 403, "{forged}");
    }
    let foreign = Person::at(&server, &token(&*server.store, "admin", "elsewhere").await);
    assert_eq!(foreign.get(&path).await.status, 404);
    assert!(!foreign.get("/runs").await.text.contains("only ours"));
    assert_eq!(foreign.post(&format!("{path}/cancel"), &[]).await.status, 404);
    let of_all = Person::at(&server, &token(&*server.store, "admin", "*").await);
    assert!(of_all.get("/runs").await.text.contains("only ours"));
    let chosen = of_all.post("/preferences", &[("tenant", "elsewhere"), ("to", "/runs")]).await;
    assert!(chosen.header("set-cookie").starts_with("waypost-tenant=elsewhere;"), "{}", chosen.text);
    let elsewhere = Person { cookie: format!("{}; waypost-tenant=elsewhere", of_all.cookie), ..of_all };
    assert!(!elsewhere.get("/runs").await.text.contains("only ours"));
    let operator = Person::at(&server, &token(&*server.store, "operator", "default").await);
    assert_eq!(operator.post(&format!("{path}/cancel"), &[]).await.status, 303);
}

#[tokio::test]
async fn nobodys_text_is_markup_or_turns_a_page_around() {
    let server = Server::new().await;
    let payload = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\u{202e}\u{1b}[2J{{7*7}}";
    let run = server
        .start_with(json!({
            "title": payload, "correlation_id": payload, "concurrency_key": payload, "queue": "q<script>\u{202e}",
            "metadata": { payload: payload }, "input": { payload: [payload] }, "by": "b<script>",
        }))
        .await;
    let id = run["run_id"].as_str().unwrap().to_owned();
    let claims = json!({ "worker": "w<script>", "queues": ["q<script>\u{202e}"], "start": true });
    let claims = server.post("/v1/claims", claims).await.expect(200);
    let lease = &claims["claims"][0]["lease"]["token"];
    let note = json!({ "lease_token": lease, "message": payload, "payload": { "step": payload, "lines": [["out", payload]] } });
    server.post(&format!("/v1/runs/{id}/events"), note).await.expect(201);
    let end =
        json!({ "lease_token": lease, "status": "failed", "error_code": "X<script>", "error_msg": payload });
    server.post(&format!("/v1/runs/{id}/finish"), end).await.expect(200);
    let person = Person::at(&server, "");
    let tabs =
        ["log", "timeline", "items", "events", "data", "lease"].map(|tab| format!("/runs/{id}?tab={tab}"));
    let searched = format!("/runs/{id}?tab=log&q={}", percent_encoded("<script>"));
    let paths = PAGES
        .iter()
        .map(|path| (*path).to_owned())
        .chain(tabs)
        .chain([searched, format!("/runs/{id}/replay")]);
    for path in paths {
        let page = person.get(&path).await.text;
        for foul in ["<script>alert", "<img src=x", "q<script", "b<script", "w<script", "\u{202e}", "\u{1b}"]
        {
            assert!(!page.contains(foul), "{path}: {foul:?}");
        }
    }
    let log = person.get(&format!("/runs/{id}/log")).await;
    assert!(log.header("content-disposition").starts_with("attachment"));
    assert!(log.text.contains("<script>") && !log.text.contains('\u{1b}'), "{}", log.text);
}

/// Markup of others is longer on the page than it was printed.
#[tokio::test]
async fn a_log_of_any_size_is_shown_a_page_at_a_time_to_its_first_line() {
    const EVENTS: usize = 12;
    let server = Server::new().await;
    let person = Person::at(&server, "");
    let started = server.post("/v1/runs", json!({ "lifecycle": "deploy" })).await.expect(201);
    let id = started["run_id"].as_str().unwrap().to_owned();
    let claimed = server.post("/v1/claims", json!({ "worker": "w1", "start": true })).await;
    let token = &claimed.body["claims"][0]["lease"]["token"];
    for event in 0..EVENTS {
        let line = |number: usize| json!(["out", format!("line {event}/{number} {}", "<&>".repeat(600))]);
        let lines: Vec<Value> = (0..20).map(line).collect();
        let event = json!({ "lease_token": token, "message": "output", "payload": { "lines": lines } });
        server.post(&format!("/v1/runs/{id}/events"), event).await.expect(201);
    }
    let mut path = format!("/runs/{id}?tab=log");
    let mut found = Vec::new();
    for _ in 0..EVENTS {
        let page = person.get(&path).await;
        assert!(page.text.len() < 300_000, "{path} has {} bytes", page.text.len());
        let lines = page.text.split("<span class=\"text\">line ").skip(1);
        let lines: Vec<String> = lines.filter_map(|rest| Some(rest.split_once(' ')?.0.to_owned())).collect();
        found.splice(0..0, lines);
        let Some(older) = page.text.split(&format!("/runs/{id}?tab=log&amp;before=")).nth(1) else { break };
        assert!(page.text.contains("Download the whole log"), "{path}");
        path = format!("/runs/{id}?tab=log&before={}", older.split('&').next().unwrap());
    }
    let all = (0..EVENTS).flat_map(|event| (0..20).map(move |number| format!("{event}/{number}")));
    assert_eq!(found, all.collect::<Vec<_>>(), "each line once, in order");
}

/// The link of a line is good for as long as the run: its page has the line however many came after it.
#[tokio::test]
async fn a_link_to_a_line_of_a_log_leads_to_it_for_good() {
    let server = Server::new().await;
    let person = Person::at(&server, "");
    let started = server.post("/v1/runs", json!({ "lifecycle": "deploy" })).await.expect(201);
    let id = started["run_id"].as_str().unwrap().to_owned();
    let claimed = server.post("/v1/claims", json!({ "worker": "w1", "start": true })).await;
    let token = &claimed.body["claims"][0]["lease"]["token"];
    let print = async |count: usize, word: &str| {
        let lines: Vec<Value> = (0..count).map(|number| json!(["out", format!("{word} {number}")])).collect();
        let event = json!({ "lease_token": token, "message": "output", "payload": { "lines": lines } });
        server.post(&format!("/v1/runs/{id}/events"), event).await.expect(201);
    };
    print(30, "early").await;
    let page = person.get(&format!("/runs/{id}?tab=events")).await.text;
    assert!(page.contains("early 0 and 29 more lines"), "an event says what is in it: {page}");
    let page = person.get(&format!("/runs/{id}?tab=log")).await.text;
    assert!(page.contains("id=\"follow\""));
    let line = page.split("<li ").find(|line| line.contains(">early 7<")).expect("it is shown");
    let link = line.split("href=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let (path, anchor) =
        link.replace("&amp;", "&").split_once('#').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    for turn in 0..30 {
        print(50, &format!("late {turn}")).await;
    }
    let latest = person.get(&format!("/runs/{id}?tab=log")).await.text;
    assert!(!latest.contains(">early 7<"), "{} lines", latest.matches("<li ").count());
    let page = person.get(&format!("/runs/{id}{path}")).await.text;
    assert!(
        page.contains(&format!("id=\"{anchor}\""))
            && page.contains(">early 7<")
            && page.contains(">early 20<")
    );
    let end = json!({ "lease_token": token, "status": "success" });
    server.post(&format!("/v1/runs/{id}/finish"), end).await.expect(200);
    let page = person.get(&format!("/runs/{id}?tab=log")).await.text;
    assert!(!page.contains("id=\"follow\""), "nothing more is printed");
}

#[tokio::test]
async fn status_json_is_compared_with_its_run() {
    let server = Server::new().await;
    let person = Person::at(&server, "");
    let agent = json!({ "lifecycle": "agent", "metadata": { "agent_slug": "violin" } });
    let path = |run: &Value| format!("/runs/{}?tab=status", run["run_id"].as_str().unwrap());
    let run = server.post("/v1/runs", agent.clone()).await.expect(201);
    let page = person.get(&path(&run)).await.text;
    assert!(
        page.contains("no object store")
            && page.contains("--object-store")
            && !page.contains("class=\"alert\"")
    );

    let folder = tempfile::tempdir().unwrap();
    let projection = Arc::new(Projection::new(Arc::new(Folder::new(folder.path()))));
    let (store, lives) = open(On::Sqlite).await;
    let options = Options { projection: Some(projection), ..Options::default() };
    let server = Server::with(store, lives, options).await;
    let person = Person::at(&server, "");
    let run = server.post("/v1/runs", agent).await.expect(201);
    let page = person.get(&path(&run)).await.text;
    assert!(page.contains("none: it says what the run is"), "{page}");
    // Nobody writes documents here, and the run goes on.
    let id = run["run_id"].as_str().unwrap();
    server.post(&format!("/v1/runs/{id}/cancel"), json!({})).await.expect(200);
    let page = person.get(&path(&run)).await.text;
    assert!(page.contains("behind") && page.contains("of 2 events"), "{page}");
}

#[tokio::test]
async fn a_timeline_numbers_attempts_and_names_their_workers() {
    let server = Server::new().await;
    server.start().await;
    let (id, _) = server.claim("a-worker-of-ours").await;
    let page = Person::at(&server, "").get(&format!("/runs/{id}?tab=timeline")).await.text;
    for words in [">attempt 1 <span", ">a-worker-of-ours</span>", "waits for a worker", ">0s</span>"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    // What begins as well is the same attempt.
    server.start().await;
    let claimed = server.post("/v1/claims", json!({ "worker": "w2", "start": true })).await.expect(200);
    let id = claimed["claims"][0]["run"]["run_id"].as_str().unwrap();
    let page = Person::at(&server, "").get(&format!("/runs/{id}?tab=timeline")).await.text;
    assert!(page.contains(">attempt 1 <span") && !page.contains(">attempt 2"), "{page}");
}

#[tokio::test]
async fn a_run_for_later_says_in_how_long_it_begins() {
    let server = Server::new().await;
    let at = "2099-01-01T00:00:00Z";
    let run = server.start_with(json!({ "schedule_at": at })).await;
    let page = Person::at(&server, "").get(&format!("/runs/{}", run["run_id"].as_str().unwrap())).await.text;
    assert!(page.contains("begins <time datetime=\"2099-01-01T00:00:00") && page.contains(">in "), "{page}");
    assert!(!page.contains("since "), "it does not wait since then");
}

#[tokio::test]
async fn a_page_that_is_not_there_leads_to_others() {
    let server = Server::new().await;
    let page = send(client().get(server.url("/nowhere")).header("accept", "text/html")).await;
    assert!(page.status == 404 && page.text.contains("href=\"/waiting\"") && !page.text.contains("/sign-in"));
    assert!(server.get("/nowhere").await.text.starts_with('{'), "programs are told as programs are");
}
