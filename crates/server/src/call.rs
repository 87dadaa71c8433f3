//! One request, read and checked.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, IF_MATCH, TRANSFER_ENCODING};
use http_body_util::BodyExt;
use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use waypost_kernel::Catalog;
use waypost_kernel::tenant::stored_name;
use waypost_kernel::text::{refuse_json, refuse_text};
use waypost_schema::{FromNode, Kind, Node, Problem as FieldError, Shape, read_request};
use waypost_store::{Parts, RunRow, Store, Who};

use crate::answer::{self, Answer, Result};
use crate::api::{Route, SMALL_BYTES};
use crate::app::App;
use crate::guard::Caller;
use crate::json::{self, Scale};
use crate::problem::{
    INTERNAL_ERROR, INVALID_INPUT, INVALID_JSON, INVALID_QUERY, Problem, TIMED_OUT, TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
};
use crate::room::bytes as room;

/// A client that sends its body slower than this is not waited for.
const BODY_WITHIN: Duration = Duration::from_secs(30);
const MOST_PARAMETERS: usize = 50;
/// A body that is larger is parsed beside the runtime's own threads, a few at a time.
const LARGE: usize = 256 * 1024;
/// What a body may take in memory: so many times its limit, and never more than this.
const MOST_TIMES: usize = 32;
const MOST_WEIGHT: usize = 48 * 1024 * 1024;
/// What is still read of a body that is refused.
const MOST_DRAINED: usize = 32 * 1024 * 1024;
const DRAINED_WITHIN: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub struct Call {
    pub app: Arc<App>,
    pub caller: Caller,
    /// Of the path, by their names.
    pub path: Vec<(String, String)>,
    /// As it was asked, for the way to the next page.
    pub query: Map<String, Value>,
    pub headers: HeaderMap,
    /// On one that is kept for others: nothing is waited for.
    pub is_on_kept_seat: bool,
}

/// One of those that put a page together.
#[derive(Clone, Debug)]
pub struct Turn(
    #[expect(dead_code, reason = "it counts as long as it lives")] Option<Arc<OwnedSemaphorePermit>>,
);

impl Turn {
    /// It lasts until what the answer takes is counted.
    pub fn lasting_with(self, mut answer: Answer) -> Answer {
        answer.extensions_mut().insert(self);
        answer
    }
}

/// What the route's function takes, checked against its shapes.
#[derive(Debug)]
pub struct Asked {
    pub query: Node,
    pub body: Node,
    /// Of a route that takes it so.
    pub raw: Vec<u8>,
}

impl Asked {
    pub fn query<T: FromNode>(self) -> Result<T> {
        typed(self.query)
    }

    pub fn body<T: FromNode>(self) -> Result<T> {
        typed(self.body)
    }
}

fn typed<T: FromNode>(node: Node) -> Result<T> {
    let defect = || Problem::new(&INTERNAL_ERROR, "the request fits its shape, but not what reads it");
    T::from_node(node).ok_or_else(defect)
}

impl Call {
    pub fn store(&self) -> &dyn Store {
        &*self.app.store
    }

