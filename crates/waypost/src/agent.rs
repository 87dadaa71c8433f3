//! `waypost agent …`: who runs of agents are of, and whether they take any.

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::Value;
use waypost_kernel::text::shell_word;
use waypost_store::{AGENTS_QUEUE, AgentChange, AgentRow, AgentState, DEFAULT_TENANT, Store, StoreError};
use waypost_worker::Options;
use waypost_worker::agents::{self, AgentRun, Agents, Asked, CannotRun, TRIGGERS};
use waypost_worker::playbook::{Playbooks, known};

use crate::output::{BAD_INPUT, Failed, Format, NOT_FOUND, REFUSED, Result, cells, print, print_list, table};
use crate::place::{Opened, Place, lifecycles, named_tenant, suggested, tenant};
use crate::run::follow::wait::{OwnWorker, Waiting};
use crate::run::{age, start, user, who};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Agents, whether they take runs, and how their last runs ended.
    List {
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// One agent.
    Show {
        /// The agent's slug.
        #[arg(value_name = "SLUG")]
        slug: String,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Start a run of an agent.
    Run(Box<Run>),
    /// It takes no runs, and those that wait go on waiting. What is being worked goes on.
    Pause(Change),
    /// It takes runs again.
    Resume(Change),
    /// Forget its failures: one that failed three times in a row takes runs again.
    Reset(Change),
    /// It takes no runs any more, and is kept for its history.
    Archive(Change),
}

#[derive(Debug, Args)]
pub struct Change {
    /// The agent's slug.
    #[arg(value_name = "SLUG")]
    slug: String,
    /// Kept in the audit log.
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Agents stand in waypost.toml ([[agent]]) or are declared by PUT /v1/agents/SLUG.\n\nExamples:\n  waypost agent run archivist-violin --input prompt='What is new?' --wait"
)]
pub struct Run {
    /// The agent's slug.
    #[arg(value_name = "SLUG")]
    slug: String,
    /// What the agent's playbook is given; may be given several times.
    #[arg(long = "input", value_name = "KEY=VALUE")]
    inputs: Vec<String>,
    /// Who or what asks.
    #[arg(long, default_value = TRIGGERS[0], value_parser = clap::builder::PossibleValuesParser::new(TRIGGERS))]
    trigger: String,
    /// The same again is the same run.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
}

/// What `waypost.toml` says of agents.
pub async fn declared(store: &dyn Store) -> Result<Agents> {
    let file = Path::new("waypost.toml");
    if !file.exists() {
        return Ok(Agents::default());
    }
    let loaded = agents::load(file, &lifecycles(store).await?);
    loaded.map_err(|problems| Failed::new(BAD_INPUT, problems.to_string()))
}

/// The same worker, which takes agents' runs too.
pub fn taking(mut options: Options) -> Options {
    if options.queues.iter().all(|queue| queue != AGENTS_QUEUE) {
        options.queues.push(AGENTS_QUEUE.to_owned());
    }
    options
}

pub async fn run(place: &Place, verb: Verb) -> Result<u8> {
    match verb {
        Verb::List { output } => {
            let store = place.opened_to_read().await?.store();
            let agents = store.agents(named_tenant().map(str::to_owned)).await?;
            let now = store.now().await?;
            let objects = agents.iter().map(AgentRow::object).collect();
            print_list(objects, output, || as_table(&agents, now)).map(|()| 0)
        }
        Verb::Show { slug, output } => {
            let store = place.opened_to_read().await?.store();
            let agents = store.agents(Some(tenant().to_owned())).await?;
            let found = agents.into_iter().find(|agent| agent.slug() == slug);
            let agent = found.ok_or(StoreError::NotFound { what: "agent", id: slug })?;
            let now = store.now().await?;
            print(&match output {
                Format::Table => shown(&agent, now),
                format => format.object(&agent.object()),
            })
            .map(|()| 0)
        }
        Verb::Run(flags) => start_run(place, *flags).await,
        Verb::Pause(flags) => change(place, flags, AgentChange::Pause).await,
        Verb::Resume(flags) => change(place, flags, AgentChange::Resume).await,
        Verb::Reset(flags) => change(place, flags, AgentChange::Reset).await,
        Verb::Archive(flags) => change(place, flags, AgentChange::Archive).await,
    }
}

async fn change(place: &Place, flags: Change, of: fn(String) -> AgentChange) -> Result<u8> {
    let store = place.opened_existing().await?.store();
    let change = of(flags.slug);
    let is_resumed = matches!(change, AgentChange::Resume(_));
    let agent = store.change_agent(change, who(flags.reason)).await?;
    if is_resumed && agent.state() == AgentState::Archived {
        return Err(Failed::new(
            REFUSED,
            format!("{} is archived, and takes no runs any more", agent.slug()),
        ));
    }
    print(&format!("{} is {}", agent.slug(), agent.state().name())).map(|()| 0)
}

