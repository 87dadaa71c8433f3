//! Virtual machines: how they are, what hangs on them, and their power.

use serde_json::{Value, json};

use super::flags::Flags;
use super::inventory::Object;
use super::{Printed, Session, not_found, not_now};
use crate::cluster::site::{Maintenance, Site, Vm};
use crate::cluster::world::{Done, Trouble};

pub fn info(session: &Session, flags: &Flags) -> Printed {
    let wanted = flags.needed()?;
    let shapes = session.look("vm.info", &wanted.join(" "), |site| {
        wanted.iter().map(|given| Ok(shape(site, named(site, given)?))).collect::<Result<Vec<_>, Trouble>>()
    })?;
    if flags.has("json") {
        return Ok(format!("{}\n", json!({ "virtualMachines": shapes })));
    }
    let line = |vm: &Value| format!("Name:           {}\n", vm["name"].as_str().unwrap_or_default());
    Ok(shapes.iter().map(line).collect())
}

fn named<'a>(site: &'a Site, given: &str) -> Result<&'a Vm, Trouble> {
    let object = Object::find(site, given, "VirtualMachine")?;
    site.vm(object.name(site)).ok_or_else(|| not_found("vm", given))
}

fn shape(site: &Site, vm: &Vm) -> Value {
    json!({
        "self": Object::Vm(vm.name.clone()).reference(site),
        "name": vm.name,
        "config": { "name": vm.name, "template": false },
        "datastore": [Object::Datastore(vm.datastore.clone()).reference(site)],
        "runtime": {
            "host": Object::Host(vm.host.clone()).reference(site),
            "connectionState": "connected",
            "powerState": if vm.powered_on { "poweredOn" } else { "poweredOff" },
            "faultToleranceState": if vm.fault_tolerance { "running" } else { "notConfigured" },
        },
        "guest": { "toolsRunningStatus": if vm.has_tools { "guestToolsRunning" } else { "guestToolsNotRunning" } },
    })
}

pub fn devices(session: &Session, flags: &Flags) -> Printed {
    let given = flags.get("vm").ok_or("flag: help requested")?;
    let devices = session.look("device.info", given, |site| Ok(devices_of(named(site, given)?)))?;
    if flags.has("json") {
        return Ok(format!("{}\n", json!({ "devices": devices })));
    }
    let line = |device: &Value| format!("Name:           {}\n", device["name"].as_str().unwrap_or_default());
    Ok(devices.iter().map(line).collect())
}

fn devices_of(vm: &Vm) -> Vec<Value> {
    let connectable = |connected: bool| json!({ "connected": connected, "startConnected": connected });
    let mut devices = vec![json!({
        "name": "disk-1000-0", "type": "VirtualDisk", "key": 2000,
        "deviceInfo": { "label": "Hard disk 1", "summary": "41,943,040 KB" },
        "backing": { "fileName": format!("[{0}] {1}/{1}.vmdk", vm.datastore, vm.name), "diskMode": "persistent" },
        "connectable": null,
    })];
    let backing = match vm.cdrom.as_deref() {
        Some(medium) if medium.starts_with('[') => json!({ "fileName": medium }),
        Some(drive) => json!({ "deviceName": drive, "useAutoDetect": false }),
        None => json!({ "deviceName": "", "useAutoDetect": false, "exclusive": false }),
    };
    devices.push(json!({
        "name": "cdrom-16000", "type": "VirtualCdrom", "key": 16000,
        "deviceInfo": { "label": "CD/DVD drive 1", "summary": vm.cdrom.as_deref().unwrap_or("Remote device") },
        "backing": backing,
        "connectable": connectable(vm.cdrom.is_some()),
    }));
    if let Some(usb) = &vm.usb {
        devices.push(json!({
            "name": "usb-9000", "type": "VirtualUSB", "key": 9000,
            "deviceInfo": { "label": "USB 1", "summary": usb },
            "backing": { "deviceName": "path:1/0/1 version:2" },
            "connectable": connectable(true), "connected": true,
        }));
    }
    if let Some(vgpu) = &vm.vgpu {
        devices.push(json!({
            "name": "pcipassthrough-13000", "type": "VirtualPCIPassthrough", "key": 13000,
            "deviceInfo": { "label": "PCI device 0", "summary": format!("NVIDIA GRID vGPU {vgpu}") },
            "backing": { "vgpu": vgpu },
            "connectable": null,
        }));
    }
    devices
}

pub fn power(session: &Session, flags: &Flags) -> Printed {
    let asked: Vec<&str> = ["on", "off", "s"].into_iter().filter(|name| flags.has(name)).collect();
    let [how] = asked[..] else { return Err("specify one of -on, -off, -s".to_owned()) };
    let mut printed = String::new();
    for given in flags.needed()? {
        let on = given.rsplit('/').next().unwrap_or(given);
        let result = session.act("vm.power", on, json!({ "how": how }), |site, _| {
            let name = named(site, given)?.name.clone();
            switch(site, &name, how)
        });
        match result {
            Err(message) if !flags.has("force") => return Err(message),
            _ => printed.push_str(&format!("{given}... OK\n")),
        }
    }
    Ok(printed)
}

fn switch(site: &mut Site, name: &str, how: &str) -> Result<Done<()>, Trouble> {
    let vm = site.vm(name).ok_or_else(|| not_found("vm", name))?;
    match (how, vm.powered_on) {
        ("on", true) => return Err(not_now("Powered on")),
        ("off" | "s", false) => return Err(not_now("Powered off")),
        ("s", true) if !vm.has_tools => {
            return Err(Trouble::refused(
                500,
                "Cannot complete operation because VMware Tools is not running in this virtual machine.",
            ));
        }
        _ => {}
    }
    let mut host = vm.host.clone();
    if how == "on"
        && site.host(&host).is_none_or(|host| host.maintenance == Maintenance::In || !host.is_connected())
    {
        let elsewhere = site.hosts.iter().find(|host| host.can_take_machines() && site.can_move(vm));
        host = elsewhere.ok_or_else(|| not_now("its host is in maintenance mode"))?.name.clone();
    }
    if let Some(vm) = site.vm_mut(name) {
        vm.powered_on = how == "on";
        vm.host = host;
    }
    Ok(Done::changed(()))
}
