//! What is left for who looks at the console: a playbook to start runs of, and one that asks whether to go on.

use std::path::Path;

use waypost_store::NewRun;

use super::stage::{Cast, Stage};
use crate::output::{ERROR, Failed, Result};
use crate::place::lifecycles;
use crate::run::start::brought::of_playbook;
use crate::run::user;

const QUEUE: &str = "default";
const PLAYBOOK: &str = include_str!("../init/deploy.toml");

pub async fn leave(stage: &mut Stage, folder: &Path) -> Result {
    let folder = folder.join("playbooks");
    let file = folder.join("deploy.toml");
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, PLAYBOOK));
    written.map_err(|error| Failed::new(ERROR, format!("a playbook: {error}")))?;
    let new = NewRun { title: Some("deploy to staging".into()), by: user(), ..NewRun::default() };
    let catalog = lifecycles(&*stage.store).await?;
    let (new, _) = of_playbook(&catalog, &file, &[], new, Some(QUEUE), None)?;
    let run_id = stage.store.enqueue(vec![new]).await?.remove(0)?.run.id().to_owned();
    stage.hire_for(&Cast { queue: QUEUE, slots: "2", lease: "10s" }, &folder)?;
    stage.rests(&run_id).await?;
    Ok(())
}
