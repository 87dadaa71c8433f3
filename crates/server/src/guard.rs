//! Who asks, and whether the request may come from where it comes from.

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use waypost_kernel::text::MAX_NAME_BYTES;

use crate::answer::Result;
use crate::app::App;
use crate::problem::{CROSS_ORIGIN, FORBIDDEN, INVALID_QUERY, Problem};

/// What a route needs of who calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
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
    pub fn may(self, needs: Needs) -> bool {
        match needs {
            Needs::Nothing | Needs::Read => true,
            Needs::Operate => matches!(self, Role::Operator | Role::Admin),
            Needs::Work => matches!(self, Role::Worker | Role::Admin),
            Needs::Admin => self == Role::Admin,
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
    pub role: Role,
    /// The token's name; nothing without tokens.
    pub name: Option<String>,
}

impl Caller {
    /// For routes that are everybody's.
    pub fn nobody() -> Caller {
        Caller { tenant: String::new(), is_everybodys: false, role: Role::Viewer, name: None }
    }

    /// Who the log names: the token, and whoever it says that it asks for.
    pub fn by(&self, given: Option<String>) -> String {
        match (&self.name, given) {
            (Some(name), Some(given)) => format!("{name}/{given}"),
            (Some(name), None) => name.clone(),
            (None, Some(given)) => given,
            (None, None) => "http".to_owned(),
        }
    }
}

/// A page of another site must not reach a server that trusts whoever reaches it: neither by a form (its Origin tells) nor
/// by a name of its own that leads to this address (its Host tells).
pub fn check_site(app: &App, headers: &HeaderMap) -> Result<()> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
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

fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = name.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

pub async fn identify(app: &App, headers: &HeaderMap) -> Result<Caller> {
    let named = tenant(headers)?;
    let _ = app;
    Ok(Caller {
        is_everybodys: named.is_none(),
        tenant: named.unwrap_or_else(|| "default".to_owned()),
        role: Role::Admin,
        name: None,
    })
}

/// `Waypost-Tenant`, percent-encoded where it is not ASCII.
fn tenant(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(value) = headers.get("waypost-tenant") else { return Ok(None) };
    let decoded = percent_encoding::percent_decode(value.as_bytes()).decode_utf8().ok();
    let fits = |name: &str| !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.contains('\0');
    match decoded.filter(|name| fits(name)) {
        Some(name) => Ok(Some(name.into_owned())),
        None => {
            let message = format!("must be a tenant's name of 1 to {MAX_NAME_BYTES} bytes, percent-encoded");
            Err(Problem::field(&INVALID_QUERY, "Waypost-Tenant", &message))
        }
    }
}

pub fn check_role(caller: &Caller, needs: Needs) -> Result<()> {
    if caller.role.may(needs) {
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
        for host in
            ["", "example.org", "localhost.example.org", "10.0.0.1", "[2001:db8::1]:1", "127.0.0.1.evil"]
        {
            assert!(!is_loopback_name(host), "{host}");
        }
    }
}
