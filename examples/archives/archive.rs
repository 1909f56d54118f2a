//! One archive: a deployment of its own, with everything embedded.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use umbel::domains::Domains;
use umbel_client::Server as Api;
use umbel_core::clock::SystemClock;
use umbel_core::disk::{Disk, RealDisk};
use umbel_core::engine::{Engine, NewFilter, Settings as EngineSettings};
use umbel_core::log;
use umbel_core::random::SystemRandom;
use umbel_core::registry::Registry;
use umbel_domains::changes::{Drain, Effect, SqliteOutbox, Table};
use umbel_domains::service::{CatalogSettings, Means, Service, Settings};
use umbel_domains::source::{Relation, SqlRecords, Wanted};
use umbel_domains::{Catalog, EngineFilter, HotSettings, Value};
use umbel_filter::Spec;
use umbel_server::chores::Chores;
use umbel_server::config::Config;
use umbel_server::node::Node;
use umbel_server::server::Server;

use crate::records::Record;

/// What all archives have together, and what their filters are called.
pub(crate) const CATALOG: &str = "records";
const CONNECTIONS: usize = 4;
const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS records (number TEXT PRIMARY KEY, title TEXT, year INTEGER, shelf TEXT)";

pub(crate) type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

pub(crate) struct Archive {
    name: &'static str,
    node: Arc<Node>,
    server: Server,
    chores: Chores,
    domains: Arc<Domains>,
    outbox: Arc<SqliteOutbox>,
    table: Table,
    drain: Drain,
    /// Its own door, as the page asks it.
    pub(crate) api: Api,
}

impl Archive {
    pub(crate) async fn open(name: &'static str, folder: &Path, registry: Arc<dyn Registry>) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
        let chores = Chores::start(&[any_port])?;
        let http = format!("http://{}", chores.addresses()[0]);

        // The filter, with a log that it can be made from again.
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let builder = Engine::builder(EngineSettings::default());
        let engine = builder.in_folder(&disk, &folder.join("data"), &log::Settings::new(""))?.open().await?;
        engine.start()?;
        if engine.filter(CATALOG).is_none() {
            engine.create(NewFilter::new(CATALOG, Spec::counting(50_000, 0.001))).await?;
        }
        let node = Arc::new(Node::new(engine, Config::default(), 1)?);

        // The records, and beside them the changes that the filter has not heard of yet.
        let file = folder.join("records.db");
        let random = SystemRandom::default();
        let outbox = Arc::new(SqliteOutbox::open(&file, &random)?);
        outbox.change(|transaction| Ok(transaction.execute_batch(TABLE)?))?;

        let wanted =
            Wanted::Row { table: Relation::table("records"), key: "number".into(), columns: Vec::new() };
        let source = SqlRecords::new(&format!("sqlite:{}", file.display()), wanted, CONNECTIONS)?;
        let catalog = CatalogSettings {
            source: Some(Arc::new(source)),
            stale_after: Duration::from_secs(5),
            hot: HotSettings { found_for: Duration::from_secs(20), ..HotSettings::default() },
            ..CatalogSettings::new(CATALOG)
        };
        let settings = Settings {
            name: name.into(),
            address: http.clone(),
            catalogs: vec![catalog],
            neighbours: Vec::new(),
            lease: Duration::from_secs(10),
        };
        let means = Means {
            engine: Arc::clone(&node.engine),
            registry: Some(registry),
            runtime: Handle::current(),
            clock: Arc::new(SystemClock::default()),
            random: Arc::new(random),
        };
        let domains = Arc::new(Domains::new(Service::open(settings, &means)?));
        // Nobody else sets it.
        let _ = node.lookups.set(Arc::clone(&domains) as _);
        let filter = EngineFilter::new(Arc::clone(&node.engine), CATALOG);
        let mut drain = Drain::new(Arc::clone(&outbox) as _, Arc::new(filter));
        if let Some(hot) = domains.service().catalog(CATALOG).and_then(|catalog| catalog.hot()) {
            drain = drain.forgetting(Arc::clone(hot));
        }
        let server = Server::start(&node, &[any_port], 1)?;
        chores.watch(&node, None);
        let (table, api) = (Table::new("records", "number")?, Api::new(&http, None)?);
        Ok(Self { name, node, server, chores, domains, outbox, table, drain, api })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.chores.addresses()[0]
    }

    pub(crate) fn resp(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    /// What it knows of all archives.
    pub(crate) fn catalog(&self) -> Option<&Arc<Catalog>> {
        self.domains.service().catalog(CATALOG)
    }

    /// How many records there are.
    pub(crate) async fn records(&self) -> Result<u64> {
        let count = "SELECT count(*) FROM records";
        let count: i64 = self
            .change(move |transaction, _| Ok(transaction.query_row(count, [], |row| row.get(0))?))
            .await?;
        Ok(count.unsigned_abs())
    }

    /// Adds many records at once.
    pub(crate) async fn fill(&self, records: impl Iterator<Item = Record> + Send + 'static) -> Result {
        self.change(|transaction, table| {
            for record in records {
                let columns = [
                    ("title", Value::Text(record.title)),
                    ("year", Value::Int(record.year.into())),
                    ("shelf", Value::Text(record.shelf)),
                ];
                table.put(transaction, record.number.to_string().as_bytes(), &columns)?;
            }
            Ok(())
        })
        .await?;
        self.drain.run().await?;
        Ok(())
    }

    /// Adds a record, or gives it another title. The filter has heard of it when this returns; should the process end before, it hears of
    /// it at the next start.
    pub(crate) async fn put(&self, number: String, title: String) -> Result<Effect> {
        let effect = self
            .change(move |transaction, table| {
                let columns = [("title", Value::Text(title)), ("shelf", Value::Text("NEW".into()))];
                table.put(transaction, number.as_bytes(), &columns)
            })
            .await?;
        self.drain.run().await?;
        Ok(effect)
    }

    /// Erases a record; whether there was one.
    pub(crate) async fn erase(&self, number: String) -> Result<bool> {
        let erased =
            self.change(move |transaction, table| table.erase(transaction, number.as_bytes())).await?;
        self.drain.run().await?;
        Ok(erased)
    }

    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&rusqlite::Transaction<'_>, &Table) -> umbel_domains::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (outbox, table) = (Arc::clone(&self.outbox), self.table.clone());
        Ok(spawn_blocking(move || outbox.change(|transaction| work(transaction, &table))).await??)
    }

    pub(crate) async fn close(&self) -> Result {
        self.domains.rest().await?;
        self.node.stop.stop();
        Ok(self.node.engine.close().await?)
    }
}
