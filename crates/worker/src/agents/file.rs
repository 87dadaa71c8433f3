//! `[[agent]]` and `[agents]` of `waypost.toml`: who runs of agents are of, and what they do.

use std::path::Path;

use serde_json::Value as Json;
use waypost_kernel::Catalog;
use waypost_schema::{Kind, Node, Problems, Report, Shape, needed, optional, quoted};
use waypost_store::AgentWrite;

use super::DEFAULT_PLAYBOOK;
use crate::playbook::format::{ANYTHING, NAME, TEMPLATE, TEXT};
use crate::playbook::{Playbook, formats, text_of};
use crate::schedules::format::FILE;

/// What runs of agents do that name no playbook. Its place is taken by what `[agents.chat]` says.
const DEFAULT_STEPS: &str = include_str!("default_steps.toml");

pub(crate) static AGENT: Shape = Shape::of_file(
    "an agent",
    &[
        needed("slug", NAME, "What the agent is called."),
        optional(
            "playbook",
            TEXT,
            "What its runs do: a file beside this one (`archivist.toml`), or a playbook that somebody has, by its name. Default: the four default steps, with `[agents.chat]`.",
        ),
        optional("concurrency", Kind::Integer(1, 1_000), "Runs at once. Default: 1."),
        optional("enabled", Kind::Boolean, "Whether it takes runs. Default: true."),
        optional(
            "cron",
            TEXT,
            "When a run of it begins by itself: five fields, as in a schedule. The schedule is called `agent-SLUG`.",
        ),
        optional("timezone", TEXT, "Of `cron`. Default: UTC."),
        optional("input", ANYTHING, "What runs that begin by themselves are given."),
    ],
);

pub(crate) static AGENTS: Shape = Shape::of_file(
    "agents",
    &[
        optional("limit", Kind::Integer(1, 10_000), "Runs of all agents at once. Default: no limit."),
        optional("chat", Kind::Of(&DEFAULT_CHAT), "The model that the four default steps ask."),
    ],
);

pub(crate) static DEFAULT_CHAT: Shape = Shape::of_file(
    "a model",
    &[
        needed("url", TEMPLATE, "Where an OpenAI-compatible API is: `https://api.example.com/v1`."),
        needed("model", TEMPLATE, "The model's name."),
        optional(
            "key",
            Kind::Format(&formats::REFERENCE),
            "The API's key, as a reference: env:NAME or file:/path.",
        ),
        optional("system", TEMPLATE, "What the model is told before the prompt."),
        optional("json", Kind::Boolean, "The answer is JSON; its `proposals` are the run's. Default: false."),
        optional("temperature", Kind::Number, "As the API takes it."),
        optional("max_tokens", Kind::Integer(1, 10_000_000), "As the API takes it."),
        optional("allow_private", Kind::Boolean, "It may call http:// and addresses of private networks."),
    ],
);

/// What a file says of agents.
#[derive(Debug, Default)]
pub struct Agents {
    pub agents: Vec<AgentWrite>,
    /// Of all at once.
    pub limit: Option<u32>,
    /// Those that the file names as files, and the default steps.
    pub playbooks: Vec<Playbook>,
}

/// What a file says, about lifecycles of the catalog.
pub fn load(path: &Path, catalog: &Catalog) -> Result<Agents, Problems> {
    let (root, report) = FILE.read(&text_of(path)?, path)?;
    let mut reader = Reader { report, path, catalog, chat: None, found: Agents::default() };
    if let Some(node) = root.get("agents") {
        reader.found.limit = node.of("limit");
        reader.chat = node.get("chat");
    }
    for node in root.get("agent").map(Node::items).unwrap_or_default() {
        reader.agent(node)?;
    }
    reader.report.done(reader.found)
}

struct Reader<'n> {
    report: Report,
    path: &'n Path,
    catalog: &'n Catalog,
    chat: Option<&'n Node>,
    found: Agents,
}

impl<'n> Reader<'n> {
    fn agent(&mut self, node: &'n Node) -> Result<(), Problems> {
        // What is missing was told already.
        let Some(slug) = node.text_of("slug") else { return Ok(()) };
        if self.found.agents.iter().any(|known| known.slug == slug) {
            let message = format!("there are two agents {}", quoted(slug));
            self.report.of_node(node, "duplicate-name", &message, "rename one of them");
        }
        let playbook = match node.get("playbook") {
            Some(named) => self.playbook(named)?,
            None => Some(self.default_steps(node)?),
        };
        self.found.agents.push(AgentWrite {
            slug: slug.to_owned(),
            playbook: playbook.filter(|name| name != DEFAULT_PLAYBOOK),
            concurrency: node.of("concurrency").unwrap_or(1),
            enabled: node.of("enabled").unwrap_or(true),
        });
        Ok(())
    }

    /// The name of a playbook; one that is a file is read.
    fn playbook(&mut self, node: &Node) -> Result<Option<String>, Problems> {
        let named = node.text();
        if !named.ends_with(".toml") {
            return Ok(Some(named.to_owned()));
        }
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let playbook = Playbook::load_with(&folder.join(named), self.catalog)?;
        let lifecycle = self.catalog.latest(&playbook.lifecycle);
        if !lifecycle.is_some_and(|lifecycle| lifecycle.projected) {
            let message = format!(
                "{} is of the lifecycle {}, whose runs are not projected",
                quoted(named),
                playbook.lifecycle
            );
            self.report.of_node(node, "bad-playbook", &message, "write lifecycle = \"agent\" there");
        }
        let name = playbook.name.clone();
        self.keep(playbook);
        Ok(Some(name))
    }

