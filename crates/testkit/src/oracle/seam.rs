//! The seam, verb by verb: each is the function of the same name.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use waypost_kernel::{Catalog, Lifecycle, Span, Time};
use waypost_store::*;

use super::MemoryStore;

macro_rules! verbs {
    ($($(#[$_about:meta])* $verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $verb(&self, $($name: $type),*) -> Reply<'_, $answer> {
            MemoryStore::$verb(self, $($name),*)
        })*
    };
}

impl Store for MemoryStore {
    store_verbs!(verbs);

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.wait_for_change(at_most))
    }
}

impl Housekeeping for MemoryStore {
    housekeeping_verbs!(verbs);
}
