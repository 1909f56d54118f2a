//! Tables of every database, compared with the rows that were written into them. SQLite is tried everywhere; PostgreSQL and
//! MariaDB where `cargo xtask services` left them.
#![cfg(feature = "sqlite")]

mod common;
#[path = "../../adapters/tests/common/mod.rs"]
mod services;

use std::collections::BTreeMap;
use std::path::PathBuf;

use umbel_load::sql::{Asked, Datum, Records, Relation, SqlSource, Wanted};
use umbel_load::{Batch, Bookmark, Error, Result, Source};

use common::{said, sorted, texts};

/// A database that tests may write to.
trait Place {
    fn address(&self) -> String;
    fn run(&mut self, statement: &str);
    /// A name as it quotes it.
    fn quoted(&self, name: &str) -> String;
    /// A text with an order that follows from its bytes.
    fn text_type(&self) -> &'static str;
}

struct Sqlite {
    folder: PathBuf,
    connection: rusqlite::Connection,
}

impl Sqlite {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("umbel-sqlite-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let connection = rusqlite::Connection::open(folder.join("shop.db")).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        Self { folder, connection }
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Place for Sqlite {
    fn address(&self) -> String {
        format!("sqlite:{}", self.folder.join("shop.db").display())
    }

    fn run(&mut self, statement: &str) {
        self.connection.execute_batch(statement).unwrap();
    }

    fn quoted(&self, name: &str) -> String {
        format!("\"{}\"", name.replace('"', "\"\""))
    }

    fn text_type(&self) -> &'static str {
        "TEXT"
    }
}

fn table(name: &str, column: &str, key: &[&str]) -> Asked {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    Asked {
        relation: Relation::table(name),
        columns: names(&column.split(',').collect::<Vec<_>>()),
        separator: ":".into(),
        key: names(key),
    }
}

fn query(text: &str, column: &str, key: &[&str]) -> Asked {
    Asked { relation: Relation::Query(text.into()), ..table("", column, key) }
}

fn read(
    place: &dyn Place,
    asked: Asked,
    parts: usize,
    is_resumed: bool,
) -> Result<(Vec<String>, u64, usize)> {
    common::read(&SqlSource::open(&place.address(), asked)?, parts, is_resumed)
}

/// Writes rows, many with one statement.
fn insert(place: &mut dyn Place, table: &str, rows: &[String]) {
    for rows in rows.chunks(500) {
        place.run(&format!("INSERT INTO {} VALUES {}", place.quoted(table), rows.join(", ")));
    }
}

fn numbers_with_gaps(place: &mut dyn Place) {
    place.run(&format!("CREATE TABLE gaps (id BIGINT NOT NULL PRIMARY KEY, url {})", place.text_type()));
    let id = |number: i64| number * 37 - 500_000 + number * number / 11;
    let mut expected = Vec::new();
    let rows: Vec<String> = (0..50_000_i64)
        .map(|number| {
            if number % 10 == 3 {
                return format!("({}, NULL)", id(number));
            }
            expected.push(format!("https://example.org/{number}"));
            format!("({}, 'https://example.org/{number}')", id(number))
        })
        .collect();
    insert(place, "gaps", &rows);
    for parts in [1, 4] {
        for is_resumed in [false, true] {
            let (keys, nulls, _) = read(place, table("gaps", "url", &[]), parts, is_resumed).unwrap();
            assert!(sorted(keys) == sorted(expected.clone()), "{parts} parts");
            assert_eq!(nulls, 5_000);
        }
    }
    // A number as a key of the filter, and two columns as one.
    let (keys, ..) = read(place, table("gaps", "id", &[]), 3, false).unwrap();
    assert_eq!(keys.len(), 50_000);
    assert!(keys.contains(&id(7).to_string()));
    let (keys, nulls, _) = read(place, table("gaps", "id,url", &["id"]), 2, false).unwrap();
    assert_eq!((keys.len(), nulls), (45_000, 5_000));
    assert!(keys.contains(&format!("{}:https://example.org/7", id(7))));
}

fn keys_of_several_columns(place: &mut dyn Place) {
    let text = place.text_type();
    place.run(&format!(
        "CREATE TABLE tenants (tenant {text} NOT NULL, id BIGINT NOT NULL, PRIMARY KEY (tenant, id))"
    ));
    let tenants = ["", "a'b", "ab\"", "b%", "zé", "zz", "\\"];
    let mut expected = Vec::new();
    let mut rows = Vec::new();
    for (number, tenant) in tenants.iter().enumerate() {
        for id in 0..3_000 + number * 1_111 {
            expected.push(format!("{tenant}:{id}"));
            let escaped =
                tenant.replace('\'', "''").replace('\\', if text == "TEXT" { "\\" } else { "\\\\" });
            rows.push(format!("('{escaped}', {id})"));
        }
    }
    insert(place, "tenants", &rows);
    for (parts, is_resumed) in [(1, true), (5, false), (5, true)] {
        let (keys, nulls, _) = read(place, table("tenants", "tenant,id", &[]), parts, is_resumed).unwrap();
        assert!(sorted(keys) == sorted(expected.clone()), "{parts} parts");
        assert_eq!(nulls, 0);
    }
}

fn text_keys(place: &mut dyn Place) {
    let text = place.text_type();
    place.run(&format!("CREATE TABLE words (word {text} NOT NULL PRIMARY KEY)"));
    let words: Vec<String> = (0..45_000_u64)
        .map(|number| format!("{:x}-{number}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20))
        .chain(["Straße".into(), " ".into(), "\u{1f33f}".into(), "it''s".into()])
        .collect();
    let rows: Vec<String> = words.iter().map(|word| format!("('{word}')")).collect();
    insert(place, "words", &rows);
    let expected = sorted(words.iter().map(|word| word.replace("''", "'")).collect());
    for (parts, is_resumed) in [(1, false), (3, true)] {
        let (keys, _, cut) = read(place, table("words", "word", &["word"]), parts, is_resumed).unwrap();
        assert!(sorted(keys) == expected, "{parts} parts");
        assert_eq!(cut, parts, "cut where keys are");
    }
}

fn queries(place: &mut dyn Place) {
    let gaps = "SELECT id, url FROM gaps WHERE id > 0 -- only these\n;";
    let (keys, nulls, parts) = read(place, query(gaps, "url", &["id"]), 4, true).unwrap();
    let (all, ..) = read(place, table("gaps", "id", &[]), 1, false).unwrap();
    let above = all.iter().filter(|id| !id.starts_with('-') && *id != "0").count();
    assert_eq!((keys.len() + nulls as usize, parts), (above, 1));
    let no_key = said(read(place, query(gaps, "url", &[]), 1, false));
    assert!(no_key.contains("--key"), "{no_key}");
    let doubled = "SELECT 1 AS one, url FROM gaps";
    let twice = said(read(place, query(doubled, "url", &["one"]), 1, false));
    assert!(twice.contains("the same --key"), "{twice}");
    let null = said(read(place, query(gaps, "id", &["url"]), 1, false));
    assert!(null.contains("NULL"), "{null}");
}

fn rows_that_come_meanwhile(place: &mut dyn Place) {
    place.run("CREATE TABLE growing (id BIGINT PRIMARY KEY)");
    insert(place, "growing", &(0..25_000).map(|id| format!("({id})")).collect::<Vec<_>>());
    let source = SqlSource::open(&place.address(), table("growing", "id", &[])).unwrap();
    let parts = source.parts(1).unwrap();
    let (mut batch, mut seen) = (Batch::default(), BTreeMap::new());
    let mut cursor = source.open(&parts[0], None).unwrap();
    let mut next = 25_000;
    while cursor.next(&mut batch).unwrap().is_some() {
        texts(&batch).for_each(|key| *seen.entry(key).or_insert(0) += 1);
        batch.clear();
        if next < 27_000 {
            insert(place, "growing", &(next..next + 1_000).map(|id| format!("({id})")).collect::<Vec<_>>());
            next += 1_000;
        }
    }
    assert_eq!(seen.len(), 27_000);
    assert!(seen.values().all(|count| *count == 1));
    assert_eq!(source.tail(&parts), Some(&parts[0]));
}

fn odd_names(place: &mut dyn Place) {
    let (odd, column) = ("a\"b`c'; DROP TABLE gaps; --", "select\"`'");
    let (quoted, quoted_column) = (place.quoted(odd), place.quoted(column));
    place.run(&format!("CREATE TABLE {quoted} ({quoted_column} BIGINT PRIMARY KEY)"));
    place.run(&format!("INSERT INTO {quoted} VALUES (5)"));
    let asked = Asked {
        relation: Relation::Table { schema: None, name: odd.into() },
        columns: vec![column.into()],
        ..table("", "", &[])
    };
    assert_eq!(read(place, Asked { key: vec![], ..asked }, 1, false).unwrap().0, ["5"]);
    assert!(read(place, table("gaps", "id", &[]), 1, false).is_ok(), "gaps is still there");
}

fn what_cannot_be_read(place: &mut dyn Place) {
    let wrong = said(read(place, table("gaps", "uri", &[]), 1, false));
    assert!(wrong.contains("\"uri\"") && wrong.contains("id, url"), "{wrong}");
    let no_table = said(read(place, table("nothing", "url", &[]), 1, false));
    assert!(no_table.contains("nothing"), "{no_table}");
    let not_unique = said(read(place, table("gaps", "url", &["url"]), 1, false));
    assert!(not_unique.contains("no unique key") && not_unique.contains("id"), "{not_unique}");
    place.run("CREATE TABLE empty (id BIGINT PRIMARY KEY)");
    assert_eq!(read(place, table("empty", "id", &[]), 4, false).unwrap(), (vec![], 0, 1));
    let source = SqlSource::open(&place.address(), table("gaps", "url", &[])).unwrap();
    let part = &source.parts(1).unwrap()[0];
    for bad in ["", "[]", "[{\"i\":1},{\"i\":2}]", "7"] {
        let bookmark = Bookmark::new(bad).unwrap();
        assert!(matches!(source.open(part, Some(&bookmark)), Err(Error::Corrupt(_))), "{bad}");
    }
}

/// One record by its key, as lookups across domains fetch it.
fn records_by_their_keys(place: &mut dyn Place) {
    let text = place.text_type();
    place.run(&format!("CREATE TABLE shelf (number {text} NOT NULL PRIMARY KEY, id BIGINT NOT NULL UNIQUE, title {text}, pages BIGINT)"));
    insert(
        place,
        "shelf",
        &[
            "('a-1', 7, 'One', 100)".into(),
            "('it''s', -8, NULL, 200)".into(),
            "('é', 9, 'Three', NULL)".into(),
        ],
    );
    let row = |key: &str, columns: &[&str]| Wanted::Row {
        table: Relation::table("shelf"),
        key: key.into(),
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
    };
    let open = |wanted| Records::new(&place.address(), wanted).unwrap().open().unwrap();
    let fields = |fields: &[(&str, Datum)]| {
        Some(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect::<Vec<_>>())
    };
    let mut by_number = open(row("number", &["title", "pages"]));
    // PostgreSQL gives numbers as text.
    let mut find = |key: &[u8]| {
        let as_text = |datum| match datum {
            Datum::Int(number) => Datum::Text(number.to_string()),
            other => other,
        };
        let found = by_number.find(key).unwrap();
        found.map(|fields| fields.into_iter().map(|(name, datum)| (name, as_text(datum))).collect::<Vec<_>>())
    };
    let text = |text: &str| Datum::Text(text.into());
    let one = fields(&[("title", text("One")), ("pages", text("100"))]);
    assert_eq!(find(b"a-1"), one);
    assert_eq!(find(b"it's"), fields(&[("title", Datum::Null), ("pages", text("200"))]));
    assert_eq!(find("é".as_bytes()), fields(&[("title", text("Three")), ("pages", Datum::Null)]));
    // What only looks like a key, or like a statement, finds nothing; and the connection goes on.
    for other in [&b"A-1"[..], b"a-1 ", b"' OR '1'='1", b"'; DROP TABLE shelf; --", b"", b"%"] {
        assert_eq!(find(other), None, "{other:?}");
    }
    assert_eq!(find(b"a-1"), one);
    let mut by_id = open(row("id", &["title"]));
    assert_eq!(by_id.find(b"7").unwrap(), fields(&[("title", Datum::Text("One".into()))]));
    assert_eq!(by_id.find(b"-8").unwrap(), fields(&[("title", Datum::Null)]));
    assert_eq!(by_id.find(b"07").unwrap(), None);
    let query = "SELECT title, number FROM shelf WHERE number = :key OR title = :key";
    let mut by_query = open(Wanted::Query { text: query.into(), key: Some("number".into()) });
    let both = fields(&[("title", Datum::Text("One".into())), ("number", Datum::Text("a-1".into()))]);
    assert_eq!(by_query.find(b"a-1").unwrap(), both);
    assert_eq!(by_query.find(b"One").unwrap(), None, "a row with another key");
    let lost = Wanted::Query { text: "SELECT * FROM nowhere WHERE a = :key".into(), key: None };
    assert!(Records::new(&place.address(), lost).unwrap().open().is_err());
}

fn all(place: &mut dyn Place) {
    records_by_their_keys(place);
    numbers_with_gaps(place);
    keys_of_several_columns(place);
    text_keys(place);
    queries(place);
    rows_that_come_meanwhile(place);
    odd_names(place);
    what_cannot_be_read(place);
}

#[test]
fn sqlite() {
    let mut place = Sqlite::new("all");
    all(&mut place);
    // Tables without a primary key, with one that may have NULL, and without numbers of rows; bytes and real numbers.
    place.run("CREATE TABLE bare (v BLOB); INSERT INTO bare VALUES (x'00ff'), (1.5), (NULL), ('text')");
    let (keys, nulls, _) = read(&place, table("bare", "v", &[]), 1, true).unwrap();
    assert_eq!((keys.len(), nulls), (3, 1));
    place.run("CREATE TABLE old (name TEXT PRIMARY KEY); INSERT INTO old VALUES ('a'), (NULL), (NULL)");
    assert_eq!(read(&place, table("old", "name", &[]), 1, false).unwrap(), (vec!["a".into()], 2, 1));
    assert!(said(read(&place, table("old", "name", &["name"]), 1, false)).contains("no unique key"));
    place.run("CREATE TABLE pairs (a TEXT, b INT, PRIMARY KEY (b, a)) WITHOUT ROWID; INSERT INTO pairs VALUES ('x', 1)");
    assert_eq!(read(&place, table("pairs", "a", &[]), 1, true).unwrap().0, ["x"]);
    place.run("CREATE VIEW seen AS SELECT * FROM gaps");
    assert!(said(read(&place, table("seen", "url", &[]), 1, false)).contains("no primary key"));
    assert!(said(SqlSource::open("sqlite:", table("t", "c", &[]))).contains("names no file"));
    assert!(said(SqlSource::open("sqlite:/nowhere/x.db", table("t", "c", &[]))).contains("/nowhere/x.db"));
    // Nothing here may be written to.
    let harm = query("SELECT 1 AS id) AS x; DROP TABLE gaps; --", "id", &["id"]);
    assert!(read(&place, harm, 1, false).is_err());
    assert!(read(&place, table("gaps", "url", &[]), 1, false).is_ok());
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::services::{Service, fresh, passed, service};
    use super::*;

    struct Postgres {
        address: String,
        client: postgres::Client,
    }

    impl Place for Postgres {
        fn address(&self) -> String {
            self.address.clone()
        }

        fn run(&mut self, statement: &str) {
            self.client.batch_execute(statement).unwrap();
        }

        fn quoted(&self, name: &str) -> String {
            format!("\"{}\"", name.replace('"', "\"\""))
        }

        fn text_type(&self) -> &'static str {
            "TEXT"
        }
    }

    fn place(service: &Service) -> Postgres {
        let base = format!("postgres://umbel@{}", service.address());
        let mut client = postgres::Client::connect(&format!("{base}/postgres"), postgres::NoTls).unwrap();
        let database = fresh("umbel").replace('-', "_");
        client.batch_execute(&format!("CREATE DATABASE {database}")).unwrap();
        let address = format!("{base}/{database}");
        let client = postgres::Client::connect(&address, postgres::NoTls).unwrap();
        Postgres { address, client }
    }

    #[test]
    #[ignore = "needs real servers; cargo xtask services start"]
    fn postgres() {
        let Some(service) = service("postgres") else { return };
        let mut place = place(&service);
        all(&mut place);
        place.run("CREATE TABLE ids (id UUID PRIMARY KEY, at TIMESTAMPTZ NOT NULL UNIQUE, data BYTEA)");
        place.run("INSERT INTO ids SELECT gen_random_uuid(), now() + n * interval '1.000001 s', decode('00ff', 'hex') FROM generate_series(1, 60000) n");
        place.run("ANALYZE ids");
        let (by_id, _, parts) = read(&place, table("ids", "id", &[]), 3, true).unwrap();
        assert_eq!((by_id.len(), parts), (60_000, 3));
        let (by_time, ..) = read(&place, table("ids", "id", &["at"]), 3, true).unwrap();
        assert!(sorted(by_id) == sorted(by_time));
        let (bytes, ..) = read(&place, table("ids", "data", &[]), 1, false).unwrap();
        assert_eq!((bytes.len(), &*bytes[0]), (60_000, "\0\u{fffd}"));
        let harm = query("SELECT 1 AS id) AS x; DROP TABLE gaps; --", "id", &["id"]);
        assert!(read(&place, harm, 1, false).is_err());
        passed(
            &service,
            "keys",
            "tables are read",
            "numbers, texts, pairs, identifiers and times as keys; queries; rows that come meanwhile; records by their keys",
        );
    }
}

#[cfg(feature = "mysql")]
mod on_mariadb {
    use mysql::prelude::Queryable;

    use super::services::{fresh, passed, service};
    use super::*;

    struct Mariadb {
        address: String,
        connection: mysql::Conn,
    }

    impl Place for Mariadb {
        fn address(&self) -> String {
            self.address.replace("mysql://", "mariadb://")
        }

        fn run(&mut self, statement: &str) {
            self.connection.query_drop(statement).unwrap();
        }

        fn quoted(&self, name: &str) -> String {
            format!("`{}`", name.replace('`', "``"))
        }

        fn text_type(&self) -> &'static str {
            "VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        }
    }

    #[test]
    #[ignore = "needs real servers; cargo xtask services start"]
    fn mariadb() {
        let Some(service) = service("mariadb") else { return };
        let base = format!("mysql://umbel@{}", service.address());
        let mut connection = mysql::Conn::new(mysql::Opts::from_url(&base).unwrap()).unwrap();
        let database = fresh("umbel").replace('-', "_");
        connection.query_drop(format!("CREATE DATABASE {database} CHARACTER SET utf8mb4")).unwrap();
        let address = format!("{base}/{database}");
        let connection = mysql::Conn::new(mysql::Opts::from_url(&address).unwrap()).unwrap();
        let mut place = Mariadb { address, connection };
        all(&mut place);
        // Words that are alike to this order but not to a filter.
        place.run("CREATE TABLE folded (w VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, at DATETIME(6) NOT NULL UNIQUE, price DECIMAL(40,4) NOT NULL UNIQUE)");
        let rows: Vec<String> = (0..30_000)
            .map(|number| {
                format!(
                    "('{}{number}', '2024-01-01 00:00:00.{number:06}', 90071992547409930000.{number:04})",
                    if number % 2 == 0 { "Ä" } else { "a" }
                )
            })
            .collect();
        insert(&mut place, "folded", &rows[..9_999]);
        for key in ["w", "at", "price"] {
            let (keys, ..) = read(&place, table("folded", "w", &[key]), 2, true).unwrap();
            assert_eq!(keys.len(), 9_999, "by {key}");
        }
        place.run("CREATE TABLE wide (number BIGINT UNSIGNED PRIMARY KEY, bytes BINARY(16) NOT NULL UNIQUE, id UUID NOT NULL UNIQUE)");
        place.run(
            "INSERT INTO wide SELECT 18446744073709551615 - seq, UNHEX(MD5(seq)), UUID() FROM seq_1_to_20000",
        );
        for key in ["number", "bytes", "id"] {
            let (mut keys, ..) = read(&place, table("wide", "number", &[key]), 3, true).unwrap();
            keys.retain(|number| number.starts_with("184467440737095"));
            assert_eq!(keys.len(), 20_000, "by {key}");
        }
        let (bytes, ..) = read(&place, table("wide", "bytes", &["number"]), 1, false).unwrap();
        assert_eq!(bytes.len(), 20_000);
        passed(
            &service,
            "keys",
            "tables are read",
            "numbers, texts, pairs, times, decimals, bytes and identifiers as keys; queries; rows that come meanwhile; records by their keys",
        );
    }
}
