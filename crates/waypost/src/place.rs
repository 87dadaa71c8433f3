//! Where the runs are: the embedded store by default, another database by its URL, or a server.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clap::Args;
use tempfile::TempDir;
use tokio::sync::watch;
use waypost_kernel::Catalog;
use waypost_kernel::tenant::{DEFAULT, check_tenant, stored_name};
use waypost_kernel::text::shell_word;
use waypost_remote::RemoteStore;
use waypost_store::postgres::PostgresStore;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{EVERY_TENANT, Store, StoreError};
use waypost_worker::Stage;
use waypost_worker::loops::{Supervised, Supervisor};
use waypost_worker::projection::objects::{self, Folder, Settings};
use waypost_worker::projection::{self, Projection};
use waypost_worker::schedules::SchedulerOptions;

use crate::output::{BAD_INPUT, ERROR, Failed, NOT_FOUND, Result, tell};

/// What a process reads in its folder: schedules, agents, alerts, retention, webhooks.
pub const FILE: &str = "waypost.toml";

#[derive(Clone, Debug, Args)]
pub struct Place {
    /// Where the runs are: sqlite:///path/to/file.db or postgres://user@host/database, or in the file that
    /// WAYPOST_DATABASE_URL_FILE names. Default: .waypost/waypost.db in this folder.
    #[arg(
        long,
        env = "WAYPOST_DATABASE_URL",
        global = true,
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Global options"
    )]
    pub database_url: Option<String>,
    /// A Waypost server to ask instead of a database.
    #[arg(
        long,
        env = "WAYPOST_URL",
        global = true,
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Global options"
    )]
    pub url: Option<String>,
    /// The server's token; or in the file that WAYPOST_TOKEN_FILE names.
    #[arg(
        long,
        env = "WAYPOST_TOKEN",
        global = true,
        hide_env_values = true,
        value_name = "TOKEN",
        help_heading = "Global options"
    )]
    pub token: Option<String>,
    /// Whose runs, schedules and lifecycles. Default: default; of workers and servers, all.
    #[arg(
        long,
        env = "WAYPOST_TENANT",
        global = true,
        hide_env_values = true,
        value_name = "NAME",
        help_heading = "Global options"
    )]
    tenant: Option<String>,
    /// Where agents' runs are written to: file:///path/to/folder or s3://bucket/prefix. Default: what waypost.toml says, or the
    /// folder `objects` beside a file of SQLite's.
    #[arg(
        long,
        env = "WAYPOST_OBJECT_STORE",
        global = true,
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Global options"
    )]
    object_store: Option<String>,
}

/// As it was given, once for all that this process asks for.
static NAMED_TENANT: OnceLock<String> = OnceLock::new();

/// The tenant that was named, for those who work for all if none was.
pub fn named_tenant() -> Option<&'static str> {
    NAMED_TENANT.get().map(String::as_str)
}

/// The tenant that things are made for, looked for and listed of.
pub fn tenant() -> &'static str {
    named_tenant().unwrap_or(DEFAULT)
}

/// A command of ours as people are told to type it: it means the tenant that this one was given. What comes after `--` is another program's.
pub fn suggested(command: &str) -> String {
    let Some(tenant) = named_tenant() else { return format!("waypost {command}") };
    let tenant = format!("--tenant {}", shell_word(tenant));
    match command.split_once(" -- ") {
        Some((own, rest)) => format!("waypost {own} {tenant} -- {rest}"),
        None => format!("waypost {command} {tenant}"),
    }
}

/// The stored name of what the tenant calls so.
pub fn own_stored(what: &'static str, given: &str) -> Result<String> {
    let missing = || StoreError::NotFound { what, id: given.to_owned() };
    Ok(stored_name(tenant(), given).ok_or_else(missing)?)
}

/// The lifecycles that the tenant sees, by the names that it gives them.
pub async fn lifecycles(store: &dyn Store) -> Result<Catalog> {
    Ok(store.lifecycles().await?.of_tenant(tenant()))
}

/// A database by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    Sqlite(PathBuf),
    /// Its URL, which may hold a password: never shown.
    Postgres(String),
}

/// Where the runs are, as it was found.
#[derive(Clone)]
pub enum Opened {
    /// With where its projected runs are written to.
    Database(Arc<dyn waypost_store::Database>, Arc<Projected>),
    Server(Arc<RemoteStore>, Arc<Projected>),
    /// There is none, and looking makes none: an empty one in a folder that goes away with this.
    Nothing {
        store: Arc<dyn waypost_store::Database>,
        _folder: Arc<TempDir>,
    },
}

