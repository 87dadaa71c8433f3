//! Who asks, and whether the request may come from where it comes from.

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use std::borrow::Cow;
use waypost_kernel::tenant::{DEFAULT, check_tenant};
use waypost_kernel::text::MAX_NAME_BYTES;
use waypost_store::{EVERY_TENANT, Secret};

use crate::answer::Result;
use crate::app::App;
use crate::problem::{CROSS_ORIGIN, FORBIDDEN, INVALID_QUERY, Problem, UNAUTHENTICATED};

/// What a route needs of who calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredRole {
    /// Anybody: health, and what the API looks like.
    Nothing,
    /// Looking at the tenant's runs.
    Read,
    /// Starting runs, commands, queues.
    Operate,
    /// Taking runs and reporting on them.
    Work,
    /// Everything else.
    Admin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Viewer,
    Operator,
    Worker,
    Admin,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Viewer, Role::Operator, Role::Worker, Role::Admin];

    pub fn may(self, required_role: RequiredRole) -> bool {
        match required_role {
            RequiredRole::Nothing | RequiredRole::Read => true,
            RequiredRole::Operate => matches!(self, Role::Operator | Role::Admin),
            RequiredRole::Work => matches!(self, Role::Worker | Role::Admin),
            RequiredRole::Admin => self == Role::Admin,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Worker => "worker",
            Role::Admin => "admin",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Caller {
    pub tenant: String,
    /// Works for all tenants: it named none, and no token binds it to one.
    pub is_everybodys: bool,
    /// May name any tenant: no token binds it to one.
    pub may_name_any: bool,
    pub role: Role,
    /// None without tokens.
    pub token: Option<Token>,
}

#[derive(Clone, Debug)]
pub struct Token {
    pub name: String,
    pub secret: Secret,
}

impl Caller {
    fn of_tenant(named: Option<String>, own: &str, role: Role, token: Option<Token>) -> Caller {
        let own = Some(own).filter(|own| *own != EVERY_TENANT).map(str::to_owned);
        let may_name_any = own.is_none();
        let tenant = named.or(own);
        let is_everybodys = tenant.is_none();
        let tenant = tenant.unwrap_or_else(|| DEFAULT.to_owned());
        Caller { tenant, is_everybodys, may_name_any, role, token }
    }

    /// For routes that are everybody's.
    pub fn nobody() -> Caller {
        Caller {
            tenant: String::new(),
            is_everybodys: false,
            may_name_any: false,
            role: Role::Viewer,
            token: None,
        }
    }

    pub fn token_id(&self) -> Option<&str> {
        self.token.as_ref().map(|token| token.secret.id.as_str())
    }

    /// Whether the token still counts. It is looked up as often as for new requests.
    pub async fn check_again(&self, app: &App) -> Result<()> {
        let Some(token) = &self.token else { return Ok(()) };
        app.tokens.find(&*app.store, &token.secret).await?.map(drop).ok_or_else(unknown)
    }

    /// Who the log names: the token, and whoever it says that it asks for.
    pub fn by(&self, given: Option<String>) -> String {
        match (&self.token, given) {
            (Some(token), Some(given)) => format!("{}/{given}", token.name),
            (Some(token), None) => token.name.clone(),
            (None, Some(given)) => given,
            (None, None) => "http".to_owned(),
        }
    }
}

/// A page of another site must not reach a server that trusts whoever reaches it: neither by a form (its Origin tells) nor
/// by a name of its own that leads to this address (its Host tells).
pub fn check_site(app: &App, parts: &Parts) -> Result<()> {
    let headers = &parts.headers;
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
    if hosts.next().is_some() {
        return Err(Problem::new(&CROSS_ORIGIN, "there are two hosts: send one header Host"));
    }
    if parts.uri.authority().is_some_and(|named| !named.as_str().eq_ignore_ascii_case(host)) {
        return Err(Problem::new(&CROSS_ORIGIN, "the request line names another host than the header Host"));
    }
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let of = origin.split_once("://").map_or("", |(_, rest)| rest);
        if of.is_empty() || !of.eq_ignore_ascii_case(host) {
            return Err(Problem::new(&CROSS_ORIGIN, format!("pages of {origin:?} may not use this server")));
        }
    }
    if !app.options.needs_tokens && !is_loopback_name(host) {
        let message = format!(
            "host {host:?}: without tokens this server answers to localhost, 127.0.0.1 and [::1] only"
        );
        return Err(Problem::new(&CROSS_ORIGIN, message));
    }
    Ok(())
}

/// A name or an address, and a port behind a colon if there is one: nothing else may stand there.
fn is_loopback_name(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    if !port.is_empty() && port.strip_prefix(':').is_none_or(|port| port.parse::<u16>().is_err()) {
        return false;
    }
    let address = name.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Without a token, where none is needed: everything, for whichever tenant is named. With one: what it is for.
pub async fn identify(app: &App, headers: &HeaderMap) -> Result<Caller> {
    let named = tenant(headers)?;
    let Some(value) = headers.get(AUTHORIZATION) else {
        if app.options.needs_tokens {
            let message =
                "this server needs a token: Authorization: Bearer wp_…; `waypost token create` makes one";
            return Err(Problem::new(&UNAUTHENTICATED, message));
        }
        return Ok(Caller::of_tenant(named, EVERY_TENANT, Role::Admin, None));
    };
    // The scheme is written as one likes.
    let text = value.to_str().ok().and_then(|text| text.split_once(' '));
    let text = text.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, secret)| secret);
    let secret = text.and_then(|text| Secret::parse(text.trim())).ok_or_else(unknown)?;
    let token = app.tokens.find(&*app.store, &secret).await?.ok_or_else(unknown)?;
    app.tokens.check_rate(&token.id)?;
    note_use(app, &token.id);
    let role = Role::ALL.into_iter().find(|role| role.name() == token.role).ok_or_else(unknown)?;
    if let Some(named) =
        named.as_ref().filter(|named| token.tenant != EVERY_TENANT && token.tenant != **named)
    {
        let message = format!("the token is one of tenant {:?} and sees nothing of {named:?}", token.tenant);
        return Err(Problem::new(&FORBIDDEN, message));
    }
    let known = Token { name: token.name.clone(), secret };
    Ok(Caller::of_tenant(named, &token.tenant, role, Some(known)))
}

