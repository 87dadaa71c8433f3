//! The cluster's settings.

use serde_json::{Map, Value, json};

use super::flags::Flags;
use super::inventory::Object;
use super::{Printed, Session, hosts, not_found};
use crate::cluster::site::Site;
use crate::cluster::world::{Done, Trouble};

pub fn change(session: &Session, flags: &Flags) -> Printed {
    let (ha, admission) = (flags.truth("ha-enabled")?, flags.truth("ha-admission-control-enabled")?);
    let drs = flags.truth("drs-enabled")?;
    let mut with = Map::new();
    for name in ["ha-enabled", "ha-admission-control-enabled", "drs-enabled", "drs-mode"] {
        with.extend(flags.get(name).map(|value| (name.to_owned(), Value::from(value))));
    }
    for given in flags.needed()? {
        let on = given.rsplit('/').next().unwrap_or(given);
        session.act("cluster.change", on, Value::Object(with.clone()), |site, _| {
            Object::find(site, given, "ClusterComputeResource")?;
            let cluster = &mut site.cluster;
            let before = (cluster.ha.clone(), cluster.drs.clone());
            cluster.ha.enabled = ha.unwrap_or(cluster.ha.enabled);
            cluster.ha.admission_control_enabled = admission.unwrap_or(cluster.ha.admission_control_enabled);
            cluster.drs.enabled = drs.unwrap_or(cluster.drs.enabled);
            if let Some(mode) = flags.get("drs-mode") {
                mode.clone_into(&mut cluster.drs.mode);
            }
            let is_changed = before != (cluster.ha.clone(), cluster.drs.clone());
            Ok(if is_changed { Done::changed(()) } else { Done::looked(()) })
        })?;
    }
    Ok(String::new())
}

/// `object.collect -json -s PATH PROPERTY`: the configuration of a cluster, the tasks of a host, a task.
pub fn collect(session: &Session, flags: &Flags) -> Printed {
    let [given, property] = flags.needed()? else {
        return Err("this stand-in collects one property of one object".to_owned());
    };
    let on = given.rsplit('/').next().unwrap_or(given);
    let value = session.look("object.collect", on, |site| match property.as_str() {
        "recentTask" => tasks(site, given),
        "info" => task(site, given),
        _ => {
            Object::find(site, given, "ClusterComputeResource")?;
            configuration(site, property)
        }
    })?;
    match value {
        Value::String(text) if !flags.has("json") => Ok(format!("{text}\n")),
        value => Ok(format!("{value}\n")),
    }
}

fn tasks(site: &Site, given: &str) -> Result<Value, Trouble> {
    let object = Object::find(site, given, "HostSystem")?;
    let task = site.host(object.name(site)).and_then(hosts::task_of);
    let reference = |id: String| json!({ "type": "Task", "value": id });
    Ok(task.map_or(Value::Null, |id| json!([reference(id)])))
}

fn task(site: &Site, given: &str) -> Result<Value, Trouble> {
    let id = given.strip_prefix("Task:").unwrap_or(given);
    let is_running = site.hosts.iter().any(|host| hosts::task_of(host).as_deref() == Some(id));
    if !is_running {
        return Err(not_found("task", id));
    }
    Ok(json!({
        "key": id, "name": "EnterMaintenanceMode_Task", "descriptionId": "HostSystem.enterMaintenanceMode",
        "state": "running", "cancelable": true,
    }))
}

fn configuration(site: &Site, property: &str) -> Result<Value, Trouble> {
    let (ha, drs) = (&site.cluster.ha, &site.cluster.drs);
    let all = json!({ "configurationEx": {
        "dasConfig": {
            "enabled": ha.enabled,
            "vmMonitoring": ha.vm_monitoring,
            "hostMonitoring": ha.host_monitoring,
            "failoverLevel": ha.failover_level,
            "admissionControlEnabled": ha.admission_control_enabled,
            "defaultVmSettings": {
                "restartPriority": ha.restart_priority,
                "isolationResponse": ha.isolation_response,
            },
        },
        "drsConfig": { "enabled": drs.enabled, "defaultVmBehavior": drs.mode, "vmotionRate": 3 },
    }});
    let pointer = format!("/{}", property.replace('.', "/"));
    all.pointer(&pointer).cloned().ok_or_else(|| not_found("property", property))
}
