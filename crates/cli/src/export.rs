//! `umbel export`: filters of a server, for other systems and other servers.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::import::is_address;
use crate::resp::{Address, Connection, Value, shown};
use crate::transfer::chunks::{self, Goal, Origin, Whose};
use crate::transfer::redisson::{PIECE_BYTES, config_key};
use crate::transfer::{HERE, Moved, PATIENCE, Show, Shown, beside, expire_alike, is_there, outside, settle};

/// Writes a filter of a server for other systems, or brings it to another server
///
/// A system reads filters of its own hash family only: murmur3 for Guava, redisson for Redisson; for RedisBloom the filter has to have its
/// layout, as those have that came from there. A filter that grew without its keys (see umbel import) has several arrays, and none of the other formats has room for them.
#[derive(clap::Args)]
#[command(
    after_help = "A reply of the server is as long as its output_bytes_max allows (64 MiB, unless it is told otherwise); larger files for Guava come by
curl 'http://host:6381/v1/filters/urls/snapshot?format=guava', which has no limit.
Examples:
  umbel export guava urls urls.bin
  umbel export redisson urls redis://old:6379 --replace
  umbel export redisbloom urls redis://old:6379 --as urls-back
  umbel export redisbloom urls urls.chunks --from redis://10.0.0.1:6380
  umbel export umbel urls redis://other:6380"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// A file that Guava's BloomFilter.readFrom takes
    Guava(ToFile),
    /// A file of ours
    Native(ToFile),
    /// An RBloomFilter in Redis, bitmap and {NAME}:config
    Redisson(ToServer),
    /// A filter in RedisBloom, by BF.LOADCHUNK, or a file of chunks
    #[command(name = "redisbloom")]
    RedisBloom(ToEither),
    /// A filter of another Umbel server
    Umbel(ToEither),
}

