//! Who looks at a page: a token in a cookie, as it would be in a header elsewhere. And that a form is our own.
//!
//! The cookie holds the token itself. So any server of an installation knows it, it ends with the token wherever that is revoked, and no
//! server keeps a list of who is signed in.

use std::sync::LazyLock;

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, HeaderName, ORIGIN, REFERER};
use axum::http::{HeaderMap, HeaderValue};
use hmac::{Hmac, KeyInit, Mac};
use maud::html;
use sha2::Sha256;
use waypost_kernel::tenant::check_given;
use waypost_store::{EVERY_TENANT, Secret};

use super::form::Form;
use super::layout::{Nav, Sheet, answered};
use super::{ask, parts, see};
use crate::answer::{self, Answer, Result};
use crate::call::Call;
use crate::problem::{CROSS_ORIGIN, INVALID_INPUT, Problem};

/// Its name says to browsers that only this host sets it, over TLS.
const SECURE_TOKEN: &str = "__Host-waypost-token";
const TOKEN: &str = "waypost-token";
const TENANT: &str = "waypost-tenant";
const THEME: &str = "waypost-theme";
const THEMES: [&str; 3] = ["auto", "light", "dark"];

const SIGNED_IN_S: u32 = 12 * 3_600;
const PREFERRED_S: u32 = 365 * 86_400;

/// The hidden field of every form.
pub const FIELD: &str = "form_token";

/// Of servers that need no token. Their pages are one process's: whoever starts it again reloads them.
static OWN_KEY: LazyLock<[u8; 32]> = LazyLock::new(|| {
    let mut key = [0; 32];
    key[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    key[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    key
});

/// From here on a page's request is like any other: its cookies stand where a client of the API puts the same.
pub fn adopt(headers: &mut HeaderMap) {
    let token = cookie(headers, SECURE_TOKEN).or_else(|| cookie(headers, TOKEN));
    if let Some(token) = token.filter(|_| !headers.contains_key(AUTHORIZATION))
        && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {token}"))
    {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    const HEADER: HeaderName = HeaderName::from_static("waypost-tenant");
    let tenant = cookie(headers, TENANT).filter(|_| !headers.contains_key(HEADER));
    if let Some(value) = tenant.and_then(|tenant| HeaderValue::from_str(&tenant).ok()) {
        headers.insert(HEADER, value);
    }
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value.to_owned())
        .filter(|value| !value.is_empty())
}

/// Whether somebody brings a token along; that it is good is for others to say.
pub fn brings_token(headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION)
        || [SECURE_TOKEN, TOKEN].iter().any(|name| cookie(headers, name).is_some())
}

/// The page of ours that a form stood on, as the browser says.
pub fn came_from(headers: &HeaderMap) -> Option<&str> {
    let said = headers.get(REFERER)?.to_str().ok()?;
    let rest = said.strip_prefix("https://").or_else(|| said.strip_prefix("http://"))?;
    let path = rest.strip_prefix(headers.get(HOST)?.to_str().ok()?)?;
    Some(path).filter(|path| own_path(path) == *path)
}

/// As the person chose it; the system's own otherwise.
pub fn theme(headers: &HeaderMap) -> &'static str {
    let chosen = cookie(headers, THEME);
    THEMES.into_iter().find(|theme| Some(*theme) == chosen.as_deref()).unwrap_or(THEMES[0])
}

/// What a form of this caller's pages carries: another site cannot know it.
pub fn form_token(call: &Call) -> String {
    mac(call).finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn mac(call: &Call) -> Hmac<Sha256> {
    let key = call.headers.get(AUTHORIZATION).map_or(&OWN_KEY[..], HeaderValue::as_bytes);
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| unreachable!("keys have any length"));
    mac.update(b"waypost console form");
    mac
}