    pub fn path(&self, name: &str) -> String {
        let found = self.path.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The run of the path, if it is the caller's to see.
    pub async fn run(&self) -> Result<RunRow> {
        let run_id = self.path("run_id");
        Ok(self.store().run(self.caller.tenant.clone(), run_id).await?)
    }

    /// The same; who works for all tenants holds runs of any, and looks at their items and events, at whichever server.
    pub async fn run_of_any(&self) -> Result<RunRow> {
        let run_id = self.path("run_id");
        let tenant = match self.caller.is_everybodys {
            true => self.tenant_of(&run_id).await?,
            false => None,
        };
        let tenant = tenant.unwrap_or_else(|| self.caller.tenant.clone());
        Ok(self.store().run(tenant, run_id).await?)
    }

    /// Whose run it is, by its whole id: for those who work for all tenants.
    pub async fn tenant_of(&self, run_id: &str) -> Result<Option<String>> {
        if let Some(known) = self.app.tenant_of(run_id) {
            return Ok(Some(known));
        }
        if waypost_kernel::id::check_id(run_id).is_err() {
            return Ok(None);
        }
        match self.store().events(run_id.to_owned(), 0, 1).await {
            Ok(first) => Ok(first.into_iter().next().map(|event| event.tenant)),
            Err(waypost_store::StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The same by its id alone, as cheaply as can be: for those who hold it.
    pub async fn check_tenant(&self) -> Result<()> {
        self.check_tenant_of(&self.path("run_id")).await
    }

    pub async fn check_tenant_of(&self, run_id: &str) -> Result<()> {
        if self.caller.is_everybodys {
            return Ok(());
        }
        match self.app.tenant_of(run_id) {
            Some(tenant) if tenant == self.caller.tenant => Ok(()),
            Some(_) => Err(waypost_store::StoreError::no_run(run_id).into()),
            None => {
                let row = self.store().run(self.caller.tenant.clone(), run_id.to_owned()).await?;
                if row.id() != run_id {
                    return Err(waypost_store::StoreError::no_run(run_id).into());
                }
                self.app.remember_tenant(run_id, &row.tenant);
                Ok(())
            }
        }
    }

    /// The run object; for Waypost's own workers and command line also what only the engine looks at.
    pub fn show(&self, row: &RunRow) -> Value {
        let mut object = row.object();
        if self.shows_engine() {
            object["engine"] = waypost_store::wire::engine(row);
        }
        object
    }

    /// The same as an answer.
    pub fn json_of(&self, status: u16, row: &RunRow) -> Answer {
        answer::json(status, &row.written(Parts::ALL, self.shows_engine()))
    }

    /// Whose things are listed: one tenant's, or everybody's.
    pub fn tenant(&self) -> Option<String> {
        (!self.caller.is_everybodys).then(|| self.caller.tenant.clone())
    }

    /// The lifecycles that the caller sees, by the names that it gives them.
    pub async fn lifecycles(&self) -> Result<Catalog> {
        let catalog = self.store().lifecycles().await?;
        Ok(self.tenant().map_or_else(|| catalog.clone(), |tenant| catalog.of_tenant(&tenant)))
    }

    /// The stored name of what the caller calls so. Whoever sees several tenants names theirs as they are stored.
    pub fn stored_name(&self, given: &str) -> Option<String> {
        if self.caller.is_everybodys {
            Some(given.to_owned())
        } else {
            stored_name(&self.caller.tenant, given)
        }
    }

    /// Pages take memory while they are put together: a few at a time.
    pub async fn page_turn(&self) -> Turn {
        Turn(self.app.pages.clone().acquire_owned().await.ok().map(Arc::new))
    }

    /// Whether it is one of Waypost's own workers or command lines that asks.
    pub fn shows_engine(&self) -> bool {
        self.header("waypost-detail") == Some("engine")
    }

    /// Whose queues, workers and figures the caller sees; all tenants' if there is none.
    pub fn seen_tenant(&self) -> Option<String> {
        Some(self.caller.tenant.clone()).filter(|_| !self.caller.is_everybodys)
    }

    /// Who asks, and why, as the body says.
    pub fn who(&self, by: Option<String>, reason: Option<String>) -> Who {
        Who { tenant: self.caller.tenant.clone(), by: self.caller.by(by), reason }
    }

    /// The seq of `If-Match: "7"`, or of the `"7-…"` of a run that waits.
    pub fn if_match(&self) -> Result<Option<u64>> {
        let Some(value) = self.headers.get(IF_MATCH) else { return Ok(None) };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(None);
        }
        let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let quoted = quoted.map(|tag| tag.split_once(WAITS_TAG).map_or(tag, |(seq, _)| seq));
        let seq = quoted.and_then(|digits| digits.parse().ok().filter(|seq: &u64| seq.to_string() == digits));
        let wrong = || {
            let message = "must be one ETag as an earlier answer gave it, like \"7\", or *";
            Problem::field(&INVALID_QUERY, "If-Match", message)
        };
        seq.map(Some).ok_or_else(wrong)
    }
}

/// After the seq in the ETag of a run that waits.
pub const WAITS_TAG: &str = "-";

pub fn read_query(route: &Route, query: Option<&str>) -> Result<(Map<String, Value>, Node)> {
    let mut fields = Map::new();
    let mut wrongs = Vec::new();
    let pairs = || query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    if pairs().nth(MOST_PARAMETERS).is_some() {
        let message = format!("has more than {MOST_PARAMETERS} parameters");
        return Err(Problem::field(&INVALID_QUERY, "query", &message));
    }
    for pair in pairs() {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
            let message = "is not UTF-8, or has a NUL".to_owned();
            wrongs.push(FieldError { field: "query".into(), message, ..FieldError::default() });
            break;
        };
        let known = route.query.iter().find(|field| field.name == name);
        let kind = known.map_or(Kind::Any, |field| field.kind);
        // An empty one is one that was left out: `?status=&queue=`.
        if !value.is_empty() || known.is_none() {
            fields.insert(name, of_kind(kind, value));
        }
    }
    match read_request(fields.clone(), &Shape::of_api("Query", route.query)) {
        Ok(node) if wrongs.is_empty() => Ok((fields, node)),
        read => {
            wrongs.extend(read.err().into_iter().flatten());
            Err(Problem::fields(&INVALID_QUERY, &wrongs))
        }
    }
}

fn decoded(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    let decoded = percent_encoding::percent_decode_str(&text).decode_utf8().ok()?;
    (!decoded.contains('\0')).then(|| decoded.into_owned())
}

/// A parameter is text; what should be a number or a truth is made one, if it can be.
fn of_kind(kind: Kind, text: String) -> Value {
    match kind {
        Kind::Integer(..) => text.parse::<i64>().map_or(Value::String(text), Value::from),
        Kind::Boolean if text == "true" => Value::Bool(true),
        Kind::Boolean if text == "false" => Value::Bool(false),
        _ => Value::String(text),
    }
}

/// Those that the route reads; what they say is for the route.
pub fn check_headers(route: &Route, headers: &HeaderMap) -> Result<()> {
    for field in route.headers {
        let Kind::Text(most) = field.kind else { continue };
        if headers.get(field.name).is_some_and(|value| value.len() > most) {
            let message = format!("must be {}", field.kind.wanted());
            return Err(Problem::field(&INVALID_QUERY, field.name, &message));
        }
    }
    Ok(())
}

/// What is read of a body, and the memory that it takes until the request is answered.
#[derive(Debug)]
pub struct Read {
    pub body: Node,
    /// As it came, for a route that takes it so.
    pub raw: Vec<u8>,
    pub held: room::Bytes,
}

pub async fn read_body(
    app: &Arc<App>,
    caller: &Caller,
    route: &'static Route,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<Read> {
    let mut held = app.bodies.open(caller.token_id());
    if route.is_raw {
        let raw = collect(headers, body, route.body_bytes, &mut held).await?;
        return Ok(Read { body: Node::default(), raw, held });
    }
    let Some(shape) = route.body else { return Ok(Read { body: Node::default(), raw: Vec::new(), held }) };
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        let message = "Content-Encoding: send the body as it is";
        return Err(Problem::new(&UNSUPPORTED_MEDIA_TYPE, message));
    }
    if headers
        .get(TRANSFER_ENCODING)
        .is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"chunked"))
    {
        let message = "Transfer-Encoding: chunked is the only one that is taken";
        return Err(Problem::new(&UNSUPPORTED_MEDIA_TYPE, message));
    }
    let bytes = collect(headers, body, route.body_bytes, &mut held).await?;
    // Nothing at all is an empty object: `curl -X POST …/cancel`.
    if bytes.is_empty() {
        return Ok(Read { body: checked(shape, Map::new())?, raw: Vec::new(), held });
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = format!("Content-Type is {kind:?}; it must be application/json");
        return Err(Problem::new(&UNSUPPORTED_MEDIA_TYPE, message));
    }
    if bytes.len() <= LARGE {
        return parse(route, shape, &bytes, held);
    }
    // The others are answered meanwhile.
    let defect = || Problem::new(&INTERNAL_ERROR, "the body was not read to its end");
    let _turn = app.parsers.acquire().await.map_err(|_| defect())?;
    let parsed = tokio::task::spawn_blocking(move || parse(route, shape, &bytes, held));
    parsed.await.map_err(|_| defect())?
}

