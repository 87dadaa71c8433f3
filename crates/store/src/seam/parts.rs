//! Which large parts of runs a list shows.

/// Parts of a run that may be large: a list leaves out those that are not asked for, and does not read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    pub input: bool,
    pub metadata: bool,
    pub details: bool,
    pub carried: bool,
}

impl Parts {
    pub const NONE: Parts = Parts { input: false, metadata: false, details: false, carried: false };
    pub const ALL: Parts = Parts { input: true, metadata: true, details: true, carried: true };
    pub const NAMES: [&str; 4] = ["input", "metadata", "details", "carried"];

    pub fn has(&self, name: &str) -> bool {
        Parts::NAMES.into_iter().zip(self.flags()).any(|(known, has)| known == name && has)
    }

    /// What is looked for in metadata and details: without both nobody knows whether there are any.
    pub(crate) const FOUND_IN_BOTH: &str = "artifacts";

    /// Whether a column is one of these and not asked for, or made of one that is not.
    pub(crate) fn leaves_out(&self, column: &str) -> bool {
        match column {
            Parts::FOUND_IN_BOTH => !(self.metadata && self.details),
            column => Parts::NAMES.contains(&column) && !self.has(column),
        }
    }

    /// Names with commas between them. The error is the one that is none of these.
    pub fn read(text: &str) -> Result<Parts, &str> {
        let mut parts = Parts::NONE;
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "input" => parts.input = true,
                "metadata" => parts.metadata = true,
                "details" => parts.details = true,
                "carried" => parts.carried = true,
                other => return Err(other),
            }
        }
        Ok(parts)
    }

    /// As they are asked for over HTTP.
    pub fn names(&self) -> String {
        let asked = Parts::NAMES.into_iter().zip(self.flags()).filter(|(_, has)| *has);
        asked.map(|(name, _)| name).collect::<Vec<_>>().join(",")
    }

    fn flags(&self) -> [bool; 4] {
        [self.input, self.metadata, self.details, self.carried]
    }
}
