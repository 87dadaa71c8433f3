//! Hosts: how they are, and maintenance mode.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::flags::Flags;
use super::inventory::Object;
use super::{Printed, Session, not_now};
use crate::cluster::site::{Host, Maintenance, Site};
use crate::cluster::world::{Done, Trouble};

const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub fn info(session: &Session, flags: &Flags) -> Printed {
    let wanted = flags.get("host").map(str::to_owned).into_iter().chain(flags.words.clone());
    let wanted: Vec<String> = wanted.collect();
    let on = wanted.join(" ");
    let shapes = session.look("host.info", &on, |site| {
        if wanted.is_empty() {
            return Ok(site.hosts.iter().map(|host| shape(site, host)).collect::<Vec<_>>());
        }
        let each = |given: &String| Ok(shape(site, named(site, given)?));
        wanted.iter().map(each).collect()
    })?;
    if flags.has("json") {
        return Ok(format!("{}\n", json!({ "hostSystems": shapes })));
    }
    let line = |host: &Value| {
        format!(
            "Name:              {}\n  State:           {}\n",
            text(&host["name"]),
            text(&host["runtime"]["connectionState"])
        )
    };
    Ok(shapes.iter().map(line).collect())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn shape(site: &Site, host: &Host) -> Value {
    let object = |name: &String| Object::Vm(name.clone()).reference(site);
    let vms: Vec<Value> =
        site.vms.iter().filter(|vm| vm.host == host.name).map(|vm| object(&vm.name)).collect();
    json!({
        "self": Object::Host(host.name.clone()).reference(site),
        "name": host.name,
        "parent": Object::Cluster.reference(site),
        "summary": {
            "hardware": { "vendor": "Dell Inc.", "model": host.model },
            "config": { "name": host.name },
        },
        "runtime": {
            "connectionState": if host.is_connected() { "connected" } else { "notResponding" },
            "powerState": "poweredOn",
            "inMaintenanceMode": host.maintenance == Maintenance::In,
        },
        "hardware": { "systemInfo": { "vendor": "Dell Inc.", "model": host.model, "serialNumber": host.service_tag } },
        "vm": vms,
    })
}

fn named<'a>(site: &'a Site, given: &str) -> Result<&'a Host, Trouble> {
    let object = Object::find(site, given, "HostSystem")?;
    site.host(object.name(site)).ok_or_else(|| super::not_found("host", given))
}

fn named_mut<'a>(site: &'a mut Site, given: &str) -> Result<&'a mut Host, Trouble> {
    let name = named(site, given)?.name.clone();
    site.host_mut(&name).ok_or_else(|| super::not_found("host", given))
}

/// vCenter goes on with it when nobody waits for it any more.
pub fn enter(session: &Session, flags: &Flags) -> Printed {
    let timeout_s: u64 = match flags.get("timeout").map(str::parse) {
        None => 0,
        Some(parsed) => parsed.map_err(|_| "invalid value for flag -timeout: parse error".to_owned())?,
    };
    let mut printed = String::new();
    for given in flags.needed()? {
        let name = session.world.site().ok().and_then(|site| Some(named(&site, given).ok()?.name.clone()));
        let on = name.unwrap_or_else(|| given.clone());
        session.act("host.maintenance.enter", &on, json!({ "timeout_s": timeout_s }), |site, now_ms| {
            let not_before_ms = now_ms + site.pace_ms;
            site.tasks_made += 1;
            let task = site.tasks_made;
            let host = named_mut(site, given)?;
            if !host.is_connected() {
                return Err(not_now("the host is not responding"));
            }
            match host.maintenance {
                Maintenance::Out => {}
                Maintenance::In => return Err(not_now("the host is in maintenance mode")),
                Maintenance::Entering { .. } => {
                    return Err(Trouble::refused(500, "Another task is already in progress."));
                }
            }
            let gives_up_at_ms = (timeout_s > 0).then_some(now_ms + timeout_s * 1_000);
            host.maintenance = Maintenance::Entering { task, not_before_ms, gives_up_at_ms };
            Ok(Done::changed(()))
        })?;
        wait(session, &on)?;
        printed.push_str(&format!("{given} entering maintenance mode... OK\n"));
    }
    Ok(printed)
}

fn wait(session: &Session, name: &str) -> Result<(), String> {
    loop {
        let site = session.world.site().map_err(|error| error.to_string())?;
        match site.host(name).map(|host| host.maintenance) {
            Some(Maintenance::In) => return Ok(()),
            Some(Maintenance::Entering { .. }) => thread::sleep(LOOK_AGAIN),
            _ => return Err("Operation timed out.".to_owned()),
        }
    }
}

pub fn exit(session: &Session, flags: &Flags) -> Printed {
    let mut printed = String::new();
    for given in flags.needed()? {
        let on = given.rsplit('/').next().unwrap_or(given);
        session.act("host.maintenance.exit", on, json!({}), |site, _| {
            let host = named_mut(site, given)?;
            if !host.is_connected() {
                return Err(not_now("the host is not responding"));
            }
            if host.maintenance != Maintenance::In {
                return Err(not_now("the host is not in maintenance mode"));
            }
            host.maintenance = Maintenance::Out;
            Ok(Done::changed(()))
        })?;
        printed.push_str(&format!("{given} exiting maintenance mode... OK\n"));
    }
    Ok(printed)
}

/// The task that empties a host, as long as it does.
pub fn task_of(host: &Host) -> Option<String> {
    match host.maintenance {
        Maintenance::Entering { task, .. } => Some(format!("task-{task}")),
        Maintenance::Out | Maintenance::In => None,
    }
}

pub fn cancel(session: &Session, flags: &Flags) -> Printed {
    for id in flags.needed()? {
        let on = session.world.site().map_err(|error| error.to_string())?;
        let on =
            on.hosts.iter().find(|host| task_of(host).as_ref() == Some(id)).map(|host| host.name.clone());
        session.act("task.cancel", on.as_deref().unwrap_or(id), json!({ "task": id }), |site, _| {
            let found = site.hosts.iter_mut().find(|host| task_of(host).as_ref() == Some(id));
            found.ok_or_else(|| super::not_found("task", id))?.maintenance = Maintenance::Out;
            Ok(Done::changed(()))
        })?;
    }
    Ok(String::new())
}
