//! One action outside a playbook: a schedule's. Its templates see `inputs` and `run`.

use super::Builder;
use super::place::Place;
use crate::playbook::action::ActionTemplate;
use crate::playbook::node::Node;
use crate::playbook::read::Reader;
use crate::playbook::secret::Reference;

/// `node` has `exec` or `http`, and perhaps `env`. What is wrong is told to the reader.
pub(crate) fn single<'t>(
    node: &Node,
    reader: Reader<'t>,
    secrets: &[(String, Reference)],
) -> (ActionTemplate, Reader<'t>) {
    let mut builder = Builder {
        reader,
        declares_inputs: false,
        inputs: Vec::new(),
        secrets: secrets.to_vec(),
        steps: Vec::new(),
    };
    let action = builder.action(node, &Place::before_all_steps());
    (action, builder.reader)
}
