//! What is known to fail, by the names of the checks, until it is mended. A check outside of this list must hold.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub check: &'static str,
    pub why: &'static str,
}

const ON_POSTGRES: &[Known] = &[];

pub fn known(on_postgres: bool) -> &'static [Known] {
    if on_postgres { ON_POSTGRES } else { &[] }
}
