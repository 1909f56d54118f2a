//! Filters in chunks, as `BF.SCANDUMP` gives and `BF.LOADCHUNK` takes them: RedisBloom's, and those of other Umbel servers.

use std::io::{Read, Write};

use umbel_core::engine::is_dump;
use umbel_filter::Limits;
use umbel_filter::format::redisbloom::{CHUNK_BYTES_MAX, Loader};

use super::{Moved, Show};
use crate::resp::{Connection, Value, shown};

/// The cursor of a header, which comes first.
const HEADER: u64 = 1;
/// Keys that are asked for at once.
const SCANNED: &str = "1000";

/// What kind of filter a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bloom,
    Cuckoo,
}

impl Kind {
    /// A command about it.
    pub(crate) fn command(self, what: &str) -> String {
        match self {
            Self::Bloom => format!("BF.{what}"),
            Self::Cuckoo => format!("CF.{what}"),
        }
    }

    /// The kind by the name that servers have for it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "MBbloom--" => Some(Self::Bloom),
            "MBbloomCF" => Some(Self::Cuckoo),
            _ => None,
        }
    }
}

/// What a server says that a key is.
pub(crate) fn type_of(connection: &mut Connection, key: &str) -> Result<String, String> {
    let told = connection.demand(&["TYPE", key])?.text().unwrap_or_default();
    Ok(shown(&told))
}

/// The names of all filters that a pattern fits, in their order.
pub(crate) fn matching(connection: &mut Connection, pattern: &str) -> Result<Vec<String>, String> {
    let (mut found, mut cursor) = (Vec::new(), b"0".to_vec());
    loop {
        let words = [&b"SCAN"[..], &cursor, b"MATCH", pattern.as_bytes(), b"COUNT", SCANNED.as_bytes()];
        let page = connection.demand(&words)?.array().unwrap_or_default();
        let Ok([next, keys]) = <[Value; 2]>::try_from(page) else {
            return Err(format!("{}: SCAN: no reply that is known here", connection.address));
        };
        for key in keys.array().unwrap_or_default().into_iter().filter_map(Value::text) {
            let key = String::from_utf8(key)
                .map_err(|error| format!("a key that is no text: {:?}", shown(error.as_bytes())))?;
            if Kind::named(&type_of(connection, &key)?).is_some() {
                found.push(key);
            }
        }
        cursor = next.text().unwrap_or_default();
        if cursor == b"0" || cursor.is_empty() {
            // A scan may give a key twice.
            found.sort();
            found.dedup();
            return Ok(found);
        }
    }
}

/// Where chunks come from.
pub(crate) enum Origin<'a> {
    /// A key of a server.
    Live { connection: &'a mut Connection, key: &'a str, kind: Kind, cursor: u64 },
    /// Chunks that were recorded, each behind its cursor and its length.
    Recorded(&'a mut dyn Read),
}

impl<'a> Origin<'a> {
    /// The filter under a key.
    pub(crate) fn live(connection: &'a mut Connection, key: &'a str) -> Result<Self, String> {
        let told = type_of(connection, key)?;
        let Some(kind) = Kind::named(&told) else {
            let what = match &*told {
                "none" => "there is no such key".to_owned(),
                "string" => "a string is no filter of RedisBloom; is it Redisson's?".to_owned(),
                other => format!("it is no filter, but of type {other}"),
            };
            return Err(format!("{}: {key}: {what}", connection.address));
        };
        Ok(Self::Live { connection, key, kind, cursor: 0 })
    }

    /// The next chunk and its cursor; none at the end.
    fn next(&mut self) -> Result<Option<(u64, Vec<u8>)>, String> {
        match self {
            Self::Recorded(input) => read_chunk(input),
            Self::Live { connection, key, kind, cursor } => {
                let Some((next, chunk)) = scan_dump(connection, key, *kind, *cursor)? else {
                    return Ok(None);
                };
                if next <= *cursor {
                    return Err(format!("{}: cursor {next} comes after {cursor}", connection.address));
                }
                *cursor = next;
                Ok(Some((next, chunk)))
            }
        }
    }

    /// Whether it is another filter by now than the header said.
    fn has_changed(&mut self, header: &[u8]) -> Result<bool, String> {
        match self {
            Self::Recorded(_) => Ok(false),
            Self::Live { connection, key, kind, .. } => {
                let now = scan_dump(connection, key, *kind, 0)?;
                Ok(now.is_none_or(|(_, now)| now != header))
            }
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Recorded(_) => Kind::Bloom,
            Self::Live { kind, .. } => *kind,
        }
    }
}

fn scan_dump(
    connection: &mut Connection,
    key: &str,
    kind: Kind,
    cursor: u64,
) -> Result<Option<(u64, Vec<u8>)>, String> {
    let words = [kind.command("SCANDUMP"), key.to_owned(), cursor.to_string()];
    let reply = connection.demand(&words)?.array().unwrap_or_default();
    let wrong = || format!("{}: {}: no reply that is known here", connection.address, words[0]);
    let [next, chunk] = <[Value; 2]>::try_from(reply).map_err(|_| wrong())?;
    let next = next.integer().and_then(|next| u64::try_from(next).ok()).ok_or_else(wrong)?;
    Ok(if next == 0 { None } else { Some((next, chunk.text().ok_or_else(wrong)?)) })
}

