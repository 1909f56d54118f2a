//! Files: text, CSV and JSON, compressed or not, one or many, or standard input; or objects in a bucket.

#[cfg(feature = "s3")]
mod bucket;
mod csv;
mod fields;
mod json;
mod lines;
mod opened;
#[cfg(feature = "parquet")]
mod parquet;
pub(crate) mod picker;
mod place;
mod records;
mod split;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::limits::{FIELD_DEPTH_MAX, KEY_COLUMNS_MAX};
use crate::{Bookmark, Cursor, Error, Part, Result, Source};
use opened::{Identity, Opened};
use place::Place;

/// What stands for standard input in place of a path.
pub const STDIN: &str = "-";

/// How keys stand in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// A key in each line.
    Lines,
    /// Columns of records. A key that consists of several of them has the separator in between.
    Csv(Csv),
    /// A field of an object in each line: `url`, or `request.url` for one inside another.
    Json {
        /// The names on the way to the field.
        field: Vec<String>,
    },
    /// A column of a Parquet file.
    Parquet {
        /// Its name, with dots if it is inside another.
        column: String,
    },
}

/// How keys stand in a CSV file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Csv {
    /// Names from the first record; numbers, from 1, if that is none of names.
    pub columns: Vec<String>,
    /// What stands between the values of several columns.
    pub separator: String,
    /// What stands between fields: a comma, or a tabulator in `.tsv`.
    pub delimiter: u8,
    /// Whether the first record has names.
    pub has_header: bool,
}

impl Format {
    /// A field of JSON by the path that people write.
    pub fn json(path: &str) -> Result<Self> {
        Ok(Self::Json { field: field(path)? })
    }

    /// Columns of CSV.
    pub fn csv(csv: Csv) -> Result<Self> {
        if csv.columns.is_empty() || csv.columns.len() > KEY_COLUMNS_MAX {
            return Err(Error::Invalid(format!("a key has 1 to {KEY_COLUMNS_MAX} columns")));
        }
        Ok(Self::Csv(csv))
    }

    /// What the name of a file says of it: `csv`, `tsv`, `json`, `parquet` or `lines`, whatever it is packed with.
    pub fn guess(path: &str) -> &'static str {
        let name = path.to_ascii_lowercase();
        // Behind it, an address may have parameters.
        let name = name.split_once("://").map_or(&*name, |(_, rest)| rest.split('?').next().unwrap_or(rest));
        let name = [".gz", ".zst", ".zstd"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        match name.rsplit_once('.').map_or("", |(_, end)| end) {
            "csv" => "csv",
            "tsv" => "tsv",
            "json" | "jsonl" | "ndjson" => "json",
            "parquet" => "parquet",
            _ => "lines",
        }
    }

    /// Text that is the same for formats that find the same keys.
    fn identity(&self) -> String {
        match self {
            Self::Lines => "lines".into(),
            Self::Csv(csv) => format!("csv {csv:?}"),
            Self::Json { field } => format!("json {field:?}"),
            Self::Parquet { column } => format!("parquet {column:?}"),
        }
    }
}

/// The names on the way to a field of JSON, from the path that people write.
pub fn field(path: &str) -> Result<Vec<String>> {
    let field: Vec<_> = path.split('.').map(str::to_owned).collect();
    if field.iter().any(String::is_empty) || field.len() > FIELD_DEPTH_MAX {
        return Err(Error::Invalid(format!("{path:?} is no field, such as url or request.url")));
    }
    Ok(field)
}

/// Files that have their keys in the same format.
#[derive(Clone)]
pub struct Files {
    place: Place,
    /// How the place is called, without secrets.
    names: Vec<String>,
    format: Format,
}

/// A part of this source, as checkpoints have it.
#[derive(Serialize, Deserialize)]
struct Piece {
    path: PathBuf,
    identity: Identity,
    /// The bytes in which its lines begin; of Parquet, the numbers of its row groups.
    from: u64,
    to: Option<u64>,
}

impl Files {
    /// Files by their paths or by patterns such as `logs/*.gz`; or `-`, alone; or `s3://bucket/folder`, which may be a pattern too.
    pub fn new(patterns: &[String], format: Format) -> Result<Self> {
        if patterns.is_empty() || (patterns.len() > 1 && patterns.iter().any(|pattern| pattern == STDIN)) {
            return Err(Error::Invalid("files are named, or standard input (-), alone".into()));
        }
        let is_parquet = matches!(format, Format::Parquet { .. });
        if is_parquet && patterns[0] == STDIN {
            return Err(Error::Invalid("Parquet is read from files: its end says what is in it".into()));
        }
        if is_parquet && cfg!(not(feature = "parquet")) {
            return Err(Error::Invalid("this build lacks Parquet; rebuild with --features parquet".into()));
        }
        let place = Place::of(patterns)?;
        Ok(Self { names: place.names(), place, format })
    }

