//! Whatever somebody writes into any field: no page has markup, an address or an unseen character of theirs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use waypost_store::{DEFAULT_TENANT, OfferedPlaybook};

use crate::console::{Person, percent_encoded};
use crate::support::{Answer, On, Server};

/// Attributes that pages have. What is called by an event is not among them, nor is `style`.
const ATTRIBUTES: &str = "accept-charset action alt aria- autocomplete autofocus charset checked class cols colspan content cx cy d data- datetime \
dir disabled download dx dy fill for form formaction formnovalidate height hidden href http-equiv id inputmode label lang list marker-end markerHeight markerUnits markerWidth max maxlength \
method min minlength multiple name open orient pattern placeholder points preserveAspectRatio r readonly refX refY rel required role rows rowspan rx ry scope \
selected size spellcheck src start step stroke stroke-dasharray stroke-width tabindex target text-anchor title transform type value viewBox width x x1 x2 y y1 y2";

/// Elements that load, embed, style or execute something; a page has no more of each than one with nobody's text in it.
const LOADING: [&str; 12] = [
    "script",
    "style",
    "link",
    "img",
    "iframe",
    "object",
    "embed",
    "base",
    "meta",
    "video",
    "audio",
    "foreignObject",
];

struct Tag<'p> {
    name: &'p str,
    attributes: Vec<(&'p str, &'p str)>,
}

/// As a browser reads what maud writes: names, and values in double quotes.
fn tags(page: &str) -> Vec<Tag<'_>> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find(|c: char| c.is_whitespace() || c == '>').unwrap_or(rest.len());
        let mut tag = Tag { name: &rest[..end], attributes: Vec::new() };
        rest = &rest[end..];
        while let Some(next) = rest.trim_start().strip_prefix(|c: char| c != '>').map(|_| rest.trim_start()) {
            let end = next.find(|c: char| c.is_whitespace() || c == '=' || c == '>').unwrap_or(next.len());
            let (name, after) = next.split_at(end);
            let (value, after) = match after.strip_prefix("=\"") {
                Some(quoted) => quoted.split_once('"').expect("a value ends"),
                None => ("", after.strip_prefix('=').unwrap_or(after)),
            };
            tag.attributes.push((name, value));
            rest = after;
        }
        found.push(tag);
    }
    found
}

fn is_known(attribute: &str) -> bool {
    let fits = |known: &str| attribute == known || known.ends_with('-') && attribute.starts_with(known);
    ATTRIBUTES.split_whitespace().any(fits)
}

/// Nothing that is obeyed, hidden, or turns text around.
fn is_seen(c: char) -> bool {
    let turns = matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    !turns && (!c.is_control() || matches!(c, '\n' | '\t'))
}

/// What is wrong with a page.
fn wrong(page: &str, elements: &BTreeSet<String>, loading: &BTreeMap<&str, usize>) -> Option<String> {
    let Some(page) = page.strip_prefix("<!DOCTYPE html>") else { return Some("no page".to_owned()) };
    // What a form sends is sent as it is; everything else is for eyes.
    let found = tags(page);
    let sent = found.iter().flat_map(|tag| &tag.attributes).filter(|(name, _)| *name == "value");
    let unseen = |text: &str| text.chars().filter(|c| !is_seen(*c)).count();
    if unseen(page) > sent.map(|(_, value)| unseen(value)).sum() {
        return Some(format!("{:?} is in it", page.chars().find(|c| !is_seen(*c))));
    }
    for tag in &found {
        let name = tag.name.trim_start_matches('/');
        if !elements.contains(name) {
            return Some(format!("an element {name:?}"));
        }
        for (attribute, value) in &tag.attributes {
            if !is_known(attribute) {
                return Some(format!("{name} has {attribute:?}"));
            }
            let leads = ["href", "src", "action", "formaction"].contains(attribute);
            let stays = value.starts_with('/') && !value.starts_with("//") && !value.starts_with("/\\");
            if leads && !stays && !value.starts_with(['#', '?']) {
                return Some(format!("{name} leads to {value:?}"));
            }
        }
    }
    let is_more =
        |(name, count): &(&&str, &usize)| found.iter().filter(|tag| tag.name == **name).count() > **count;
    loading.iter().find(is_more).map(|(name, _)| format!("one more {name}"))
}

