//! Commands to runs, as requests give them.

use waypost_store::CommandWrite;
use waypost_worker::bulk::check;

use super::requests::CommandBody;
use crate::answer::Result;
use crate::call::Call;

/// A command as a request gives it.
pub async fn command_write(call: &Call, body: CommandBody) -> Result<CommandWrite> {
    let command = CommandWrite {
        tenant: call.caller.tenant.clone(),
        run_id: call.path("run_id"),
        name: call.path("command"),
        by: call.caller.by(body.by),
        reason: body.reason,
        force: body.force,
        graceful: body.graceful,
        items: body.targets,
        resolutions: body.resolutions,
        if_seq: call.if_match()?,
        actor: body.actor,
    };
    check(call.store(), &command).await?;
    Ok(command)
}
