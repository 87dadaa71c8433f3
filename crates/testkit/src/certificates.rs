//! Certificates for a test's servers, by openssl's program, which Debian's PostgreSQL brings along.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::server::done;

/// A hundred years.
const DAYS: &str = "36500";

/// Somebody who issues certificates. Gone with this value, and so are the files.
#[derive(Debug)]
pub struct Issuer {
    folder: TempDir,
}

#[derive(Debug)]
pub struct Certificate {
    pub file: PathBuf,
    pub key: PathBuf,
}

impl Issuer {
    pub fn new(name: &str) -> Result<Issuer, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let issuer = Issuer { folder };
        issuer.openssl(&format!("req -x509 {} -days {DAYS} -subj /CN={name}", issuer.new_key("issuer")))?;
        Ok(issuer)
    }

    /// The issuer's own, for `sslrootcert`. It is a server's certificate as well, of one who made it himself.
    pub fn certificate(&self) -> Certificate {
        self.named("issuer")
    }

    /// For a server of this name.
    pub fn issue(&self, name: &str) -> Result<Certificate, String> {
        let extensions = self.folder.path().join("extensions");
        std::fs::write(&extensions, format!("subjectAltName=DNS:{name}\n"))
            .map_err(|error| error.to_string())?;
        self.sign(name, "-extfile extensions")
    }

    /// Of the first version, which knows no extensions and so no names but the common one.
    pub fn issue_old(&self, name: &str) -> Result<Certificate, String> {
        self.sign(name, "")
    }

    fn sign(&self, name: &str, how: &str) -> Result<Certificate, String> {
        self.openssl(&format!("req -new {} -subj /CN={name}", self.new_key("request")))?;
        self.openssl(&format!(
            "x509 -req -in request.crt -CA issuer.crt -CAkey issuer.key -CAcreateserial -days {DAYS} {how} -out {name}.crt"
        ))?;
        std::fs::rename(self.folder.path().join("request.key"), self.named(name).key)
            .map_err(|error| error.to_string())?;
        Ok(self.named(name))
    }

    fn new_key(&self, name: &str) -> String {
        format!("-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.crt")
    }

    fn named(&self, name: &str) -> Certificate {
        let path = |ending: &str| self.folder.path().join(format!("{name}.{ending}"));
        Certificate { file: path("crt"), key: path("key") }
    }

    fn openssl(&self, arguments: &str) -> Result<(), String> {
        let mut openssl = Command::new("openssl");
        openssl.args(arguments.split_whitespace()).current_dir(self.folder.path());
        done(&mut openssl).map(drop)
    }
}
