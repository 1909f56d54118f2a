//! The table of a session, by way of `psql`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::step::{Failure, output};

pub(super) const NAME: &str = "umbel_session_links";
pub(super) const COLUMN: &str = "url";

/// A table of links. It is dropped in the end.
pub(super) struct Table {
    url: String,
}

impl Table {
    pub(super) fn make(address: &str, rows: u64) -> Result<Self, Failure> {
        let table = Self { url: format!("postgres://umbel@{address}/postgres") };
        table.run(&format!("DROP TABLE IF EXISTS {NAME}"))?;
        table.run(&format!(
            "CREATE TABLE {NAME} (id bigserial PRIMARY KEY, {COLUMN} text NOT NULL); \
             INSERT INTO {NAME} ({COLUMN}) SELECT 'https://example.org/' || n FROM generate_series(1, {rows}) n"
        ))?;
        table.run(&format!("ANALYZE {NAME}"))?;
        Ok(table)
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    fn psql(&self) -> Command {
        let mut command = Command::new("psql");
        command.args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", &self.url]);
        command
    }

    fn run(&self, statement: &str) -> Result<(), Failure> {
        output(self.psql().args(["-c", statement])).map(drop)
    }

    /// Hands all keys to `take`, some at a time.
    pub(super) fn each(
        &self,
        together: usize,
        mut take: impl FnMut(&[String]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let statement = format!("COPY {NAME} ({COLUMN}) TO STDOUT");
        let mut copy = self.psql().args(["-c", &statement]).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(copy.stdout.take().ok_or("no output")?).lines();
        loop {
            let keys = lines.by_ref().take(together).collect::<Result<Vec<_>, _>>()?;
            if keys.is_empty() {
                break;
            }
            take(&keys)?;
        }
        if copy.wait()?.success() { Ok(()) } else { Err("the table could not be read".into()) }
    }

    /// A connection that inserts.
    pub(super) fn inserter(&self) -> Result<Inserter, Failure> {
        let mut process = self.psql().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take().ok_or("no input")?;
        let output = BufReader::new(process.stdout.take().ok_or("no output")?);
        Ok(Inserter { process, input: Some(input), output })
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // The service's data are thrown away in any case.
        let _ = self.run(&format!("DROP TABLE IF EXISTS {NAME}"));
    }
}

/// A `psql` that inserts rows.
pub(super) struct Inserter {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Inserter {
    /// Inserts rows; when it returns, they are there.
    pub(super) fn insert(&mut self, keys: &[String]) -> Result<(), Failure> {
        // The keys are our own, and have no quotes.
        let rows: Vec<String> = keys.iter().map(|key| format!("('{key}')")).collect();
        let statement =
            format!("INSERT INTO {NAME} ({COLUMN}) VALUES {};\n\\echo inserted\n", rows.join(","));
        let input = self.input.as_mut().ok_or("it has ended")?;
        input.write_all(statement.as_bytes())?;
        input.flush()?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.trim_end() == "inserted" { Ok(()) } else { Err(format!("not inserted: {line:?}").into()) }
    }
}

impl Drop for Inserter {
    fn drop(&mut self) {
        // Without input it ends.
        drop(self.input.take());
        let _ = self.process.wait();
    }
}
