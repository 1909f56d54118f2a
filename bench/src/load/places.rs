//! The sources: how they are made, read without Umbel, and named to `umbel load`. All have the same keys.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::link::key;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 18;
/// Rows that are read or written at once.
const PIECE_ROWS: u64 = 8192;
/// Rows of a group of Parquet.
const GROUP_ROWS: u64 = 1_000_000;
const SCHEMA: &str = "message rows { required int64 id; required binary url (STRING); }";
/// The column with the keys.
const URL: usize = 1;

/// A place with keys.
pub(super) trait Place {
    fn name(&self) -> &'static str;

    /// Reads every key and throws it away, in one thread; how many there were.
    fn read(&mut self) -> Result<u64, Box<dyn Error>>;

    /// How `umbel load` finds it.
    fn arguments(&self) -> Vec<String>;
}

fn url(number: u64) -> String {
    String::from_utf8_lossy(&key(number)).into_owned()
}

/// The lines that can be read.
fn lines(mut from: impl Read) -> std::io::Result<u64> {
    let (mut piece, mut lines) = (vec![0; PIECE_BYTES], 0);
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(lines),
            count => lines += piece[..count].iter().filter(|byte| **byte == b'\n').count() as u64,
        }
    }
}

pub(super) struct Text(PathBuf);

impl Text {
    pub(super) fn make(folder: &Path, rows: u64) -> Result<Self, Box<dyn Error>> {
        let path = folder.join("keys.txt");
        let mut file = BufWriter::with_capacity(PIECE_BYTES, File::create(&path)?);
        for number in 0..rows {
            file.write_all(&key(number))?;
            file.write_all(b"\n")?;
        }
        file.flush()?;
        Ok(Self(path))
    }
}

impl Place for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn read(&mut self) -> Result<u64, Box<dyn Error>> {
        Ok(lines(File::open(&self.0)?)?)
    }

    fn arguments(&self) -> Vec<String> {
        vec![self.0.display().to_string()]
    }
}

pub(super) struct Parquet(PathBuf);

impl Parquet {
    pub(super) fn make(folder: &Path, rows: u64) -> Result<Self, Box<dyn Error>> {
        let path = folder.join("keys.parquet");
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(File::create(&path)?, schema, properties)?;
        for first in (0..rows).step_by(GROUP_ROWS as usize) {
            let (end, mut group) = ((first + GROUP_ROWS).min(rows), writer.next_row_group()?);
            let pieces = || {
                let begins = (first..end).step_by(PIECE_ROWS as usize);
                begins.map(|begin| begin..(begin + PIECE_ROWS).min(end))
            };
            let mut ids = group.next_column()?.ok_or("a schema without a column of numbers")?;
            for piece in pieces() {
                let values: Vec<i64> = piece.map(|number| number as i64).collect();
                ids.typed::<Int64Type>().write_batch(&values, None, None)?;
            }
            ids.close()?;
            let mut urls = group.next_column()?.ok_or("a schema without a column of keys")?;
            for piece in pieces() {
                let values: Vec<ByteArray> = piece.map(|number| ByteArray::from(key(number))).collect();
                urls.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            }
            urls.close()?;
            group.close()?;
        }
        writer.close()?;
        Ok(Self(path))
    }
}

impl Place for Parquet {
    fn name(&self) -> &'static str {
        "Parquet"
    }

    fn read(&mut self) -> Result<u64, Box<dyn Error>> {
        let reader = SerializedFileReader::new(File::open(&self.0)?)?;
        let (mut rows, mut values) = (0, Vec::new());
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group)?;
            let ColumnReader::ByteArrayColumnReader(mut column) = group.get_column_reader(URL)? else {
                return Err("a column of something else than text".into());
            };
            loop {
                values.clear();
                let (read, ..) = column.read_records(PIECE_ROWS as usize, None, None, &mut values)?;
                if read == 0 {
                    break;
                }
                black_box(&values);
                rows += read as u64;
            }
        }
        Ok(rows)
    }

    fn arguments(&self) -> Vec<String> {
        [&*self.0.display().to_string(), "--column", "url"].map(str::to_owned).into()
    }
}

pub(super) struct Sqlite(PathBuf);

impl Sqlite {
    pub(super) fn make(folder: &Path, rows: u64) -> Result<Self, Box<dyn Error>> {
        let path = folder.join("keys.db");
        let connection = rusqlite::Connection::open(&path)?;
        connection.execute_batch(
            "PRAGMA journal_mode = off; PRAGMA synchronous = off; \
             CREATE TABLE urls (id INTEGER PRIMARY KEY, url TEXT NOT NULL); BEGIN",
        )?;
        let mut insert = connection.prepare("INSERT INTO urls VALUES (?1, ?2)")?;
        for number in 0..rows {
            insert.execute((number as i64, url(number)))?;
        }
        connection.execute_batch("COMMIT")?;
        Ok(Self(path))
    }
}

impl Place for Sqlite {
    fn name(&self) -> &'static str {
        "SQLite"
    }

    fn read(&mut self) -> Result<u64, Box<dyn Error>> {
        let connection = rusqlite::Connection::open(&self.0)?;
        let mut statement = connection.prepare("SELECT url FROM urls")?;
        let (mut found, mut rows) = (statement.query([])?, 0);
        while let Some(row) = found.next()? {
            black_box(row.get_ref(0)?);
            rows += 1;
        }
        Ok(rows)
    }

    fn arguments(&self) -> Vec<String> {
        let address = format!("sqlite:{}", self.0.display());
        [&*address, "--table", "urls", "--column", "url"].map(str::to_owned).into()
    }
}

/// A table, which goes with this.
pub(super) struct Postgres {
    client: postgres::Client,
    address: String,
    table: String,
}

impl Postgres {
    pub(super) fn make(address: &str, rows: u64) -> Result<Self, Box<dyn Error>> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let client = postgres::Client::connect(address, postgres::NoTls)?;
        let mut made = Self { client, address: address.to_owned(), table: format!("umbel_bench_{time}") };
        let table = &made.table;
        let fill = format!(
            "CREATE TABLE {table} AS SELECT n AS id, 'https://example.org/' || n AS url \
             FROM generate_series(0::bigint, {rows} - 1) AS n"
        );
        for statement in [
            fill,
            format!("ALTER TABLE {table} ADD PRIMARY KEY (id)"),
            // What the first reader would do otherwise, which is no part of reading.
            format!("VACUUM ANALYZE {table}"),
        ] {
            made.client.batch_execute(&statement)?;
        }
        Ok(made)
    }
}

impl Place for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn read(&mut self) -> Result<u64, Box<dyn Error>> {
        let statement = format!("COPY {} (url) TO STDOUT", self.table);
        Ok(lines(self.client.copy_out(&*statement)?)?)
    }

    fn arguments(&self) -> Vec<String> {
        [&*self.address, "--table", &self.table, "--column", "url"].map(str::to_owned).into()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Err(error) = self.client.batch_execute(&format!("DROP TABLE IF EXISTS {}", self.table)) {
            eprintln!("the table {} stays: {error}", self.table);
        }
    }
}
