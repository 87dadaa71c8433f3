//! Which path is what, and who may.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::http::{Answer, Asked};
use super::{jobs, systems};
use crate::cluster::site::{Host, Site};
use crate::cluster::world::{Done, Request, Trouble, World};

pub type Answered = Result<Done<Answer>, Trouble>;

pub fn route(world: &World, asked: &Asked) -> Result<Answer, Trouble> {
    if asked.path == "/catalogue.json" {
        return act(world, asked, "catalogue", "catalogue", |site, _| {
            Ok(Done::looked(Answer::ok(json!({ "components": site.catalogue }))))
        });
    }
    let none = || Trouble::refused(404, format!("there is no {}", asked.path));
    let (host, path) =
        asked.path.strip_prefix("/idrac/").and_then(|rest| rest.split_once('/')).ok_or_else(none)?;
    let path = path.strip_prefix("redfish/v1").ok_or_else(none)?.trim_start_matches('/');
    // The service root is open to everybody, so that clients find out what it is.
    if path.is_empty() {
        return act(world, asked, "ServiceRoot", host, |site, _| {
            known(site, host)?;
            Ok(Done::looked(Answer::ok(systems::root())))
        });
    }
    let what = path.rsplit('/').next().unwrap_or(path);
    act(world, asked, name_of(what), host, |site, now_ms| {
        authorize(site, asked)?;
        known(site, host)?;
        dispatch(world, site, asked, host, path, now_ms)
    })
}

/// Names in the ledger do not hang on a job's number.
fn name_of(what: &str) -> &str {
    if what.starts_with("JID_") { "Job" } else { what }
}

fn act(
    world: &World,
    asked: &Asked,
    what: &str,
    on: &str,
    act: impl FnOnce(&mut Site, u64) -> Answered,
) -> Result<Answer, Trouble> {
    let by = asked.idempotency_key.clone();
    world.act(&Request { via: "redfish", by, what, on, with: asked.body.clone() }, act)
}

fn dispatch(world: &World, site: &mut Site, asked: &Asked, host: &str, path: &str, now_ms: u64) -> Answered {
    const SYSTEM: &str = "Systems/System.Embedded.1";
    const JOBS: &str = "Managers/iDRAC.Embedded.1/Oem/Dell/Jobs";
    const DELETE: &str =
        "Managers/iDRAC.Embedded.1/Oem/Dell/DellJobService/Actions/DellJobService.DeleteJobQueue";
    const EXPORT: &str = "Managers/iDRAC.Embedded.1/Actions/Oem/EID_674_Manager.ExportSystemConfiguration";
    const RESET: &str = "Systems/System.Embedded.1/Actions/ComputerSystem.Reset";
    let looked = |body: Value| Ok(Done::looked(Answer::ok(body)));
    let expanded = asked.is_expanded;
    match (asked.method.as_str(), path) {
        ("GET", SYSTEM) => looked(systems::system(known(site, host)?)),
        ("GET", "UpdateService") => looked(systems::update_service()),
        ("GET", "UpdateService/FirmwareInventory") => {
            looked(systems::inventory(known(site, host)?, expanded))
        }
        ("GET", JOBS) => looked(jobs::list(known(site, host)?, expanded)),
        ("GET", _) if path.starts_with("UpdateService/FirmwareInventory/") => {
            systems::installed(known(site, host)?, last(path)).map(|body| Done::looked(Answer::ok(body)))
        }
        ("GET", _) if path.starts_with(JOBS) => {
            jobs::one(known(site, host)?, last(path)).map(|body| Done::looked(Answer::ok(body)))
        }
        ("GET", _) if path.starts_with("TaskService/Tasks/") => {
            jobs::task(known(site, host)?, last(path)).map(|body| Done::looked(Answer::ok(body)))
        }
        ("POST", "UpdateService/Actions/UpdateService.SimpleUpdate") => {
            let is_doomed = world.is_doomed(site, "firmware.apply", host);
            jobs::update(site, host, &asked.body, is_doomed, now_ms)
        }
        ("POST", EXPORT) => {
            let is_doomed = world.is_doomed(site, "configuration.export", host);
            jobs::export(site, host, &asked.body, is_doomed, now_ms)
        }
        ("POST", DELETE) => jobs::delete(site, host, &asked.body),
        ("POST", RESET) => systems::reset(site, host, &asked.body, now_ms),
        _ => Err(Trouble::refused(404, format!("{} {path} is not simulated", asked.method))),
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub fn known<'a>(site: &'a Site, host: &str) -> Result<&'a Host, Trouble> {
    site.host(host).ok_or_else(|| Trouble::refused(404, format!("there is no host {host}")))
}

fn authorize(site: &Site, asked: &Asked) -> Result<(), Trouble> {
    let encoded = BASE64_STANDARD.encode(format!("{}:{}", site.idrac.user, site.idrac.password));
    if asked.authorization.as_deref() == Some(&format!("Basic {encoded}")) {
        return Ok(());
    }
    Err(Trouble::refused(
        401,
        "The authentication credentials included with this request are missing or invalid.",
    ))
}
