//! Flags as Go reads them: `-name`, `-name=value`, `-name value`, and the first other word ends them.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Flags {
    given: BTreeMap<String, String>,
    pub words: Vec<String>,
}

impl Flags {
    pub fn parse(arguments: &[String], switches: &[&str], options: &[&str]) -> Result<Flags, String> {
        let mut flags = Flags::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let Some(flag) = argument.strip_prefix('-').filter(|flag| !flag.is_empty()) else {
                flags.words.push(argument.clone());
                flags.words.extend(rest.cloned());
                break;
            };
            let flag = flag.strip_prefix('-').unwrap_or(flag);
            let (name, value) =
                flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            let value = match value {
                Some(value) => value.to_owned(),
                None if switches.contains(&name) => "true".to_owned(),
                None => rest.next().ok_or_else(|| format!("flag needs an argument: -{name}"))?.clone(),
            };
            if !switches.contains(&name) && !options.contains(&name) {
                return Err(format!("flag provided but not defined: -{name}"));
            }
            flags.given.insert(name.to_owned(), value);
        }
        Ok(flags)
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str)
    }

    pub fn truth(&self, name: &str) -> Result<Option<bool>, String> {
        let parse = |text: &str| {
            text.parse().map_err(|_| format!("invalid boolean value {text:?} for -{name}: parse error"))
        };
        self.get(name).map(parse).transpose()
    }

    /// The words, or an error as for a missing one.
    pub fn needed(&self) -> Result<&[String], String> {
        if self.words.is_empty() { Err("flag: help requested".to_owned()) } else { Ok(&self.words) }
    }
}
