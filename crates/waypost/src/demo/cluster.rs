//! The thirteenth run: a rolling update of a simulated cluster, by the playbook that is shipped. It stops for a person,
//! who is played here.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use waypost_kernel::Phase;
use waypost_kernel::tenant::DEFAULT;
use waypost_simulate::{Host, Server, Site, World};
use waypost_store::{CommandWrite, NewRun, RunRow};

use super::acts::Act;
use super::stage::{Cast, Stage};
use crate::output::{ERROR, Failed, Result, tell};
use crate::place::lifecycles;
use crate::run::start::brought::of_playbook;
use crate::run::user;

const WHAT: &str = "rolling update";
const PATH: &[&str] = &["pending", "running", "paused", "pending", "running", "completed"];
const NEEDS: [&str; 3] = ["bash", "curl", "jq"];
/// So that the whole takes some seconds.
const PACE_MS: u64 = 50;

macro_rules! shipped {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../../playbooks/rolling_cluster_update/", $name)))),*]
    };
}
const FILES: [(&str, &str); 8] = shipped![
    "playbook.toml",
    "lib.sh",
    "blockers.jq",
    "preflight.sh",
    "ha.sh",
    "scan.sh",
    "update.sh",
    "hosts.sh"
];

/// Nothing where the playbook's scripts could not run; what is missing is said.
pub async fn play(stage: &mut Stage, folder: &Path) -> Result<Option<Act>> {
    let missing: Vec<&str> = NEEDS.into_iter().filter(|program| !is_there(program)).collect();
    if !missing.is_empty() {
        tell(&format!("left out: a rolling cluster update, whose scripts need {}", missing.join(" and ")));
        return Ok(None);
    }
    let set =
        Set::build(folder).map_err(|error| Failed::new(ERROR, format!("the simulated cluster: {error}")))?;
    let before = set.world.site().map_err(|error| Failed::new(ERROR, error.to_string()))?;
    let new = NewRun {
        input: set.input(&before),
        correlation_id: Some(WHAT.into()),
        title: Some(WHAT.into()),
        ..NewRun::default()
    };
    let new = NewRun { queue: "clusters".into(), by: user(), ..new };
    let catalog = lifecycles(&*stage.store).await?;
    let (new, _) = of_playbook(&catalog, &set.playbook, &[], new, Some("clusters"), None)?;
    let run_id = stage.store.enqueue(vec![new]).await?.remove(0)?.run.id().to_owned();
    stage.hire_with(&Cast { queue: "clusters", slots: "1", lease: "10s" }, set.environment())?;
    let paused = stage.rests(&run_id).await?;
    let decided = decide(stage, &paused).await?;
    stage.settled(&run_id).await?;
    let after = set.world.site().map_err(|error| Failed::new(ERROR, error.to_string()))?;
    let words = format!("{decided}; HA as it was");
    let seen = Some((words, after.cluster.ha == before.cluster.ha));
    Ok(Some(Act { what: WHAT, run_id, path: PATH, code: None, seen }))
}

/// The first blocked host's machines are powered off, the others are skipped.
async fn decide(stage: &Stage, run: &RunRow) -> Result<String> {
    let asked = run.lifecycle.decisions.as_ref().and_then(|decisions| run.details.get(decisions.asked()));
    let blocked = asked.and_then(Value::as_object).cloned().unwrap_or_default();
    let mut resolutions = Map::new();
    for (at, host) in blocked.keys().enumerate() {
        resolutions.insert(host.clone(), json!(if at == 0 { "power_off" } else { "skip" }));
    }
    let words: Vec<String> = resolutions
        .iter()
        .map(|(host, decision)| format!("{host}: {}", decision.as_str().unwrap_or_default()))
        .collect();
    if run.phase() == Phase::Parked {
        let resume = CommandWrite {
            tenant: DEFAULT.into(),
            run_id: run.id().to_owned(),
            name: "resume".into(),
            by: user(),
            reason: Some("decided in the demo".into()),
            resolutions,
            ..CommandWrite::default()
        };
        stage.store.command(resume).await?;
    }
    Ok(words.join(", "))
}

/// The cluster, its `govc` and the playbook's files.
struct Set {
    world: World,
    url: String,
    bin: PathBuf,
    playbook: PathBuf,
}

impl Set {
    fn build(folder: &Path) -> io::Result<Set> {
        let site = Site { pace_ms: PACE_MS, ..Site::with_blockers() };
        let world = World::create(&folder.join("site"), &site)?;
        let bin = folder.join("bin");
        waypost_simulate::install_govc(&bin, &std::env::current_exe()?)?;
        let server = Server::bind(&world, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let url = server.url()?;
        std::thread::spawn(move || server.run());
        let scripts = folder.join("rolling_cluster_update");
        fs::create_dir_all(&scripts)?;
        for (name, text) in FILES {
            fs::write(scripts.join(name), text)?;
            fs::set_permissions(scripts.join(name), fs::Permissions::from_mode(0o755))?;
        }
        Ok(Set { world, url, bin, playbook: scripts.join("playbook.toml") })
    }

    fn input(&self, site: &Site) -> Value {
        let idrac = |host: &Host| (host.name.clone(), json!(format!("{}/idrac/{}", self.url, host.name)));
        json!({
            "cluster": site.cluster.name,
            "vcenter": self.world.folder(),
            "vcenter_user": "administrator@vsphere.local",
            "vcenter_vm": "vcenter",
            "idracs": site.hosts.iter().map(idrac).collect::<Map<_, _>>(),
            "catalogue": format!("{}/catalogue.json", self.url),
            "backup_share": { "type": "NFS", "address": "192.0.2.9", "name": "/scp" },
            "poll_seconds": 0.05,
            "evacuation_seconds": 20,
            "shutdown_seconds": 2,
        })
    }

    /// Of the worker: secrets are read there, and `govc` is found there.
    fn environment(&self) -> Vec<(String, String)> {
        let path = std::env::var("PATH").unwrap_or_default();
        vec![
            ("PATH".into(), format!("{}:{path}", self.bin.display())),
            ("GOVC_PASSWORD".into(), "vcenter-password".into()),
            ("IDRAC_PASSWORD".into(), "idrac-password".into()),
        ]
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
