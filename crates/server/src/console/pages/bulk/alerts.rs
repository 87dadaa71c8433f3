//! What is wrong, who was told, and who is not for a while.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_kernel::Time;
use waypost_kernel::alert::{Severity, Status};

use crate::answer::{Answer, Result};
use crate::call::Call;
use crate::console::ask::{ask, encoded, may, tell};
use crate::console::form::Form;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{act, ago, copied, empty, list, now, reason, shown, text, time};
use crate::console::see;
use crate::problem::{INVALID_INPUT, NOT_FOUND, Problem};

/// How long people may be left in the dark, and in words.
const SPANS: [(i64, &str); 6] = [
    (1_800_000, "30 minutes"),
    (3_600_000, "an hour"),
    (14_400_000, "4 hours"),
    (86_400_000, "a day"),
    (604_800_000, "a week"),
    (2_592_000_000, "30 days"),
];

pub async fn page(call: Call) -> Result {
    shown_page(&call, None).await
}

/// `tested`: what came of telling sinks that nothing is wrong.
async fn shown_page(call: &Call, tested: Option<&Value>) -> Result<Answer> {
    let now = now(call).await?;
    let found = ask(call, "listAlerts", &[], &[]).await?;
    let mut alerts: Vec<&Value> = list(&found, "alerts").iter().collect();
    alerts.sort_by_key(|alert| (!is_firing(alert), !is_critical(alert)));
    let content = html! {
        h1 { "Alerts" }
        @if let Some(tested) = tested { (what_came(tested)) }
        @if may(call, "silenceAlert") {
            div.actions role="group" aria-label="Actions" {
                (act(call, "/alerts/test", "send test", &html! { p { "Tells all of this server's sinks that nothing is wrong." } button.primary type="submit" { "send test" } }))
                (act(call, "/alerts/silence", "silence an alert", &silence_any(call)))
            }
        }
        div #rows data-part {
            @if alerts.is_empty() { (empty("Nothing has been wrong.", None)) }
            @else {
                table.list {
                    thead { tr { th scope="col" { "State" } th scope="col" { "Alert" } th scope="col" { "Since" } th.wide scope="col" { "Told" } th scope="col" { span.unseen { "Actions" } } } }
                    tbody { @for alert in &alerts { (line(call, alert, now)) } }
                }
            }
        }
        h2 { "Sinks of this server" }
        (sinks(call))
        details { summary { "What is watched" }
            ul { @for policy in &call.app.options.alerts.policies { li { b { (policy.name) } " (" (policy.severity.name()) "): " (policy.description) } } }
        }
    };
    let sheet = Sheet { title: "Alerts", nav: Nav::Alerts, live: tested.is_none().then_some(Live::Polled) };
    Ok(answered(call, 200, &sheet, &content))
}

pub fn is_firing(alert: &Value) -> bool {
    text(alert, "status") == Status::Firing.name()
}

pub fn is_critical(alert: &Value) -> bool {
    text(alert, "severity") == Severity::Critical.name()
}

fn line(call: &Call, alert: &Value, now: Time) -> Markup {
    let (name, subject) = (text(alert, "name"), text(alert, "subject"));
    let own = format!("/alerts/{}", encoded(name));
    let is_silenced = time(alert, "silenced_until").is_some_and(|until| until > now);
    let class = match (is_firing(alert), is_critical(alert)) {
        (true, true) => "badge outcome-failed",
        (true, false) => "badge outcome-partial",
        (false, _) => "badge outcome-succeeded",
    };
    html! {
        tr data-row {
            td { span class=(class) { span aria-hidden="true" { (if is_firing(alert) { "!" } else { "✓" }) } " " (shown(text(alert, "status"))) } " " span.hint { (shown(text(alert, "severity"))) } }
            td.main {
                b { (shown(name)) } @if !subject.is_empty() { " " (shown(subject)) }
                span.why { (shown(text(alert, "summary"))) }
                @if is_silenced {
                    span.warn { "silenced by " (shown(text(alert, "silenced_by"))) ", ends " (ago(time(alert, "silenced_until"), now))
                        @if !text(alert, "silence_reason").is_empty() { ": " (shown(text(alert, "silence_reason"))) } }
                }
            }
            td { (ago(time(alert, "since"), now)) }
            td.wide { (told(list(alert, "deliveries"), now)) }
            td {
                @if may(call, "silenceAlert") {
                    div.actions {
                        @if is_silenced { (act(call, &format!("{own}/unsilence"), "tell again", &html! { (about(subject)) (reason(false)) button.primary type="submit" { "tell again" } })) }
                        @else { (act(call, &format!("{own}/silence"), "silence", &html! { (about(subject)) (how_long()) })) }
                    }
                }
            }
        }
    }
}

