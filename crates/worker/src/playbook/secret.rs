//! Secrets: named by reference in files and runs, resolved on the worker at the last moment, hidden from then on.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Where a secret is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A variable of the worker's own environment.
    Env(String),
    /// A file on the worker's machine; a line end at its end is not a part of the secret.
    File(PathBuf),
}

/// What a run brings along may name these alone: it must not choose what a worker reads.
pub const GIVEN_PREFIX: &str = "WAYPOST_SECRET_";

impl Reference {
    /// The error says how to mend it and repeats nothing, since people paste the secret itself.
    pub fn parse(text: &str) -> Result<Reference, &'static str> {
        const MEND: &str = "write env:NAME or file:/path, and keep the secret itself there";
        match text.split_once(':') {
            Some(("env", name)) => {
                let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                    && name.len() <= 255
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                if is_name {
                    Ok(Reference::Env(name.to_owned()))
                } else {
                    Err("write env: and the name of a variable: letters, digits and `_`")
                }
            }
            Some(("file", path)) if path.starts_with('/') && path.len() > 1 => {
                Ok(Reference::File(PathBuf::from(path)))
            }
            Some(("file", _)) => Err("write file: and a path that begins with /"),
            _ => Err(MEND),
        }
    }

    /// As [`Reference::parse`], for what came with a run.
    pub fn parse_given(text: &str) -> Result<Reference, &'static str> {
        match Reference::parse(text) {
            Ok(Reference::Env(name)) if name.starts_with(GIVEN_PREFIX) => Ok(Reference::Env(name)),
            _ => Err(
                "give env:WAYPOST_SECRET_…, a variable of the worker's environment, and not the secret itself",
            ),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Env(name) => write!(f, "env:{name}"),
            Reference::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// A text that may hold a secret. It is never shown, not even by `{:?}`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Sealed(String);

impl Sealed {
    pub fn new(text: impl Into<String>) -> Sealed {
        Sealed(text.into())
    }

    /// For the one place that it is meant for.
    pub fn open(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealed(…)")
    }
}

/// Resolved secrets by the name that templates use: `secrets.NAME` and `inputs.NAME`.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    pub(crate) declared: BTreeMap<String, Sealed>,
    pub(crate) inputs: BTreeMap<String, Sealed>,
}

impl Secrets {
    /// Asks `find` for each; what it says is wrong comes back with the secret's name.
    pub fn resolve(
        needs: &Needs,
        find: impl Fn(&Reference) -> Result<String, String>,
    ) -> Result<Secrets, String> {
        let all = |wanted: &BTreeMap<String, Reference>, root: &str| {
            let mut found = BTreeMap::new();
            for (name, reference) in wanted {
                let value =
                    find(reference).map_err(|error| format!("{root}.{name} ({reference}): {error}"))?;
                found.insert(name.clone(), Sealed::new(value));
            }
            Ok::<_, String>(found)
        };
        Ok(Secrets { declared: all(&needs.declared, "secrets")?, inputs: all(&needs.inputs, "inputs")? })
    }

    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.declared.values().chain(self.inputs.values()).map(Sealed::open)
    }
}

/// The secrets that one action names, and no others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub declared: BTreeMap<String, Reference>,
    pub inputs: BTreeMap<String, Reference>,
}
