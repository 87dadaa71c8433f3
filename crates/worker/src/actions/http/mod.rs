//! Requests to the outside. Where one goes is decided once: the name is resolved, every address is judged, and
//! the connection is made to what was judged. Redirects are not followed, proxies of the environment not used.

mod address;
mod answer;
mod chat;

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, Url, redirect};
use serde_json::Value;

use super::{Body, Call, Http, Mask, Reads};
use crate::outcome::{Outcome, Word};
use answer::{Heard, Told};

pub use address::refusal;

/// Of a request whose step has no timeout.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// An Outcome's.
const MAX_ANSWER_BYTES: usize = super::MAX_OUTCOME_BYTES as usize;
/// Enough of a refusal to say why.
const MAX_REFUSAL_BYTES: usize = 4 * 1024;
/// What a refusal means is known by its head: its words are not waited for longer than this.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

/// Finds the addresses of a host. Tests have one of their own.
pub trait Lookup: Send + Sync + 'static {
    fn lookup(&self, host: &str) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;
}

/// As the machine does it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, host: &str) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        let host = host.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Sends requests for all steps of a worker. Connections are kept for the next one.
#[derive(Clone)]
pub struct Client {
    /// Calls only public addresses over TLS.
    guarded: reqwest::Client,
    /// Calls anything.
    unguarded: reqwest::Client,
    allow_private: bool,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Nothing: there was no answer.
    pub status: Option<u16>,
    /// Of a refusal: what it calls itself, if it does.
    pub code: Option<String>,
    /// What it means, as for every handler; the error is what is wrong with an Outcome.
    pub outcome: Result<Outcome, String>,
    /// False: the request may have been carried out although no answer came, and is sent again with the same key.
    pub is_known: bool,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Page {
    pub value: Value,
    /// The address of the next one, as the header `Link` says.
    pub next: Option<String>,
}

/// Why a page did not come.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NoPage {
    pub words: String,
    /// It may come the next time.
    pub may_come: bool,
    /// Not before this.
    pub wait: Option<Duration>,
}

impl NoPage {
    fn of(outcome: Result<Outcome, String>) -> NoPage {
        match outcome {
            Ok(outcome) => NoPage {
                may_come: outcome.word == Some(Word::Retry),
                wait: outcome.retry_after,
                words: outcome.message.unwrap_or_else(|| "there was no answer".to_owned()),
            },
            Err(words) => NoPage { words, may_come: false, wait: None },
        }
    }
}

