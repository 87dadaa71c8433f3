//! What people do, each with its entry in the audit log: one way for the API and the command line. It is answered when both
//! are stored; whoever is not answered may ask again, since each of these done twice is done once.

use crate::access::{Audit, NewAudit, NewToken, TokenRow, Tokens};
use crate::run::RunRow;
use crate::verbs::{Admin, CommandWrite, LimitOf, Pause, QueueRow, Reply};

/// Who does it, for which tenant, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    pub tenant: String,
    pub by: String,
    pub reason: Option<String>,
}

impl Who {
    pub fn did(&self, action: &str, subject: &str) -> NewAudit {
        NewAudit {
            tenant: self.tenant.clone(),
            by: self.by.clone(),
            action: action.to_owned(),
            subject: subject.to_owned(),
            reason: self.reason.clone().filter(|reason| !reason.is_empty()),
        }
    }
}

/// A store behind a server passes them on instead: the server keeps the log.
pub trait Deeds: Admin + Tokens + Audit {
    /// What was done by other means.
    fn keep(&self, entry: NewAudit) -> Reply<'_, ()> {
        Box::pin(async move { self.audit(entry).await.map(drop) })
    }

    /// A command of the run's lifecycle; its name is the action.
    fn order(&self, command: CommandWrite) -> Reply<'_, RunRow> {
        Box::pin(async move {
            let who = Who {
                tenant: command.tenant.clone(),
                by: command.by.clone(),
                reason: command.reason.clone(),
            };
            let name = command.name.clone();
            let row = self.command(command).await?;
            self.audit(who.did(&name, row.id())).await?;
            Ok(row)
        })
    }

    fn close_queue(&self, queue: String, who: Who) -> Reply<'_, QueueRow> {
        Box::pin(async move {
            let reason = who.reason.clone().unwrap_or_default();
            let row = self.pause_queue(queue, Some(Pause { by: who.by.clone(), reason, at: None })).await?;
            self.audit(who.did("queue.pause", &row.name)).await?;
            Ok(row)
        })
    }

    fn open_queue(&self, queue: String, who: Who) -> Reply<'_, QueueRow> {
        Box::pin(async move {
            let row = self.pause_queue(queue, None).await?;
            self.audit(who.did("queue.resume", &row.name)).await?;
            Ok(row)
        })
    }

    fn set_limit(&self, what: LimitOf, name: String, at_most: Option<u32>, who: Who) -> Reply<'_, ()> {
        Box::pin(async move {
            self.limit(what, name.clone(), at_most).await?;
            let action = if what == LimitOf::Queue { "queue.limit" } else { "key.limit" };
            self.audit(who.did(action, &name)).await.map(drop)
        })
    }

    /// `by` of the token is who makes it.
    fn issue_token(&self, token: NewToken, who: Who) -> Reply<'_, TokenRow> {
        Box::pin(async move {
            let row = self.add_token(token).await?;
            self.audit(who.did("token.create", &row.id)).await?;
            Ok(row)
        })
    }

    fn end_token(&self, id: String, who: Who) -> Reply<'_, TokenRow> {
        Box::pin(async move {
            let row = self.revoke_token(id, who.by.clone()).await?;
            self.audit(who.did("token.revoke", &row.id)).await?;
            Ok(row)
        })
    }
}
