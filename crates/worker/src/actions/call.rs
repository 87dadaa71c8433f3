//! What every handler is told, whichever kind it is: a command by its environment and its input, an endpoint by
//! headers and its body.

use std::path::Path;

use serde_json::{Map, Value, json};

/// The variable that names the file for a command's Outcome. Each try has its own, so it also says whose a process is.
pub(crate) const OUTPUT: &str = "WAYPOST_OUTPUT";

/// One try of one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// Whose the run is. What a command starts by the command line is the same tenant's.
    pub tenant: String,
    pub run_id: String,
    pub step: String,
    /// Counted by claims.
    pub attempt: u32,
    /// Counted within a claim, from 1.
    pub try_no: u32,
    /// The same when a try is repeated because its result was lost.
    pub idempotency_key: String,
    pub traceparent: Option<String>,
    /// Of the run. Secrets are references here.
    pub input: Value,
    pub metadata: Map<String, Value>,
    /// Of the step: `item`, `target`, `steps`, `resolutions`, as far as there are any.
    pub more: Map<String, Value>,
}

impl Call {
    /// What a command reads on its standard input, and an endpoint as the body of a POST.
    pub fn envelope(&self) -> Value {
        let mut envelope = self.more.clone();
        let own = json!({
            "run_id": self.run_id,
            "step": self.step,
            "attempt": self.attempt,
            "try": self.try_no,
            "idempotency_key": self.idempotency_key,
            "input": self.input,
            "metadata": self.metadata,
        });
        envelope.extend(own.as_object().cloned().unwrap_or_default());
        Value::Object(envelope)
    }

    /// The variables of a command; `output` is the file that it may write an Outcome to.
    pub fn environment(&self, output: &Path) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("WAYPOST_TENANT", self.tenant.clone()),
            ("WAYPOST_RUN_ID", self.run_id.clone()),
            ("WAYPOST_STEP", self.step.clone()),
            ("WAYPOST_ATTEMPT", self.attempt.to_string()),
            ("WAYPOST_IDEMPOTENCY_KEY", self.idempotency_key.clone()),
            (OUTPUT, output.display().to_string()),
        ];
        variables.extend(self.traceparent.clone().map(|parent| ("TRACEPARENT", parent)));
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_endpoints_are_told_the_same() {
        let more = json!({"item": {"name": "h1"}, "run_id": "forged"});
        let call = Call {
            tenant: "shop".into(),
            run_id: "r1".into(),
            step: "update h1".into(),
            attempt: 2,
            try_no: 3,
            idempotency_key: "r1:2:3".into(),
            traceparent: Some("00-a-b-01".into()),
            input: json!({"cluster": "c1"}),
            more: more.as_object().cloned().unwrap_or_default(),
            ..Call::default()
        };
        let expected = json!({
            "run_id": "r1", "step": "update h1", "attempt": 2, "try": 3, "idempotency_key": "r1:2:3",
            "input": {"cluster": "c1"}, "metadata": {}, "item": {"name": "h1"},
        });
        assert_eq!(call.envelope(), expected);
        let variables = call.environment(Path::new("/tmp/out.json"));
        let expected = [
            ("WAYPOST_TENANT", "shop"),
            ("WAYPOST_RUN_ID", "r1"),
            ("WAYPOST_STEP", "update h1"),
            ("WAYPOST_ATTEMPT", "2"),
            ("WAYPOST_IDEMPOTENCY_KEY", "r1:2:3"),
            ("WAYPOST_OUTPUT", "/tmp/out.json"),
            ("TRACEPARENT", "00-a-b-01"),
        ];
        assert_eq!(variables, expected.map(|(name, value)| (name, value.to_owned())));
    }
}
