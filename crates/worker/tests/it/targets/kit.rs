//! A simulated shop, a rule for it, and what became of its targets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;
use waypost_kernel::Phase;
use waypost_simulate::Running;
use waypost_simulate::shop::{CatalogueFlags, Options, Settings, Shop as Simulated};
use waypost_store::{CommandWrite, Database, ItemRow, Preview, RunRow};
use waypost_worker::playbook::Playbook;
use waypost_worker::targets::gather::{NotGathered, gather};
use waypost_worker::targets::source::Reader;

use crate::support::Shop;

/// Quick, unless a test says otherwise.
pub fn settings(faults: &[&str]) -> Settings {
    let mut settings = Settings {
        rate: 100_000.0,
        burst: 100_000.0,
        cost_rate: 100_000.0,
        cost_burst: 100_000.0,
        ..Settings::default()
    };
    for fault in faults {
        settings.faults.set(fault, waypost_simulate::shop::FAULTS).unwrap();
    }
    settings
}

pub struct Stage {
    /// The worker's side.
    pub own: Shop,
    pub shop: Running<Simulated>,
    pub products: u64,
    before: Vec<i64>,
}

pub const REST: &str = r#"[apply]
http = { method = "PUT", url = "{{ inputs.shop }}/products/{{ target.id }}", json = { price = "{{ target.after }}" }, allow_private = true }
timeout = "5s"
"#;

impl Stage {
    pub fn new(store: Arc<dyn Database>, products: u64, settings: Settings) -> Stage {
        Stage::with_token(store, products, settings, None)
    }

    pub fn with_token(
        store: Arc<dyn Database>,
        products: u64,
        settings: Settings,
        token: Option<&str>,
    ) -> Stage {
        let catalogue =
            CatalogueFlags { products: Some(products), free: Some(0.05), ..CatalogueFlags::default() };
        let options = Options { catalogue, settings, token: token.map(str::to_owned), ..Options::default() };
        let shop = Simulated::open(options).unwrap();
        let before: Vec<i64> = (1..=products).map(|id| shop.price_cents(id).unwrap()).collect();
        let shop = shop.serve("127.0.0.1:0".parse().unwrap()).unwrap();
        Stage { own: Shop::on(store), shop, products, before }
    }

    /// Every product a Euro more; `rest` are the sections beside `[targets]`.
    pub fn playbook(&mut self, rest: &str) -> Playbook {
        let mut csv = "id,product_id,before\n".to_owned();
        for (id, cents) in (1..).zip(&self.before) {
            let product = (id - 1) / 4 + 1;
            csv.push_str(&format!("{id},{product},{}.{:02}\n", cents / 100, cents % 100));
        }
        std::fs::write(self.own.path("prices.csv"), csv).unwrap();
        let head = "name = \"prices\"\nlifecycle = \"rule\"\n[targets]\ncsv = \"prices.csv\"\nafter = \"{{ target.before + 1 }}\"\n";
        self.own.playbook(&format!("{head}{rest}"))
    }

    pub async fn draft(&self, playbook: &Playbook) -> RunRow {
        let catalog = self.own.store.lifecycles().await.unwrap();
        let new = playbook.new_run(&catalog, &json!({ "shop": self.shop.url() })).unwrap();
        let id = self.own.enqueue(new).await;
        self.own.run(&id).await
    }

    pub async fn gathered(&self, playbook: &Playbook) -> Result<(RunRow, Preview), NotGathered> {
        let run = self.draft(playbook).await;
        let rule = playbook.rule.as_ref().unwrap();
        let reader = Reader::of_person("default", run.id()).unwrap();
        let preview = gather(&*self.own.store, &run, (playbook, rule), "ann", reader).await?;
        Ok((self.own.run(run.id()).await, preview))
    }

    pub async fn ask(&self, id: &str, command: &str) {
        self.own.command(CommandWrite { name: command.to_owned(), ..Shop::cancelling(id) }).await;
    }

    /// Gathered and queued.
    pub async fn queued(&mut self, rest: &str) -> String {
        let playbook = self.playbook(rest);
        let (run, _) = self.gathered(&playbook).await.unwrap_or_else(|problem| panic!("{problem}"));
        self.ask(run.id(), "queue").await;
        run.id().to_owned()
    }

    /// Worked until it is settled: it may be given back to wait meanwhile.
    pub async fn worked(&self, id: &str) -> RunRow {
        loop {
            self.own.work().await;
            let run = self.own.run(id).await;
            if run.phase() == Phase::Settled {
                return run;
            }
        }
    }

    pub async fn targets(&self, id: &str) -> BTreeMap<u64, ItemRow> {
        let items = self.own.store.items(id.to_owned(), None).await.unwrap();
        items.into_iter().map(|item| (item.key.parse().unwrap(), item)).collect()
    }

    /// How many targets are in which state, with their class.
    pub async fn counted(&self, id: &str) -> BTreeMap<String, usize> {
        let mut counted = BTreeMap::new();
        for item in self.targets(id).await.values() {
            let class = item.failure.as_ref().map(|failure| format!(" {}", failure.code)).unwrap_or_default();
            *counted.entry(format!("{}{class}", item.status)).or_default() += 1;
        }
        counted
    }

    /// The products that were changed by clients: each once, to what the target says, under its key.
    pub async fn changed_once(&self, id: &str) -> BTreeSet<u64> {
        let targets = self.targets(id).await;
        let shop = self.shop.state();
        let mut changed = BTreeSet::new();
        for change in shop.changes().iter().filter(|change| change.via != "drift") {
            assert!(changed.insert(change.id), "{} was changed twice: {change:?}", change.id);
            let target = &targets[&change.id];
            let cents = target.details["after"].as_f64().map(|after| (after * 100.0).round() as i64);
            assert_eq!(Some(change.to_cents), cents, "{change:?}");
            let key = change.key.as_deref().unwrap_or_default();
            assert!(key.starts_with(&format!("{id}:{}:apply:", change.id)), "{key}");
        }
        changed
    }

    pub fn refused_for_good(&self) -> BTreeSet<u64> {
        let shop = self.shop.state();
        (1..=self.products).filter(|id| shop.is_hit("permanent", *id)).collect()
    }
}
