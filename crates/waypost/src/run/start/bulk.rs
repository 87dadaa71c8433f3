//! `waypost run start` of a bulk change: its targets are gathered before it answers, or by a worker that has the playbook.

use waypost_kernel::Phase;
use waypost_store::{NewRun, Preview, RunRow, Store};
use waypost_worker::playbook::Playbook;
use waypost_worker::targets::gather::{NotGathered, gather, is_stopped, look};
use waypost_worker::targets::source::Reader;
use waypost_worker::targets::{give_up, preview_of};

use crate::output::{BAD_INPUT, ERROR, Failed, Format, PARKED, Result, print, tell};
use crate::place::{Opened, suggested};
use crate::run::follow::Follower;
use crate::run::follow::wait::{OwnWorker, Waiting};
use crate::run::ids::{find, short};
use crate::run::look::targets::preview_in_words;
use crate::run::user;

pub async fn started(
    opened: Opened,
    run: RunRow,
    playbook: &Playbook,
    waiting: Waiting,
    worker: OwnWorker,
) -> Result<u8> {
    if run.phase() == Phase::Draft && run.carried.is_some() {
        gathered_here(&opened, &run, playbook).await?;
        let (format, follows) = (waiting.output, waiting.follows());
        return told(&*opened.store(), run.id(), format, follows).await;
    }
    gathered(opened, run, waiting, worker).await
}

/// A run of its own gathers the targets.
pub async fn gathered(opened: Opened, run: RunRow, waiting: Waiting, worker: OwnWorker) -> Result<u8> {
    let (format, follows) = (waiting.output, waiting.follows());
    let store = opened.store();
    let run_id = run.id().to_owned();
    if run.phase() == Phase::Draft {
        let preview = store.enqueue(vec![preview_of(&run, &user())]).await?.remove(0)?.run;
        if follows {
            let follower = Follower::new(preview.id().to_owned(), format == Format::Table);
            let here = Waiting { output: Format::Table, ..waiting };
            let code = here.follow(opened, follower, worker).await?;
            if code != 0 {
                return Ok(code);
            }
        } else {
            let watch = suggested(&format!("run watch {}", short(preview.id())));
            tell(&format!("a worker gathers its targets: {watch}"));
        }
    }
    told(&*store, &run_id, format, follows).await
}

async fn told(store: &dyn Store, run_id: &str, format: Format, follows: bool) -> Result<u8> {
    let run = find(store, run_id).await?;
    match format {
        Format::Table => {
            if let Some(words) = preview_in_words(&run) {
                tell(&words);
            }
            let id = short(run_id);
            let [look, queue, cancel] =
                ["targets", "queue", "cancel"].map(|verb| suggested(&format!("run {verb} {id}")));
            tell(&match Preview::of(&run.details) {
                Some(preview) if preview.ready && preview.targets == 0 => {
                    format!("there is nothing to change, so that it cannot be queued: `{cancel}`")
                }
                Some(preview) if preview.ready && preview.targets <= preview.stopped => format!(
                    "every target is past a guardrail, so that nothing would change: `{look}`, then `{cancel}`"
                ),
                Some(preview) if preview.ready && is_stopped(&preview) => format!(
                    "nothing would change, since on_violation is \"stop\": `{look}`, then mend the source and `{cancel}`"
                ),
                _ => format!("nothing was changed yet: `{look}`, then `{queue}`"),
            });
            print(run_id)?;
        }
        format => print(&format.object(&run.object()))?,
    }
    Ok(if follows { PARKED } else { 0 })
}

/// What a preview would come to, as far as it can be told from here: only a file's sources are at hand.
pub async fn looked_at(playbook: &Playbook, new: &NewRun) -> Result<Option<Preview>> {
    let Some(rule) = playbook.rule.as_ref().filter(|_| new.carried.is_some()) else { return Ok(None) };
    let reader = Reader::of_person(&new.tenant, "").map_err(|problem| Failed::new(ERROR, problem))?;
    let looked = look((playbook, rule), &new.input, reader).await;
    looked.map(Some).map_err(|problem| Failed::new(BAD_INPUT, problem.to_string()))
}

/// Of a file: its sources are at hand here.
async fn gathered_here(opened: &Opened, run: &RunRow, playbook: &Playbook) -> Result {
    let store = opened.store();
    let Some(rule) = &playbook.rule else { return Ok(()) };
    let reader = Reader::of_person(&run.tenant, run.id()).map_err(|problem| Failed::new(ERROR, problem))?;
    let by = user();
    let gathered = tokio::select! {
        gathered = gather(&*store, run, (playbook, rule), &by, reader) => gathered,
        _ = tokio::signal::ctrl_c() => Err(NotGathered::Source("interrupted".to_owned())),
    };
    match gathered {
        Ok(_) => Ok(()),
        Err(NotGathered::Store(error)) => Err(error.into()),
        Err(problem) => {
            let message = problem.to_string();
            give_up(&*store, run, &by, &message).await;
            Err(Failed::new(BAD_INPUT, message))
        }
    }
}
