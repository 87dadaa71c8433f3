//! A server of a language model, as far as clients of OpenAI's chat completions go: answers that are always the same,
//! and slow, failing, limited, cut or senseless ones on demand: by flags, by `/admin/faults`, for the next calls by
//! `/admin/next`, or for one call by a marker in its prompt.

mod admin;
mod answers;
mod calls;
mod chat;
mod markers;
mod schema;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use calls::Call;
pub use markers::{Effect, MARKERS};
pub use settings::{FAULTS, Settings};

use crate::serving::{Answer, Bucket, Now, Reply, Request, Route, Running, Shown, Simulator, Tally, shown};
use calls::Calls;

/// What a model server is started with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where calls are kept besides memory: `calls.jsonl`.
    pub dir: Option<PathBuf>,
    pub settings: Settings,
    /// The models that there are; without any, every name is one.
    pub models: Vec<String>,
    pub api_key: Option<String>,
}

#[derive(Debug)]
pub struct Model {
    settings: Settings,
    models: Vec<String>,
    api_key: Option<String>,
    requests: Option<Bucket>,
    tally: Tally,
    /// How often a marker that counts came with the same prompt.
    marked: HashMap<u64, u32>,
    next: VecDeque<Effect>,
    calls: Calls,
}

impl Model {
    pub fn open(options: Options) -> io::Result<Model> {
        let Options { dir, settings, models, api_key } = options;
        settings.check().map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
        Ok(Model {
            requests: settings.bucket(),
            settings,
            models,
            api_key,
            tally: Tally::default(),
            marked: HashMap::new(),
            next: VecDeque::new(),
            calls: Calls::open(dir.as_deref())?,
        })
    }

    pub fn serve(self, listen: SocketAddr) -> io::Result<Running<Model>> {
        Running::start(listen, self)
    }

    /// The last ten thousand, in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter()
    }
}

impl Simulator for Model {
    fn answer(&mut self, request: &Request, now: Now) -> Reply {
        if request.path.starts_with("/admin/") {
            return Route::dispatch(admin::ROUTES, self, request, now);
        }
        let is_stranger = self.api_key.as_deref().is_some_and(|key| request.token("api-key") != Some(key));
        if is_stranger {
            return error(401, "invalid_api_key", "Incorrect API key provided").into();
        }
        Route::dispatch(chat::ROUTES, self, request, now)
    }
}

/// As OpenAI's clients expect it.
fn error(status: u16, code: &str, message: &str) -> Answer {
    let kind = match status {
        429 => "requests",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let error = serde_json::json!({ "message": message, "type": kind, "param": null, "code": code });
    Answer::of(status, &serde_json::json!({ "error": error }))
}

/// Every route, for the documentation.
pub fn routes() -> Vec<Shown> {
    [shown(chat::ROUTES), shown(admin::ROUTES)].concat()
}
