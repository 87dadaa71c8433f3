//! `waypost queue stats|pause|resume`.

use clap::Subcommand;
use waypost_kernel::Time;
use waypost_kernel::text::shell_word;
use waypost_store::{DEFAULT_TENANT, QueueRow, Setting, Store};

use crate::output::{BAD_INPUT, Failed, Format, NOT_FOUND, Result, cell, print, print_list, table, tell};
use crate::place::{Place, named_tenant, suggested};
use crate::run::look::list::unknown_queue;
use crate::run::{age, who};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// What waits, what is for later, what is being worked.
    #[command(
        after_help = "Without --tenant, all tenants' queues.\n\nExamples:\n  waypost queue stats\n  waypost queue stats -o json"
    )]
    Stats {
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Let no worker take from a queue. What is being worked goes on.
    #[command(after_help = "Examples:\n  waypost queue pause default --reason 'database upgrade'")]
    Pause {
        /// The queue.
        #[arg(value_name = "QUEUE")]
        queue: String,
        /// Shown with the queue, and kept in the audit log.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let workers take from it again.
    Resume {
        /// The queue.
        #[arg(value_name = "QUEUE")]
        queue: String,
        /// Kept in the audit log.
        #[arg(long)]
        reason: Option<String>,
    },
    /// How many runs of a queue may be held at once; `none` removes the limit.
    #[command(after_help = "Examples:\n  waypost queue limit default 4\n  waypost queue limit default none")]
    Limit {
        /// The queue.
        #[arg(value_name = "QUEUE")]
        queue: String,
        /// A number, or `none`.
        #[arg(value_name = "COUNT|none")]
        at_most: String,
        /// Kept in the audit log.
        #[arg(long)]
        reason: Option<String>,
    },
}

pub async fn run(place: &Place, verb: Verb) -> Result {
    let opened = match &verb {
        Verb::Stats { .. } => place.opened_to_read().await?,
        _ => place.opened_existing().await?,
    };
    let store = opened.store();
    match verb {
        Verb::Stats { output } => {
            let queues = store.queues(named_tenant().map(str::to_owned)).await?;
            let now = store.now().await?;
            let objects = queues.iter().map(QueueRow::object).collect();
            print_list(objects, output, || as_table(&queues, now))
        }
        Verb::Pause { queue, reason } => {
            tell_if_new(&*store, &queue, "the pause is kept, and holds for its first run too").await?;
            store.configure(Setting::PauseQueue(queue.clone()), who(reason)).await?;
            let resume = suggested(&format!("queue resume {}", shell_word(&queue)));
            print(&format!("{queue} is paused: workers take nothing from it until `{resume}`"))
        }
        Verb::Resume { queue, reason } => {
            if let Some(unknown) = unknown_queue(&*store, &queue).await? {
                return Err(Failed::new(NOT_FOUND, unknown));
            }
            store.configure(Setting::ResumeQueue(queue.clone()), who(reason)).await?;
            print(&format!("{queue} is open"))
        }
        Verb::Limit { queue, at_most, reason } => {
            let at_most = match at_most.as_str() {
                "none" => None,
                number => Some(number.parse().map_err(|_| {
                    let message =
                        format!("at_most: {number:?} is not a number; allowed: 0 to 4294967295, or none");
                    Failed::new(BAD_INPUT, message)
                })?),
            };
            tell_if_new(&*store, &queue, "the limit is kept, and holds for its first run too").await?;
            store.configure(Setting::QueueLimit(queue.clone(), at_most), who(reason)).await?;
            print(&match at_most {
                None => format!("any number of runs of {queue} may be held at once"),
                Some(0) => format!("no run of {queue} may be held: workers take nothing from it"),
                Some(1) => format!("1 run of {queue} may be held at once"),
                Some(number) => format!("{number} runs of {queue} may be held at once"),
            })
        }
    }
}

/// A setting may be made before the first run, and may be a typing error.
async fn tell_if_new(store: &dyn Store, queue: &str, what: &str) -> Result {
    if let Some(unknown) = unknown_queue(store, queue).await? {
        tell(&format!("{unknown}\n  {what}"));
    }
    Ok(())
}

fn as_table(queues: &[QueueRow], now: Time) -> String {
    if queues.is_empty() {
        return "no queue has runs that wait or are worked".into();
    }
    // Who has no other tenant does not see that there are any.
    let has_tenants = queues.iter().any(|queue| queue.tenant != DEFAULT_TENANT);
    let rows = queues.iter().map(|queue| {
        let paused = queue.paused.as_ref().map(|pause| format!("by {} {}", pause.by, pause.reason));
        let tenant = has_tenants.then(|| queue.tenant.clone());
        let figures = [
            queue.name.clone(),
            queue.ready.to_string(),
            queue.scheduled.to_string(),
            queue.held.to_string(),
            queue.orphaned.to_string(),
            queue.oldest_ready_at.map(|at| age(now - at)).unwrap_or_default(),
            queue.at_most.map(|limit| limit.to_string()).unwrap_or_default(),
            paused.unwrap_or_default(),
        ];
        tenant.into_iter().chain(figures).map(cell).collect()
    });
    let names = ["tenant", "queue", "ready", "scheduled", "held", "orphaned", "oldest", "limit", "paused"];
    table(&names[usize::from(!has_tenants)..], rows)
}
