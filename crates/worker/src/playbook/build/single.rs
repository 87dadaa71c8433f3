//! One action outside a playbook: a schedule's. Its templates see `inputs` and `run`.

use waypost_schema::{Node, Report};

use super::Builder;
use super::needs::Needs;
use super::place::Place;
use crate::playbook::action::ActionTemplate;
use crate::playbook::secret::Reference;

/// `node` has `exec` or `http`, and perhaps `env`.
pub(crate) fn single(node: &Node, report: &mut Report, secrets: &[(String, Reference)]) -> ActionTemplate {
    let mut builder = Builder {
        report,
        declares_inputs: false,
        inputs: Vec::new(),
        secrets: secrets.to_vec(),
        steps: Vec::new(),
        needs: Needs::default(),
        is_agents: false,
    };
    builder.action(node, &Place::before_all_steps())
}