fn told(deliveries: &[Value], now: Time) -> Markup {
    html! {
        @if deliveries.is_empty() { span.none { "nobody" } }
        @for delivery in deliveries {
            div {
                b { (shown(text(delivery, "sink"))) } " "
                @if delivery["sent_at"].is_string() { (ago(time(delivery, "sent_at"), now)) }
                @else { span.warn { "not yet; next try " (ago(time(delivery, "next_at"), now)) @if let Some(error) = delivery["error"].as_str() { ": " (shown(error)) } } }
            }
        }
    }
}

fn about(subject: &str) -> Markup {
    html! { input type="hidden" name="subject" value=(subject); }
}

fn how_long() -> Markup {
    html! {
        label { "For" select name="lasts_ms" { @for (ms, words) in SPANS { option value=(ms) selected[ms == 3_600_000] { (words) } } } }
        (reason(false))
        button.primary type="submit" { "silence" }
    }
}

fn silence_any(call: &Call) -> Markup {
    html! {
        label { "Alert" select name="alert" { @for policy in &call.app.options.alerts.policies { option { (policy.name) } } } }
        label { "Destination (optional)" input name="subject" maxlength="255" placeholder="all of the alert's"; }
        (how_long())
    }
}

fn sinks(call: &Call) -> Markup {
    let sinks = &call.app.options.alerts.sinks;
    html! {
        @if sinks.is_empty() { p.hint { "Nobody is told. " (copied("waypost.toml: [[alert.sink]]")) } }
        @else {
            ul.sinks {
                @for sink in sinks {
                    li { b { (shown(&sink.name)) } " " span.hint { (sink.kind.name()) ", " (sink.severity.name()) " and worse" }
                        @if may(call, "testAlerts") { " " (act(call, "/alerts/test", "send test", &html! { input type="hidden" name="sink" value=(sink.name); button.primary type="submit" { "send test" } })) }
                    }
                }
            }
        }
    }
}

fn what_came(tested: &Value) -> Markup {
    html! {
        section.card role="status" {
            h2 { "The test" }
            @if list(tested, "sinks").is_empty() { p { "This server has no sinks." } }
            ul { @for sink in list(tested, "sinks") {
                li { b { (shown(text(sink, "sink"))) } ": "
                    @match sink["error"].as_str() { Some(error) => span.warn { (shown(error)) }, None => "it took the notice" } }
            } }
        }
    }
}

pub async fn post(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let (alert, command) = (call.path("alert"), call.path("command"));
    decide(&call, &form, &alert, &command).await
}

/// The two that are about no alert that is shown.
pub async fn post_any(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    match call.path("command").as_str() {
        "test" => {
            let mut body = Map::new();
            body.extend(form.get("sink").map(|sink| ("sink".to_owned(), Value::from(sink))));
            let tested = tell(&call, "testAlerts", &[], body).await?;
            shown_page(&call, Some(&tested)).await
        }
        "silence" => decide(&call, &form, form.get("alert").unwrap_or_default(), "silence").await,
        _ => Err(Problem::new(&NOT_FOUND, "alerts have no such command")),
    }
}

async fn decide(call: &Call, form: &Form, alert: &str, command: &str) -> Result {
    let mut body: Map<String, Value> = Map::new();
    for name in ["subject", "reason"] {
        body.extend(form.get(name).map(|given| (name.to_owned(), given.into())));
    }
    let route = match command {
        "silence" => {
            let wrong =
                |_| Problem::field(&INVALID_INPUT, "lasts_ms", "must be a whole number of milliseconds");
            let ms = form.get("lasts_ms").unwrap_or_default().parse::<i64>().map_err(wrong)?;
            body.insert("lasts_ms".into(), ms.into());
            "silenceAlert"
        }
        "unsilence" => "unsilenceAlert",
        _ => return Err(Problem::new(&NOT_FOUND, "an alert has no such command")),
    };
    tell(call, route, &[("alert", alert)], body).await?;
    Ok(see("/alerts"))
}
