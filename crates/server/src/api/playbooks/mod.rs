//! Playbooks that the server and workers have, and runs that are started by their names or repeated.

pub mod by_name;
pub mod replays;

use std::path::Path;

use serde_json::{Value, json};
use waypost_store::{EVERY_TENANT, OfferedPlaybook, PlaybookFilter};
use waypost_worker::playbook::Playbook;
use waypost_worker::playbook::known::{Known, NotKnown};

use super::requests::{OfferedBody, OfferingBody, PlaybooksQuery};
use super::shapes::{PLAYBOOK_SHOWN, PLAYBOOKS};
use super::{BODY_BYTES, Content, GET, POST, Route, RouteResponse, asks, ok, plain, takes};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::{INVALID_INPUT, NOT_FOUND, Problem};

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/playbooks",
        name: "listPlaybooks",
        description: "Playbooks that this server and its workers have: their names start runs (`POST /v1/runs`). Of each name the version \
                that was offered last; `versions=true` has the older ones too.",
        responses: &[ok(&PLAYBOOKS)],
        ..asks!(GET, list, PlaybooksQuery)
    },
    Route {
        path: "/v1/playbooks/{name}",
        name: "getPlaybook",
        description: "One playbook, with its steps and its text: the latest version of `NAME`, or the one of `NAME@HASH`, of which the beginning \
                of a hash is enough.",
        responses: &[ok(&PLAYBOOK_SHOWN)],
        refuses: &[&NOT_FOUND],
        ..plain!(GET, show)
    },
    Route {
        path: "/v1/playbooks",
        name: "offerPlaybooks",
        description: "What a worker has, so that runs can be started by its name. It is the tenant's whose runs the worker takes. The same \
                again changes nothing.",
        required_role: RequiredRole::Work,
        body_bytes: BODY_BYTES,
        responses: &[RouteResponse {
            status: 204,
            description: "runs can be started by these names",
            body: Content::Nothing,
        }],
        ..takes!(POST, offer, OfferingBody)
    },
];

async fn list(call: Call, query: PlaybooksQuery) -> Result {
    let filter = PlaybookFilter {
        tenant: call.tenant(),
        name: query.name,
        hash: query.hash,
        all_versions: query.versions,
        names_only: false,
    };
    let turn = call.page_turn().await;
    let catalog = call.lifecycles().await?;
    let rows = call.store().playbooks(filter).await?;
    let objects = rows.into_iter().map(|row| {
        let known = Known::listed(row, &catalog);
        let mut object = known.object();
        object["text"] = json!(query.text.then_some(&known.offered.text));
        object
    });
    let objects: Vec<Value> = objects.collect();
    Ok(turn.lasting_with(answer::json(200, &json!({ "playbooks": objects }))))
}

async fn show(call: Call) -> Result {
    let catalog = call.lifecycles().await?;
    let asked = call.path("name");
    let known = by_name::known(&call, &catalog, &asked).await.map_err(|error| match error {
        NotKnown::Unknown(words) => {
            Problem::new(&NOT_FOUND, words).with("what", "playbook").with("id", asked)
        }
        error => by_name::problem(error),
    })?;
    Ok(answer::json(200, &known.whole_object()))
}

async fn offer(call: Call, body: OfferingBody) -> Result {
    let catalog = call.lifecycles().await?;
    let tenant = if call.caller.is_everybodys { EVERY_TENANT } else { &call.caller.tenant };
    let by = call.caller.by(Some(body.by));
    let mut offered = Vec::with_capacity(body.playbooks.len());
    for (place, OfferedBody { name, file, text }) in body.playbooks.into_iter().enumerate() {
        let (tenant, by) = (tenant.to_owned(), by.clone());
        let wrong = |field: &str, message: String| {
            Problem::field(&INVALID_INPUT, &format!("playbooks/{place}/{field}"), &message)
        };
        offered.push(match text.as_deref().unwrap_or_default() {
            "" => OfferedPlaybook { tenant, name, by, ..OfferedPlaybook::default() },
            text => {
                let file = Path::new(file.as_deref().unwrap_or_default());
                let playbook = Playbook::of_text(text, file, &catalog)
                    .map_err(|problems| wrong("text", problems.to_string()))?;
                if playbook.name != name {
                    let own = &playbook.name;
                    return Err(wrong(
                        "name",
                        format!("is {name:?}, and the text's own name is {own:?}: send that"),
                    ));
                }
                playbook.offered(&tenant, &by)
            }
        });
    }
    call.store().offer_playbooks(offered).await?;
    Ok(answer::empty(204))
}
