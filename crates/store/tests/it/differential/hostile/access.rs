//! Tokens, and what people did.

use serde_json::{Value, json};
use waypost_kernel::Span;
use waypost_store::{AlertRow, KeyFilter, NewToken, Secret, Setting, SilenceAlert, TokenChange, Who};

use super::{Asks, table};
use crate::differential::side::Side;

fn token() -> NewToken {
    NewToken {
        id: Secret::fresh().id,
        digest: "digest".into(),
        name: "ci".into(),
        role: "worker".into(),
        tenant: "default".into(),
        lasts: None,
        by: "ann".into(),
    }
}

fn silence() -> SilenceAlert {
    SilenceAlert { name: "dlq-backlog".into(), subject: String::new(), lasts: Some(Span::from_seconds(60)) }
}

fn alert() -> AlertRow {
    AlertRow { tenant: "default".into(), name: "429-burst".into(), ..AlertRow::default() }
}

fn ann() -> Who {
    "ann".into()
}

impl Side {
    /// Added, and then looked at by its id.
    async fn issued(&mut self, token: NewToken) -> Value {
        let id = token.id.clone();
        let added = self.store.change_token(TokenChange::Issue(token), "tests".into()).await;
        let added = self.answer(added, |_, row| json!([row.name, row.digest, row.tenant, row.created_by]));
        let found = self.store.tokens(Some(id)).await;
        json!([
            added,
            self.answer(found, |_, rows| rows
                .iter()
                .map(|row| json!([row.name, row.digest, row.tenant]))
                .collect())
        ])
    }

    /// Silenced, and then looked at.
    async fn silenced(&mut self, silence: SilenceAlert, who: Who) -> Value {
        let seen = |row: &AlertRow| {
            let silence = row.silence.as_ref();
            json!([
                row.tenant,
                row.name,
                row.subject,
                row.summary,
                silence.map(|it| (&it.by, &it.reason)),
                row.revision
            ])
        };
        let silenced = self.store.silence_alert(silence, who).await;
        let silenced = self.answer(silenced, |_, row| seen(&row));
        let rows = self.store.alerts(None).await.unwrap();
        json!([silenced, rows.iter().map(seen).collect::<Vec<_>>()])
    }

    async fn put_alert(&mut self, row: AlertRow) -> Value {
        let put = self.store.put_alert(row).await;
        let put = self.answer(put, |_, put| put.into());
        let rows = self.store.alerts(None).await.unwrap();
        let told = |row: &AlertRow| json!([row.tenant, row.subject, row.summary, row.revision]);
        json!([put, rows.iter().map(told).collect::<Vec<_>>()])
    }

    async fn kept(&mut self, queue: String, who: Who) -> Value {
        let last = self.store.audits(None, 0, 500).await.unwrap().last().map_or(0, |row| row.number);
        let kept = self.store.configure(Setting::ResumeQueue(queue), who).await;
        let kept = self.answer(kept, |_, ()| Value::Null);
        let rows = self.store.audits(None, last, 500).await.unwrap();
        let seen = rows.iter().map(|row| json!([row.tenant, row.by, row.action, row.subject, row.reason]));
        json!([kept, seen.collect::<Vec<_>>()])
    }
}

pub fn asks() -> Asks {
    table! {
        "token id": |side, text| side.issued(NewToken { id: text, ..token() }).await;
        "alert name": |side, text| side.silenced(SilenceAlert { name: text, ..silence() }, ann()).await;
        "alert subject": |side, text| side.silenced(SilenceAlert { subject: text, ..silence() }, ann()).await;
        "alert by": |side, text| side.silenced(silence(), Who { by: text, ..ann() }).await;
        "alert tenant": |side, text| side.silenced(silence(), Who { tenant: text, ..ann() }).await;
        "alert reason": |side, text| side.silenced(silence(), Who { reason: Some(text), ..ann() }).await;
        "alert row's subject": |side, text| side.put_alert(AlertRow { subject: text, ..alert() }).await;
        "alert row's tenant": |side, text| side.put_alert(AlertRow { tenant: text, ..alert() }).await;
        "alert row's summary": |side, text| side.put_alert(AlertRow { summary: text, subject: "summary".into(), ..alert() }).await;
        "token digest": |side, text| side.issued(NewToken { digest: text, ..token() }).await;
        "token name": |side, text| side.issued(NewToken { name: text, ..token() }).await;
        "token role": |side, text| side.issued(NewToken { role: text, ..token() }).await;
        "token tenant": |side, text| side.issued(NewToken { tenant: text, ..token() }).await;
        "token by": |side, text| side.issued(NewToken { by: text, ..token() }).await;
        "revoke id": |side, text| {
            let revoked = side.store.change_token(TokenChange::Revoke(format!("no {text}")), ann()).await;
            side.answer(revoked, |_, row| json!(row.name))
        };
        "revoke by": |side, text| {
            let id = side.store.change_token(TokenChange::Issue(token()), "tests".into()).await.unwrap().id;
            let revoked = side.store.change_token(TokenChange::Revoke(id), Who { by: text, ..ann() }).await;
            side.answer(revoked, |_, row| json!([row.revoked_by, row.revoked_at.is_some()]))
        };
        "audit tenant": |side, text| side.kept("q".into(), Who { tenant: text, ..ann() }).await;
        "audit by": |side, text| side.kept("q".into(), Who { by: text, ..ann() }).await;
        "audit subject": |side, text| side.kept(text, ann()).await;
        "audit reason": |side, text| side.kept("q".into(), Who { reason: Some(text), ..ann() }).await;
        "audits tenant": |side, text| {
            let found = side.store.audits(Some(format!("no {text}")), 0, 5).await;
            side.answer(found, |_, rows| json!(rows.len()))
        };
        "latest audits tenant": |side, text| {
            let found = side.store.latest_audits(Some(format!("no {text}")), None, 5).await;
            side.answer(found, |_, rows| json!(rows.len()))
        };
        "keys tenant": |side, text| {
            let filter = KeyFilter { tenant: Some(format!("no {text}")), after: None, limit: 5 };
            side.answer(side.store.keys(filter).await, |_, keys| json!(keys.len()))
        };
        "stats tenant": |side, text| {
            let found = side.store.stats(Some(format!("no {text}"))).await;
            side.answer(found, |_, stats| json!(stats.ended.len()))
        };
        "queues tenant": |side, text| {
            let found = side.store.queues(Some(format!("no {text}"))).await;
            side.answer(found, |_, queues| json!(queues.len()))
        };
        "holders tenant": |side, text| {
            let found = side.store.holders(Some(format!("no {text}"))).await;
            side.answer(found, |_, holders| json!(holders.len()))
        };
    }
}
