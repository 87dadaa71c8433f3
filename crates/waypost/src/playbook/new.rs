//! A playbook to begin with.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use waypost_kernel::text::shell_word;
use waypost_worker::playbook::Playbook;

use crate::output::{BAD_INPUT, ERROR, Failed, REFUSED, Result, print};
use crate::place::{Place, suggested};

const TEMPLATE: &str = r#"# What to do, step by step. `waypost playbook check` names everything that is wrong with it.
name = "{name}"
lifecycle = "{lifecycle}"            # what its runs move along; `waypost lifecycle list` has them
description = "Say what it is for."

# queue = "deploys"                  # the queue that its runs wait in; without it, `default`
# priority = 5                       # higher comes first
# concurrency_key = "{name}-{{ inputs.target }}"   # runs with the same key one at a time

[inputs.target]
type = "string"                      # string, number, boolean, list, object
description = "where it goes"

[inputs.parts]
type = "list"
default = ["a", "b"]                 # an input without a default must be given, unless `required = false`

[[step]]
name = "prepare"
exec = ["echo", "preparing {{ inputs.target }}"]   # a list of words, not a line for a shell
timeout = "1m"                       # of one try
retries = 2                          # after the first try

[[step]]
name = "ship {{ item }}"
id = "ship"                          # what others call it: steps.ship.output
for_each = "inputs.parts"            # once for each; `item` is the present one
exec = ["echo", "{{ item }} to {{ inputs.target }}"]

[[cleanup]]                          # at the end, whatever the end is
name = "tidy up"
exec = ["echo", "done"]
"#;

pub async fn write(place: &Place, name: &str, file: Option<&Path>, lifecycle: &str) -> Result {
    let file = file.map_or_else(|| PathBuf::from(format!("{name}.toml")), Path::to_owned);
    let text = TEMPLATE.replace("{name}", name).replace("{lifecycle}", lifecycle);
    // A name or lifecycle that cannot be is told of before anything is written.
    Playbook::parse_with(&text, &file, &place.known_lifecycles().await?)
        .map_err(|problems| Failed::new(BAD_INPUT, problems.to_string()))?;
    let written = OpenOptions::new().write(true).create_new(true).open(&file);
    let written = written.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failed::new(REFUSED, format!("{} is there already: name another file", file.display()))
        }
        _ => Failed::new(ERROR, format!("{}: {error}", file.display())),
    })?;
    let file = file.display();
    let path = if file.to_string().contains('/') { file.to_string() } else { format!("./{file}") };
    let [plan, run] = ["--dry-run", "--wait"]
        .map(|how| suggested(&format!("run start {} --input target=here {how}", shell_word(&path))));
    print(&format!("{file}: try it with\n  {plan}\n  {run}"))
}
