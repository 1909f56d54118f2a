//! Databases with records and an outbox.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use umbel_core::random::SeededRandom;
use umbel_domains::changes::{Effect, Outbox, SqliteOutbox, Table};
use umbel_domains::{Error, Result, Value};

/// A database with a table `records`, whose key is `number` and which has a `title`.
pub(crate) trait Database: Send + Sync + 'static {
    /// Somebody with a connection.
    fn user(&self) -> Arc<dyn User>;

    fn rows(&self) -> BTreeSet<String>;

    fn run(&self, statement: &str);
}

/// Whoever changes records.
pub(crate) trait User: Outbox {
    fn put(&self, key: &str) -> Effect;

    fn erase(&self, key: &str) -> bool;

    /// Puts a record, and takes it back in the same transaction.
    fn put_in_vain(&self, key: &str);

    fn waiting(&self) -> u64;
}

fn title(key: &str) -> [(&'static str, Value); 1] {
    [("title", Value::Text(format!("the title of {key}")))]
}

fn never_mind<T>(failed: Result<T>) {
    assert!(matches!(failed, Err(Error::Invalid(why)) if why == "never mind"));
}

pub(crate) struct Sqlite {
    path: PathBuf,
}

impl Sqlite {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("umbel-changes-{name}-{}.db", std::process::id()));
        let database = Self { path };
        database.remove_files();
        let connection = rusqlite::Connection::open(&database.path).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        connection.execute_batch("CREATE TABLE records (number TEXT PRIMARY KEY, title TEXT)").unwrap();
        database
    }

    fn remove_files(&self) {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", self.path.display()));
        }
    }

    pub(crate) fn connection(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(&self.path).unwrap();
        connection.pragma_update(None, "synchronous", "off").unwrap();
        connection
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.remove_files();
    }
}

impl Database for Sqlite {
    fn user(&self) -> Arc<dyn User> {
        Arc::new(SqliteOutbox::of(self.connection(), &SeededRandom::new(7)).unwrap())
    }

    fn rows(&self) -> BTreeSet<String> {
        let connection = self.connection();
        let mut statement = connection.prepare("SELECT number FROM records").unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(|row| row.unwrap()).collect()
    }

    fn run(&self, statement: &str) {
        self.connection().execute(statement, []).unwrap();
    }
}

fn table() -> Table {
    Table::new("records", "number").unwrap()
}

impl User for SqliteOutbox {
    fn put(&self, key: &str) -> Effect {
        self.change(|transaction| table().put(transaction, key.as_bytes(), &title(key))).unwrap()
    }

    fn erase(&self, key: &str) -> bool {
        self.change(|transaction| table().erase(transaction, key.as_bytes())).unwrap()
    }

    fn put_in_vain(&self, key: &str) {
        never_mind(self.change(|transaction| {
            table().put(transaction, key.as_bytes(), &[])?;
            Err::<(), _>(Error::Invalid("never mind".into()))
        }));
    }

    fn waiting(&self) -> u64 {
        Self::waiting(self).unwrap()
    }
}

