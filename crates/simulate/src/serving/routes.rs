//! One table of routes for a simulator: it dispatches, and it is what the documentation shows.

use super::{Answer, Now, Reply, Request};

#[derive(Debug)]
pub struct Route<S> {
    pub method: &'static str,
    /// Parts in braces take anything: `/products/{id}`.
    pub path: &'static str,
    pub what: &'static str,
    pub act: fn(&mut S, &Asked<'_>) -> Reply,
}

/// A route as people read it.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    pub method: &'static str,
    pub path: &'static str,
    pub what: &'static str,
}

pub fn shown<S>(routes: &[Route<S>]) -> Vec<Shown> {
    routes.iter().map(|it| Shown { method: it.method, path: it.path, what: it.what }).collect()
}

/// A request that has found its route.
#[derive(Debug)]
pub struct Asked<'a> {
    pub request: &'a Request,
    pub now: Now,
    /// What stood at the braces, in their order.
    pub parts: Vec<&'a str>,
}

impl<S> Route<S> {
    pub fn dispatch(routes: &[Route<S>], simulator: &mut S, request: &Request, now: Now) -> Reply {
        let mut allowed = Vec::new();
        for route in routes {
            let Some(parts) = parts(route.path, &request.path) else { continue };
            if route.method == request.method {
                return (route.act)(simulator, &Asked { request, now, parts });
            }
            allowed.push(route.method);
        }
        if allowed.is_empty() {
            let message = format!("there is no {}", request.path);
            return Answer::refusal(404, "NOT_FOUND", &message).into();
        }
        let message = format!("{} takes {}", request.path, allowed.join(", "));
        Answer::refusal(405, "METHOD_NOT_ALLOWED", &message).with("allow", allowed.join(", ")).into()
    }
}

fn parts<'a>(pattern: &str, path: &'a str) -> Option<Vec<&'a str>> {
    let (mut pattern, mut path) = (pattern.split('/'), path.trim_end_matches('/').split('/'));
    let mut found = Vec::new();
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return Some(found),
            (Some(name), Some(part)) if name.starts_with('{') => found.push(part),
            (Some(name), Some(part)) if name == part => {}
            _ => return None,
        }
    }
}