/// Where projected runs are written to, looked for when somebody needs it: who only lists runs need not have a sound file for it.
pub struct Projected {
    place: Place,
    found: OnceLock<Option<Arc<Projection>>>,
}

impl Projected {
    fn get(&self, is_named: bool) -> Result<Option<Arc<Projection>>> {
        if let Some(found) = self.found.get() {
            return Ok(found.clone());
        }
        let found = if is_named { self.place.named_projection()? } else { self.place.projection()? };
        Ok(self.found.get_or_init(|| found).clone())
    }
}

impl Opened {
    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Opened::Database(store, _) | Opened::Nothing { store, .. } => store.clone(),
            Opened::Server(server, _) => server.clone(),
        }
    }

    /// Where the manifests of this process's runs are written to. A server's worker has to be told of the object store too.
    pub fn projection(&self) -> Result<Option<Arc<Projection>>> {
        match self {
            Opened::Database(_, projected) => projected.get(false),
            Opened::Server(_, projected) => projected.get(true),
            Opened::Nothing { .. } => Ok(None),
        }
    }

    /// Whether this process takes care of the database, and not a server.
    pub fn has_loops(&self) -> bool {
        matches!(self, Opened::Database(..))
    }

    /// The loops of this process; with a scheduler if there are options for one. A server has its own.
    pub async fn supervised(
        &self,
        by: &str,
        schedules: Option<SchedulerOptions>,
        shutdown: watch::Receiver<Stage>,
    ) -> Result<Supervised> {
        let Opened::Database(database, projected) = self else { return Ok(Supervised::none(shutdown)) };
        let supervisor = Supervisor::new(database.clone(), by, shutdown)
            .projecting(projected.get(false)?)
            .alerting(crate::alert::declared_here()?);
        let supervisor = match schedules {
            Some(options) => supervisor.firing(options),
            None => supervisor,
        };
        Ok(supervisor.start().await?)
    }
}

impl Place {
    /// Before anything is asked for. All tenants can be meant by a token alone.
    pub fn choose_tenant(&self, may_be_all: bool) -> Result {
        let Some(tenant) = self.tenant.as_deref().filter(|tenant| !tenant.is_empty()) else { return Ok(()) };
        if tenant == EVERY_TENANT {
            let message =
                format!("tenant: {tenant:?} is all tenants, and a token's alone; allowed: one tenant");
            return if may_be_all { Ok(()) } else { Err(Failed::new(BAD_INPUT, message)) };
        }
        check_tenant("tenant", tenant).map_err(|error| Failed::new(BAD_INPUT, error.to_string()))?;
        let _ = NAMED_TENANT.set(tenant.to_owned());
        Ok(())
    }

    /// Whose a new token is.
    pub fn token_tenant(&self) -> &str {
        self.tenant.as_deref().filter(|tenant| !tenant.is_empty()).unwrap_or(DEFAULT)
    }

    pub async fn open(&self) -> Result<Arc<dyn Store>> {
        Ok(self.opened().await?.store())
    }

    /// For those who only look: nothing is made.
    pub async fn opened_to_read(&self) -> Result<Opened> {
        if let Some(opened) = self.opened_if_there().await? {
            return Ok(opened);
        }
        let unusable = |error: std::io::Error| Failed::new(ERROR, format!("no temporary folder: {error}"));
        let folder = tempfile::tempdir().map_err(unusable)?;
        let store = SqliteStore::open(&folder.path().join("nothing.db"))?;
        Ok(Opened::Nothing { store: Arc::new(store), _folder: Arc::new(folder) })
    }

    /// For those who change or check what must be there: nothing is made, and where there is nothing they are told what to do.
    pub async fn opened_existing(&self) -> Result<Opened> {
        let opened = self.opened_if_there().await?;
        opened.ok_or_else(|| self.nothing_there())
    }

    /// None: there is no database yet.
    async fn opened_if_there(&self) -> Result<Option<Opened>> {
        match self.server() {
            Some(url) => Ok(Some(Opened::Server(Arc::new(self.open_server(url).await?), self.projected()))),
            None => match self.database_if_there().await? {
                Some(store) => Ok(Some(Opened::Database(store, self.projected()))),
                None => Ok(None),
            },
        }
    }

