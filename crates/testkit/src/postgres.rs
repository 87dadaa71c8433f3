//! A database on a throwaway server, one per [`Postgres`].

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::server::Server;

/// A database of its own, gone after this value. Its session is a superuser's, unless a server is given.
#[derive(Debug)]
pub struct Postgres {
    server: &'static Server,
    name: String,
}

impl Postgres {
    /// An empty one. The server is started with the first call of a test run.
    pub fn start() -> Result<Postgres, String> {
        Postgres::made_of("template1")
    }

    /// One in which `schema` was executed. That is done once per server; this is a copy of the result.
    pub fn with_schema(schema: &str) -> Result<Postgres, String> {
        let server = server()?;
        let mut hasher = DefaultHasher::new();
        schema.hash(&mut hasher);
        let template = format!("waypost_template_{:016x}", hasher.finish());
        let alone = server.lock(&template)?;
        // The file is written when all is done: what a process left half done is made again.
        if alone.metadata().map_err(|error| error.to_string())?.len() == 0 {
            let again =
                format!("ALTER DATABASE {template} WITH IS_TEMPLATE false; DROP DATABASE {template};");
            let _ = server.psql(&server.url, &again);
            server.psql(&server.url, &format!("CREATE DATABASE {template};"))?;
            server.psql(&with_database(&server.url, &template), schema)?;
            server.psql(&server.url, &format!("ALTER DATABASE {template} WITH IS_TEMPLATE true;"))?;
            (&alone).write_all(b"made").map_err(|error| error.to_string())?;
        }
        drop(alone);
        Postgres::made_of(&template)
    }

    fn made_of(template: &str) -> Result<Postgres, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let server = server()?;
        // A process of another run may have had the same id, on a server that is given.
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
        let name =
            format!("waypost_test_{}_{since}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        server.psql(&server.url, &format!("CREATE DATABASE {name} TEMPLATE {template};"))?;
        Ok(Postgres { server, name })
    }

    /// For a client: an address in libpq's words.
    pub fn url(&self) -> String {
        with_database(&self.server.url, &self.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server's address without a database.
    pub(crate) fn place(&self) -> String {
        let words = self.server.url.split(' ').filter(|word| !word.starts_with("dbname="));
        words.collect::<Vec<_>>().join(" ")
    }

    /// Runs a script in a session of its own and gives what it printed: rows by line, columns parted by `|`.
    /// The first error ends it.
    pub fn psql(&self, sql: &str) -> Result<String, String> {
        self.server.psql(&self.url(), sql)
    }
}

/// A throwaway server is removed as a whole, which costs nothing; dropping a database of it takes a tenth of a second.
impl Drop for Postgres {
    fn drop(&mut self) {
        if !self.server.is_given() {
            return;
        }
        let dropped =
            self.server.psql(&self.server.url, &format!("DROP DATABASE {} WITH (FORCE);", self.name));
        if let Err(error) = dropped {
            eprintln!("{} was left behind: {error}", self.name);
        }
    }
}

fn server() -> Result<&'static Server, String> {
    static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();
    SERVER.get_or_init(Server::find).as_ref().map_err(Clone::clone)
}

/// The same server, another database: of `postgres://user@host/name?options`, or of `host=… dbname=…`, where the
/// last word counts.
fn with_database(url: &str, name: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return format!("{url} dbname={name}") };
    let (place, options) =
        rest.split_once('?').map_or((rest, None), |(place, options)| (place, Some(options)));
    let authority = place.split('/').next().unwrap_or_default();
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    format!("{scheme}://{authority}/{name}{options}")
}

#[cfg(test)]
mod tests {
    use super::{Postgres, with_database};

    #[test]
    fn each_has_a_database_of_its_own_and_errors_are_told() {
        let (one, other) = (Postgres::start().expect("one"), Postgres::start().expect("another"));
        one.psql("CREATE TABLE a(b int); INSERT INTO a VALUES (1), (2);").expect("a table");
        assert_eq!(one.psql("SELECT b, b * 2 FROM a ORDER BY b").as_deref(), Ok("1|2\n2|4"));
        let error = other.psql("SELECT b FROM a; SELECT 1;").expect_err("no such table");
        assert!(error.contains("\"a\" does not exist"), "{error}");
    }

    #[test]
    fn a_schema_is_made_once_and_copied() {
        let schema = format!("CREATE TABLE a AS SELECT random() AS b, {} AS c;", std::process::id());
        let made: Vec<Postgres> = std::thread::scope(|scope| {
            let tasks: Vec<_> = (0..3).map(|_| scope.spawn(|| Postgres::with_schema(&schema))).collect();
            tasks.into_iter().map(|task| task.join().expect("a thread").expect("a copy")).collect()
        });
        let read = |database: &Postgres| database.psql("SELECT b FROM a").expect("its table");
        assert_eq!(read(&made[0]), read(&made[1]));
        made[0].psql("DELETE FROM a").expect("a write");
        assert_eq!(read(&made[1]), read(&made[2]));
        assert_eq!(read(&made[0]), "");
    }

    #[test]
    fn a_database_is_named_in_any_sort_of_address() {
        for (url, expected) in [
            ("postgres://u:p@h:5/old?sslmode=off", "postgres://u:p@h:5/new?sslmode=off"),
            ("postgresql://h", "postgresql://h/new"),
            ("host=h dbname=old", "host=h dbname=old dbname=new"),
        ] {
            assert_eq!(with_database(url, "new"), expected);
        }
    }
}
