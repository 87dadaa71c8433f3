//! The server itself: its power, and what firmware it has.

use serde_json::{Value, json};

use super::http::Answer;
use super::routes::Answered;
use crate::cluster::site::{Host, Installed, Site};
use crate::cluster::world::{Done, Trouble};

const INVENTORY: &str = "/redfish/v1/UpdateService/FirmwareInventory";
const RESET_TYPES: [&str; 4] = ["GracefulRestart", "ForceRestart", "PowerCycle", "On"];

pub fn root() -> Value {
    json!({
        "@odata.id": "/redfish/v1", "@odata.type": "#ServiceRoot.v1_8_0.ServiceRoot", "Id": "RootService",
        "Name": "Root Service", "Product": "Integrated Dell Remote Access Controller", "RedfishVersion": "1.18.0",
        "Vendor": "Dell",
        "Systems": { "@odata.id": "/redfish/v1/Systems" },
        "UpdateService": { "@odata.id": "/redfish/v1/UpdateService" },
    })
}

pub fn system(host: &Host) -> Value {
    json!({
        "@odata.id": "/redfish/v1/Systems/System.Embedded.1",
        "@odata.type": "#ComputerSystem.v1_20_1.ComputerSystem",
        "Id": "System.Embedded.1", "Name": "System", "HostName": host.name,
        "Manufacturer": "Dell Inc.", "Model": host.model, "SKU": host.service_tag,
        "BiosVersion": host.firmware.iter().find(|installed| installed.name == "BIOS").map(|bios| &bios.version),
        "PowerState": "On",
        "Status": { "Health": "OK", "State": "Enabled" },
        "Actions": { "#ComputerSystem.Reset": {
            "target": "/redfish/v1/Systems/System.Embedded.1/Actions/ComputerSystem.Reset",
            "ResetType@Redfish.AllowableValues": RESET_TYPES,
        }},
    })
}

pub fn update_service() -> Value {
    json!({
        "@odata.id": "/redfish/v1/UpdateService", "@odata.type": "#UpdateService.v1_11_0.UpdateService",
        "Id": "UpdateService", "Name": "Update Service", "ServiceEnabled": true,
        "FirmwareInventory": { "@odata.id": INVENTORY },
        "Actions": { "#UpdateService.SimpleUpdate": {
            "target": "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate",
            "@Redfish.OperationApplyTimeSupport": { "SupportedValues": ["Immediate", "OnReset"] },
        }},
    })
}

fn id_of(installed: &Installed) -> String {
    format!("Installed-{}-{}", installed.software_id, installed.version)
}

pub fn inventory(host: &Host, is_expanded: bool) -> Value {
    let member = |installed: &Installed| {
        if is_expanded {
            item(installed)
        } else {
            json!({ "@odata.id": format!("{INVENTORY}/{}", id_of(installed)) })
        }
    };
    json!({
        "@odata.id": INVENTORY,
        "@odata.type": "#SoftwareInventoryCollection.SoftwareInventoryCollection",
        "Name": "Firmware Inventory Collection",
        "Members@odata.count": host.firmware.len(),
        "Members": host.firmware.iter().map(member).collect::<Vec<_>>(),
    })
}

pub fn installed(host: &Host, id: &str) -> Result<Value, Trouble> {
    let found = host.firmware.iter().find(|installed| id_of(installed) == id);
    found.map(item).ok_or_else(|| Trouble::refused(404, format!("there is no firmware {id}")))
}

fn item(installed: &Installed) -> Value {
    json!({
        "@odata.id": format!("{INVENTORY}/{}", id_of(installed)),
        "@odata.type": "#SoftwareInventory.v1_7_0.SoftwareInventory",
        "Id": id_of(installed), "Name": installed.name, "SoftwareId": installed.software_id,
        "Version": installed.version, "Updateable": true,
        "Status": { "Health": "OK", "State": "Enabled" },
    })
}

pub fn reset(site: &mut Site, host: &str, body: &Value, now_ms: u64) -> Answered {
    let given = body["ResetType"].as_str().unwrap_or_default();
    if !RESET_TYPES.contains(&given) {
        let allowed = RESET_TYPES.join(", ");
        return Err(Trouble::refused(400, format!("ResetType is {given:?}; allowed: {allowed}")));
    }
    let followed = site.reset(host, now_ms);
    Ok(Done { answer: Answer::empty(204), changed: true, followed })
}