fn parse(route: &Route, shape: &'static Shape, bytes: &[u8], mut held: room::Bytes) -> Result<Read> {
    let most = (route.body_bytes * MOST_TIMES + SMALL_BYTES).min(MOST_WEIGHT);
    let scale = Scale::new(&mut held, bytes.len(), most);
    let value = json::read(bytes, shape, route.is_lenient, scale)?;
    let Value::Object(object) = value else {
        return Err(Problem::field(&INVALID_INPUT, "body", "must be an object"));
    };
    if !route.is_lenient {
        refuse_unfit(shape, &object, "")?;
    }
    Ok(Read { body: checked(shape, object)?, raw: Vec::new(), held })
}

/// NULs and depth, named with the field that has them; a list's entries count from their own root. Sizes are the
/// fields' own.
fn refuse_unfit(shape: &Shape, object: &Map<String, Value>, at: &str) -> Result<()> {
    for (name, value) in object {
        let field = shape.field(name);
        if let (Some(Kind::List { of: Kind::Of(inner), .. }), Value::Array(entries)) =
            (field.map(|it| it.kind), value)
        {
            for (place, entry) in entries.iter().enumerate() {
                if let Some(entry) = entry.as_object() {
                    refuse_unfit(inner, entry, &format!("{at}{name}/{place}/"))?;
                }
            }
            continue;
        }
        let path = format!("{at}{name}");
        let unfit =
            refuse_text("body", name, usize::MAX).and_then(|()| refuse_json(&path, value, usize::MAX));
        unfit.map_err(|error| Problem::field(&INVALID_INPUT, &error.field, &error.message))?;
    }
    Ok(())
}

