//! A shop whose prices are changed in bulk: REST and enough of Shopify's GraphQL, with their limits, what goes wrong
//! on demand, and a ledger of every change with the key that it came with.
//!
//! A product is what has a price. GraphQL calls it a variant, and puts several of them into one product of its own.

mod admin;
mod calls;
mod catalogue;
mod graphql;
mod ledger;
mod money;
mod rest;
mod settings;
mod stats;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub use catalogue::{Catalogue, CatalogueFlags};
pub use ledger::Change;
pub use settings::{FAULTS, Settings};

use crate::serving::{Bucket, Faults, Now, Reply, Request, Route, Running, Shown, Simulator, Tally, shown};
use catalogue::Product;
use ledger::Ledger;
use stats::Stats;

/// What a shop is started with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the ledger is kept; without one it ends with the process.
    pub dir: Option<PathBuf>,
    pub catalogue: CatalogueFlags,
    pub settings: Settings,
    /// Calls of the shop's own routes need it, those of `/admin` do not.
    pub token: Option<String>,
}

#[derive(Debug)]
pub struct Shop {
    catalogue: Catalogue,
    products: Vec<Product>,
    ledger: Ledger,
    settings: Settings,
    requests: Bucket,
    costs: Bucket,
    tally: Tally,
    stats: Stats,
    token: Option<String>,
}

impl Shop {
    pub fn open(options: Options) -> io::Result<Shop> {
        let Options { dir, catalogue, settings, token } = options;
        settings.check().map_err(invalid)?;
        let catalogue = match &dir {
            Some(dir) => kept_catalogue(dir, &catalogue)?,
            None => catalogue.catalogue().map_err(invalid)?,
        };
        let mut products = catalogue.products();
        let ledger = Ledger::open(dir.as_deref())?;
        for change in ledger.changes() {
            let product = catalogue.index(change.id).and_then(|at| products.get_mut(at));
            let product = product.ok_or_else(|| {
                invalid(format!("the ledger changes product {}, which is not in shop.json", change.id))
            })?;
            product.change(change.to_cents, change.at_ms);
        }
        Ok(Shop {
            catalogue,
            products,
            ledger,
            requests: Bucket::new(settings.rate, settings.burst),
            costs: Bucket::new(settings.cost_rate, settings.cost_burst),
            settings,
            tally: Tally::default(),
            stats: Stats::default(),
            token,
        })
    }

    pub fn serve(self, listen: SocketAddr) -> io::Result<Running<Shop>> {
        Running::start(listen, self)
    }

    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Every change of a price, in order.
    pub fn changes(&self) -> &[Change] {
        self.ledger.changes()
    }

    /// Nothing goes wrong any more, and faults count from the beginning.
    pub fn heal(&mut self) {
        self.settings.faults = Faults::default();
        self.tally.clear();
    }

    /// One of its faults is gone, and the others count from the beginning.
    pub fn cure(&mut self, fault: &str) {
        self.settings.faults.0.remove(fault);
        self.tally.clear();
    }

    /// How often each fault hit somebody.
    pub fn faults_met(&self) -> &BTreeMap<&'static str, u64> {
        self.stats.faults()
    }

    /// Something else changes these prices now.
    pub fn drift_now(&mut self, ids: &[u64]) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Now { unix_ms: since_1970.as_millis() as u64, elapsed_us: 0 };
        // A ledger in memory takes it.
        let _ = self.drift(ids, self.settings.drift_percent, now);
    }

    /// Calls that were too many.
    pub fn throttled(&self) -> u64 {
        self.stats.throttled()
    }

    pub fn price_cents(&self, id: u64) -> Option<i64> {
        Some(self.products.get(self.catalogue.index(id)?)?.price_cents)
    }

    /// Whether the fault hits this product at some time.
    pub fn is_hit(&self, fault: &str, id: u64) -> bool {
        self.settings.faults.is_drawn(self.settings.seed, fault, &id.to_string())
    }
}

impl Simulator for Shop {
    fn answer(&mut self, request: &Request, now: Now) -> Reply {
        if request.path.starts_with("/admin/") && !request.path.starts_with("/admin/api/") {
            return Route::dispatch(admin::ROUTES, self, request, now);
        }
        self.call(request, now)
    }
}

/// Every route, for the documentation.
pub fn routes() -> Vec<Shown> {
    [shown(rest::ROUTES), shown(admin::ROUTES)].concat()
}

fn invalid(problem: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem.into())
}

/// A folder that has a shop in it keeps it; flags that say otherwise are a mistake.
fn kept_catalogue(dir: &Path, flags: &CatalogueFlags) -> io::Result<Catalogue> {
    std::fs::create_dir_all(dir)?;
    let path = dir.join("shop.json");
    if path.exists() {
        let kept: Catalogue = serde_json::from_slice(&std::fs::read(&path)?)
            .map_err(|error| invalid(format!("{}: {error}", path.display())))?;
        flags.agree_with(&kept).map_err(|problem| invalid(format!("{}: {problem}", path.display())))?;
        return Ok(kept);
    }
    let catalogue = flags.catalogue().map_err(invalid)?;
    // Written beside it and renamed: a start that was killed leaves no half of it.
    let new = dir.join("shop.json.new");
    std::fs::write(&new, serde_json::to_vec(&catalogue)?)?;
    std::fs::rename(&new, &path)?;
    Ok(catalogue)
}