pub fn check_token(call: &Call, given: &str) -> Result<()> {
    let byte = |at: usize| u8::from_str_radix(given.get(2 * at..2 * at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..given.len() / 2).map(byte).collect();
    match bytes.is_some_and(|bytes| mac(call).verify_slice(&bytes).is_ok()) {
        true => Ok(()),
        false => {
            let message = "the form is older than your session or this server: go back, reload the page and send it again";
            Err(Problem::new(&CROSS_ORIGIN, message))
        }
    }
}

/// That an origin which was sent is ours was checked before; that there is one is checked here.
pub fn check_origin(call: &Call) -> Result<()> {
    let origins = call.headers.get_all(ORIGIN).iter().count();
    let is_said = origins == 1 || call.header("sec-fetch-site") == Some("same-origin");
    // Of several only the first was looked at.
    if is_said && origins < 2 {
        return Ok(());
    }
    Err(Problem::new(&CROSS_ORIGIN, "a form says by the header Origin which page it is on"))
}

pub async fn page(call: Call) -> Result {
    let to = parts::asked(&call, "to").unwrap_or("/");
    Ok(sign_in_page(&call, 200, to, None))
}

fn sign_in_page(call: &Call, status: u16, to: &str, wrong: Option<&str>) -> Answer {
    let content = html! {
        section.card.narrow {
            h1 { "Sign in" }
            @if let Some(wrong) = wrong { p.alert role="alert" { (wrong) } }
            form method="post" action="/sign-in" {
                input type="hidden" name="to" value=(to);
                label for="token" { "Token" }
                input #token type="password" name="token" required autocomplete="current-password" placeholder="wp_…"
                    spellcheck="false" autofocus;
                p.hint { "Make one on the server: " code { "waypost token create NAME --role operator" } }
                button.primary type="submit" { "Sign in" }
            }
        }
    };
    answered(call, status, &Sheet { title: "Sign in", nav: Nav::None, live: None }, &content)
}

pub async fn sign_in(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_site(&call, &raw)?;
    let to = form.get("to").unwrap_or("/");
    let given = form.get("token").unwrap_or_default().trim();
    let found = match Secret::parse(given) {
        Some(secret) => call.app.tokens.find(&*call.app.store, &secret).await,
        None => Ok(None),
    };
    match found {
        Ok(Some(_)) => {
            let (name, secure) = if is_tls(&call) { (SECURE_TOKEN, true) } else { (TOKEN, false) };
            Ok(with_cookie(see(own_path(to)), name, given, SIGNED_IN_S, secure))
        }
        Ok(None) => {
            let wrong = "This is no token of this server, or it was revoked.";
            Ok(sign_in_page(&call, 403, to, Some(wrong)))
        }
        Err(problem) if problem.status == 401 => Ok(sign_in_page(&call, 403, to, Some(&problem.detail))),
        Err(problem) => Err(problem),
    }
}

pub async fn sign_out(call: Call, raw: Vec<u8>) -> Result {
    Form::of_page(&call, &raw)?;
    let answer = with_cookie(see("/sign-in"), TOKEN, "", 0, false);
    Ok(if is_tls(&call) { with_cookie(answer, SECURE_TOKEN, "", 0, true) } else { answer })
}

/// How pages look, and whose runs they show to who may look at all tenants'.
pub async fn prefer(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let secure = is_tls(&call);
    let mut answer = see(came_from(&call.headers).unwrap_or_else(|| own_path(form.get("to").unwrap_or("/"))));
    if let Some(theme) = form.get("theme") {
        let theme = THEMES.into_iter().find(|known| *known == theme).unwrap_or(THEMES[0]);
        answer = with_cookie(answer, THEME, theme, PREFERRED_S, secure);
    }
    if let Some(tenant) = form.get("tenant") {
        if check_given("tenant", tenant).is_err() || tenant == EVERY_TENANT {
            return Err(Problem::field(&INVALID_INPUT, "tenant", "is no name that a tenant can have"));
        }
        answer = with_cookie(answer, TENANT, &ask::encoded(tenant), PREFERRED_S, secure);
    }
    Ok(answer)
}

/// The browser says itself over what it came: a proxy need not be trusted for it.
fn is_tls(call: &Call) -> bool {
    call.header("origin").is_some_and(|origin| origin.starts_with("https://"))
}

fn with_cookie(answer: Answer, name: &str, value: &str, seconds: u32, secure: bool) -> Answer {
    let secure = if secure { "; Secure" } else { "" };
    let cookie = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    answer::with(answer, "set-cookie", &cookie)
}

/// Nobody is led elsewhere.
fn own_path(to: &str) -> &str {
    let is_ours = to.starts_with('/')
        && !to.starts_with("//")
        && to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_ours { to } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_led_to_another_site() {
        for path in ["/", "/runs?filter=status%3Afailed"] {
            assert_eq!(own_path(path), path);
        }
        for path in ["", "//evil.example", "/\\evil.example", "https://evil.example", "runs", "/a\nb"] {
            assert_eq!(own_path(path), "/", "{path}");
        }
    }

    #[test]
    fn where_somebody_came_from_is_a_page_of_ours() {
        let from = |said: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("waypost.example:7070"));
            headers.insert(REFERER, said.parse().expect("a header"));
            came_from(&headers).map(str::to_owned)
        };
        assert_eq!(from("http://waypost.example:7070/runs?a=b").as_deref(), Some("/runs?a=b"));
        for said in [
            "http://evil.example/runs",
            "http://waypost.example:7070.evil/x",
            "https://waypost.example:7070//evil",
            "/runs",
        ] {
            assert_eq!(from(said), None, "{said}");
        }
    }

    #[test]
    fn a_cookie_stands_for_a_header_that_is_not_there() {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_static("a=b; waypost-token=wp_x; waypost-tenant=t"));
        adopt(&mut headers);
        assert_eq!(headers[AUTHORIZATION], "Bearer wp_x");
        assert_eq!(headers["waypost-tenant"], "t");
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer other"));
        adopt(&mut headers);
        assert_eq!(headers[AUTHORIZATION], "Bearer other");
    }
}