    async fn database_if_there(&self) -> Result<Option<Arc<dyn waypost_store::Database>>> {
        Ok(match self.database()? {
            // A place where none can be is not one where none is yet: opening it says why.
            Database::Sqlite(file) if !file.try_exists().unwrap_or(true) => None,
            Database::Sqlite(file) => Some(Arc::new(SqliteStore::open(&file)?)),
            Database::Postgres(url) => match PostgresStore::open_existing(&url).await? {
                Some(store) => Some(Arc::new(store)),
                None => None,
            },
        })
    }

    fn nothing_there(&self) -> Failed {
        let (what, makes) = match self.database() {
            Ok(Database::Sqlite(file)) => {
                (format!("there is no database {}", file.display()), "it is made by")
            }
            _ => ("the database has no tables of Waypost".to_owned(), "they are made by"),
        };
        let message = format!(
            "{what}; {makes} `waypost migrate` and by the first `waypost run start`. Another place is named by --database-url or --url"
        );
        Failed::new(NOT_FOUND, message)
    }

    /// The same, for those who take care of a database if it is one.
    pub async fn opened(&self) -> Result<Opened> {
        match self.server() {
            Some(url) => Ok(Opened::Server(Arc::new(self.open_server(url).await?), self.projected())),
            None => Ok(Opened::Database(self.open_database().await?, self.projected())),
        }
    }

    /// The same for what may turn out to be wrong: a database that is not there yet is made once `check`, which sees an empty one
    /// that goes away, has found nothing.
    pub async fn opened_after(&self, check: impl AsyncFnOnce(&Opened) -> Result) -> Result<Opened> {
        let opened = self.opened_to_read().await?;
        if !matches!(opened, Opened::Nothing { .. }) {
            return Ok(opened);
        }
        check(&opened).await?;
        self.opened().await
    }

    /// The same of a database that must be there.
    pub async fn only_existing_database(&self, what: &str) -> Result<Arc<dyn waypost_store::Database>> {
        self.own_database(what)?;
        self.database_if_there().await?.ok_or_else(|| self.nothing_there())
    }

    /// For what a server is not asked to do.
    pub async fn only_database(&self, what: &str) -> Result<Arc<dyn waypost_store::Database>> {
        self.own_database(what)?;
        self.open_database().await
    }

    /// Where that is. With WAYPOST_URL nothing is done in a database here instead.
    pub fn own_database(&self, what: &str) -> Result<Database> {
        let Some(url) = self.server() else { return self.database() };
        let message = format!(
            "{what} needs the database itself: unset WAYPOST_URL and give --database-url where {url} runs"
        );
        Err(StoreError::Unusable(message).into())
    }