async fn start_run(place: &Place, flags: Run) -> Result<u8> {
    flags.waiting.check()?;
    let opened = place.opened_after(async |empty| asked(empty, &flags).await.map(|_| ())).await?;
    let store = opened.store();
    let (asked, own) = asked(&opened, &flags).await?;
    let (run, worker) = match asked {
        Asked::Known(run) => (*run, OwnWorker::of(own)),
        Asked::New { run, .. } => {
            let (enqueued, worker) = flags.waiting.enqueue(&*store, *run, own).await?;
            (enqueued.run, worker)
        }
    };
    if !flags.waiting.follows() && flags.waiting.output == Format::Table {
        return print(run.id()).map(|()| 0);
    }
    flags.waiting.go_on_with(opened, run, worker).await
}

/// What is asked for, and what this process has of it.
async fn asked(opened: &Opened, flags: &Run) -> Result<(Asked, Playbooks)> {
    let store = opened.store();
    let own = Playbooks::default().and(declared_here(opened).await?);
    let asked = AgentRun {
        tenant: tenant().to_owned(),
        slug: flags.slug.clone(),
        trigger: flags.trigger.clone(),
        input: Value::Object(start::pairs("input", &flags.inputs)?),
        correlation_id: flags.correlation_id.clone(),
        by: user(),
    };
    let catalog = lifecycles(&*store).await?;
    Ok((agents::known_or_new(&*store, &catalog, asked).await.map_err(cannot_run)?, own))
}

/// Who has the database declares what stands in the file here, as a server would: nothing has to be started first.
async fn declared_here(opened: &Opened) -> Result<Vec<waypost_worker::playbook::Playbook>> {
    let store = opened.store();
    let declared = declared(&*store).await?;
    if let Opened::Database(database, _) | Opened::Nothing { store: database, .. } = opened {
        let own = Playbooks::default().and(declared.playbooks.iter().cloned());
        known::offer(&*store, &own, std::iter::empty(), named_tenant(), "agent run").await?;
        database.put_agents(tenant().to_owned(), declared.agents, declared.limit).await?;
    }
    Ok(declared.playbooks)
}

fn cannot_run(error: CannotRun) -> Failed {
    let code = match &error {
        CannotRun::UnknownAgent(_) => NOT_FOUND,
        CannotRun::NotActive(_) => REFUSED,
        CannotRun::NoPlaybook(_) | CannotRun::Start(_) => BAD_INPUT,
        CannotRun::Store(_) => return store_error(error),
    };
    Failed::new(code, error.to_string())
}

fn store_error(error: CannotRun) -> Failed {
    match error {
        CannotRun::Store(error) => error.into(),
        other => Failed::new(BAD_INPUT, other.to_string()),
    }
}

fn as_table(agents: &[AgentRow], now: waypost_kernel::Time) -> String {
    if agents.is_empty() {
        return "no agents: declare one as [[agent]] in waypost.toml".to_owned();
    }
    let has_tenants = agents.iter().any(|agent| agent.tenant != DEFAULT_TENANT);
    let rows = agents.iter().map(|agent| {
        let last = agent.ends.last();
        let figures = [
            agent.slug().to_owned(),
            agent.state().name().to_owned(),
            agent.definition.playbook.clone().unwrap_or_else(|| agents::DEFAULT_PLAYBOOK.to_owned()),
            agent.definition.concurrency.to_string(),
            agent.failures().to_string(),
            last.map(|end| format!("{} ago", age(now - end.at))).unwrap_or_default(),
        ];
        cells(has_tenants.then(|| agent.tenant.clone()).into_iter().chain(figures))
    });
    let names = ["tenant", "agent", "state", "playbook", "at once", "failures", "last run"];
    table(&names[usize::from(!has_tenants)..], rows)
}

fn shown(agent: &AgentRow, now: waypost_kernel::Time) -> String {
    let definition = &agent.definition;
    let mut lines = vec![format!("{}  {}", agent.slug(), agent.state().name())];
    if let Some(pause) = &agent.paused {
        lines.push(format!("paused by {} {}", pause.by, pause.reason).trim_end().to_owned());
    }
    if agent.state() == AgentState::Error {
        let reset = suggested(&format!("agent reset {}", shell_word(agent.slug())));
        lines.push(format!("failed {} times in a row: {reset}", agent.failures()));
    }
    lines.push(format!("playbook  {}", definition.playbook.as_deref().unwrap_or(agents::DEFAULT_PLAYBOOK)));
    lines.push(format!("at once   {}", definition.concurrency));
    for end in agent.ends.iter().rev() {
        let came = if end.failed { "failed" } else { "ok" };
        lines.push(format!("{}  {came}  {} ago", end.run_id, age(now - end.at)));
    }
    lines.join("\n")
}
