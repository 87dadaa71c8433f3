//! Alerts: what is wrong, who is told, and who is not for a while.

use serde_json::{Value, json};
use waypost_kernel::Span;
use waypost_store::{AlertRow, SilenceAlert, StoreError};
use waypost_worker::alerts::Tested;

use super::requests::{AlertTestBody, SilenceBody, UnsilenceBody};
use super::shapes::{ALERT, ALERTS, ALERTS_TESTED};
use super::{GET, POST, Route, ok, plain, takes};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::RequiredRole;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/alerts",
        name: "listAlerts",
        description: "Alerts that have been bad, or are silenced: whether they fire, and what each sink was told. Who is of all tenants and \
                names none sees everybody's.",
        responses: &[ok(&ALERTS)],
        ..plain!(GET, list)
    },
    Route {
        path: "/v1/alerts/test",
        name: "testAlerts",
        description: "Tells the server's sinks that nothing is wrong, to see whether notices arrive.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&ALERTS_TESTED)],
        ..takes!(POST, test, AlertTestBody)
    },
    Route {
        path: "/v1/alerts/{alert}/silence",
        name: "silenceAlert",
        description: "Nobody is told that an alert fires, for a while. It is evaluated all the same, and a destination is slowed down.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&ALERT)],
        ..takes!(POST, silence, SilenceBody)
    },
    Route {
        path: "/v1/alerts/{alert}/unsilence",
        name: "unsilenceAlert",
        description: "People are told again; at once, if it fires.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&ALERT)],
        ..takes!(POST, unsilence, UnsilenceBody)
    },
];

async fn list(call: Call) -> Result {
    let rows = call.store().alerts(call.seen_tenant()).await?;
    let objects: Vec<Value> = rows.iter().map(AlertRow::object).collect();
    Ok(answer::json(200, &json!({ "alerts": objects })))
}

async fn silence(call: Call, body: SilenceBody) -> Result {
    let who = call.who(body.by, body.reason);
    let (name, subject) = (call.path("alert"), body.subject.unwrap_or_default());
    let silence = SilenceAlert { name, subject, lasts: Some(Span::from_ms(body.lasts_ms)) };
    Ok(answer::json(200, &call.store().silence_alert(silence, who).await?.object()))
}

async fn unsilence(call: Call, body: UnsilenceBody) -> Result {
    let who = call.who(body.by, body.reason);
    let (name, subject) = (call.path("alert"), body.subject.unwrap_or_default());
    let row = call.store().silence_alert(SilenceAlert { name, subject, lasts: None }, who).await?;
    Ok(answer::json(200, &row.object()))
}

async fn test(call: Call, body: AlertTestBody) -> Result {
    let now = call.store().now().await?;
    let alerts = &call.app.options.alerts;
    let tested = alerts.test(body.sink.as_deref(), &call.caller.tenant, now).await;
    let unknown = || StoreError::invalid("sink", alerts.no_sink(body.sink.as_deref().unwrap_or_default()));
    let sinks: Vec<Value> = tested.ok_or_else(unknown)?.iter().map(Tested::object).collect();
    Ok(answer::json(200, &json!({ "sinks": sinks })))
}
