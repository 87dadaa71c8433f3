//! An agent's run, by the playbook that is shipped, with a simulated model: it proposes a note, a person, who is played here, approves
//! it, and a worker writes it.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use waypost_kernel::Catalog;
use waypost_kernel::tenant::DEFAULT;
use waypost_simulate::model::{Model, Options};
use waypost_store::{AGENTS_QUEUE, AgentWrite};
use waypost_worker::agents::{self, AgentRun};
use waypost_worker::playbook::{Playbook, Playbooks, known};
use waypost_worker::proposals::{self, Decision, Verdict};

use super::acts::Act;
use super::stage::{Cast, Stage};
use crate::output::{ERROR, Failed, Result};
use crate::place::lifecycles;
use crate::run::user;

const RUN: &str = "agent";
const PROPOSAL: &str = "its proposal";
const RUN_PATH: &[&str] = &["requested", "queued", "running", "completed"];
const PROPOSAL_PATH: &[&str] = &["pending", "approved", "applying", "applied"];

const NOTE: &str = "Bows need rosin.";
/// What the model answers, whatever it is asked.
const TEXT: &str = r#"[[sim: answer {"proposals": [{"title": "keep a note", "text": "Bows need rosin.", "target": "rosin.txt", "base_revision": 0}]}]]"#;
/// The same for a proposal that is left to who looks at the console.
const LEFT: &str = r#"[[sim: answer {"proposals": [{"title": "keep another note", "text": "Strings want changing twice a year.", "target": "strings.txt", "base_revision": 0}]}]]"#;

macro_rules! shipped {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../../playbooks/agent/", $name)))),*]
    };
}
const FILES: [(&str, &str); 3] = shipped!["archivist.toml", "context.sh", "apply.sh"];

pub async fn play(stage: &mut Stage, folder: &Path) -> Result<Vec<Act>> {
    let failed = |error: io::Error| Failed::new(ERROR, format!("the simulated model: {error}"));
    let scripts = written(folder).map_err(failed)?;
    let model = Model::open(Options::default()).map_err(failed)?;
    let model = model.serve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).map_err(failed)?;
    let catalog = lifecycles(&*stage.store).await?;
    let playbook = Playbook::load_with(&scripts.join("archivist.toml"), &catalog)
        .map_err(|problems| Failed::new(ERROR, problems.to_string()))?;
    let agent = AgentWrite {
        slug: playbook.name.clone(),
        playbook: Some(playbook.name.clone()),
        ..AgentWrite::default()
    };
    known::offer(&*stage.store, &Playbooks::default().with(playbook), std::iter::empty(), None, "demo")
        .await?;
    let slug = agent.slug.clone();
    stage.store.put_agents(DEFAULT.to_owned(), vec![agent], None).await?;
    let input = json!({ "text": TEXT, "url": format!("{}/v1", model.url()) });
    let asked = AgentRun { slug, input, by: user(), ..AgentRun::default() };
    let run_id = asked_for(stage, &catalog, asked.clone()).await?;
    let cast = Cast { queue: AGENTS_QUEUE, slots: "2", lease: "10s" };
    stage.hire_for(&cast, &scripts)?;
    stage.settled(&run_id).await?;
    let mut acts = vec![Act { what: RUN, run_id: run_id.clone(), path: RUN_PATH, code: None, seen: None }];
    if let Some(proposal) = decided(stage, &run_id).await? {
        stage.in_state(&proposal, PROPOSAL_PATH[3]).await?;
        let is_written =
            fs::read_to_string(scripts.join("archive/rosin.txt")).is_ok_and(|it| it.trim() == NOTE);
        let seen = Some(("approved by a person, written by a worker".to_owned(), is_written));
        acts.push(Act { what: PROPOSAL, run_id: proposal, path: PROPOSAL_PATH, code: None, seen });
    }
    if stage.stays {
        let input = json!({ "text": LEFT, "url": format!("{}/v1", model.url()) });
        let undecided = asked_for(stage, &catalog, AgentRun { input, ..asked }).await?;
        stage.settled(&undecided).await?;
        stage.proposal_of(&undecided).await?;
    }
    Ok(acts)
}

async fn asked_for(stage: &Stage, catalog: &Catalog, asked: AgentRun) -> Result<String> {
    let new = agents::new_run(&*stage.store, catalog, asked).await;
    let new = new.map_err(|error| Failed::new(ERROR, error.to_string()))?;
    Ok(stage.store.enqueue(vec![new]).await?.remove(0)?.run.id().to_owned())
}

/// Approves what the run proposes, once it is there: the projector makes it.
async fn decided(stage: &Stage, run_id: &str) -> Result<Option<String>> {
    let made = stage.proposal_of(run_id).await?;
    let decision = Decision {
        tenant: DEFAULT.to_owned(),
        id: made.clone(),
        verdict: Verdict::Approve,
        note: Some("good to know".to_owned()),
        base_revision: Some("0".to_owned()),
        if_seq: None,
        by: user(),
    };
    match proposals::decide(&*stage.store, decision).await {
        Ok(_) => Ok(Some(made)),
        Err(error) => Err(Failed::new(ERROR, error.to_string())),
    }
}

fn written(folder: &Path) -> io::Result<PathBuf> {
    let scripts = folder.join("agent");
    fs::create_dir_all(&scripts)?;
    for (name, text) in FILES {
        fs::write(scripts.join(name), text)?;
        fs::set_permissions(scripts.join(name), fs::Permissions::from_mode(0o755))?;
    }
    Ok(scripts)
}