/// One text, and what took it.
struct Written<'a> {
    server: &'a Server,
    text: &'a str,
    taken: &'a mut BTreeMap<&'static str, usize>,
}

impl Written<'_> {
    /// What is refused is refused in words.
    fn note(&mut self, what: &'static str, answer: &Answer) -> bool {
        assert!(answer.status < 500, "{what} {:?}: {}", self.text, answer.text);
        *self.taken.entry(what).or_default() += usize::from(answer.status < 300 || answer.status == 303);
        answer.status < 300
    }

    async fn post(&mut self, what: &'static str, path: &str, body: Value) -> bool {
        let answer = self.server.post(path, body).await;
        self.note(what, &answer)
    }

    async fn start(&mut self, what: &'static str, body: Value) -> Option<String> {
        let answer = self.server.post("/v1/runs", body).await;
        self.note(what, &answer).then(|| answer.body["run_id"].as_str().unwrap().to_owned())
    }

    /// A run with the text in every field that takes it, worked and ended with it.
    async fn worked_run(&mut self) -> Option<String> {
        let (server, text) = (self.server, self.text);
        let mut body =
            json!({ "lifecycle": "deploy", "metadata": { "note": text }, "input": { "text": [text] } });
        for field in ["title", "correlation_id", "concurrency_key", "by", "idempotency_key"] {
            let mut alone = json!({ "lifecycle": "deploy", "queue": "apart" });
            alone[field] = text.into();
            if self.post(field, "/v1/runs/dry-run", alone).await {
                body[field] = text.into();
            }
        }
        let id = self.start("run", body).await?;
        let mut claims = json!({ "worker": text, "start": true });
        let mut claimed = server.post("/v1/claims", claims.clone()).await;
        if !self.note("worker", &claimed) {
            claims["worker"] = "w1".into();
            claimed = server.post("/v1/claims", claims).await;
        }
        let token = &claimed.body["claims"][0]["lease"]["token"];
        let event = json!({ "lease_token": token, "message": text, "payload": { "step": text, "lines": [["out", text], ["err", text]] } });
        self.post("event", &format!("/v1/runs/{id}/events"), event).await;
        let mut end =
            json!({ "lease_token": token, "status": "failed", "error_code": text, "error_msg": text });
        if !self.post("end", &format!("/v1/runs/{id}/finish"), end.clone()).await {
            end["error_code"] = "WRONG".into();
            self.post("error text", &format!("/v1/runs/{id}/finish"), end).await;
        }
        Some(id)
    }

    /// Of two one is decided, and the note is shown; the other one is open, with its form.
    async fn proposal(&mut self, person: &Person<'_>) -> Option<String> {
        let text = self.text;
        let about = json!({ "agent_slug": text, "target": text, "base_revision": text, "step": text, "run_id": text });
        let proposal = json!({ "lifecycle": "proposal", "queue": "apart", "title": text, "metadata": about, "input": { "proposal": { "text": text, text: [text] } } });
        let id = self.start("proposal", proposal).await?;
        if text.len().is_multiple_of(2) {
            let rejected = [("act", "reject"), ("proposal", id.as_str()), ("note", text)];
            self.note("decision's note", &person.post("/proposals", &rejected).await);
        }
        Some(id)
    }

    async fn offered_playbook(&mut self) {
        let offered = OfferedPlaybook {
            tenant: DEFAULT_TENANT.to_owned(),
            name: self.text.to_owned(),
            hash: String::new(),
            file: self.text.to_owned(),
            text: String::new(),
            by: self.text.to_owned(),
        };
        let is_offered = self.server.store.offer_playbooks(vec![offered]).await.is_ok();
        *self.taken.entry("playbook's name").or_default() += usize::from(is_offered);
    }
}

