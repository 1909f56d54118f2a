//! `umbel import`: filters of other systems and of other servers, with the answers that they gave there.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::resp::{Address, Connection};
use crate::transfer::chunks::{self, Goal, Origin, Whose};
use crate::transfer::{HERE, Moved, PATIENCE, Show, Shown, expire_alike, outside, redisson, settle};

/// Brings filters of other systems, or of another server, into a server
///
/// They answer for every key as they did before, take more keys, and grow by layers, because the keys in them are not known. The old
/// one goes on meanwhile; if it was added to, that is said, and umbel verify compares the two. A filter that expires goes on doing so.
#[derive(clap::Args)]
#[command(
    after_help = "Passwords of the old server are better in REDISCLI_AUTH, and the address of the new one in UMBEL_TO, than on the command line.
Examples:
  umbel import redisbloom redis://old:6379 urls mails
  umbel import redisbloom redis://old:6379 --match 'seen:*' --to redis://new:6380
  umbel import redisson redis://old:6379 urls --replace
  umbel import guava urls.bin --as urls
  umbel import umbel redis://other:6380 urls --as urls-of-other"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// RedisBloom's Bloom filters, from a server by BF.SCANDUMP or from a file of recorded chunks
    #[command(name = "redisbloom")]
    RedisBloom(Keys),
    /// Filters of another Umbel server, of any kind, with their layers and all but their keys
    Umbel(Keys),
    /// Redisson's RBloomFilter, from Redis: the bitmap, in pieces, and what is in {NAME}:config. Keys of StringCodec and ByteArrayCodec
    /// are added and asked for as they are, those of other codecs as the bytes that the codec makes of them
    Redisson(Names),
    /// A file that Guava's BloomFilter.writeTo made. Keys are the bytes that the funnel gives: those of a text for stringFunnel(UTF_8)
    Guava(OneFile),
    /// A file of ours, from umbel export native or GET /v1/filters/{name}/snapshot
    Native(OneFile),
}

/// Where filters go. Flatten it into arguments.
#[derive(clap::Args)]
struct Into {
    /// The server that they come to
    #[arg(long, env = "UMBEL_TO", hide_env_values = true, default_value = HERE, value_name = "URL")]
    to: Address,
    /// Another name there
    #[arg(long = "as", value_name = "NAME")]
    rename: Option<String>,
    /// Puts it in the place of one that is there, once it has come as a whole
    #[arg(long)]
    replace: bool,
    /// Events as JSON, one a line
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Keys {
    /// `redis://[user:password@]host[:port][/database]`, or a file of chunks
    source: String,
    /// The filters
    keys: Vec<String>,
    /// All filters that this pattern fits, as SCAN reads it
    #[arg(long = "match", value_name = "PATTERN", conflicts_with = "keys")]
    pattern: Option<String>,
    #[command(flatten)]
    into: Into,
}

#[derive(clap::Args)]
struct Names {
    /// `redis://[user:password@]host[:port][/database]`
    source: Address,
    /// The filters, as Redisson calls them
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    into: Into,
}

#[derive(clap::Args)]
struct OneFile {
    /// The file
    file: PathBuf,
    #[command(flatten)]
    into: Into,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    match &arguments.what {
        What::RedisBloom(keys) | What::Umbel(keys) => match is_address(&keys.source) {
            true => live(keys),
            false => recorded(keys),
        },
        What::Redisson(names) => {
            let mut from = outside(&names.source)?;
            each(&names.into, &names.names, |to, name, new, show| bitmap(&mut from, to, name, new, show))
        }
        What::Guava(one) => whole_file(one, "guava"),
        What::Native(one) => whole_file(one, "native"),
    }
}

pub(crate) fn is_address(text: &str) -> bool {
    text.contains("://")
}

fn live(keys: &Keys) -> Result<(), Box<dyn Error>> {
    let mut from = outside(&keys.source.parse()?)?;
    let names = match &keys.pattern {
        Some(pattern) => chunks::matching(&mut from, pattern)?,
        None => keys.keys.clone(),
    };
    if names.is_empty() {
        return Err(match &keys.pattern {
            Some(pattern) => format!("{}: no filter fits {pattern:?}", from.address),
            None => "which filters? name them, or give --match '*' for all".to_owned(),
        }
        .into());
    }
    each(&keys.into, &names, |to, name, new, show| {
        let goal = Goal::Live { connection: to, name: new };
        let moved = chunks::copy(Origin::live(&mut from, name)?, goal, Whose::Anybodys, show)?;
        expire_alike((&mut from, name), (to, new))?;
        Ok(moved)
    })
}

fn recorded(keys: &Keys) -> Result<(), Box<dyn Error>> {
    if keys.pattern.is_some() || !keys.keys.is_empty() {
        return Err("a file has one filter, without a name: --as says what it is to be called".into());
    }
    let path = Path::new(&keys.source);
    each(&keys.into, &[stem(path)], |to, _, new, show| {
        let mut input = open(path)?;
        let goal = Goal::Live { connection: to, name: new };
        chunks::copy(Origin::Recorded(&mut input), goal, Whose::Anybodys, show)
    })
}

fn whole_file(one: &OneFile, format: &str) -> Result<(), Box<dyn Error>> {
    each(&one.into, &[stem(&one.file)], |to, _, new, show| {
        let mut input = open(&one.file)?;
        let length = input.get_ref().metadata().map_err(|error| error.to_string())?.len();
        show.whole(length);
        let mut counted = Counted { input: &mut input, show };
        to.demand_with(&["UMBEL.IMPORT", new, "FORMAT", format, "DATA"], length, &mut counted)?;
        Ok(Moved { bytes: length, has_changed: false })
    })
}

fn open(path: &Path) -> Result<BufReader<File>, String> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(BufReader::with_capacity(1 << 20, file))
}

