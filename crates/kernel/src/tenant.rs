//! Tenants and their names. What a tenant declares for itself is stored as `TENANT/NAME`; what has no such beginning is the
//! installation's, and the default tenant's. Neither a tenant nor a name that a client gives has a `/`, so that whose a stored
//! name is can be read off it.

use std::borrow::Cow;

use crate::text::{MAX_NAME_BYTES, TextError, refuse_text, shell_word};

/// Whoever names no tenant is this one. What it declares is the installation's.
pub const DEFAULT: &str = "default";

const SEPARATOR: char = '/';

/// The stored name of what a tenant calls `name`.
pub fn own_name(tenant: &str, name: &str) -> String {
    prefix(tenant) + name
}

/// What all stored names of a tenant begin with. The default tenant's have no such beginning, and no separator.
pub fn prefix(tenant: &str) -> String {
    if tenant == DEFAULT { String::new() } else { format!("{tenant}{SEPARATOR}") }
}

/// What a command line needs to mean a tenant.
pub fn option_of(tenant: &str) -> String {
    if tenant == DEFAULT { String::new() } else { format!(" --tenant {}", shell_word(tenant)) }
}

/// Whose a stored name is.
pub fn tenant_of(stored: &str) -> &str {
    stored.split_once(SEPARATOR).map_or(DEFAULT, |(tenant, _)| tenant)
}

/// What the tenant itself calls a stored name.
pub fn local_name(stored: &str) -> &str {
    stored.split_once(SEPARATOR).map_or(stored, |(_, name)| name)
}

/// What a tenant means by a name of something that is a tenant's alone. The stored name, as answers show it, is taken too; that
/// of another tenant names nothing.
pub fn stored_name(tenant: &str, given: &str) -> Option<String> {
    match given.contains(SEPARATOR) {
        true => Some(given.to_owned()).filter(|given| tenant_of(given) == tenant),
        false => Some(own_name(tenant, given)),
    }
}

/// What a tenant may mean by a name of something that the installation shares: its own, or else the installation's. `/NAME` is the
/// installation's alone, and a stored name is itself; that of another tenant names nothing.
pub fn meanings<'n>(tenant: &str, given: &'n str) -> Vec<Cow<'n, str>> {
    match given.split_once(SEPARATOR) {
        Some(("", name)) => vec![name.into()],
        Some((owner, _)) if owner == tenant && owner != DEFAULT => vec![given.into()],
        Some(_) => Vec::new(),
        None if tenant == DEFAULT => vec![given.into()],
        None => vec![own_name(tenant, given).into(), given.into()],
    }
}

/// Whether a tenant may mean `stored` by a name.
pub fn may_mean(tenant: &str, given: &str, stored: &str) -> bool {
    meanings(tenant, given).iter().any(|name| name == stored)
}

/// Whether a stored name is the tenant's or the installation's.
pub fn is_seen_by(tenant: &str, stored: &str) -> bool {
    [tenant, DEFAULT].contains(&tenant_of(stored))
}

/// The same as `/NAME` where a name is meant exactly: as a run has it that is to be made once more.
pub fn exactly(stored: &str) -> String {
    if stored.contains(SEPARATOR) { stored.to_owned() } else { format!("{SEPARATOR}{stored}") }
}

/// Refuses what cannot be a tenant, or a name that a tenant gives.
pub fn check_given(field: &str, name: &str) -> Result<(), TextError> {
    let refuse = |message: String| Err(TextError { field: field.to_owned(), message });
    if name.is_empty() {
        return refuse("is empty".to_owned());
    }
    if name.contains(SEPARATOR) {
        let allowed = format!("allowed: 1 to {MAX_NAME_BYTES} bytes without {SEPARATOR:?}");
        return refuse(format!(
            "has a {SEPARATOR:?}, which stands between a tenant and its own names; {allowed}"
        ));
    }
    refuse_text(field, name, MAX_NAME_BYTES)
}

/// As [`check_given`], for the tenant that somebody names for all that they ask.
pub fn check_tenant(field: &str, name: &str) -> Result<(), TextError> {
    if name.chars().any(char::is_control) {
        let message = format!("has a control character; allowed: 1 to {MAX_NAME_BYTES} bytes of text");
        return Err(TextError { field: field.to_owned(), message });
    }
    check_given(field, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_name_says_whose_it_is() {
        for (tenant, name, stored) in
            [("default", "release", "release"), ("shop", "release", "shop/release"), ("ä b", "x", "ä b/x")]
        {
            assert_eq!(own_name(tenant, name), stored);
            assert_eq!((tenant_of(stored), local_name(stored)), (tenant, name));
            assert_eq!(stored_name(tenant, name).as_deref(), Some(stored));
            assert_eq!(stored_name(tenant, stored).as_deref(), Some(stored), "as answers show it");
        }
    }

    #[test]
    fn a_tenants_own_comes_first_and_nobody_elses_is_meant() {
        for (tenant, given, expected) in [
            ("default", "deploy", &["deploy"][..]),
            ("shop", "deploy", &["shop/deploy", "deploy"]),
            ("shop", "shop/deploy", &["shop/deploy"]),
            ("shop", "/deploy", &["deploy"]),
            ("default", "/deploy", &["deploy"]),
            ("shop", "bank/deploy", &[]),
            ("default", "bank/deploy", &[]),
            ("default", "default/deploy", &[]),
        ] {
            assert_eq!(meanings(tenant, given), expected, "{tenant} {given}");
        }
        assert_eq!(stored_name("shop", "bank/rollup"), None);
        assert_eq!(stored_name("default", "shop/rollup"), None);
        assert!(is_seen_by("shop", "deploy") && is_seen_by("shop", "shop/deploy"));
        assert!(!is_seen_by("shop", "bank/deploy") && !is_seen_by("default", "bank/deploy"));
        assert!(may_mean("shop", &exactly("deploy"), "deploy"));
        assert!(!may_mean("shop", &exactly("deploy"), "shop/deploy"));
    }

    #[test]
    fn a_name_that_would_belong_to_another_is_refused() {
        for name in ["", "a/b", "/", "a/", &"x".repeat(256), "a\0"] {
            assert_eq!(
                check_given("tenant", name).map_err(|error| error.field),
                Err("tenant".to_owned()),
                "{name:?}"
            );
        }
        check_given("tenant", "shop: ü").expect("a name");
    }
}