    fn is_stdin(&self) -> bool {
        self.names[0] == STDIN
    }

    fn pieces(&self, path: &Path, wanted: usize) -> Result<Vec<(u64, u64)>> {
        #[cfg(feature = "parquet")]
        if let Format::Parquet { column } = &self.format {
            return parquet::pieces(self.place.parquet(path)?, column, wanted);
        }
        let opened = self.place.open(path)?;
        let can_split = matches!(self.format, Format::Lines | Format::Json { .. }) && opened.is_plain();
        Ok(split::pieces(opened.bytes(), if can_split { wanted } else { 1 }))
    }
}

impl Source for Files {
    fn name(&self) -> String {
        if self.is_stdin() { "standard input".into() } else { self.names.join(" ") }
    }

    fn identity(&self) -> String {
        format!("files {:?} as {}", self.names, self.format.identity())
    }

    fn is_resumable(&self) -> bool {
        !self.is_stdin()
    }

    fn parts(&self, wanted: usize) -> Result<Vec<Part>> {
        if self.is_stdin() {
            let name = self.name();
            return Ok(vec![Part { name, bounds: STDIN.into(), bytes: None, rows: None }]);
        }
        let found = self.place.find()?;
        let each = wanted.div_ceil(found.len());
        let mut parts = Vec::new();
        for (path, identity) in found {
            let pieces = self.pieces(&path, each)?;
            let (count, bytes) = (pieces.len() as u64, identity.bytes());
            for (number, (from, to)) in pieces.into_iter().enumerate() {
                let is_last = number as u64 + 1 == count;
                let is_parquet = matches!(self.format, Format::Parquet { .. });
                let mut name = path.display().to_string();
                if count > 1 {
                    name.push_str(&format!(" [{} of {count}]", number + 1));
                }
                // The last piece is read to the end, wherever that is by then.
                let to = (is_parquet || !is_last).then_some(to);
                let length = if is_parquet { bytes / count } else { to.unwrap_or(bytes) - from };
                let piece = Piece { path: path.clone(), identity, from, to };
                let bounds = serde_json::to_string(&piece)
                    .map_err(|error| Error::Invalid(format!("{}: {error}", path.display())))?;
                parts.push(Part { name, bounds, bytes: Some(length), rows: None });
            }
        }
        Ok(parts)
    }

    fn open(&self, part: &Part, after: Option<&Bookmark>) -> Result<Box<dyn Cursor>> {
        let at = after.map(|bookmark| bookmark.as_str().to_owned());
        if self.is_stdin() {
            if after.is_some() {
                return Err(Error::Invalid("standard input cannot be read again".into()));
            }
            return self.read(&Opened::stdin, 0, None, None, &part.name);
        }
        let piece: Piece = serde_json::from_str(&part.bounds)
            .map_err(|error| Error::Corrupt(format!("a part of these files: {error}")))?;
        self.place.check(&piece.path, piece.identity)?;
        #[cfg(feature = "parquet")]
        if let Format::Parquet { column } = &self.format {
            let to = piece.to.unwrap_or(u64::MAX);
            let file = self.place.parquet(&piece.path)?;
            return parquet::open(file, column, piece.from, to, at.as_deref());
        }
        let at = match at {
            None => None,
            Some(text) => Some(
                text.parse::<u64>()
                    .map_err(|_| Error::Corrupt(format!("{}: {text:?} is no place in a file", part.name)))?,
            ),
        };
        self.read(&|| self.place.open(&piece.path), piece.from, piece.to, at, &part.name)
    }
}

impl Files {
    fn read(
        &self,
        open: &dyn Fn() -> Result<Opened>,
        from: u64,
        to: Option<u64>,
        at: Option<u64>,
        name: &str,
    ) -> Result<Box<dyn Cursor>> {
        let name = name.to_owned();
        Ok(match &self.format {
            Format::Lines => Box::new(lines::Lines::open(open()?, from, to, at, name)?),
            Format::Json { field } => Box::new(json::Json::open(open()?, field.clone(), from, to, at, name)?),
            Format::Csv(csv) => {
                let resumed = at.map(|at| Ok::<_, Error>((open()?, at))).transpose()?;
                Box::new(csv::Records::open(open()?, csv, resumed, name)?)
            }
            Format::Parquet { .. } => {
                return Err(Error::Invalid(
                    "this build lacks Parquet; rebuild with --features parquet".into(),
                ));
            }
        })
    }
}

#[cfg(test)]
mod tests;
