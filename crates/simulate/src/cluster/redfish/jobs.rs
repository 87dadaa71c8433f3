//! What takes an iDRAC a while: firmware and exports of the configuration.

use serde_json::{Value, json};

use super::http::Answer;
use super::routes::{Answered, known};
use crate::cluster::site::{Host, Installed, Job, JobState, JobType, Site};
use crate::cluster::world::{Done, Trouble};

const JOBS: &str = "/redfish/v1/Managers/iDRAC.Embedded.1/Oem/Dell/Jobs";

fn percent(job: &Job) -> u8 {
    match job.state {
        JobState::Downloading | JobState::Scheduled => 0,
        JobState::Running => 50,
        JobState::Completed | JobState::Failed => 100,
    }
}

fn shape(job: &Job) -> Value {
    json!({
        "@odata.id": format!("{JOBS}/{}", job.id),
        "@odata.type": "#DellJob.v1_4_0.DellJob",
        "Id": job.id, "Name": job.name, "Description": "Job Instance",
        "JobType": job.kind, "JobState": job.state, "Message": job.message,
        "PercentComplete": percent(job),
        "StartTime": "TIME_NOW", "EndTime": "TIME_NA",
    })
}

pub fn list(host: &Host, is_expanded: bool) -> Value {
    let member = |job: &Job| {
        if is_expanded { shape(job) } else { json!({ "@odata.id": format!("{JOBS}/{}", job.id) }) }
    };
    json!({
        "@odata.id": JOBS, "@odata.type": "#DellJobCollection.DellJobCollection", "Name": "JobQueue",
        "Members@odata.count": host.jobs.len(),
        "Members": host.jobs.iter().map(member).collect::<Vec<_>>(),
    })
}

fn find<'a>(host: &'a Host, id: &str) -> Result<&'a Job, Trouble> {
    let found = host.jobs.iter().find(|job| job.id == id);
    found.ok_or_else(|| Trouble::refused(404, format!("there is no job {id}")))
}

pub fn one(host: &Host, id: &str) -> Result<Value, Trouble> {
    find(host, id).map(shape)
}

pub fn task(host: &Host, id: &str) -> Result<Value, Trouble> {
    let job = find(host, id)?;
    let (state, status) = match job.state {
        JobState::Downloading | JobState::Running => ("Running", "OK"),
        JobState::Scheduled => ("Starting", "OK"),
        JobState::Completed => ("Completed", "OK"),
        JobState::Failed => ("Exception", "Critical"),
    };
    Ok(json!({
        "@odata.id": format!("/redfish/v1/TaskService/Tasks/{id}"), "@odata.type": "#Task.v1_6_0.Task",
        "Id": id, "Name": job.name, "TaskState": state, "TaskStatus": status, "PercentComplete": percent(job),
        "Messages": [{ "Message": job.message }],
        "Oem": { "Dell": shape(job) },
    }))
}

fn add(site: &mut Site, host: &str, job: Job) -> Answered {
    site.jobs_made += 1;
    let id = format!("JID_{:012}", site.jobs_made);
    let location = format!("/redfish/v1/TaskService/Tasks/{id}");
    let host = site.host_mut(host).ok_or_else(|| Trouble::refused(404, "there is no such host"))?;
    host.jobs.push(Job { id, ..job });
    Ok(Done::changed(Answer::empty(202).with("Location", location)))
}

/// Scheduled for the next start. It does not look whether the same is scheduled already, nor which version is
/// installed: that is what whoever asks has to do.
pub fn update(site: &mut Site, host: &str, body: &Value, will_fail: bool, now_ms: u64) -> Answered {
    let image = body["ImageURI"].as_str().unwrap_or_default();
    if body["@Redfish.OperationApplyTime"] != "OnReset" {
        return Err(Trouble::refused(400, "@Redfish.OperationApplyTime: only OnReset is simulated"));
    }
    let Some(firmware) = site.catalogue.iter().find(|firmware| firmware.image == image) else {
        return Err(Trouble::refused(400, format!("ImageURI: there is no image {image:?}")));
    };
    let installs = Installed {
        software_id: firmware.software_id.clone(),
        name: firmware.name.clone(),
        version: firmware.version.clone(),
    };
    let job = Job {
        id: String::new(),
        kind: JobType::FirmwareUpdate,
        name: format!("Firmware Update: {}", installs.name),
        state: JobState::Downloading,
        message: "Downloading.".to_owned(),
        due_at_ms: now_ms + site.pace_ms,
        installs: Some(installs),
        file: None,
        will_fail,
    };
    add(site, host, job)
}

pub fn export(site: &mut Site, host: &str, body: &Value, will_fail: bool, now_ms: u64) -> Answered {
    let busy = |job: &Job| job.kind == JobType::ExportConfiguration && !job.is_over();
    if known(site, host)?.jobs.iter().any(busy) {
        return Err(Trouble::refused(503, "Unable to run the method: the Lifecycle Controller is in use."));
    }
    let share = &body["ShareParameters"];
    let file = share["FileName"].as_str().filter(|name| !name.is_empty());
    let Some(file) = file.filter(|_| share["Target"] == "ALL") else {
        return Err(Trouble::refused(400, "ShareParameters: Target ALL and a FileName are needed"));
    };
    let job = Job {
        id: String::new(),
        kind: JobType::ExportConfiguration,
        name: "Export: Server Configuration Profile".to_owned(),
        state: JobState::Running,
        message: "Exporting Server Configuration Profile.".to_owned(),
        due_at_ms: now_ms + site.pace_ms,
        installs: None,
        file: Some(file.to_owned()),
        will_fail,
    };
    add(site, host, job)
}

/// One job by its id. What has begun cannot be taken back.
pub fn delete(site: &mut Site, host: &str, body: &Value) -> Answered {
    let id = body["JobID"].as_str().unwrap_or_default().to_owned();
    let job = find(known(site, host)?, &id)?;
    if job.state == JobState::Running {
        return Err(Trouble::refused(400, format!("the job {id} is running")));
    }
    if let Some(host) = site.host_mut(host) {
        host.jobs.retain(|job| job.id != id);
    }
    Ok(Done::changed(Answer::ok(json!({}))))
}
