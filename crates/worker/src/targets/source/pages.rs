//! A request that answers with a list of objects, page by page.

use std::time::Duration;

use reqwest::Url;
use serde_json::{Value, json};
use tokio::time::sleep;
use waypost_kernel::backoff::Backoff;

use super::{Asked, Sender, Trouble, row};
use crate::actions::http::{Page, without_query};
use crate::actions::{Action, Call, Http, Mask, find};
use crate::pace;
use crate::playbook::{ActionTemplate, BodyTemplate, Secrets, Source, Template, Way};

const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_PAGE_BYTES: usize = 16 * 1024 * 1024;
/// More pages than this go round in a circle.
const MAX_PAGES: u64 = 1_000_000;
/// Of one page, after the first try.
const RETRIES: u32 = 5;

pub async fn read(asked: Asked, to: Sender) {
    if let Err(problem) = all(&asked, &to).await {
        let _ = to.send(Err(Trouble::Source(format!("targets: {problem}")))).await;
    }
}

async fn all(asked: &Asked, to: &Sender) -> Result<(), String> {
    let Source::Action(action) = &asked.targets.source else { return Err("there is no request".to_owned()) };
    let by_template = names_page(action);
    let mut next = Value::Null;
    let mut place: Option<String> = None;
    for page_no in 1..=MAX_PAGES {
        let (mut request, mask) = rendered(asked, action, &next)?;
        if let Some(address) = place.take() {
            request.url = following(&request.url, &address)?;
        }
        let Page { value, next: link } = fetched(asked, &request, &mask, page_no).await?;
        let rows = list(&value, asked.targets.list.as_deref())?;
        let is_empty = rows.is_empty();
        for (at, value) in rows.iter().enumerate() {
            let row = row(format!("page {page_no}, item {}", at + 1), value.clone());
            if to.send(row).await.is_err() {
                return Ok(());
            }
        }
        let said = asked.targets.next.as_deref().map(|pointer| value.pointer(pointer).cloned());
        let said = said.unwrap_or(link.map(Value::from)).filter(is_more);
        let Some(said) = said.filter(|_| !(is_empty && by_template)) else { return Ok(()) };
        if said == next {
            return Err(format!("page {page_no} leads to itself"));
        }
        if !by_template {
            place = Some(said.as_str().ok_or_else(|| not_an_address(&said))?.to_owned());
        }
        next = said;
    }
    Err(format!("there are more than {MAX_PAGES} pages"))
}

