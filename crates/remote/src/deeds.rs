//! What people do through a server: it writes the audit log itself.

use serde_json::json;
use waypost_store::wire::queue_from;
use waypost_store::{
    Admin, CommandWrite, Deeds, LimitOf, NewAudit, NewToken, QueueRow, Reply, Result, RunRow, TokenRow,
    Tokens, Who,
};

use super::RemoteStore;
use super::access::token_from;
use super::ask::{Ask, part};

impl Deeds for RemoteStore {
    /// The server has done it when it did what was asked.
    fn keep(&self, _: NewAudit) -> Reply<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn order(&self, command: CommandWrite) -> Reply<'_, RunRow> {
        self.command(command)
    }

    fn close_queue(&self, queue: String, who: Who) -> Reply<'_, QueueRow> {
        Box::pin(self.ask_queue(queue, "pause", who))
    }

    fn open_queue(&self, queue: String, who: Who) -> Reply<'_, QueueRow> {
        Box::pin(self.ask_queue(queue, "resume", who))
    }

    fn set_limit(&self, what: LimitOf, name: String, at_most: Option<u32>, who: Who) -> Reply<'_, ()> {
        Box::pin(async move {
            let kind = if what == LimitOf::Queue { "queues" } else { "keys" };
            let body = json!({ "at_most": at_most, "by": who.by, "reason": who.reason });
            let path = format!("/v1/{kind}/{}/limit", part(&name));
            Ask::put(path, body).of(&who.tenant).send(self).await.map(drop)
        })
    }

    fn issue_token(&self, token: NewToken, _: Who) -> Reply<'_, TokenRow> {
        self.add_token(token)
    }

    fn end_token(&self, id: String, who: Who) -> Reply<'_, TokenRow> {
        Box::pin(async move {
            let body = json!({ "by": who.by, "reason": who.reason });
            let answer = Ask::post(format!("/v1/tokens/{}/revoke", part(&id)), body).send(self).await?;
            token_from(&answer).ok_or_else(|| self.unread("a token"))
        })
    }
}

impl RemoteStore {
    async fn ask_queue(&self, queue: String, verb: &str, who: Who) -> Result<QueueRow> {
        let body = json!({ "by": who.by, "reason": who.reason });
        let ask = Ask::post(format!("/v1/queues/{}/{verb}", part(&queue)), body).of(&who.tenant);
        queue_from(&ask.send(self).await?).ok_or_else(|| self.unread("a queue"))
    }
}
