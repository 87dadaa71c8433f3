//! What runs may move along, and what this server's folder can do.

use serde_json::{Value, json};
use waypost_kernel::Lifecycle;
use waypost_kernel::render::json::json as rendered;
use waypost_kernel::render::toml::toml;
use waypost_store::StoreError;

use super::shapes::{LIFECYCLE, LIFECYCLES, NAME, NEW_LIFECYCLE, PLAYBOOKS};
use super::{BODY_BYTES, Content, GET, Gives, POST, Route, ok};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::Needs;
use crate::problem::NOT_FOUND;
use crate::shape::{Field, Kind, optional};

const SOURCE: Field = optional("source", Kind::Boolean, "With each one as a lifecycle file.");

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/lifecycles",
        name: "listLifecycles",
        about: "Every version of every lifecycle that the database knows.",
        query: &[optional("name", NAME, "Only this one."), SOURCE],
        gives: &[ok(&LIFECYCLES)],
        run: |call| Box::pin(list(call)),
        ..GET
    },
    Route {
        path: "/v1/lifecycles/{name}",
        name: "getLifecycle",
        about: "The latest version of one.",
        query: &[SOURCE],
        gives: &[ok(&LIFECYCLE)],
        refuses: &[&NOT_FOUND],
        run: |call| Box::pin(show(call)),
        ..GET
    },
    Route {
        path: "/v1/lifecycles",
        name: "addLifecycle",
        about: "Adds a lifecycle, or a version of one. The same again changes nothing.",
        needs: Needs::Admin,
        body: Some(&NEW_LIFECYCLE),
        body_bytes: BODY_BYTES,
        gives: &[Gives { status: 201, about: "runs may use it", body: Content::Json(&LIFECYCLE) }],
        run: |call| Box::pin(add(call)),
        ..POST
    },
    Route {
        path: "/v1/playbooks",
        name: "listPlaybooks",
        about: "What the server's own folder has (`serve --playbooks DIR`).",
        gives: &[ok(&PLAYBOOKS)],
        run: |call| Box::pin(playbooks(call)),
        ..GET
    },
];

fn object(call: &Call, lifecycle: &Lifecycle) -> Value {
    let mut object = rendered(lifecycle);
    object["source"] = if call.query.is("source") { toml(lifecycle).into() } else { Value::Null };
    object
}

async fn list(call: Call) -> Result {
    let catalog = call.store().lifecycles().await?;
    let name = call.query.text("name");
    let asked = catalog.iter().filter(|it| name.as_ref().is_none_or(|name| **name == *it.name));
    let objects: Vec<Value> = asked.map(|lifecycle| object(&call, lifecycle)).collect();
    Ok(answer::json(200, &json!({ "lifecycles": objects })))
}

async fn show(call: Call) -> Result {
    let (catalog, name) = (call.store().lifecycles().await?, call.path("name"));
    let found = catalog.latest(&name);
    let lifecycle = found.ok_or(StoreError::NotFound { what: "lifecycle", id: name })?;
    Ok(answer::json(200, &object(&call, lifecycle)))
}

async fn add(call: Call) -> Result {
    let lifecycle = call.store().add_lifecycle(call.body.words("source")).await?;
    let subject = format!("{}@{}", lifecycle.name, lifecycle.version);
    call.audit("lifecycle.add", &subject, call.caller.by(None), None).await;
    Ok(answer::json(201, &object(&call, &lifecycle)))
}

async fn playbooks(call: Call) -> Result {
    let object = |it: &crate::app::Playbook| {
        json!({
            "name": it.name,
            "lifecycle": it.lifecycle,
            "hash": it.hash,
            "description": it.description,
            "inputs": it.inputs,
        })
    };
    let objects: Vec<Value> = call.app.options.playbooks.iter().map(object).collect();
    Ok(answer::json(200, &json!({ "playbooks": objects })))
}