/// Writes one text wherever a person, a client or a worker may; counts what was taken.
async fn write(
    server: &Server,
    person: &Person<'_>,
    text: &str,
    taken: &mut BTreeMap<&'static str, usize>,
) -> Vec<String> {
    let mut written = Written { server, text, taken };
    written.start("queue", json!({ "lifecycle": "deploy", "queue": text })).await;
    let mut ids: Vec<String> = Vec::new();
    let keyed = json!({ "lifecycle": "deploy", "queue": "apart", "metadata": { text: text } });
    ids.extend(written.start("metadata key", keyed).await);
    let handled =
        json!({ "lifecycle": "deploy", "queue": "apart", "playbook": text, "unknown_playbook": true });
    written.start("playbook", handled).await;
    let worked = written.worked_run().await;
    ids.extend(worked);
    let step = json!({ "lifecycle": "job", "queue": "apart", "title": text, "items": [{ "kind": "step", "key": text, "name": text }] });
    ids.extend(written.start("step", step).await);
    let target = json!({ "lifecycle": "rule", "queue": "apart", "items": [{ "kind": "target", "key": text, "name": text }] });
    ids.extend(written.start("target", target).await);
    ids.extend(written.proposal(person).await);
    written.offered_playbook().await;
    // A person cancels with a reason; the rest has a name of its own.
    if let Some(id) = ids.first() {
        written.note("reason", &person.post(&format!("/runs/{id}/cancel"), &[("reason", text)]).await);
    }
    let name = percent_encoded(text);
    let definition = json!({ "definition": { "cron": "0 2 * * *", "exec": [text] }, "folder": text });
    written.note("schedule's name", &server.put(&format!("/v1/schedules/{name}"), definition.clone()).await);
    written
        .note("agent's name", &server.put(&format!("/v1/agents/{name}"), json!({ "playbook": text })).await);
    // Names of these are of few characters; what else they say may be anything.
    let plain = format!("of-{}", written.taken.get("token").copied().unwrap_or_default());
    written.note("schedule", &server.put(&format!("/v1/schedules/{plain}"), definition).await);
    written.note("agent", &server.put(&format!("/v1/agents/{plain}"), json!({ "playbook": text })).await);
    written.post("token", "/v1/tokens", json!({ "name": text, "role": "viewer" })).await;
    written.post("queue's pause", &format!("/v1/queues/{name}/pause"), json!({ "reason": text })).await;
    ids
}

#[tokio::test]
async fn whatever_is_written_anywhere_no_page_has_markup_of_it() {
    no_page_has_markup(On::Sqlite).await;
}

#[tokio::test]
async fn whatever_is_written_anywhere_no_page_has_markup_of_it_on_postgres() {
    no_page_has_markup(On::Postgres).await;
}