/// Beside the request, which neither waits for it nor fails with it.
fn note_use(app: &App, id: &str) {
    if !app.tokens.is_use_news(id) {
        return;
    }
    let (store, id) = (app.store.clone(), id.to_owned());
    tokio::spawn(async move {
        if let Err(error) = store.token_used(id.clone()).await {
            tracing::debug!(%error, token = id, "its last use could not be written");
        }
    });
}

fn unknown() -> Problem {
    Problem::new(&UNAUTHENTICATED, "the token is not one of this server's, or was revoked")
}

/// `Waypost-Tenant`, percent-encoded where it is not ASCII.
fn tenant(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(value) = headers.get("waypost-tenant") else { return Ok(None) };
    let decoded = percent_encoding::percent_decode(value.as_bytes()).decode_utf8().ok();
    // All tenants are a token's, and no name.
    let is_one = |name: &Cow<'_, str>| check_tenant("tenant", name).is_ok() && *name != EVERY_TENANT;
    match decoded.filter(is_one) {
        Some(name) => Ok(Some(name.into_owned())),
        None => {
            let message = format!(
                "must be a tenant's name of 1 to {MAX_NAME_BYTES} bytes without \"/\", percent-encoded"
            );
            Err(Problem::field(&INVALID_QUERY, "Waypost-Tenant", &message))
        }
    }
}

pub fn check_role(caller: &Caller, required_role: RequiredRole) -> Result<()> {
    if caller.role.may(required_role) {
        return Ok(());
    }
    let role = caller.role.name();
    Err(Problem::new(&FORBIDDEN, format!("a token with the role {role} may not do this")).with("role", role))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_this_machine_are_known() {
        for host in ["localhost", "LOCALHOST:7070", "127.0.0.1:1", "127.1.2.3", "[::1]:7070", "[::1]"] {
            assert!(is_loopback_name(host), "{host}");
        }
        for host in [
            "",
            "example.org",
            "localhost.example.org",
            "10.0.0.1",
            "[2001:db8::1]:1",
            "127.0.0.1.evil",
            "[::1].evil.com",
            "localhost:x.evil.com",
            "localhost:80@evil.com",
            "localhost:",
            "[::1",
        ] {
            assert!(!is_loopback_name(host), "{host}");
        }
    }
}