    fn default_steps(&mut self, node: &Node) -> Result<String, Problems> {
        let Some(chat) = self.chat else {
            let mend = "name its playbook, or write [agents.chat] with url and model";
            self.report.of_node(node, "bad-agent", "the agent has nothing to do", mend);
            return Ok(DEFAULT_PLAYBOOK.to_owned());
        };
        self.keep(Playbook::of_text(&default_steps(chat), self.path, self.catalog)?);
        Ok(DEFAULT_PLAYBOOK.to_owned())
    }

    fn keep(&mut self, playbook: Playbook) {
        if self.found.playbooks.iter().all(|known| known.pin() != playbook.pin()) {
            self.found.playbooks.push(playbook);
        }
    }
}

/// The default steps with this model. Its key is a secret of the playbook.
fn default_steps(chat: &Node) -> String {
    let mut secrets = String::new();
    let mut members = Vec::new();
    for (name, node) in chat.entries() {
        match name.as_str() {
            "key" => {
                secrets = format!("[secrets]\nmodel = {}\n", inline(&node.to_json()));
                members.push("key = \"{{ secrets.model }}\"".to_owned());
            }
            name => members.push(format!("{name} = {}", inline(&node.to_json()))),
        }
    }
    DEFAULT_STEPS.replace("# SECRETS\n", &secrets).replace("# CHAT\n", &format!("{}\n", members.join("\n")))
}

/// A value as TOML writes it; texts are escaped as JSON escapes them.
fn inline(value: &Json) -> String {
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_kernel::Span;

    fn read(text: &str, beside: &[(&str, &str)]) -> Result<Agents, String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in beside {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        let path = folder.path().join("waypost.toml");
        std::fs::write(&path, text).expect("written");
        let catalog = Catalog::shipped().expect("the shipped ones");
        load(&path, &catalog).map_err(|problems| problems.to_string())
    }

    // proves A5, A6
    #[test]
    fn an_agent_without_a_playbook_has_the_four_steps_of_the_seed() {
        let file = "[[agent]]\nslug = \"a\"\n[[agent]]\nslug = \"b\"\nconcurrency = 2\nenabled = false\n[agents]\nlimit = 3\n\
                    [agents.chat]\nurl = \"https://x.example/v1\"\nmodel = \"m \\\"1\\\"\"\nkey = \"env:KEY\"\njson = true";
        let found = read(file, &[]).expect("sound");
        assert_eq!((found.limit, found.agents.len(), found.playbooks.len()), (Some(3), 2, 1));
        assert_eq!((found.agents[1].concurrency, found.agents[1].enabled), (2, false));
        assert_eq!(found.agents[0].playbook, None);
        let steps = &found.playbooks[0].steps;
        let names: Vec<&str> = steps.iter().map(|step| step.key.as_str()).collect();
        assert_eq!(names, ["load-context", "execute-agent", "persist-results", "finalize"]);
        let limits = |at: usize| (steps[at].retries, steps[at].timeout);
        assert_eq!([limits(1), limits(2)], [(3, Some(Span::from_seconds(120))); 2]);
        assert_eq!(found.playbooks[0].timeout, Some(Span::from_seconds(600)));
    }

    #[test]
    fn a_playbook_is_a_file_or_a_name_and_may_say_otherwise() {
        let playbook = "name = \"p\"\nlifecycle = \"agent\"\ntimeout = \"9s\"\n[[step]]\nname = \"s\"\nexec = [\"true\"]\nretries = 0\ntimeout = \"5s\"";
        let file = "[[agent]]\nslug = \"a\"\nplaybook = \"p.toml\"\n[[agent]]\nslug = \"b\"\nplaybook = \"elsewhere\"";
        let found = read(file, &[("p.toml", playbook)]).expect("sound");
        let named: Vec<_> = found.agents.iter().map(|agent| agent.playbook.as_deref()).collect();
        assert_eq!(named, [Some("p"), Some("elsewhere")]);
        let own = &found.playbooks[0];
        assert_eq!((own.timeout, own.steps[0].retries), (Some(Span::from_seconds(9)), 0));
        assert_eq!(own.steps[0].timeout, Some(Span::from_seconds(5)));
    }

    #[test]
    fn what_is_wrong_with_agents_is_told() {
        let job = "name = \"p\"\nlifecycle = \"job\"\n[[step]]\nname = \"s\"\nexec = [\"true\"]";
        for (file, words) in [
            ("[[agent]]\nslug = \"a\"", "[agents.chat]"),
            ("[[agent]]\nslug = \"a b\"\nplaybook = \"p\"", "is no name"),
            (
                "[[agent]]\nslug = \"a\"\nplaybook = \"p\"\n[[agent]]\nslug = \"a\"\nplaybook = \"p\"",
                "two agents",
            ),
            ("[[agent]]\nslug = \"a\"\nplaybook = \"p.toml\"", "lifecycle = \"agent\""),
            ("[[agent]]\nslug = \"a\"\nplaybook = \"none.toml\"", "none.toml"),
            ("[[agent]]\nslug = \"a\"\nplaybook = \"p\"\nconcurrency = 0", "concurrency"),
            ("[agents.chat]\nurl = \"https://x\"\nmodel = \"m\"\nkey = \"sk-1\"", "key"),
        ] {
            let told = read(file, &[("p.toml", job)]).expect_err(file);
            assert!(told.contains(words), "{file}: {told}");
            assert!(!told.contains("sk-1"), "{told}");
        }
    }
}