/// What all of them have. Flatten it into arguments.
#[derive(clap::Args)]
struct Common {
    /// The server that has the filter
    #[arg(long, env = "UMBEL_FROM", hide_env_values = true, default_value = HERE, value_name = "URL")]
    from: Address,
    /// Writes over what is there
    #[arg(long)]
    replace: bool,
    /// Events as JSON, one a line
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ToFile {
    /// The filter
    filter: String,
    /// The file
    file: PathBuf,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct ToServer {
    /// The filter
    filter: String,
    /// `redis://[user:password@]host[:port][/database]`
    to: Address,
    /// Another name there
    #[arg(long = "as", value_name = "NAME")]
    rename: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct ToEither {
    /// The filter
    filter: String,
    /// `redis://[user:password@]host[:port][/database]`, or a file
    to: String,
    /// Another name there
    #[arg(long = "as", value_name = "NAME")]
    rename: Option<String>,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    match &arguments.what {
        What::Guava(to) => whole_file(to, "guava"),
        What::Native(to) => whole_file(to, "native"),
        What::Redisson(to) => {
            let name = to.rename.as_ref().unwrap_or(&to.filter);
            told(&to.common, &to.filter, &format!("{name} at {}", to.to), |from, _| {
                bitmap(from, &to.filter, &mut outside(&to.to)?, name, to.common.replace)
            })
        }
        What::RedisBloom(to) => in_chunks(to, Whose::RedisBlooms),
        What::Umbel(to) => in_chunks(to, Whose::Anybodys),
    }
}

/// Does it, and says what came of it.
fn told(
    common: &Common,
    filter: &str,
    to: &str,
    export: impl FnOnce(&mut Connection, &Show) -> Result<Moved, String>,
) -> Result<(), Box<dyn Error>> {
    let mut show = Show::new(common.json);
    show.begin(filter);
    let moved = Connection::open(&common.from, PATIENCE).and_then(|mut from| {
        if !is_there(&mut from, filter)? {
            return Err(format!("{}: there is no filter {filter}", from.address));
        }
        export(&mut from, &show)
    });
    show.clear();
    show.done(filter, to, &moved?);
    Ok(())
}

fn in_chunks(to: &ToEither, whose: Whose) -> Result<(), Box<dyn Error>> {
    let (filter, replace) = (&to.filter, to.common.replace);
    if !is_address(&to.to) {
        let path = Path::new(&to.to);
        return told(&to.common, filter, &to.to, |from, show| {
            in_file(path, replace, |out| {
                chunks::copy(Origin::live(from, filter)?, Goal::Recorded(out), whose, show)
            })
        });
    }
    let (address, name): (Address, _) = (to.to.parse()?, to.rename.as_ref().unwrap_or(filter));
    let shown = match whose {
        Whose::Anybodys => Shown::WhenWhole,
        Whose::RedisBlooms => Shown::FromTheFirstPiece,
    };
    told(&to.common, filter, &format!("{name} at {address}"), |from, show| {
        settle(&mut outside(&address)?, name, replace, shown, |to, new| {
            let goal = Goal::Live { connection: to, name: new };
            let moved = chunks::copy(Origin::live(from, filter)?, goal, whose, show)?;
            expire_alike((from, filter), (to, new))?;
            Ok(moved)
        })
    })
}

fn whole_file(to: &ToFile, format: &str) -> Result<(), Box<dyn Error>> {
    told(&to.common, &to.filter, &to.file.display().to_string(), |from, _| {
        in_file(&to.file, to.common.replace, |out| {
            let bytes = from.demand(&["UMBEL.EXPORT", &to.filter, "FORMAT", format])?.text();
            let bytes = bytes.ok_or_else(|| format!("{}: UMBEL.EXPORT gives no bytes", from.address))?;
            out.write_all(&bytes).map_err(|error| error.to_string())?;
            Ok(Moved { bytes: bytes.len() as u64, has_changed: false })
        })
    })
}

/// Writes a file that has its name when it is whole.
fn in_file(
    path: &Path,
    replace: bool,
    write: impl FnOnce(&mut dyn Write) -> Result<Moved, String>,
) -> Result<Moved, String> {
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    if !replace && path.exists() {
        return Err(format!("{} is there already; --replace writes over it", path.display()));
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = File::create(&part).map_err(named).and_then(|file| {
        let mut out = BufWriter::new(file);
        let moved = write(&mut out)?;
        out.into_inner().map_err(|error| named(error.into_error()))?.sync_all().map_err(named)?;
        std::fs::rename(&part, path).map_err(named)?;
        Ok(moved)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

/// Writes an `RBloomFilter`. Whoever looks at it sees the old one or the new one.
fn bitmap(
    from: &mut Connection,
    filter: &str,
    to: &mut Connection,
    name: &str,
    replace: bool,
) -> Result<Moved, String> {
    let (new, config) = (beside(name, &format!("new-{}", std::process::id())), config_key(name));
    if !replace && (is_there(to, name)? || is_there(to, &config)?) {
        return Err(format!("{}: {name} is there already; --replace writes over it", to.address));
    }
    let exported = from.demand(&["UMBEL.EXPORT", filter, "FORMAT", "redisson"])?;
    let (settings, bits) =
        parse(exported).ok_or_else(|| format!("{}: an export that is not known here", from.address))?;
    let written = write_bitmap(to, &new, &bits).and_then(|()| {
        let mut fields = vec!["HSET".to_owned(), config.clone()];
        fields.extend(settings);
        to.demand(&["MULTI"])?;
        to.demand(&["RENAME", &new, name])?;
        to.demand(&["DEL", &config])?;
        to.demand(&fields)?;
        match to.demand(&["EXEC"])?.array() {
            Some(replies) => match replies.into_iter().find(|reply| matches!(reply, Value::Error(_))) {
                Some(Value::Error(error)) => Err(format!("{}: {error}", to.address)),
                _ => Ok(()),
            },
            None => Err(format!("{}: EXEC did nothing", to.address)),
        }
    });
    if written.is_err() {
        let _ = to.ask(&["DEL", &new]);
    }
    written.map(|()| Moved { bytes: bits.len() as u64, has_changed: false })
}

fn write_bitmap(to: &mut Connection, key: &str, bits: &[u8]) -> Result<(), String> {
    to.demand(&["DEL", key])?;
    for (number, piece) in bits.chunks(PIECE_BYTES as usize).enumerate() {
        let at = (number as u64 * PIECE_BYTES).to_string();
        to.demand(&[&b"SETRANGE"[..], key.as_bytes(), at.as_bytes(), piece])?;
    }
    Ok(())
}

/// The fields of an exported filter's `config` as words of `HSET`, and its bitmap.
fn parse(exported: Value) -> Option<(Vec<String>, Vec<u8>)> {
    let (mut settings, mut bitmap) = (Vec::new(), None);
    let mut values = exported.array()?.into_iter();
    while let (Some(name), Some(value)) = (values.next(), values.next()) {
        let name = shown(&name.text()?);
        match value {
            Value::Text(bits) if name == "bitmap" => bitmap = Some(bits),
            Value::Text(text) => settings.extend([name, shown(&text)]),
            Value::Integer(number) => settings.extend([name, number.to_string()]),
            Value::Error(_) | Value::Null | Value::Array(_) => return None,
        }
    }
    Some((settings, bitmap?))
}