/// An empty text, false and null are the end of a list.
fn is_more(said: &Value) -> bool {
    match said {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

fn not_an_address(said: &Value) -> String {
    format!("what comes next is {said}, which is no address: name it in the request as {{{{ page.next }}}}")
}

/// Whether the request itself says where it goes on.
fn names_page(action: &ActionTemplate) -> bool {
    let Way::Http(http) = &action.way else { return false };
    let body: Vec<&Template> = match &http.body {
        BodyTemplate::Text(text) => vec![text],
        BodyTemplate::Json(json) => json.templates(),
        BodyTemplate::None | BodyTemplate::Envelope => Vec::new(),
    };
    let all = std::iter::once(&http.url).chain(http.headers.iter().map(|(_, value)| value)).chain(body);
    all.flat_map(Template::named).any(|named| named.path.first().is_some_and(|root| root == "page"))
}

fn rendered(asked: &Asked, action: &ActionTemplate, next: &Value) -> Result<(Http, Mask), String> {
    let mut scope = asked.scope.clone();
    scope.page = Some(json!({ "next": next }));
    let context = asked.playbook.context(&scope);
    let needs = asked.playbook.needs(action, &context).map_err(|error| error.to_string())?;
    let secrets = Secrets::resolve(&needs, find)?;
    let rendered = asked.playbook.render(action, &context, &secrets).map_err(|error| error.to_string())?;
    match rendered.action {
        Action::Http(request) => Ok((*request, rendered.mask.and(&asked.reader.own_secrets))),
        Action::Exec(_) | Action::Output(_) => Err("there is no request".to_owned()),
    }
}

/// The headers go there too, with their secrets: to the same server, and to no other.
fn following(from: &str, address: &str) -> Result<String, String> {
    let wrong = |error| format!("the address of the next page cannot be read: {error}");
    let from = Url::parse(from).map_err(wrong)?;
    let to = from.join(address).map_err(wrong)?;
    if from.origin() != to.origin() {
        let (from, to) = (from.origin().ascii_serialization(), to.origin().ascii_serialization());
        return Err(format!("the next page is on another server, {to}, and not on {from}: it is not asked"));
    }
    Ok(to.into())
}

/// What may come the next time is asked for again.
async fn fetched(asked: &Asked, request: &Http, mask: &Mask, page_no: u64) -> Result<Page, String> {
    let timeout = asked.targets.timeout.map_or(TIMEOUT, pace::duration);
    let call = Call {
        tenant: asked.reader.tenant.clone(),
        run_id: asked.reader.run_id.clone(),
        step: "targets".to_owned(),
        idempotency_key: format!("{}:targets:{page_no}", asked.reader.run_id),
        ..Call::default()
    };
    for retry in 1.. {
        match asked.reader.client.page(request, &call, timeout, mask, MAX_PAGE_BYTES).await {
            Ok(page) => return Ok(page),
            Err(no) if no.may_come && retry <= RETRIES => {
                let backoff = Backoff::target().wait(retry, pace::random()).map(pace::duration);
                let wait = no.wait.or(backoff).unwrap_or(Duration::from_secs(1));
                tracing::info!(
                    url = without_query(&request.url),
                    why = no.words,
                    wait_s = wait.as_secs(),
                    "a page of targets is asked for again"
                );
                sleep(wait).await;
            }
            Err(no) => return Err(no.words),
        }
    }
    Err("no page came".to_owned())
}

/// Where the file says, or what there is: the answer itself, or its only list.
fn list<'v>(value: &'v Value, pointer: Option<&str>) -> Result<&'v Vec<Value>, String> {
    if let Some(pointer) = pointer {
        let found = value.pointer(pointer);
        return found
            .and_then(Value::as_array)
            .ok_or_else(|| format!("there is no list at {pointer:?} of the answer"));
    }
    let lists = || value.as_object().into_iter().flatten().filter_map(|(_, value)| value.as_array());
    match (value.as_array(), lists().count()) {
        (Some(list), _) => Ok(list),
        (None, 1) => lists().next().ok_or_else(String::new),
        (None, 0) => Err("the answer has no list: say where it stands with `list`".to_owned()),
        (None, count) => Err(format!("the answer has {count} lists: say which one with `list`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_found_or_asked_about() {
        let list_of = |value: Value, pointer: Option<&str>| list(&value, pointer).map(Vec::len);
        assert_eq!(list_of(json!([1, 2]), None), Ok(2));
        assert_eq!(list_of(json!({"products": [1], "next": null}), None), Ok(1));
        assert_eq!(list_of(json!({"data": {"nodes": [1, 2, 3]}}), Some("/data/nodes")), Ok(3));
        for (value, pointer) in [
            (json!({"a": [], "b": []}), None),
            (json!({"a": 1}), None),
            (json!("x"), None),
            (json!([1]), Some("/a")),
        ] {
            assert!(list(&value, pointer).is_err(), "{value}");
        }
    }

    #[test]
    fn the_next_page_is_on_the_same_server() {
        let from = "https://shop.example/products?limit=2";
        assert_eq!(
            following(from, "/products?after=2").as_deref(),
            Ok("https://shop.example/products?after=2")
        );
        assert!(following(from, "https://shop.example/p").is_ok());
        for other in [
            "https://evil.example/p",
            "http://shop.example/p",
            "https://shop.example:8443/p",
            "//evil.example",
        ] {
            assert!(following(from, other).is_err_and(|error| error.contains("another server")), "{other}");
        }
    }
}
