//! How it goes, on one page.

use maud::{Markup, html};
use serde_json::Value;
use waypost_kernel::{Outcome, Phase, Span, Time};

use super::bulk::alerts::{is_critical, is_firing};
use super::people::waiting;
use super::runs;
use crate::answer::Result;
use crate::call::Call;
use crate::console::ask::{self, ask};
use crate::console::draw::strip::spark;
use crate::console::filter;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{age, ago, badge, copied, lasted, list, now, shown, text, time, tone};

const MOST_FIRES: usize = 5;
const MOST_RUNS: usize = 8;
const DAY_MS: &str = "86400000";
const HOURS: &str = "24";

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let stats = ask(&call, "getStats", &[], &[]).await?;
    let day = [("window_ms", DAY_MS), ("buckets", HOURS)];
    let activity = ask(&call, "getActivity", &[], &day).await?;
    let alerts = ask(&call, "listAlerts", &[], &[]).await?;
    let latest = runs::find(&call, "", "", "").await?;
    let schedules = ask(&call, "listSchedules", &[], &[("limit", "50")]).await?;
    let orphaned = runs::find(&call, "needs:worker", "", "").await?;
    let orphaned = format!("{}{}", orphaned.runs.len(), if orphaned.next.is_some() { "+" } else { "" });
    let for_people = waiting::count(&call).await?;
    let latest = &latest.runs[..latest.runs.len().min(MOST_RUNS)];
    let took = runs::took(&call, latest).await?;
    let content = html! {
        h1 { "Overview" }
        @if latest.is_empty() { (welcome()) }
        div #figures data-part {
            (firing(&alerts, now))
            (figures(&stats, &activity, [&for_people, &orphaned], now))
            @if !list(&activity, "lifecycles").is_empty() { section.card { h2 { "Lifecycles" } (lifecycles(&activity)) } }
            div.columns {
                section.card { h2 { "Ended in 24 hours" } (ended(&stats)) }
                div {
                    section.card { h2 { "Queues" } (queues(&stats, now)) }
                    section.card { h2 { "Next fires" } (fires(&schedules, now)) }
                }
            }
            @if !latest.is_empty() {
                section {
                    h2 { "Latest runs" }
                    (runs::table(latest, &took, now))
                    p { a href="/runs" { "All runs" } }
                }
            }
        }
    };
    Ok(answered(
        &call,
        200,
        &Sheet { title: "Overview", nav: Nav::Overview, live: Some(Live::AllRuns) },
        &content,
    ))
}

/// Alerts that fire now, before everything else.
fn firing(alerts: &Value, now: Time) -> Markup {
    let mut firing: Vec<&Value> = list(alerts, "alerts").iter().filter(|it| is_firing(it)).collect();
    firing.sort_by_key(|alert| !is_critical(alert));
    let tone = |alert: &Value| if is_critical(alert) { "alert" } else { "waits" };
    html! {
        @if !firing.is_empty() {
            section.card {
                h2 { a href="/alerts" { "Alerts that fire" } }
                @for alert in firing {
                    p class=(tone(alert)) {
                        b { (shown(text(alert, "severity"))) ": " (shown(text(alert, "name"))) } " " (shown(text(alert, "subject"))) " "
                        (shown(text(alert, "summary"))) " · " (ago(time(alert, "fired_at"), now))
                    }
                }
            }
        }
    }
}

/// Until there is a first run.
fn welcome() -> Markup {
    html! {
        section.card.welcome {
            h2 { "Start your first run" }
            ol {
                li { "Run a command, and watch it here: " (copied("waypost run start -- echo hi")) }
                li { "Have it done in steps, by a file of your own: " (copied("waypost init")) }
                li { "Then start it by its name, on the page " a href="/playbooks" { "Playbooks" } "." }
            }
        }
    }
}