async fn no_page_has_markup(on: On) {
    let server = Server::on(on).await;
    let person = Person::at(&server, "");
    let texts: Vec<String> =
        waypost_testkit::HOSTILE.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(texts.len() >= 200, "{}", texts.len());
    // The other store keeps the same texts, which its own tests show of all of them; pages are the same.
    let few = if matches!(on, On::Postgres) { 4 } else { 1 };
    let texts: Vec<String> = texts.into_iter().step_by(few).collect();
    // What pages are made of, by pages that hold nobody's text but ours.
    let mut taken = BTreeMap::new();
    let plain = write(&server, &person, "plain", &mut taken).await;
    let every_tab = plain.iter().cycle().take(8 * plain.len()).cloned().collect::<Vec<_>>();
    let mut known = paths(&every_tab);
    known.extend(LINKS.map(|path| format!("{path}plain")));
    let (mut elements, mut loading) = (BTreeSet::new(), BTreeMap::new());
    for path in known {
        let page = person.get(&path).await.text;
        let found = tags(page.strip_prefix("<!DOCTYPE html>").unwrap());
        elements.extend(found.iter().map(|tag| tag.name.trim_start_matches('/').to_owned()));
        for name in LOADING {
            let count = found.iter().filter(|tag| tag.name == name).count();
            loading.entry(name).and_modify(|most: &mut usize| *most = count.max(*most)).or_insert(count);
        }
        assert_eq!(wrong(&page, &elements, &loading), None, "{path}");
    }
    taken.clear();
    let mut ids = Vec::new();
    for text in &texts {
        ids.extend(write(&server, &person, text, &mut taken).await);
    }
    println!("{} texts, taken as {taken:?}; {} runs", texts.len(), ids.len());
    for field in TAKEN {
        assert!(taken.get(field).is_some_and(|count| *count > texts.len() / 2), "{field}: {taken:?}");
    }
    for path in paths(&ids) {
        let page = person.get(&path).await;
        assert!(page.status < 500, "{path}: {}", page.text);
        assert_eq!(wrong(&page.text, &elements, &loading), None, "{path}");
        assert!(page.text.len() < 300_000, "{path} has {} bytes", page.text.len());
    }
    for text in &texts {
        for path in LINKS {
            let page = person.get(&format!("{path}{}", percent_encoded(text))).await;
            assert!(page.status < 500, "{path}{text:?}: {}", page.text);
            if page.header("content-type").starts_with("text/html") {
                assert_eq!(wrong(&page.text, &elements, &loading), None, "{path}{text:?}");
            }
        }
    }
}

/// Fields that take most of the texts: what refused them all would not be looked at.
const TAKEN: [&str; 19] = [
    "title",
    "correlation_id",
    "concurrency_key",
    "run",
    "queue",
    "metadata key",
    "playbook",
    "worker",
    "event",
    "end",
    "reason",
    "step",
    "target",
    "schedule",
    "agent",
    "queue's pause",
    "token",
    "proposal",
    "playbook's name",
];

/// Lists, and of each run two of its tabs, in turn: they show the same texts in different places.
fn paths(ids: &[String]) -> Vec<String> {
    let lists = waypost_server::console_paths().filter(|path| !path.contains('{')).map(str::to_owned);
    let own = [
        "?tab=log",
        "?tab=timeline",
        "?tab=items",
        "/replay",
        "?tab=targets",
        "?tab=events",
        "?tab=data",
        "?tab=lease",
    ];
    let of_run = |(at, id): (usize, &String)| {
        [at, at + 3].map(|place| format!("/runs/{id}{}", own[place % own.len()]))
    };
    let lists = lists.chain(["/proposals?status=all".to_owned()]);
    lists.chain(ids.iter().enumerate().flat_map(of_run)).collect()
}

/// As somebody's link to us.
const LINKS: [&str; 6] =
    ["/runs?filter=", "/runs/", "/playbooks/", "/schedules/", "/sign-in?to=", "/audit?before="];

#[test]
fn markup_of_others_is_found() {
    let elements: BTreeSet<String> = ["p", "a", "img"].map(str::to_owned).into();
    let loading = BTreeMap::from([("img", 1)]);
    let of = |page: &str| wrong(&format!("<!DOCTYPE html>{page}"), &elements, &loading);
    assert_eq!(
        of("<p class=\"x\" hidden>a &lt;script&gt;<a href=\"/runs?x=1\">b</a></p><img src=\"/i\">"),
        None
    );
    for page in [
        "<script>1</script>",
        "<p onclick=\"1\">",
        "<p style=\"x\">",
        "<a href=\"javascript:1\">",
        "<a href=\"//evil\">",
        "<p>\u{202e}",
        "<p>\u{1b}[2J",
        "<img src=\"/i\"><img src=\"/i\">",
        "<p x=\"\" onerror=1>",
    ] {
        assert!(of(page).is_some(), "{page}");
    }
}
