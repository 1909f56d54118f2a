//! `umbel inspect`: what a file of filters holds, and whether it is whole.

mod engine;

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use umbel_filter::format::{guava, native, redisbloom};
use umbel_filter::{Family, Filter, Geometry, Limits};

use crate::report::Report;
use crate::transfer::chunks::read_chunk;
use crate::units::{bytes, grouped, parse_bytes};

/// Says what a file holds and checks it: native filters, Guava's files, recorded chunks of `RedisBloom`, and every file of
/// an engine: the log's segments, the registry, manifests, arrays, archive runs
#[derive(clap::Args)]
#[command(after_help = "Examples:
  umbel inspect urls.umbel
  umbel inspect guava.bin --json
  umbel inspect umbel-data/log/0/00000000000000000000.log
  umbel inspect umbel-data/blobs/slots/0007/000000000001.manifest")]
pub(crate) struct Arguments {
    /// The file
    file: PathBuf,
    /// Most memory that the filter in it may take
    #[arg(long, default_value = "64GiB", value_parser = parse_bytes)]
    memory: u64,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

type Outcome<T> = Result<T, Box<dyn Error>>;

enum Content {
    Whole(&'static str, Filter),
    /// A filter of the keyed family cannot be built without its secret; its header can be shown.
    Header(native::Reader<BufReader<File>>),
    Engine(engine::Content),
}

pub(crate) fn run(arguments: &Arguments) -> Outcome<()> {
    let limits = Limits { filter_bytes_max: arguments.memory, ..Limits::default() };
    let name = arguments.file.display();
    let content = open(&arguments.file, &limits).map_err(|error| format!("{name}: {error}"))?;
    let mut report = Report::default();
    report.line("file", name.to_string()).field("file", name.to_string());
    match content {
        Content::Whole(format, filter) => describe(&mut report, format, &filter),
        Content::Header(reader) => {
            let why = "native, header only: the keyed family needs its secret for the rest";
            report.line("format", why).field("format", "native").spec(reader.spec());
        }
        Content::Engine(content) => engine::describe(&mut report, &content),
    }
    report.print(arguments.json);
    Ok(())
}

/// The filter in a file of any format.
pub(crate) fn read(path: &Path, limits: &Limits) -> Outcome<Filter> {
    match open(path, limits)? {
        Content::Whole(_, filter) => Ok(filter),
        Content::Header(_) => Err("a filter of the keyed family, which needs its secret".into()),
        Content::Engine(_) => Err("a file of an engine, and no filter".into()),
    }
}

fn open(path: &Path, limits: &Limits) -> Outcome<Content> {
    let file = || Ok::<_, std::io::Error>(BufReader::with_capacity(1 << 20, File::open(path)?));
    let length = std::fs::metadata(path)?.len();
    let mut start = [0; 8];
    let read = file()?.read(&mut start)?;
    if read == start.len() && native::is_native(&start) {
        let reader = native::Reader::open(file()?, limits)?;
        if reader.spec().family == Family::Keyed {
            return Ok(Content::Header(reader));
        }
        return Ok(Content::Whole("native", reader.filter(None)?));
    }
    if let Some(content) = engine::open(path, start)? {
        return Ok(Content::Engine(content));
    }
    // Guava has no magic number, but its length follows from its header.
    let words = u32::from_be_bytes([start[2], start[3], start[4], start[5]]);
    if start[0] <= 1 && start[1] > 0 && length == 6 + 8 * u64::from(words) {
        return Ok(Content::Whole("Guava", guava::read(file()?, limits)?));
    }
    // A recorded SCANDUMP begins with the cursor of the header, which is 1.
    if start == 1_u64.to_le_bytes() {
        return Ok(Content::Whole("RedisBloom chunks", read_chunks(file()?, limits)?));
    }
    Err("none of the formats that are known here; `umbel inspect --help` lists them".into())
}

/// Records of cursor, length and data, as `BF.SCANDUMP` gave them.
fn read_chunks(mut input: impl Read, limits: &Limits) -> Outcome<Filter> {
    let mut loader: Option<redisbloom::Loader> = None;
    while let Some((cursor, chunk)) = read_chunk(&mut input)? {
        match &mut loader {
            None => loader = Some(redisbloom::Loader::new(&chunk, limits)?),
            Some(loader) => loader.load(cursor, &chunk)?,
        }
    }
    Ok(loader.ok_or("no chunk in it")?.finish()?)
}

fn describe(report: &mut Report, format: &'static str, filter: &Filter) {
    let (spec, stats) = (filter.spec(), filter.stats());
    let geometry = match filter.geometry() {
        Geometry::Blocked { cell_bits, banks, lines } => {
            format!("{banks} x {} lines of 64 bytes, cells of {cell_bits} bits", grouped(lines.into()))
        }
        Geometry::Classic { bits, hashes } => format!("{} bits, {hashes} a key", grouped(bits.into())),
    };
    let digest = format!("{:032x}", filter.digest());
    report
        .line("format", format!("{format}, whole"))
        .spec(spec)
        .line("layout", format!("{}: {geometry}; family {}", spec.layout, spec.family))
        .line("bytes", format!("{} ({})", grouped(stats.bytes.into()), bytes(stats.bytes.into())))
        .line(
            "fill",
            format!("{:.2} % of the cells, about {:.0} keys", stats.fill * 100.0, stats.cardinality),
        )
        .line("error now", format!("{:.3e}", stats.error))
        .line("digest", &*digest);
    report
        .field("format", format)
        .field("bytes", stats.bytes)
        .field("fill", stats.fill)
        .field("cardinality", stats.cardinality)
        .field("error_now", stats.error)
        .field("digest", digest);
}