/// What a file would be called as a filter.
fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn bitmap(
    from: &mut Connection,
    to: &mut Connection,
    name: &str,
    new: &str,
    show: &Show,
) -> Result<Moved, String> {
    let config = redisson::config(from, name)?;
    let mut bitmap = redisson::Bitmap::open(from, name, show)?;
    let bytes = bitmap.length();
    let words = [
        "UMBEL.IMPORT",
        new,
        "FORMAT",
        "redisson",
        "SIZE",
        &config.size.to_string(),
        "HASHITERATIONS",
        &config.hash_iterations.to_string(),
        "EXPECTEDINSERTIONS",
        &config.expected_insertions.to_string(),
        "FALSEPROBABILITY",
        &config.false_probability.to_string(),
        "DATA",
    ];
    to.demand_with(&words, bytes, &mut bitmap)?;
    let has_changed = bitmap.has_changed()?;
    expire_alike((from, name), (to, new))?;
    Ok(Moved { bytes, has_changed })
}

/// Brings filters one after another; one that cannot come does not hold up the others.
fn each(
    into: &Into,
    names: &[String],
    mut bring: impl FnMut(&mut Connection, &str, &str, &Show) -> Result<Moved, String>,
) -> Result<(), Box<dyn Error>> {
    if into.rename.is_some() && names.len() > 1 {
        return Err("--as is the name of one filter".into());
    }
    let (mut show, mut failed) = (Show::new(into.json), 0);
    for name in names {
        let new = into.rename.as_ref().unwrap_or(name);
        show.begin(name);
        // After an error in the middle of a request, nothing is known of a connection.
        let moved = Connection::open(&into.to, PATIENCE).and_then(|mut to| {
            settle(&mut to, new, into.replace, Shown::WhenWhole, |to, beside| bring(to, name, beside, &show))
        });
        match moved {
            Ok(moved) => show.done(name, &format!("{new} at {}", into.to), &moved),
            Err(error) if names.len() == 1 && !into.json => {
                show.clear();
                return Err(error.into());
            }
            Err(error) => {
                show.failed(name, &error);
                failed += 1;
            }
        }
    }
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} of {} filters did not come", names.len()).into()),
    }
}

/// Shows what is read of a file.
struct Counted<'a> {
    input: &'a mut dyn Read,
    show: &'a Show,
}

impl Read for Counted<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(bytes)?;
        self.show.moved(read as u64);
        Ok(read)
    }
}