/// `<https://…>; rel="next"` of a header that may have others.
fn next_link(header: &str) -> Option<&str> {
    header.split(',').find_map(|link| {
        let (address, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
        let is_next = |part: &str| {
            let value = part.trim().strip_prefix("rel=")?.trim_matches('"');
            value.split_ascii_whitespace().any(|word| word.eq_ignore_ascii_case("next")).then_some(())
        };
        rest.split(';').find_map(is_next).map(|()| address)
    })
}

impl Client {
    /// `allow_private`: for all requests, whatever their playbooks say.
    pub fn new(allow_private: bool) -> Result<Client, String> {
        Client::with_lookup(allow_private, &(Arc::new(SystemLookup) as Arc<dyn Lookup>))
    }

    pub fn with_lookup(allow_private: bool, lookup: &Arc<dyn Lookup>) -> Result<Client, String> {
        // Somebody's program may have chosen its own already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let make = |is_guarded: bool| {
            reqwest::Client::builder()
                .dns_resolver(Arc::new(Judge { lookup: lookup.clone(), is_guarded }))
                .redirect(redirect::Policy::none())
                .retry(reqwest::retry::never())
                .no_proxy()
                .referer(false)
                .https_only(is_guarded)
                .connect_timeout(CONNECT_TIMEOUT)
                .user_agent(concat!("waypost/", env!("CARGO_PKG_VERSION")))
                .build()
                .map_err(|error| format!("no HTTP client: {}", deepest(&error)))
        };
        Ok(Client { guarded: make(true)?, unguarded: make(false)?, allow_private })
    }

    /// Whether the worker's environment says so: `WAYPOST_ALLOW_PRIVATE_ADDRESSES=1`.
    pub fn allowed_by_environment() -> bool {
        std::env::var_os("WAYPOST_ALLOW_PRIVATE_ADDRESSES").is_some_and(|value| value == "1")
    }

    /// Never fails: whatever happens is an outcome. `timeout` is of all of it.
    pub async fn send(&self, request: &Http, call: &Call, timeout: Option<Duration>, mask: &Mask) -> Reply {
        let timeout = timeout.unwrap_or(DEFAULT_TIMEOUT);
        match self.ask(request, call, timeout, mask, MAX_ANSWER_BYTES).await {
            Ok(told) => told.reply(&whereto(request), mask),
            Err(reply) => reply,
        }
        .read_as(request.reads)
    }

    /// What a good answer of up to `most` bytes holds, whole: an output of a step would be cut. Anything else is an
    /// error in words.
    pub async fn fetch(
        &self,
        request: &Http,
        call: &Call,
        timeout: Duration,
        mask: &Mask,
        most: usize,
    ) -> Result<Outcome, String> {
        let outcome = match self.ask(request, call, timeout, mask, most).await {
            Ok(told) => told.whole(&whereto(request), mask)?,
            Err(reply) => reply.outcome?,
        };
        match outcome.message {
            Some(message) => Err(message),
            None => Ok(outcome),
        }
    }

    /// One page of a list, with what its header `Link` says is next.
    pub(crate) async fn page(
        &self,
        request: &Http,
        call: &Call,
        timeout: Duration,
        mask: &Mask,
        most: usize,
    ) -> Result<Page, NoPage> {
        let told = match self.ask(request, call, timeout, mask, most).await {
            Ok(told) => told,
            Err(reply) => return Err(NoPage::of(reply.outcome)),
        };
        match told.whole(&whereto(request), mask) {
            Ok(outcome) if outcome.message.is_none() => {
                let next = told.link.as_deref().and_then(next_link).map(str::to_owned);
                Ok(Page { value: outcome.output, next })
            }
            refused => Err(NoPage::of(refused)),
        }
    }

    /// The reply is there already if no answer came.
    async fn ask(
        &self,
        request: &Http,
        call: &Call,
        timeout: Duration,
        mask: &Mask,
        most: usize,
    ) -> Result<Told, Reply> {
        let prepared = self.prepare(request, call, timeout).map_err(|(code, problem)| {
            Reply::refused(code, &mask.hide(&format!("{}: {problem}", whereto(request))))
        })?;
        let sent_at = Instant::now();
        let told = match prepared.send().await {
            Ok(response) if response.status().is_success() => hear(response, most).await,
            // Whoever sets a limit to the step sees the refusal and not the limit.
            Ok(response) => Ok(hear_refusal(response, timeout.saturating_sub(sent_at.elapsed()) / 2).await),
            Err(error) => Err(error),
        };
        told.map_err(|error| self.failed(&error, &whereto(request), timeout, mask))
    }

    fn prepare(
        &self,
        request: &Http,
        call: &Call,
        timeout: Duration,
    ) -> Result<reqwest::RequestBuilder, (&'static str, String)> {
        let may_go_anywhere = self.allow_private || request.allow_private;
        let url = judged(&request.url, may_go_anywhere)?;
        let invalid = |problem: &str| ("BAD_REQUEST", problem.to_owned());
        let method = Method::from_bytes(request.method.as_bytes()).map_err(|_| invalid("no such method"))?;
        let mut headers = HeaderMap::new();
        let content_type = match request.body {
            Body::Json(_) | Body::Envelope => Some("application/json"),
            Body::Text(_) => Some("text/plain; charset=utf-8"),
            Body::None => None,
        };
        headers.extend(content_type.map(|kind| (CONTENT_TYPE, HeaderValue::from_static(kind))));
        for (name, value) in &request.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid("no such header"))?;
            let mut value =
                HeaderValue::from_str(value.open()).map_err(|_| invalid("a header cannot be sent"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let mut own = |name: &'static str, value: &str| {
            let value = HeaderValue::from_str(value).map_err(|_| invalid("a header cannot be sent"))?;
            headers.insert(HeaderName::from_static(name), value);
            Ok::<_, (&'static str, String)>(())
        };
        own("idempotency-key", &call.idempotency_key)?;
        if let Some(parent) = &call.traceparent {
            own("traceparent", parent)?;
        }
        let client = if may_go_anywhere { &self.unguarded } else { &self.guarded };
        let builder = client.request(method, url).headers(headers).timeout(timeout);
        Ok(match &request.body {
            Body::None => builder,
            Body::Envelope => builder.body(call.envelope().to_string()),
            Body::Text(text) | Body::Json(text) => builder.body(text.open().to_owned()),
        })
    }

    fn failed(&self, error: &reqwest::Error, whereto: &str, timeout: Duration, mask: &Mask) -> Reply {
        if let Some(refused) = refused_address(error) {
            return Reply::refused("ADDRESS_REFUSED", &mask.hide(&format!("{whereto}: {refused}")));
        }
        let (code, problem) = if error.is_timeout() {
            ("TIMEOUT", format!("no answer within {} ms", timeout.as_millis()))
        } else {
            ("NETWORK", deepest(error))
        };
        let message = mask.hide(&format!("{whereto}: {problem}")).into_owned();
        let outcome = Outcome { code: Some(code.to_owned()), ..Outcome::retry(&message) };
        Reply { status: None, code: None, outcome: Ok(outcome.cleaned()), is_known: error.is_connect() }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("allow_private", &self.allow_private).finish_non_exhaustive()
    }
}

impl Reply {
    fn read_as(self, reads: Reads) -> Reply {
        match reads {
            Reads::Outcome => self,
            Reads::Chat { is_json } => {
                Reply { outcome: self.outcome.map(|outcome| chat::read(outcome, is_json)), ..self }
            }
        }
    }

    /// It was not sent, and would not be the next time.
    fn refused(code: &str, message: &str) -> Reply {
        let outcome = Outcome { permanent: true, ..Outcome::fail(code, message) };
        Reply { status: None, code: None, outcome: Ok(outcome.cleaned()), is_known: true }
    }
}

/// An address in the URL itself is judged here: nobody looks it up.
fn judged(url: &str, may_go_anywhere: bool) -> Result<Url, (&'static str, String)> {
    let url = Url::parse(url).map_err(|error| ("BAD_REQUEST", format!("this is no URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(("BAD_REQUEST", "this is no URL of a web server".to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(("BAD_REQUEST", "the URL holds credentials: put them into a header".to_owned()));
    }
    if may_go_anywhere {
        return Ok(url);
    }
    if url.scheme() == "http" {
        let problem = "http:// is not encrypted: use https://, or set allow_private";
        return Err(("ADDRESS_REFUSED", problem.to_owned()));
    }
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match literal.ok().and_then(|address| refusal(address).map(|why| (address, why))) {
        Some((address, why)) => Err(("ADDRESS_REFUSED", RefusedAddress { address, why }.to_string())),
        None => Ok(url),
    }
}

/// Looks a name up and gives only the addresses that may be called. The connection is made to these.
struct Judge {
    lookup: Arc<dyn Lookup>,
    is_guarded: bool,
}

#[derive(Debug)]
struct RefusedAddress {
    address: IpAddr,
    why: &'static str,
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}: set allow_private if it should be called", self.address, self.why)
    }
}

impl std::error::Error for RefusedAddress {}

impl Resolve for Judge {
    fn resolve(&self, name: Name) -> Resolving {
        let looking = self.lookup.lookup(name.as_str());
        let is_guarded = self.is_guarded;
        Box::pin(async move {
            let found = looking.await?;
            let mut refused = None;
            let mut allowed = Vec::new();
            for address in found {
                match refusal(address).filter(|_| is_guarded) {
                    Some(why) => refused = Some(RefusedAddress { address, why }),
                    None => allowed.push(SocketAddr::new(address, 0)),
                }
            }
            match refused.filter(|_| allowed.is_empty()) {
                Some(refused) => Err(refused.into()),
                None if allowed.is_empty() => Err("the name has no address".into()),
                None => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

/// A good answer counts only as a whole: what breaks off may have been carried out or not.
async fn hear(mut response: Response, most: usize) -> Result<Told, reqwest::Error> {
    let mut told = Told::by_head(&response);
    told.body.read(&mut response, most).await?;
    Ok(told)
}

/// A refusal stands, whether its words come, stall or break off.
async fn hear_refusal(mut response: Response, patience: Duration) -> Told {
    let mut told = Told::by_head(&response);
    let reading = told.body.read(&mut response, MAX_REFUSAL_BYTES);
    let _ = tokio::time::timeout(patience.min(REFUSAL_PATIENCE), reading).await;
    told
}

impl Told {
    fn by_head(response: &Response) -> Told {
        let header = |name: &str| {
            let value = response.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        Told {
            status: response.status().as_u16(),
            content_type: header("content-type"),
            retry_after: header("retry-after"),
            link: header("link"),
            body: Heard { bytes: Vec::new(), is_whole: true },
        }
    }
}

impl Heard {
    /// Reads no more than an answer may have.
    async fn read(&mut self, response: &mut Response, limit: usize) -> Result<(), reqwest::Error> {
        while let Some(chunk) = response.chunk().await? {
            let room = limit - self.bytes.len();
            self.bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                self.is_whole = false;
                break;
            }
        }
        Ok(())
    }
}

fn refused_address(error: &reqwest::Error) -> Option<&RefusedAddress> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(refused) = error.downcast_ref::<RefusedAddress>() {
            return Some(refused);
        }
        source = error.source();
    }
    None
}

/// The cause of the cause: "connection refused" rather than "error sending request". It names no URL.
fn deepest(error: &reqwest::Error) -> String {
    let mut words = None;
    let mut source = error.source();
    while let Some(error) = source {
        words = Some(error.to_string());
        source = error.source();
    }
    words.unwrap_or_else(|| "the request could not be sent".to_owned())
}

fn whereto(request: &Http) -> String {
    format!("{} {}", request.method, without_query(&request.url))
}

/// The host that a URL calls, with its port if it is not the usual one.
pub(crate) fn host_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    url.host_str().map(|host| format!("{host}{port}"))
}

/// For messages and logs: what follows `?` may be private.
pub fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}