/// The same of a body that the server put together itself.
pub fn read_object(shape: &Shape, object: Map<String, Value>) -> Result<Node> {
    refuse_unfit(shape, &object, "")?;
    checked(shape, object)
}

fn checked(shape: &Shape, object: Map<String, Value>) -> Result<Node> {
    read_request(object, shape).map_err(|wrongs| Problem::fields(&INVALID_INPUT, &wrongs))
}

async fn collect(
    headers: &HeaderMap,
    body: &mut Body,
    most: usize,
    held: &mut room::Bytes,
) -> Result<Vec<u8>> {
    let too_large = || Problem::new(&TOO_LARGE, format!("the body may have at most {most} bytes here"));
    let said = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if said.is_some_and(|bytes| bytes > most) {
        return Err(too_large());
    }
    // What was said to come takes nothing until it comes.
    let whole = async {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Problem::new(&INVALID_JSON, "the body broke off"))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > most {
                return Err(too_large());
            }
            held.hold(bytes.len() + data.len())?;
            // All that is to come at once, of which the system gives what is written to: else it would be copied as it grows.
            if bytes.capacity() < bytes.len() + data.len() {
                bytes.reserve_exact(said.unwrap_or_default().saturating_sub(bytes.len()).max(data.len()));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    };
    let late = |_| Problem::new(&TIMED_OUT, format!("the body took longer than {BODY_WITHIN:?}"));
    timeout(BODY_WITHIN, whole).await.map_err(late)?
}

/// Reads and drops what is left of a body, within bounds: a client that sends all before it reads would else not see the answer.
pub async fn drain(body: &mut Body) {
    let rest = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
            if bytes > MOST_DRAINED {
                break;
            }
        }
    };
    let _ = timeout(DRAINED_WITHIN, rest).await;
}
