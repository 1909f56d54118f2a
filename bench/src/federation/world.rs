//! Domains: databases behind a network, and their filters.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use umbel_core::clock::SystemClock;
use umbel_domains::source::{Relation, SqlRecords, Wanted};
use umbel_domains::{Catalog, Domain, Hot, HotSettings, Record, Source};
use umbel_filter::{Family, Filter, Hasher, Limits, Spec};

/// Connections to each database, as pools of applications have them.
const CONNECTIONS: usize = 16;

pub(crate) struct World {
    folder: PathBuf,
    pub(crate) sources: Vec<Arc<dyn Source>>,
    /// With filters, and without what was fetched before.
    pub(crate) cold: Arc<Catalog>,
    /// The same, and what is asked for often is kept.
    pub(crate) hot: Arc<Catalog>,
    pub(crate) records: u64,
}

/// A database elsewhere: the way takes time, and the connection is held meanwhile.
#[derive(Debug)]
struct Elsewhere {
    inner: SqlRecords,
    delay: Duration,
    connections: Semaphore,
}

#[async_trait]
impl Source for Elsewhere {
    async fn fetch(&self, key: &[u8]) -> umbel_domains::Result<Option<Record>> {
        let connection = self.connections.acquire().await;
        sleep(self.delay / 2).await;
        let found = self.inner.fetch(key).await;
        sleep(self.delay / 2).await;
        drop(connection);
        found
    }
}

/// The number of a record, of which nothing can be told where it is.
pub(crate) fn key(number: u64) -> String {
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl World {
    /// So many databases, each with so many records.
    pub(crate) fn make(domains: u16, records: u64, delay: Duration) -> Result<Self, Box<dyn Error>> {
        let folder = std::env::temp_dir().join(format!("umbel-federation-{}-{domains}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let (mut sources, mut filters) = (Vec::new(), Vec::new());
        for domain in 0..u64::from(domains) {
            let file = folder.join(format!("{domain}.db"));
            let mut database = rusqlite::Connection::open(&file)?;
            database.execute_batch("CREATE TABLE records (number TEXT PRIMARY KEY, title TEXT)")?;
            let filter = Filter::new(&Spec::counting(records, 0.001), &Limits::default())?;
            let transaction = database.transaction()?;
            for record in 0..records {
                let number = key(record * u64::from(domains) + domain);
                transaction
                    .execute("INSERT INTO records VALUES (?1, 'a title of some length')", [&number])?;
                filter.insert(&number)?;
            }
            transaction.commit()?;
            let wanted =
                Wanted::Row { table: Relation::table("records"), key: "number".into(), columns: Vec::new() };
            let inner = SqlRecords::new(&format!("sqlite:{}", file.display()), wanted, CONNECTIONS)?;
            let delay = if domain == 0 { Duration::ZERO } else { delay };
            sources.push(Arc::new(Elsewhere { inner, delay, connections: Semaphore::new(CONNECTIONS) })
                as Arc<dyn Source>);
            filters.push(Arc::new(filter));
        }
        let catalog = || -> Result<Catalog, umbel_domains::Error> {
            let mut domains = sources.iter().zip(&filters).enumerate().map(|(number, (source, filter))| {
                let domain = Domain::new(&format!("domain-{number}"))?;
                Ok(domain.held(Arc::clone(filter) as _).source(Arc::clone(source)))
            });
            let local = domains.next().unwrap_or_else(|| Domain::new("none"))?;
            let catalog = Catalog::new(local);
            domains.try_for_each(|domain| catalog.join(domain?))?;
            Ok(catalog)
        };
        let hasher = Hasher::new(Family::default(), None)?;
        let kept = Hot::new(HotSettings::default(), hasher, Arc::new(SystemClock::default()));
        let (cold, hot) = (Arc::new(catalog()?), Arc::new(catalog()?.with_hot(Arc::new(kept))));
        Ok(Self { folder, sources, cold, hot, records: records * u64::from(domains) })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // It is in the system's temporary folder.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
