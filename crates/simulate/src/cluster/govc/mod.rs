//! A stand-in for `govc`: the subcommands that a rolling update needs, with the real names, flags and `-json` shapes.
//! GOVC_URL names the site's folder.

mod flags;
mod hosts;
mod inventory;
mod notes;
mod settings;
#[cfg(test)]
mod tests;
mod vms;

use std::env;
use std::path::Path;

use flags::Flags;
use serde_json::Value;

use super::world::{Done, Request, Trouble, World};
use crate::cluster::site::Site;

/// What a subcommand prints, or the words after `govc: `.
type Printed = Result<String, String>;

type Run = fn(&Session, &Flags) -> Printed;

/// Name, flags without a value, flags with one.
const COMMANDS: &[(&str, &[&str], &[&str], Run)] = &[
    ("about", &["json"], &[], about),
    ("find", &["json"], &["type", "name"], inventory::find),
    ("datastore.info", &["json"], &[], inventory::datastore_info),
    ("host.info", &["json"], &["host"], hosts::info),
    ("host.maintenance.enter", &["evacuate"], &["timeout"], hosts::enter),
    ("host.maintenance.exit", &[], &["timeout"], hosts::exit),
    ("task.cancel", &[], &[], hosts::cancel),
    ("vm.info", &["json"], &[], vms::info),
    ("vm.power", &["on", "off", "s", "force", "wait"], &[], vms::power),
    ("device.info", &["json"], &["vm"], vms::devices),
    (
        "cluster.change",
        &["ha-enabled", "ha-admission-control-enabled", "drs-enabled"],
        &["drs-mode"],
        settings::change,
    ),
    ("object.collect", &["json", "s"], &[], settings::collect),
    ("fields.set", &["add"], &["type"], notes::set),
    ("fields.info", &["json"], &["n"], notes::info),
];

struct Session {
    world: World,
    by: Option<String>,
}

/// Runs a subcommand; gives the exit code.
pub fn main(arguments: &[String]) -> u8 {
    match run(arguments) {
        Ok(text) => {
            print!("{text}");
            0
        }
        Err(message) => {
            eprintln!("govc: {message}");
            1
        }
    }
}

fn run(arguments: &[String]) -> Printed {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let url = variable("GOVC_URL").ok_or("specify an ESX or vCenter URL")?;
    let world = World::open(Path::new(&url)).map_err(|error| error.to_string())?;
    let session = Session { world, by: variable("WAYPOST_IDEMPOTENCY_KEY") };
    session.log_in(variable("GOVC_USERNAME").as_deref(), variable("GOVC_PASSWORD").as_deref())?;
    session.run(arguments)
}

fn about(session: &Session, flags: &Flags) -> Printed {
    session.look("about", "vcenter", |_| Ok(()))?;
    Ok(if flags.has("json") {
        "{\"about\":{\"name\":\"VMware vCenter Server\",\"version\":\"8.0.2\",\"apiType\":\"VirtualCenter\"}}\n".to_owned()
    } else {
        "Name:         VMware vCenter Server\nVersion:      8.0.2\nAPI type:     VirtualCenter\n".to_owned()
    })
}

impl Session {
    fn run(&self, arguments: &[String]) -> Printed {
        let (name, rest) =
            arguments.split_first().ok_or("Usage: govc <COMMAND> [COMMON OPTIONS] [PATH]...")?;
        let known = COMMANDS.iter().find(|(known, ..)| known == name);
        let (_, switches, options, run) = known.ok_or_else(|| format!("unknown command {name:?}"))?;
        run(self, &Flags::parse(rest, switches, options)?)
    }

    fn log_in(&self, user: Option<&str>, password: Option<&str>) -> Result<(), String> {
        let login = self.world.site().map_err(|error| error.to_string())?.vcenter;
        if (user, password) == (Some(login.user.as_str()), Some(login.password.as_str())) {
            return Ok(());
        }
        Err("ServerFaultCode: Cannot complete login due to an incorrect user name or password.".to_owned())
    }

    fn act<T>(
        &self,
        what: &str,
        on: &str,
        with: Value,
        act: impl FnOnce(&mut Site, u64) -> Result<Done<T>, Trouble>,
    ) -> Result<T, String> {
        let request = Request { via: "govc", by: self.by.clone(), what, on, with };
        self.world.act(&request, act).map_err(|trouble| match trouble {
            Trouble::Refused { message, .. } | Trouble::Broken(message) => message,
            Trouble::Lost => "Post \"https://vcenter/sdk\": EOF".to_owned(),
        })
    }

    fn look<T>(
        &self,
        what: &str,
        on: &str,
        look: impl FnOnce(&Site) -> Result<T, Trouble>,
    ) -> Result<T, String> {
        self.act(what, on, Value::Null, |site, _| look(site).map(Done::looked))
    }
}

/// vCenter's own words for what is not possible as things are.
fn not_now(what: &str) -> Trouble {
    Trouble::refused(500, format!("The operation is not allowed in the current state. ({what})"))
}

fn not_found(kind: &str, name: &str) -> Trouble {
    Trouble::refused(404, format!("{kind} '{name}' not found"))
}