    pub fn server(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| !url.is_empty())
    }

    /// Whatever WAYPOST_URL says: for those who have looked at it.
    pub async fn open_database(&self) -> Result<Arc<dyn waypost_store::Database>> {
        Ok(match self.database()? {
            Database::Sqlite(file) => Arc::new(SqliteStore::open(&file)?),
            Database::Postgres(url) => Arc::new(PostgresStore::open(&url).await?),
        })
    }

    /// Where projected runs are written to: what is named, or the folder `objects` beside a file of SQLite's. A database that many
    /// machines share has no folder that they share.
    pub fn projection(&self) -> Result<Option<Arc<Projection>>> {
        let named = self.named_projection()?;
        Ok(match (named, self.database()?) {
            (Some(named), _) => Some(named),
            (None, Database::Sqlite(file)) => {
                let folder = file.parent().unwrap_or(Path::new(".")).join("objects");
                Some(Arc::new(Projection::new(Arc::new(Folder::new(&folder)))))
            }
            (None, Database::Postgres(_)) => None,
        })
    }

    /// The object store that the command line, the environment or `waypost.toml` names.
    pub fn named_projection(&self) -> Result<Option<Arc<Projection>>> {
        let given = self.object_store.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let file = Path::new("waypost.toml");
        let (named, what) = match given {
            Some(url) => (Some(Settings::from(url)), "WAYPOST_OBJECT_STORE (--object-store)".to_owned()),
            None if !file.exists() => (None, String::new()),
            None => {
                let read = projection::load(file);
                let read = read.map_err(|problems| Failed::new(BAD_INPUT, problems.to_string()))?;
                (read, file.display().to_string())
            }
        };
        let Some(settings) = named else { return Ok(None) };
        let opened = objects::open(&settings);
        let objects = opened.map_err(|error| Failed::new(BAD_INPUT, format!("{what}: {error}")))?;
        Ok(Some(Arc::new(Projection::new(objects))))
    }

    fn projected(&self) -> Arc<Projected> {
        Arc::new(Projected { place: self.clone(), found: OnceLock::new() })
    }

    /// The database that is in use, if it is there and no server is asked instead. Looking makes none.
    pub async fn existing_database(&self) -> Result<Option<Arc<dyn waypost_store::Database>>> {
        if self.server().is_some() {
            return Ok(None);
        }
        self.database_if_there().await
    }

    /// A server that is set is the only place that is asked: nothing is done in a database here instead.
    pub async fn open_server(&self, url: &str) -> Result<RemoteStore> {
        let opened = RemoteStore::open(url, self.token()?.as_deref()).await;
        let opened = opened.map(|store| match named_tenant() {
            Some(tenant) => store.for_tenant(tenant),
            None => store,
        });
        opened.map_err(|error| match error {
            StoreError::Unavailable(message) => {
                let todo = "start one with `waypost serve`, or unset WAYPOST_URL";
                Failed::new(ERROR, format!("{message}; {todo}"))
            }
            error => error.into(),
        })
    }

    /// The server's token: given, or in a file of its own.
    fn token(&self) -> Result<Option<String>> {
        if self.token.is_some() {
            return Ok(self.token.clone());
        }
        from_file("WAYPOST_TOKEN_FILE")
    }

    /// The lifecycles that the tenant sees in the server or database that is in use, if there is one: those that were added to it
    /// are known too. Looking makes none, and a file can be checked where none is reached.
    pub async fn known_lifecycles(&self) -> Result<Catalog> {
        let shipped = || Catalog::shipped().map_err(|problems| Failed::new(ERROR, problems.to_string()));
        let found = match self.opened_if_there().await {
            Ok(Some(opened)) => lifecycles(&*opened.store()).await,
            Ok(None) => return Ok(shipped()?.of_tenant(tenant())),
            // What is wrong with how it is named is told; a place that is not reached is done without.
            Err(failed) if failed.code == BAD_INPUT => return Err(failed),
            Err(failed) => Err(failed),
        };
        found.or_else(|failed| {
            tell(&format!("only the shipped lifecycles are known: {}", failed.message));
            Ok(shipped()?.of_tenant(tenant()))
        })
    }

    pub fn database(&self) -> Result<Database> {
        let read = match &self.database_url {
            Some(url) => Some(url.clone()),
            None => from_file("WAYPOST_DATABASE_URL_FILE")?,
        };
        let Some(url) = read.as_deref().map(str::trim) else {
            let file = PathBuf::from(".waypost/waypost.db");
            check_whose(&file)?;
            return Ok(Database::Sqlite(file));
        };
        if url.starts_with("postgres://") || url.starts_with("postgresql://") || url.starts_with("host=") {
            return Ok(Database::Postgres(url.to_owned()));
        }
        let path = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"));
        match path {
            Some(path) if !path.is_empty() => Ok(Database::Sqlite(PathBuf::from(path))),
            _ => {
                // A database's URL may hold a password: only its scheme is repeated.
                let scheme = url.split(':').next().unwrap_or_default();
                let message = format!(
                    "database-url: {scheme}: is not supported; allowed: sqlite:///path/to/file.db, postgres://user@host/database"
                );
                Err(Failed::new(BAD_INPUT, message))
            }
        }
    }
}

/// Nobody named the database of this folder: what is queued in somebody else's, or what a link leads to, is not executed or made by accident.
fn check_whose(file: &Path) -> Result {
    let means = |file: &Path| format!("--database-url sqlite:{} means it all the same", file.display());
    let link = fs::symlink_metadata(file).is_ok_and(|about| about.is_symlink());
    if link && !file.try_exists().unwrap_or(true) {
        let message = format!("{} is a link to a file that is not there; {}", file.display(), means(file));
        return Err(StoreError::Unusable(message).into());
    }
    let Ok(folder) = fs::metadata(file.parent().unwrap_or(Path::new("."))) else { return Ok(()) };
    let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    let is_trusted =
        [0, rustix::process::geteuid().as_raw()].contains(&folder.uid()) || sudo == Some(folder.uid());
    if is_trusted {
        return Ok(());
    }
    let message = format!(
        "the folder of {} belongs to another user ({}); {}",
        file.display(),
        folder.uid(),
        means(file)
    );
    Err(StoreError::Unusable(message).into())
}

/// A secret that the environment names a file for.
fn from_file(variable: &str) -> Result<Option<String>> {
    let Some(file) = std::env::var_os(variable) else { return Ok(None) };
    let wrong = |error| Failed::new(BAD_INPUT, format!("{variable}: {}: {error}", file.display()));
    fs::read_to_string(&file).map(|text| Some(text.trim().to_owned())).map_err(wrong)
}
