//! Custom attributes of hosts, machines and the cluster.

use serde_json::{Value, json};

use super::flags::Flags;
use super::inventory::Object;
use super::{Printed, Session, not_found};
use crate::cluster::site::{Notes, Site};
use crate::cluster::world::{Done, Trouble};

fn by_path(site: &Site, path: &str) -> Result<Object, Trouble> {
    let fits = |object: &Object| object.path(site) == path;
    Object::all(site).into_iter().find(fits).ok_or_else(|| not_found("object", path))
}

fn notes_of<'a>(site: &'a Site, object: &Object) -> Option<&'a Notes> {
    match object {
        Object::Cluster => Some(&site.cluster.notes),
        Object::Host(name) => site.host(name).map(|host| &host.notes),
        Object::Vm(name) => site.vm(name).map(|vm| &vm.notes),
        Object::Datastore(_) => None,
    }
}

fn notes_mut<'a>(site: &'a mut Site, object: &Object) -> Option<&'a mut Notes> {
    match object {
        Object::Cluster => Some(&mut site.cluster.notes),
        Object::Host(name) => site.host_mut(name).map(|host| &mut host.notes),
        Object::Vm(name) => site.vm_mut(name).map(|vm| &mut vm.notes),
        Object::Datastore(_) => None,
    }
}

/// `fields.set [-add] KEY VALUE PATH...`
pub fn set(session: &Session, flags: &Flags) -> Printed {
    let [key, value, paths @ ..] = flags.needed()? else { return Err("flag: help requested".to_owned()) };
    for path in paths {
        let on = path.rsplit('/').next().unwrap_or(path);
        session.act("fields.set", on, json!({ "key": key, "value": value }), |site, _| {
            if !site.fields.contains(key) {
                if !flags.has("add") {
                    return Err(not_found("field", key));
                }
                site.fields.push(key.clone());
            }
            let object = by_path(site, path)?;
            let notes = notes_mut(site, &object).ok_or_else(|| not_found("object", path))?;
            notes.insert(key.clone(), value.clone());
            Ok(Done::changed(()))
        })?;
    }
    Ok(String::new())
}

/// `fields.info [-n KEY] PATH...`. Of a key that does not exist the real one prints nothing at all.
pub fn info(session: &Session, flags: &Flags) -> Printed {
    let paths = flags.needed()?;
    let rows = session.look("fields.info", &paths.join(" "), |site| {
        if flags.get("n").is_some_and(|key| !site.fields.iter().any(|known| known == key)) {
            return Ok(None);
        }
        let mut rows = Vec::new();
        for path in paths {
            let object = by_path(site, path)?;
            let (reference, name) = (object.reference(site), object.name(site).to_owned());
            let fits = |key: &String| flags.get("n").is_none_or(|wanted| wanted == key);
            for (key, value) in notes_of(site, &object).into_iter().flatten().filter(|(key, _)| fits(key)) {
                rows.push(
                    json!({ "object": reference, "path": path, "name": name, "key": key, "value": value }),
                );
            }
        }
        Ok(Some(rows))
    })?;
    let Some(rows) = rows else { return Ok(String::new()) };
    if flags.has("json") {
        return Ok(format!("{}\n", json!({ "info": rows })));
    }
    let cell = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let line = |row: &Value| format!("{}  {}  {}\n", cell(row, "path"), cell(row, "key"), cell(row, "value"));
    Ok(rows.iter().map(line).collect())
}
