//! What happens by itself as time passes: whoever looks next finds it done.

use serde_json::json;

use super::ledger::Entry;
use super::site::{JobState, JobType, Maintenance, Site};

impl Site {
    pub fn pass(&mut self, now_ms: u64) -> Vec<Entry> {
        let mut entries = Vec::new();
        for at in 0..self.hosts.len() {
            self.start(at, now_ms, &mut entries);
            self.work(at, now_ms, &mut entries);
            self.enter(at, now_ms, &mut entries);
        }
        entries
    }

    fn start(&mut self, at: usize, now_ms: u64, entries: &mut Vec<Entry>) {
        let host = &mut self.hosts[at];
        // Firmware is installed before the system starts.
        let is_installing =
            host.jobs.iter().any(|job| job.state == JobState::Running && job.installs.is_some());
        if host.back_at_ms.is_some_and(|back_at_ms| back_at_ms <= now_ms) && !is_installing {
            host.back_at_ms = None;
            entries.push(Entry::of_itself(
                now_ms,
                "host.connected",
                &host.name,
                json!({ "starts": host.starts }),
            ));
        }
    }

    fn work(&mut self, at: usize, now_ms: u64, entries: &mut Vec<Entry>) {
        let host = &mut self.hosts[at];
        for job in host.jobs.iter_mut().filter(|job| job.due_at_ms <= now_ms) {
            let mut say = |what: &str| {
                let with = json!({ "job": job.id, "installs": job.installs, "file": job.file });
                entries.push(Entry::of_itself(now_ms, what, &host.name, with));
            };
            match (job.state, job.kind) {
                (JobState::Downloading, _) => {
                    job.state = JobState::Scheduled;
                    job.message = "Task successfully scheduled.".to_owned();
                }
                (JobState::Running, _) if job.will_fail => {
                    job.state = JobState::Failed;
                    job.message = "Unable to complete the job.".to_owned();
                    say("job.failed");
                }
                (JobState::Running, JobType::ExportConfiguration) => {
                    job.state = JobState::Completed;
                    job.message = "Successfully exported Server Configuration Profile".to_owned();
                    say("configuration.exported");
                }
                (JobState::Running, JobType::FirmwareUpdate) => {
                    job.state = JobState::Completed;
                    job.message = "Job completed successfully.".to_owned();
                    say("firmware.applied");
                    for installed in &mut host.firmware {
                        if let Some(new) =
                            job.installs.as_ref().filter(|new| new.software_id == installed.software_id)
                        {
                            installed.version.clone_from(&new.version);
                        }
                    }
                }
                (JobState::Scheduled | JobState::Completed | JobState::Failed, _) => {}
            }
        }
    }

    fn enter(&mut self, at: usize, now_ms: u64, entries: &mut Vec<Entry>) {
        let host = self.hosts[at].name.clone();
        let Maintenance::Entering { not_before_ms, gives_up_at_ms, .. } = self.hosts[at].maintenance else {
            return;
        };
        if now_ms < not_before_ms {
            return;
        }
        self.evacuate(&host, now_ms, entries);
        if !self.vms.iter().any(|vm| vm.host == host && vm.powered_on) {
            self.hosts[at].maintenance = Maintenance::In;
            entries.push(Entry::of_itself(now_ms, "maintenance.entered", &host, json!({})));
        } else if gives_up_at_ms.is_some_and(|gives_up_at_ms| gives_up_at_ms <= now_ms) {
            self.hosts[at].maintenance = Maintenance::Out;
            entries.push(Entry::of_itself(now_ms, "maintenance.given_up", &host, json!({})));
        }
    }

    fn evacuate(&mut self, host: &str, now_ms: u64, entries: &mut Vec<Entry>) {
        let Some(to) = self.hosts.iter().find(|other| other.name != host && other.can_take_machines()) else {
            return;
        };
        let to = to.name.clone();
        if !self.moves_by_itself() {
            return;
        }
        let moving: Vec<usize> = (0..self.vms.len())
            .filter(|&at| {
                self.vms[at].host == host && self.vms[at].powered_on && self.can_move(&self.vms[at])
            })
            .collect();
        for at in moving {
            self.vms[at].host.clone_from(&to);
            entries.push(Entry::of_itself(
                now_ms,
                "vm.moved",
                &self.vms[at].name,
                json!({ "from": host, "to": to }),
            ));
        }
    }

    /// The server starts anew: what is scheduled is installed, and whatever ran on it goes down.
    pub fn reset(&mut self, name: &str, now_ms: u64) -> Vec<Entry> {
        let (pace_ms, mut entries) = (self.pace_ms, Vec::new());
        for vm in self.vms.iter_mut().filter(|vm| vm.host == name && vm.powered_on) {
            vm.powered_on = false;
            entries.push(Entry::of_itself(now_ms, "vm.crashed", &vm.name, json!({ "host": name })));
        }
        let Some(host) = self.host_mut(name) else { return entries };
        host.starts += 1;
        host.back_at_ms = Some(now_ms + 2 * pace_ms);
        for job in host.jobs.iter_mut().filter(|job| job.state == JobState::Scheduled) {
            job.state = JobState::Running;
            job.message = "Job in progress.".to_owned();
            job.due_at_ms = now_ms + pace_ms;
        }
        entries
    }
}
