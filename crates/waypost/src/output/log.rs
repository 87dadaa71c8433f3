//! The log of a process: lines for people or for programs, on stderr.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use waypost_kernel::text::terminal;

use super::{BAD_INPUT, Failed, Result};

#[derive(Clone, Debug, Args)]
pub struct Log {
    /// How log lines of workers and servers are written.
    #[arg(
        long = "log-format",
        env = "WAYPOST_LOG_FORMAT",
        global = true,
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_env_values = true,
        hide_possible_values = true,
        value_name = "text|json",
        help_heading = "Global options"
    )]
    format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or by part, as `info,waypost_worker=debug`.
    #[arg(
        long = "log",
        env = "WAYPOST_LOG",
        global = true,
        default_value = "info",
        hide_default_value = true,
        hide_env_values = true,
        value_name = "LEVEL",
        help_heading = "Global options"
    )]
    level: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// As it was given, once for this process.
static CHOSEN: OnceLock<Log> = OnceLock::new();

impl Log {
    pub fn choose(self) -> Result {
        if let Err(error) = EnvFilter::try_new(&self.level) {
            let message = format!(
                "log: {:?} is no level ({error}); allowed: error, warn, info, debug, trace, or PART=LEVEL",
                self.level
            );
            return Err(Failed::new(BAD_INPUT, message));
        }
        let _ = CHOSEN.set(self);
        Ok(())
    }
}

pub fn log_to_stderr() {
    let (level, format) = CHOSEN.get().map_or(("info", LogFormat::Text), |log| (&log.level, log.format));
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let is_coloured =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Screened);
    // A second one in the same process changes nothing.
    let _ = match format {
        LogFormat::Text => log.with_ansi(is_coloured).try_init(),
        LogFormat::Json => log.with_ansi(false).event_format(AsJson).try_init(),
    };
}

/// Log lines quote what others wrote.
struct Screened;

impl Write for Screened {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // One event is one write.
        io::stderr().lock().write_all(terminal::screened(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// One object on one line: `time`, `level`, `target`, `message`, and each field under its name.
struct AsJson;

impl<S, N> FormatEvent<S, N> for AsJson
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut members = Members(Map::new());
        event.record(&mut members);
        let mut object = members.0;
        let metadata = event.metadata();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let now = waypost_kernel::Time::from_micros(i64::try_from(now.as_micros()).unwrap_or_default());
        object.insert("time".into(), waypost_store::iso(now).into());
        object.insert("level".into(), metadata.level().as_str().to_lowercase().into());
        object.insert("target".into(), metadata.target().into());
        writeln!(writer, "{}", terminal::json(Value::Object(object).to_string()))
    }
}

struct Members(Map<String, Value>);

impl Members {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().trim_start_matches("r#").to_owned(), value);
    }
}

impl Visit for Members {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}