fn figures(stats: &Value, activity: &Value, [for_people, orphaned]: [&str; 2], now: Time) -> Markup {
    let percent =
        |name: &str| stats[name].as_f64().map_or("–".to_owned(), |ratio| format!("{:.0} %", ratio * 100.0));
    let oldest = list(stats, "queues").iter().filter_map(|queue| time(queue, "oldest_ready_at")).min();
    let oldest = oldest.map_or("–".to_owned(), |at| age(now - at));
    let ended: Vec<u64> =
        list(activity, "buckets").iter().map(|it| it["ended"].as_u64().unwrap_or_default()).collect();
    let per_hour = format!("{} in 24 h, by hour", ended.iter().sum::<u64>());
    let took = |name: &str| {
        activity["duration"][name].as_i64().map_or("–".to_owned(), |ms| lasted(Span::from_ms(ms)))
    };
    html! {
        dl.figures.eight {
            (figure("Wait for you", for_people, "/waiting", for_people != "0"))
            (figure("Orphaned", orphaned, "/runs?filter=needs%3Aworker", orphaned != "0"))
            (figure("Wait for a worker", &stats["queue_depth"].as_u64().unwrap_or(0).to_string(), "/queues", false))
            (figure("Oldest of them", &oldest, "/queues", false))
            (figure("Slots in use", &percent("worker_utilisation"), "/workers", false))
            (figure("Succeeded in 24 h", &percent("success_rate_24h"), "/runs?filter=since%3A24h", false))
            div.figure { dt { "Ended in the last hour" } dd.with-spark { (ended.last().copied().unwrap_or_default()) " " (spark(&ended, &per_hour)) } }
            div.figure { dt { "Took, p50 / p95" } dd.pair { (took("p50_ms")) " / " (took("p95_ms")) } }
        }
        @if let Some(cut) = activity["cut_at"].as_str() { p.hint { "By hour and by lifecycle: of the newest runs, back to " (cut) "." } }
    }
}

/// Which runs stand where, and how many came in by hour.
fn lifecycles(activity: &Value) -> Markup {
    let columns = [
        ("Drafts", vec![Phase::Draft.name()]),
        ("Wait", vec![Phase::Ready.name()]),
        ("Worked", vec![Phase::Held.name()]),
        ("Parked", vec![Phase::Parked.name()]),
        ("Succeeded", vec![Outcome::Succeeded.name()]),
        ("Failed", vec![Outcome::Failed.name(), Outcome::Partial.name()]),
        ("Cancelled", vec![Outcome::Cancelled.name(), Outcome::Skipped.name()]),
        ("Set back", vec![Outcome::Reverted.name()]),
    ];
    let count = |of: &Value, tones: &[&str]| -> u64 {
        tones.iter().filter_map(|tone| of["by"][*tone].as_u64()).sum()
    };
    // A column of nothing but zeros takes the place of one that says something.
    let is_empty = |tones: &[&str]| list(activity, "lifecycles").iter().all(|of| count(of, tones) == 0);
    let columns: Vec<(&str, Vec<&str>)> = columns.into_iter().filter(|(_, tones)| !is_empty(tones)).collect();
    let ms = |of: &Value, name: &str| {
        of["duration"][name].as_i64().map_or("–".to_owned(), |ms| lasted(Span::from_ms(ms)))
    };
    html! {
        div.scrolls tabindex="0" role="region" aria-label="Lifecycles" {
            table {
                thead {
                    tr {
                        th scope="col" { "Lifecycle" }
                        @for (label, _) in &columns { th.num scope="col" { (label) } }
                        th scope="col" { "Came in, 24 h" }
                        th.num scope="col" { "p50" }
                        th.num scope="col" { "p95" }
                    }
                }
                @for of in list(activity, "lifecycles") {
                    @let name = text(of, "lifecycle");
                    @let came_in: Vec<u64> = list(of, "came_in").iter().filter_map(Value::as_u64).collect();
                    tr {
                        th scope="row" { a.quiet href=(filter::runs_with(&[("lifecycle", name)])) { (shown(name)) } }
                        @for (_, tones) in &columns {
                            @let count = count(of, tones);
                            td.num.none[count == 0] { (count) }
                        }
                        td { (spark(&came_in, &format!("{} came in within 24 hours, by hour", came_in.iter().sum::<u64>()))) }
                        td.num { (ms(of, "p50_ms")) }
                        td.num { (ms(of, "p95_ms")) }
                    }
                }
            }
        }
    }
}

