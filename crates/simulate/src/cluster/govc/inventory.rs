//! Where things are: paths, names and references.

use serde_json::{Value, json};

use super::flags::Flags;
use super::{Printed, Session, not_found};
use crate::cluster::site::{Datastore, Host, Site, Vm};
use crate::cluster::world::Trouble;

/// What a path or name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    Cluster,
    Host(String),
    Vm(String),
    Datastore(String),
}

impl Object {
    pub fn name<'a>(&'a self, site: &'a Site) -> &'a str {
        match self {
            Object::Cluster => &site.cluster.name,
            Object::Host(name) | Object::Vm(name) | Object::Datastore(name) => name,
        }
    }

    pub fn path(&self, site: &Site) -> String {
        let (dc, cluster) = (&site.datacenter, &site.cluster.name);
        match self {
            Object::Cluster => format!("/{dc}/host/{cluster}"),
            Object::Host(name) => format!("/{dc}/host/{cluster}/{name}"),
            Object::Vm(name) => format!("/{dc}/vm/{name}"),
            Object::Datastore(name) => format!("/{dc}/datastore/{name}"),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Object::Cluster => "ClusterComputeResource",
            Object::Host(_) => "HostSystem",
            Object::Vm(_) => "VirtualMachine",
            Object::Datastore(_) => "Datastore",
        }
    }

    pub fn reference(&self, site: &Site) -> Value {
        let place = |at: Option<usize>| at.map_or(0, |at| at + 1);
        let value = match self {
            Object::Cluster => "domain-c1".to_owned(),
            Object::Host(name) => {
                format!("host-{}", place(site.hosts.iter().position(|host| host.name == *name)))
            }
            Object::Vm(name) => format!("vm-{}", place(site.vms.iter().position(|vm| vm.name == *name))),
            Object::Datastore(name) => {
                format!("datastore-{}", place(site.datastores.iter().position(|store| store.name == *name)))
            }
        };
        json!({ "type": self.kind(), "value": value })
    }

    fn has(&self, site: &Site, property: &str, value: &str) -> bool {
        let Object::Vm(name) = self else { return false };
        let Some(vm) = site.vm(name) else { return false };
        match property {
            "runtime.powerState" => value == if vm.powered_on { "poweredOn" } else { "poweredOff" },
            _ => {
                let host = Object::Host(vm.host.clone()).reference(site);
                value == format!("HostSystem:{}", host["value"].as_str().unwrap_or_default())
            }
        }
    }

    pub fn all(site: &Site) -> Vec<Object> {
        let mut all = vec![Object::Cluster];
        all.extend(site.hosts.iter().map(|Host { name, .. }| Object::Host(name.clone())));
        all.extend(site.vms.iter().map(|Vm { name, .. }| Object::Vm(name.clone())));
        all.extend(site.datastores.iter().map(|Datastore { name, .. }| Object::Datastore(name.clone())));
        all
    }

    /// By path, or by name among those of a kind.
    pub fn find(site: &Site, given: &str, kind: &str) -> Result<Object, Trouble> {
        let fits = |object: &Object| {
            object.kind() == kind && (object.path(site) == given || object.name(site) == given)
        };
        let short = match kind {
            "HostSystem" => "host",
            "VirtualMachine" => "vm",
            "ClusterComputeResource" => "cluster",
            _ => "datastore",
        };
        Object::all(site).into_iter().find(fits).ok_or_else(|| not_found(short, given))
    }
}

const ALIASES: [(&str, &str); 4] =
    [("c", "ClusterComputeResource"), ("h", "HostSystem"), ("m", "VirtualMachine"), ("s", "Datastore")];

/// Properties of a virtual machine that it may be found by.
const FILTERS: [&str; 2] = ["runtime.host", "runtime.powerState"];

/// `find [ROOT] [-type T] [-name N] [-PROPERTY VALUE]…`: flags may also follow the root.
pub fn find(session: &Session, flags: &Flags) -> Printed {
    let root = flags.words.first().cloned().unwrap_or_else(|| "/".to_owned());
    let after = Flags::parse(
        flags.words.get(1..).unwrap_or_default(),
        &["json"],
        &["type", "name", FILTERS[0], FILTERS[1]],
    )?;
    let either = |name: &str| after.get(name).or_else(|| flags.get(name)).map(str::to_owned);
    let kind = either("type").map(|kind| match ALIASES.iter().find(|(alias, _)| *alias == kind) {
        Some((_, long)) => (*long).to_owned(),
        None => kind,
    });
    let name = either("name").filter(|name| name != "*");
    let paths = session.look("find", &root, |site| {
        let below = format!("{}/", root.trim_end_matches('/'));
        let found: Vec<String> = Object::all(site)
            .iter()
            .filter(|object| kind.as_deref().is_none_or(|kind| object.kind() == kind))
            .filter(|object| name.as_deref().is_none_or(|name| object.name(site) == name))
            .filter(|object| {
                FILTERS.iter().all(|key| after.get(key).is_none_or(|value| object.has(site, key, value)))
            })
            .map(|object| object.path(site))
            .filter(|path| *path == root || path.starts_with(&below))
            .collect();
        Ok(found)
    })?;
    if flags.has("json") || after.has("json") {
        return Ok(format!("{}\n", json!(paths)));
    }
    Ok(paths.iter().map(|path| format!("{path}\n")).collect())
}

pub fn datastore_info(session: &Session, flags: &Flags) -> Printed {
    let stores = session.look("datastore.info", "*", |site| Ok(site.datastores.clone()))?;
    if !flags.has("json") {
        return Ok(stores.iter().map(|store| format!("Name:        {}\n", store.name)).collect());
    }
    let shape = |store: &Datastore| {
        let summary = json!({ "name": store.name, "multipleHostAccess": store.shared, "accessible": true });
        json!({ "name": store.name, "summary": summary })
    };
    Ok(format!("{}\n", json!({ "datastores": stores.iter().map(shape).collect::<Vec<_>>() })))
}