/// A chunk and its cursor; nothing at the end of the file, or where the cursor 0 marks it.
pub(crate) fn read_chunk(input: &mut impl Read) -> Result<Option<(u64, Vec<u8>)>, String> {
    let mut head = Vec::with_capacity(16);
    input.by_ref().take(16).read_to_end(&mut head).map_err(|error| error.to_string())?;
    let Ok(head) = <[u8; 16]>::try_from(head.as_slice()) else {
        return if head.is_empty() { Ok(None) } else { Err("a chunk's header is cut off".to_owned()) };
    };
    let [cursor, length] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|i| head[at + i])));
    if length > CHUNK_BYTES_MAX as u64 {
        return Err(format!("a chunk of {length} bytes, over the limit of {CHUNK_BYTES_MAX}"));
    }
    let mut chunk = Vec::new();
    input.take(length).read_to_end(&mut chunk).map_err(|error| error.to_string())?;
    if (chunk.len() as u64) < length {
        return Err("the last chunk is cut off".to_owned());
    }
    Ok((cursor > 0).then_some((cursor, chunk)))
}

/// Where chunks go.
pub(crate) enum Goal<'a> {
    Live { connection: &'a mut Connection, name: &'a str },
    Recorded(&'a mut dyn Write),
}

impl Goal<'_> {
    fn take(&mut self, kind: Kind, cursor: u64, chunk: &[u8]) -> Result<(), String> {
        match self {
            Self::Live { connection, name } => {
                let (command, cursor) = (kind.command("LOADCHUNK"), cursor.to_string());
                let words = [command.as_bytes(), name.as_bytes(), cursor.as_bytes(), chunk];
                connection.demand(&words).map(drop)
            }
            Self::Recorded(out) => {
                let head = [cursor.to_le_bytes(), (chunk.len() as u64).to_le_bytes()].concat();
                out.write_all(&head).and_then(|()| out.write_all(chunk)).map_err(|error| error.to_string())
            }
        }
    }
}

/// Whose chunks are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Anybodys,
    /// Those that RedisBloom reads too.
    RedisBlooms,
}

/// Moves a filter, chunk by chunk.
pub(crate) fn copy(
    mut from: Origin<'_>,
    mut to: Goal<'_>,
    whose: Whose,
    show: &Show,
) -> Result<Moved, String> {
    let (cursor, header) = from.next()?.ok_or("there is nothing of it")?;
    if cursor != HEADER {
        return Err(format!("cursor {cursor} comes first; that of a header is {HEADER}"));
    }
    let whole = whole(&header, from.kind(), whose)?;
    if let Some(whole) = whole {
        show.whole(whole);
    }
    to.take(from.kind(), cursor, &header)?;
    let mut bytes = 0;
    // A chain that grows meanwhile has more than its header says, which nobody could take.
    while whole.is_none_or(|whole| bytes < whole) {
        let Some((cursor, chunk)) = from.next()? else { break };
        to.take(from.kind(), cursor, &chunk)?;
        bytes += chunk.len() as u64;
        show.moved(chunk.len() as u64);
    }
    if let Some(missing) = whole.and_then(|whole| whole.checked_sub(bytes)).filter(|missing| *missing > 0) {
        return Err(format!("it ends {missing} bytes too early"));
    }
    Ok(Moved { bytes, has_changed: from.has_changed(&header)? })
}

/// How many bytes follow a header, where it says so, if it is one that can be moved.
fn whole(header: &[u8], kind: Kind, whose: Whose) -> Result<Option<u64>, String> {
    match (is_dump(header), kind, whose) {
        (true, _, Whose::Anybodys) => Ok(None),
        (true, ..) => Err("it was made by Umbel, so its chunks are not RedisBloom's; \
            a filter that RedisBloom reads is imported from there, or made with LAYOUT redisbloom FAMILY redisbloom"
            .to_owned()),
        (false, Kind::Cuckoo, _) => Err("a cuckoo filter of RedisBloom cannot be read; \
            a counting filter can be filled from its keys, by umbel load"
            .to_owned()),
        (false, Kind::Bloom, _) => {
            let loader = Loader::new(header, &Limits::default());
            let loader = loader.map_err(|error| format!("no Bloom filter of RedisBloom that can be read: {error}"))?;
            Ok(Some(loader.missing()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/redisbloom/");
        std::fs::read(format!("{folder}{name}.scandump")).unwrap()
    }

    fn copied(bytes: &[u8]) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        let (mut input, show) = (bytes, Show::new(true));
        copy(Origin::Recorded(&mut input), Goal::Recorded(&mut out), Whose::RedisBlooms, &show)?;
        Ok(out)
    }

    #[test]
    fn what_redisbloom_gave_is_handed_on_as_it_is() {
        for name in ["rb_default", "rb_nonscaling"] {
            let bytes = recorded(name);
            assert_eq!(copied(&bytes).unwrap(), bytes);
        }
    }

    #[test]
    fn what_is_cut_off_or_strange_is_refused() {
        let bytes = recorded("rb_default");
        for length in [0, 7, 16, 100, bytes.len() / 2, bytes.len() - 1] {
            assert!(copied(&bytes[..length]).is_err(), "{length}");
        }
        let mut long = bytes.clone();
        long[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(copied(&long).unwrap_err().contains("limit"));
        let mut late = bytes.clone();
        late[0] = 9;
        assert!(copied(&late).unwrap_err().contains("cursor 9"));
        let mut more = bytes.clone();
        more.extend([7_u64.to_le_bytes(), 1_u64.to_le_bytes()].concat());
        assert_eq!(copied(&more).unwrap(), bytes, "what comes behind its end is left");
        assert!(whole(b"anything", Kind::Cuckoo, Whose::Anybodys).unwrap_err().contains("cuckoo"));
    }
}
