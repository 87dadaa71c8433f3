//! The API for people, as the table of routes has it.

use std::sync::LazyLock;

use maud::{PreEscaped, html};

use crate::answer::Result;
use crate::call::Call;
use crate::console::layout::{Nav, Sheet, answered};
use crate::console::session;
use crate::guard::{self, Caller};

/// Anybody may ask for it: it is made once.
static TEXT: LazyLock<String> = LazyLock::new(crate::reference::html);

/// A route of the API, which anybody may read: who is signed in has the navigation too.
pub async fn page(mut call: Call) -> Result {
    session::adopt(&mut call.headers);
    call.caller = guard::identify(&call.app, &call.headers).await.unwrap_or_else(|_| Caller::nobody());
    let content = html! { (PreEscaped(TEXT.as_str())) };
    let sheet = Sheet { title: "HTTP API", nav: Nav::Reference, live: None };
    Ok(answered(&call, 200, &sheet, &content))
}
