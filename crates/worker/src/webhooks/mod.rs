//! `[github]` of `waypost.toml`: which deliveries of a GitHub webhook start which playbook. A server checks who sent a
//! delivery, and asks here what it means.

mod delivery;
mod file;
mod pattern;

use std::path::Path;
use std::sync::Arc;

use waypost_kernel::Catalog;
use waypost_schema::Problems;
use waypost_store::NewRun;

use crate::actions::secrets;
use crate::playbook::{Expression, JsonTemplate, Playbook, Playbooks, Reference, Sealed};
pub use delivery::{Delivery, key_of};
pub(crate) use file::{GITHUB, ON};
use pattern::Pattern;

/// Who starts runs by it, as the log names them.
pub const BY: &str = "github";

/// What is to be done with deliveries.
#[derive(Clone, Debug)]
pub struct Github {
    secret: Reference,
    rules: Vec<Rule>,
}

/// One `[[github.on]]`.
#[derive(Clone, Debug)]
struct Rule {
    event: String,
    action: Option<String>,
    repository: Option<Pattern>,
    branch: Option<Pattern>,
    tag: Option<Pattern>,
    when: Option<Expression>,
    playbook: Arc<Playbook>,
    inputs: JsonTemplate,
}

impl Github {
    /// Of a file, if it has one. Every playbook that it names must be among these.
    pub fn load(path: &Path, playbooks: &Playbooks) -> Result<Option<Github>, Problems> {
        file::load(path, playbooks)
    }

    /// What deliveries are signed with, as it is now: a file may be replaced while the server runs.
    pub fn secret(&self) -> Result<Sealed, String> {
        let found = secrets::find(&self.secret);
        found.map(Sealed::new).map_err(|error| format!("github.secret ({}): {error}", self.secret))
    }

    /// The runs that a delivery asks for, one for each rule that fits. The same delivery makes the same ones, with the same keys.
    pub fn runs(&self, delivery: &Delivery, catalog: &Catalog) -> Result<Vec<NewRun>, String> {
        let mut runs = Vec::new();
        for (place, rule) in self.rules.iter().enumerate() {
            let within = |error: String| format!("github.on {}: {error}", place + 1);
            if rule.fits(delivery).map_err(within)? {
                let input = {
                    let context = delivery.context();
                    rule.inputs.rendered(&mut |text| text.value(&context)).map_err(within)?
                };
                let new =
                    rule.playbook.new_run(catalog, &input).map_err(|error| within(error.to_string()))?;
                runs.push(delivery.sign(new, runs.len()));
            }
        }
        Ok(runs)
    }
}

impl Rule {
    fn fits(&self, delivery: &Delivery) -> Result<bool, String> {
        // Without such a name nothing that is asked for it fits.
        let is = |pattern: &Option<Pattern>, name: Option<&str>| {
            pattern.as_ref().is_none_or(|pattern| name.is_some_and(|name| pattern.fits(name)))
        };
        let action = delivery.payload["action"].as_str();
        let is_gone = delivery.event == "push" && delivery.is_deletion();
        let all = self.event == delivery.event
            && !is_gone
            && self.action.as_deref().is_none_or(|wanted| action == Some(wanted))
            && is(&self.repository, delivery.repository())
            && is(&self.branch, delivery.branch())
            && is(&self.tag, delivery.tag());
        match &self.when {
            Some(when) if all => when.is_true(&delivery.context()),
            _ => Ok(all),
        }
    }
}
