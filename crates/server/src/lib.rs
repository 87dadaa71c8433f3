//! The HTTP API. A request goes through the files in this order: `listen` takes the connection, `dispatch` finds the
//! route in the one table of `api`, `guard` says who asks, `room` whether there is room for it, `call` reads what is asked and checks it against the
//! route's shapes, and the route's function asks the store. No function here decides anything about runs.
//!
//! `openapi` and `reference` are renderings of the same table; `console` are its pages for people.

mod answer;
mod api;
mod app;
mod call;
mod console;
mod dispatch;
mod guard;
mod json;
mod links;
mod listen;
mod metrics;
mod openapi;
mod problem;
mod reference;
mod room;
mod rule_metrics;
mod schedule_metrics;
mod stream;
mod tokens;
mod wait;

pub use app::{App, Options};
pub use console::paths as console_paths;
pub use listen::serve;
pub use openapi::document as openapi;
pub use problem::object_of as problem_object;
pub use reference::markdown as reference;
pub use tokens::Rate;