fn figure(label: &str, value: &str, path: &str, is_urgent: bool) -> Markup {
    html! { div.figure.urgent[is_urgent] { dt { (label) } dd { a href=(path) { (value) } } } }
}

fn ended(stats: &Value) -> Markup {
    let rows: Vec<&Value> =
        list(stats, "ended").iter().filter(|it| it["in_24h"].as_u64() > Some(0)).collect();
    let most = rows.iter().filter_map(|it| it["in_24h"].as_u64()).max().unwrap_or(1);
    html! {
        @if rows.is_empty() { p.hint { "Nothing ended." } }
        @else {
            div.scrolls tabindex="0" role="region" aria-label="Ended in 24 hours" { table.bars {
                thead { tr { th scope="col" { "State" } th scope="col" { "Lifecycle" } th.num scope="col" { "24 hours" } th.num scope="col" { "Mean, 7 days" } } }
                @for row in rows {
                    @let outcome = Outcome::ALL.into_iter().find(|it| it.name() == text(row, "outcome"));
                    tr {
                        td { (badge(text(row, "status"), Phase::Settled, outcome)) }
                        td { a.quiet href=(filter::runs_with(&[("lifecycle", text(row, "lifecycle")), ("status", text(row, "status"))])) { (shown(text(row, "lifecycle"))) } }
                        td.num { (share(row["in_24h"].as_u64().unwrap_or(0), most, &tone(Phase::Settled, outcome))) " " (row["in_24h"].as_u64().unwrap_or(0)) }
                        td.num { @match row["mean_duration_ms"].as_i64() { Some(ms) => (lasted(Span::from_ms(ms))), None => span.none { "–" } } }
                    }
                }
            } }
        }
    }
}

/// How much of the most it is, as a bar in its colour; the number stands beside it.
fn share(count: u64, most: u64, tone: &str) -> Markup {
    html! {
        svg class={ "share " (tone) } viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
            rect.bar x="0" y="0" width=((count * 100).div_ceil(most.max(1)).min(100)) height="8" {}
        }
    }
}

fn queues(stats: &Value, now: Time) -> Markup {
    html! {
        @if list(stats, "queues").is_empty() { p.hint { "Nothing waits, and nothing is worked." } }
        @else {
            table {
                thead { tr { th scope="col" { "Queue" } th.num scope="col" { "Ready" } th.num scope="col" { "Held" } th scope="col" { "Oldest" } } }
                @for queue in list(stats, "queues").iter().take(10) {
                    tr {
                        td { a.quiet href=(filter::runs_with(&[("queue", text(queue, "queue"))])) { (shown(text(queue, "queue"))) } }
                        td.num { (queue["ready"]) } td.num { (queue["held"]) }
                        td { (ago(time(queue, "oldest_ready_at"), now)) }
                    }
                }
            }
        }
    }
}

fn fires(schedules: &Value, now: Time) -> Markup {
    let mut next: Vec<(Time, &str)> = list(schedules, "schedules")
        .iter()
        .filter_map(|it| Some((time(it, "due_at")?, text(it, "name"))))
        .collect();
    next.sort_unstable();
    html! {
        @if next.is_empty() { p.hint { "No schedule." } }
        @else {
            table { thead.unseen { tr { th scope="col" { "When" } th scope="col" { "Schedule" } } }
                @for (at, name) in next.iter().take(MOST_FIRES) {
                    tr { td { (ago(Some(*at), now)) } td { a href={ "/schedules/" (ask::encoded(name)) } { (shown(name)) } } }
                }
            }
        }
    }
}
