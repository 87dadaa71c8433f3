//! Playbooks in the shop's folder, and what became of their steps.

use serde_json::{Map, Value};
use waypost_kernel::{Catalog, Phase};
use waypost_store::{CommandWrite, ItemRow, NewRun, RunRow};
use waypost_worker::first_steps;
use waypost_worker::playbook::{Playbook, Playbooks};

use crate::support::{Shop, eventually};

/// What every script of these playbooks does first: leave its step and key behind.
pub const SIGNS: &str = r#"echo "$WAYPOST_STEP $WAYPOST_IDEMPOTENCY_KEY" >> ledger; "#;

/// A step whose script is signed. `more` are further lines of TOML.
pub fn step(name: &str, script: &str, more: &str) -> String {
    part("step", name, script, more)
}

pub fn cleanup(name: &str, script: &str, more: &str) -> String {
    part("cleanup", name, script, more)
}

fn part(kind: &str, name: &str, script: &str, more: &str) -> String {
    format!("[[{kind}]]\nname = \"{name}\"\nexec = [\"sh\", \"-c\", '''{SIGNS}{script}''']\n{more}\n")
}

/// Answers with an Outcome.
pub fn answers(json: &str) -> String {
    format!(r#"printf '%s' '{json}' > "$WAYPOST_OUTPUT""#)
}

/// Waits for a file.
pub fn waits_for(name: &str) -> String {
    format!("echo waiting; until test -e {name}; do sleep 0.005; done")
}

impl Shop {
    /// The worker of this shop has the playbook from now on.
    pub fn playbook(&mut self, text: &str) -> Playbook {
        self.playbook_with(text, &Catalog::shipped().unwrap())
    }

    /// The same, of a lifecycle of one's own.
    pub fn playbook_with(&mut self, text: &str, catalog: &Catalog) -> Playbook {
        let file = self.path("playbook.toml");
        std::fs::write(&file, text).unwrap();
        let playbook =
            Playbook::load_with(&file, catalog).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        self.options.playbooks = Playbooks::default().with(playbook.clone());
        playbook
    }

    pub async fn queue(&self, playbook: &Playbook, new: NewRun) -> String {
        let catalog = self.store.lifecycles().await.unwrap();
        let lifecycle = catalog.latest(&playbook.lifecycle).unwrap();
        let inputs = playbook.accept(&new.input).unwrap();
        self.enqueue(NewRun {
            lifecycle: playbook.lifecycle.clone(),
            playbook: Some(playbook.pin()),
            items: first_steps(playbook, lifecycle, &inputs),
            input: Value::Object(inputs),
            ..new
        })
        .await
    }

    /// Queued and worked until it rests.
    pub async fn play(&mut self, text: &str) -> RunRow {
        let playbook = self.playbook(text);
        let id = self.queue(&playbook, NewRun::default()).await;
        self.work().await;
        self.run(&id).await
    }

    pub async fn steps(&self, id: &str) -> Vec<ItemRow> {
        let mut rows = self.store.items(id.to_owned(), Some("step".to_owned())).await.unwrap();
        rows.sort_by_key(|row| (number(row, "order"), number(row, "number")));
        rows
    }

    /// `scan=completed`, in the order of the playbook.
    pub async fn standings(&self, id: &str) -> Vec<String> {
        self.steps(id).await.iter().map(|row| format!("{}={}", row.key, row.status)).collect()
    }

    pub async fn resume(&self, id: &str, decisions: Map<String, Value>) {
        let command = CommandWrite {
            name: "resume".into(),
            force: decisions.is_empty(),
            resolutions: decisions,
            ..Shop::cancelling(id)
        };
        self.command(command).await;
    }

    /// The steps that were executed, in order; a try that was repeated is there twice.
    pub fn ledger(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("ledger")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub fn executed(&self) -> Vec<String> {
        let name = |line: &String| line.rsplit_once(' ').map_or(line.clone(), |(name, _)| name.to_owned());
        self.ledger().iter().map(name).collect()
    }

    pub async fn until_rests(&self, id: &str) -> RunRow {
        eventually(&format!("{id} rests"), async || {
            Some(self.run(id).await).filter(|row| matches!(row.phase(), Phase::Settled | Phase::Parked))
        })
        .await
    }
}

fn number(row: &ItemRow, key: &str) -> u64 {
    row.details.get(key).and_then(Value::as_u64).unwrap_or_default()
}

pub fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is no object"),
    }
}

pub fn job(steps: &[String]) -> String {
    format!("name = \"update\"\nlifecycle = \"job\"\n{}", steps.concat())
}
