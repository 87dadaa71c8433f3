//! One run of a rule at a time: two would change the same targets by turns.

use waypost_kernel::{Code, Lifecycle, Phase, Refusal};
use waypost_store::{Filter, Parts, RunRow, Store, StoreError};

use super::operation;

/// Whether a command would have targets of a rule changed outside: it lets a draft loose, takes a settled run up again, or begins an
/// operation that moves its run. A reconciliation only reads.
pub(super) fn changes_targets(run: &RunRow, command: &str) -> bool {
    let lifecycle = &run.lifecycle;
    let begins = |to: Phase| match run.phase() {
        Phase::Draft => to == Phase::Ready,
        Phase::Settled => to == Phase::Held,
        _ => false,
    };
    let mut moves = lifecycle.transitions_from(run.run.state).filter(|row| &*row.command == command);
    let is_operation = lifecycle.operations.iter().any(|(name, _)| &**name == command);
    run.playbook.is_some()
        && has_targets(run)
        && moves.any(|row| is_operation || begins(lifecycle.phase(row.to)))
}

/// Whether the run is a bulk change.
pub fn has_targets(run: &RunRow) -> bool {
    is_bulk(&run.lifecycle)
}

/// Whether runs of it are bulk changes.
pub fn is_bulk(lifecycle: &Lifecycle) -> bool {
    let first = lifecycle.items.first();
    first.is_some_and(|kind| !kind.stops_run && kind.states.iter().any(|state| state.phase == Phase::Draft))
}

/// Another run of the same rule that is queued or under way, or an operation on one that changes targets. Two that are asked for at
/// the same moment may not see each other here: the store looks again within the command.
async fn live_run(store: &dyn Store, run: &RunRow) -> waypost_store::Result<Option<RunRow>> {
    let Some(rule) = name_of(run) else { return Ok(None) };
    let is_twin = |other: &RunRow| {
        // An operation without the key changes nothing.
        let is_change = has_targets(other) || other.concurrency_key.is_some();
        let is_own = other.id() == run.id() || other.parent_run_id.as_deref() == Some(run.id());
        !is_own && is_change && name_of(other) == Some(rule)
    };
    let catalog = store.lifecycles().await?.of_tenant(&run.tenant);
    let operation = catalog.latest(operation::LIFECYCLE);
    for lifecycle in [Some(&run.lifecycle), operation].into_iter().flatten() {
        let live = lifecycle.states.iter().filter(|state| matches!(state.phase, Phase::Ready | Phase::Held));
        for state in live {
            if let Some(twin) = run_in(store, (&run.tenant, lifecycle), &state.name, is_twin).await? {
                return Ok(Some(twin));
            }
        }
    }
    Ok(None)
}

/// The first run in a state that fits.
async fn run_in(
    store: &dyn Store,
    (tenant, lifecycle): (&str, &Lifecycle),
    status: &str,
    fits: impl Fn(&RunRow) -> bool,
) -> waypost_store::Result<Option<RunRow>> {
    let mut filter = Filter {
        tenant: tenant.to_owned(),
        lifecycle: Some(lifecycle.name.to_string()),
        status: Some(status.to_owned()),
        limit: 200,
        // What an operation does.
        include: Parts { input: true, ..Parts::NONE },
        ..Filter::default()
    };
    loop {
        let page = store.runs(filter.clone()).await?;
        match (page.runs.into_iter().find(&fits), page.next) {
            (Some(found), _) => return Ok(Some(found)),
            (None, None) => return Ok(None),
            (None, next) => filter.cursor = next,
        }
    }
}

/// The playbook without its hash.
pub(super) fn name_of(run: &RunRow) -> Option<&str> {
    run.playbook.as_deref().and_then(|pin| pin.split('@').next())
}

/// Refuses a command that would change targets of a rule while another run of it, or a rollback of one, is queued or under way, unless
/// that is meant.
pub(super) async fn check_alone(
    store: &dyn Store,
    run: &RunRow,
    command: &str,
    is_meant: bool,
) -> waypost_store::Result<()> {
    if is_meant || !changes_targets(run, command) {
        return Ok(());
    }
    let Some(other) = live_run(store, run).await? else { return Ok(()) };
    let rule = name_of(run).unwrap_or_default();
    let what = operation::name_of(&other).unwrap_or("run");
    let forced = match run.phase() {
        Phase::Settled if !run.lifecycle.operations.iter().any(|(name, _)| &**name == command) => {
            "with force this one goes first, unless the other has begun"
        }
        _ => "with force this one is queued behind it",
    };
    Err(StoreError::Refused(Box::new(Refusal {
        code: Code::InvalidTransition,
        message: format!(
            "{rule} has a {what} that is {} already, {}: wait for it or cancel it; {forced}",
            other.status(),
            other.id()
        ),
        current: run.status().into(),
        requested: command.to_owned(),
        allowed: waypost_kernel::allowed(&run.lifecycle, &run.run),
        guard: None,
        field: None,
    })))
}