/// Databases that are servers, and wait on threads which may not run tasks.
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod servers {
    use mysql::prelude::Queryable;
    use umbel_domains::changes::{Batch, MysqlOutbox, MysqlTable, PostgresOutbox, PostgresTable};
    use umbel_load::sql::clients;

    use super::*;
    use crate::common::{Service, fresh, passed, service};
    use crate::{dies, follows, threads};

    fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    /// Tries again what others were in the way of.
    fn in_the_end<T: Send>(work: impl Fn() -> Result<T> + Send + Sync) -> T {
        apart(|| {
            loop {
                match work() {
                    Err(Error::Retry(_)) => std::thread::sleep(std::time::Duration::from_millis(1)),
                    done => return done.unwrap(),
                }
            }
        })
    }

    /// What waits does so elsewhere.
    #[derive(Debug)]
    struct Apart<T>(T);

    struct Postgres(String);

    impl Postgres {
        fn new(service: &Service) -> Self {
            let base = format!("postgres://umbel@{}", service.address());
            apart(|| {
                let mut client = clients::postgres(&format!("{base}/postgres")).unwrap();
                let name = fresh("umbel").replace('-', "_");
                client.batch_execute(&format!("CREATE DATABASE {name}")).unwrap();
                let database = Self(format!("{base}/{name}"));
                clients::postgres(&database.0)
                    .unwrap()
                    .batch_execute(
                        "CREATE TABLE records (number TEXT PRIMARY KEY, title TEXT);
                         CREATE TABLE numbers (number INTEGER PRIMARY KEY); CREATE TABLE raw (key BYTEA UNIQUE)",
                    )
                    .unwrap();
                database
            })
        }
    }

    impl Database for Postgres {
        fn user(&self) -> Arc<dyn User> {
            Arc::new(Apart(in_the_end(|| PostgresOutbox::open(&self.0, &SeededRandom::new(7)))))
        }

        fn rows(&self) -> BTreeSet<String> {
            apart(|| {
                let rows =
                    clients::postgres(&self.0).unwrap().query("SELECT number FROM records", &[]).unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            })
        }

        fn run(&self, statement: &str) {
            apart(|| clients::postgres(&self.0).unwrap().batch_execute(statement).unwrap());
        }
    }

    impl Outbox for Apart<PostgresOutbox> {
        fn claim(&self) -> Result<Option<Batch>> {
            self.0.claim()
        }

        fn finish(&self, number: u64) -> Result<()> {
            self.0.finish(number)
        }
    }

    impl User for Apart<PostgresOutbox> {
        fn put(&self, key: &str) -> Effect {
            let table = PostgresTable::new("records", "number").unwrap();
            in_the_end(|| self.0.change(|transaction| table.put(transaction, key.as_bytes(), &title(key))))
        }

        fn erase(&self, key: &str) -> bool {
            let table = PostgresTable::new("records", "number").unwrap();
            in_the_end(|| self.0.change(|transaction| table.erase(transaction, key.as_bytes())))
        }

        fn put_in_vain(&self, key: &str) {
            let table = PostgresTable::new("records", "number").unwrap();
            apart(|| {
                never_mind(self.0.change(|transaction| {
                    table.put(transaction, key.as_bytes(), &[])?;
                    Err::<(), _>(Error::Invalid("never mind".into()))
                }));
            });
        }

        fn waiting(&self) -> u64 {
            apart(|| self.0.waiting().unwrap())
        }
    }

    struct Mariadb(String);

    impl Mariadb {
        fn new(service: &Service) -> Self {
            let base = format!("mariadb://umbel@{}", service.address());
            let name = fresh("umbel").replace('-', "_");
            let mut connection = clients::mysql(&base, &[]).unwrap();
            connection.query_drop(format!("CREATE DATABASE {name} CHARACTER SET utf8mb4")).unwrap();
            let database = Self(format!("{base}/{name}"));
            database.run(
                "CREATE TABLE records (number VARCHAR(100) COLLATE utf8mb4_bin PRIMARY KEY, title TEXT)",
            );
            database.run("CREATE TABLE numbers (number INTEGER PRIMARY KEY)");
            database.run("CREATE TABLE raw (`key` VARBINARY(100) UNIQUE)");
            database
        }
    }

    impl Database for Mariadb {
        fn user(&self) -> Arc<dyn User> {
            Arc::new(Apart(in_the_end(|| MysqlOutbox::open(&self.0, &SeededRandom::new(7)))))
        }

        fn rows(&self) -> BTreeSet<String> {
            let rows: Vec<String> =
                clients::mysql(&self.0, &[]).unwrap().query("SELECT number FROM records").unwrap();
            rows.into_iter().collect()
        }

        fn run(&self, statement: &str) {
            clients::mysql(&self.0, &[]).unwrap().query_drop(statement).unwrap();
        }
    }

    impl Outbox for Apart<MysqlOutbox> {
        fn claim(&self) -> Result<Option<Batch>> {
            self.0.claim()
        }

        fn finish(&self, number: u64) -> Result<()> {
            self.0.finish(number)
        }
    }

    impl User for Apart<MysqlOutbox> {
        fn put(&self, key: &str) -> Effect {
            let table = MysqlTable::new("records", "number").unwrap();
            in_the_end(|| self.0.change(|transaction| table.put(transaction, key.as_bytes(), &title(key))))
        }

        fn erase(&self, key: &str) -> bool {
            let table = MysqlTable::new("records", "number").unwrap();
            in_the_end(|| self.0.change(|transaction| table.erase(transaction, key.as_bytes())))
        }

        fn put_in_vain(&self, key: &str) {
            let table = MysqlTable::new("records", "number").unwrap();
            never_mind(self.0.change(|transaction| {
                table.put(transaction, key.as_bytes(), &[])?;
                Err::<(), _>(Error::Invalid("never mind".into()))
            }));
        }

        fn waiting(&self) -> u64 {
            self.0.waiting().unwrap()
        }
    }

    /// What the outbox has of keys that the database writes in its own way.
    fn noted(outbox: &dyn Outbox) -> Vec<(Vec<u8>, Effect)> {
        let batch = outbox.claim().unwrap().unwrap();
        assert_eq!(outbox.claim().unwrap().unwrap(), batch, "what was claimed stays as it is");
        batch.changes.into_iter().map(|change| (change.key, change.effect)).collect()
    }

    fn expected() -> Vec<(Vec<u8>, Effect)> {
        use Effect::{Added, Changed, Erased};
        let changes =
            [(&b"7"[..], Added), (b"7", Changed), (b"7", Erased), (&[0xff, 0], Added), (&[0xff, 0], Erased)];
        changes.into_iter().map(|(key, effect)| (key.to_vec(), effect)).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs real servers; `cargo xtask planes` starts them"]
    async fn postgres_has_an_outbox() {
        let Some(service) = service("postgres") else { return };
        follows(Postgres::new(&service)).await;
        dies(|_| Postgres::new(&service)).await;
        threads(|_| Postgres::new(&service)).await;
        apart(|| {
            let (numbers, raw) = (PostgresTable::new("numbers", "number"), PostgresTable::new("raw", "key"));
            let (numbers, raw) = (numbers.unwrap(), raw.unwrap());
            let outbox = PostgresOutbox::open(&Postgres::new(&service).0, &SeededRandom::new(1)).unwrap();
            let work = |transaction: &mut postgres::Transaction<'_>| {
                numbers.put(transaction, b"007", &[])?;
                numbers.put(transaction, b"7", &[])?;
                assert!(numbers.erase(transaction, b"07")?);
                raw.put(transaction, &[0xff, 0], &[])?;
                assert!(raw.erase(transaction, &[0xff, 0])? && !raw.erase(transaction, b"' OR 1=1 --")?);
                Ok(())
            };
            outbox.change(work).unwrap();
            assert_eq!(noted(&outbox), expected());
        });
        passed(&service, "outbox", "a drain that dies at any step; many threads", "the filter ends up exact");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs real servers; `cargo xtask planes` starts them"]
    async fn mariadb_has_an_outbox() {
        let Some(service) = service("mariadb") else { return };
        follows(Mariadb::new(&service)).await;
        dies(|_| Mariadb::new(&service)).await;
        threads(|_| Mariadb::new(&service)).await;
        let (numbers, raw) = (MysqlTable::new("numbers", "number"), MysqlTable::new("raw", "key"));
        let (numbers, raw) = (numbers.unwrap(), raw.unwrap());
        let outbox = MysqlOutbox::open(&Mariadb::new(&service).0, &SeededRandom::new(1)).unwrap();
        let work = |transaction: &mut mysql::Transaction<'_>| {
            numbers.put(transaction, b"007", &[])?;
            numbers.put(transaction, b"7", &[])?;
            assert!(numbers.erase(transaction, b"07")?);
            raw.put(transaction, &[0xff, 0], &[])?;
            assert!(raw.erase(transaction, &[0xff, 0])? && !raw.erase(transaction, b"' OR 1=1 --")?);
            Ok(())
        };
        outbox.change(work).unwrap();
        assert_eq!(noted(&outbox), expected());
        passed(&service, "outbox", "a drain that dies at any step; many threads", "the filter ends up exact");
    }
}
