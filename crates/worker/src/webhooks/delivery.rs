//! One delivery: what happened where, and the runs that are made of it.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use waypost_store::NewRun;

use super::BY;
use crate::playbook::context_of;

/// Commits that are none: the branch or tag is gone.
const NO_COMMIT: &str = "0000000000000000000000000000000000000000";

/// Of the first run that a delivery makes.
pub fn key_of(delivery: &str) -> String {
    format!("{BY}:{delivery}")
}

#[derive(Clone, Debug)]
pub struct Delivery {
    /// `X-GitHub-Delivery`.
    pub id: String,
    /// `X-GitHub-Event`.
    pub event: String,
    pub payload: Arc<Json>,
}

impl Delivery {
    pub fn repository(&self) -> Option<&str> {
        self.text("/repository/full_name")
    }

    /// The branch that it is about: the one that was pushed to, that a pull request goes to, or that a workflow ran on.
    pub fn branch(&self) -> Option<&str> {
        let pushed = self.text("/ref").and_then(|name| name.strip_prefix("refs/heads/"));
        let others = ["/pull_request/base/ref", "/workflow_run/head_branch", "/check_suite/head_branch"];
        pushed.or_else(|| others.iter().find_map(|pointer| self.text(pointer)))
    }

    pub fn tag(&self) -> Option<&str> {
        let pushed = self.text("/ref").and_then(|name| name.strip_prefix("refs/tags/"));
        pushed.or_else(|| self.text("/release/tag_name"))
    }

    /// A push that leaves nothing behind: there is no commit to do anything with.
    pub fn is_deletion(&self) -> bool {
        self.payload["deleted"] == true || self.text("/after") == Some(NO_COMMIT)
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.payload.pointer(pointer)?.as_str()
    }

    /// What templates see.
    pub(super) fn context(&self) -> minijinja::Value {
        context_of("event", &self.payload)
    }

    /// The delivery's id is the key, with a number where one delivery makes several runs.
    pub(super) fn sign(&self, new: NewRun, before: usize) -> NewRun {
        let number = if before == 0 { String::new() } else { format!("#{}", before + 1) };
        let about = [self.repository(), self.branch().or(self.tag())].into_iter().flatten();
        let about: Vec<&str> = about.collect();
        let mut metadata = new.metadata;
        metadata.insert("github".to_owned(), json!({ "delivery": self.id, "event": self.event }));
        NewRun {
            title: Some(format!("{} {}", self.event, about.join(" ")).trim().chars().take(200).collect()),
            idempotency_key: Some(format!("{}{number}", key_of(&self.id))),
            by: BY.to_owned(),
            metadata,
            ..new
        }
    }
}
