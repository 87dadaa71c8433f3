//! Lifecycles that nobody meant, for both stores.

use std::sync::OnceLock;

use waypost_testkit::lifecycles::{Family, families};

use super::side::Side;

/// Enough that each has something of its own, and few enough for one database to know them all.
const FAMILIES: usize = 64;

pub fn all() -> &'static [Family] {
    static ALL: OnceLock<Vec<Family>> = OnceLock::new();
    ALL.get_or_init(|| families(FAMILIES))
}

impl Side {
    /// A database that knows them already answers as the first time.
    pub async fn add_made(&mut self, picks: [u8; 2]) {
        for pick in picks {
            let family = &all()[usize::from(pick) % FAMILIES];
            for file in &family.files {
                let added = self.store.add_lifecycle(file.clone(), "tests".into()).await;
                let added = added.unwrap_or_else(|error| panic!("{error}\n{file}"));
                if *added.name == family.name {
                    self.made.push(added);
                }
            }
        }
    }
}
