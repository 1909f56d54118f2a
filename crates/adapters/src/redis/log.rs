//! The log in Redis: a stream for each partition.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use redis::Script;
use umbel_core::log::{Appended, Bounds, Log, Record, check_entries};
use umbel_core::{Error, Position, Result};

use super::{Connection, script};
use crate::{Opened, Url};

const PARTITIONS: u32 = 16;
/// Entries that a script looks at in one step of a read.
const STEP_ENTRIES: usize = 16;

/// What every script begins with: the stream, where it ends, and up to where it was trimmed.
const COMMON: &str = r"
local stream, trimmed = KEYS[1], KEYS[2]
local function tail()
  if redis.call('EXISTS', stream) == 0 then return '0-0' end
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return info[i + 1] end
  end
end
local function oldest() return redis.call('GET', trimmed) or '0-0' end
local function words(id)
  local millis, number = string.match(id, '(%d+)-(%d+)')
  return tonumber(millis), tonumber(number)
end
local function before(one, other)
  local m1, n1 = words(one)
  local m2, n2 = words(other)
  return m1 < m2 or (m1 == m2 and n1 < n2)
end
";

const APPEND: &str = r"
local read = ARGV[1]
local missed = before(read, oldest()) or #redis.call('XRANGE', stream, '(' .. read, '+', 'COUNT', 1) > 0
local answer = {missed and 'missed' or 'next'}
for i = 2, #ARGV do answer[i] = redis.call('XADD', stream, '*', 'e', ARGV[i]) end
return answer";

const READ: &str = r"
local after, most, step = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if before(after, oldest()) then return {'trimmed', oldest()} end
if before(tail(), after) then return {'beyond', tail()} end
local found, bytes, from = {'ok'}, 0, after
while true do
  local some = redis.call('XRANGE', stream, '(' .. from, '+', 'COUNT', step)
  if #some == 0 then return found end
  for _, entry in ipairs(some) do
    bytes = bytes + #entry[2][2]
    if bytes > most and #found > 1 then return found end
    table.insert(found, entry[1])
    table.insert(found, entry[2][2])
    from = entry[1]
  end
end";

const BOUNDS: &str = "return {oldest(), tail()}";

const TRIM: &str = r"
local upto = ARGV[1]
if before(tail(), upto) then upto = tail() end
if before(oldest(), upto) then
  local millis, number = words(upto)
  redis.call('SET', trimmed, upto)
  redis.call('XTRIM', stream, 'MINID', '=', string.format('%.0f-%.0f', millis, number + 1))
end
return 1";

const HOLDS: &str = r"
local at = ARGV[1]
if not before(oldest(), at) then return 1 end
return #redis.call('XRANGE', stream, at, at)";

/// A log of streams.
///
/// Redis numbers what it appends by its clock, and never below what it gave before: a position that was lost in a crash is not
/// given to another entry, unless the clock goes back by more than Redis was away.
#[derive(Debug)]
struct RedisLog {
    connection: Connection,
    prefix: String,
    partitions: u32,
    append: Script,
    read: Script,
    bounds: Script,
    trim: Script,
    holds: Script,
}

/// Opens `redis://user:password@host:port/prefix?partitions=16`.
pub(crate) async fn open(url: &Url) -> Result<Opened<dyn Log>> {
    url.allow(&["ca", "cert", "key", "partitions", "timeout_ms", "tls"])?;
    let connection = Connection::new(url)?;
    let about = connection.about().await?;
    let prefix = url.path_or("umbel");
    let wanted = url.partitions()?;
    let key = format!("{{{prefix}:log}}:partitions");
    let (_, partitions): ((), u32) = connection
        .ask("cannot read the number of partitions", async |connection| {
            let mut pipe = redis::pipe();
            pipe.atomic().cmd("SETNX").arg(&key).arg(wanted.unwrap_or(PARTITIONS)).ignore();
            pipe.cmd("GET").arg(&key);
            pipe.query_async::<(u32,)>(connection).await.map(|(partitions,)| ((), partitions))
        })
        .await?;
    if wanted.is_some_and(|wanted| wanted != partitions) {
        return Err(Error::Invalid(format!("the log at {url} has {partitions} partitions")));
    }
    let make = |code| script(COMMON, code);
    let log = RedisLog {
        connection,
        prefix,
        partitions,
        append: make(APPEND),
        read: make(READ),
        bounds: make(BOUNDS),
        trim: make(TRIM),
        holds: make(HOLDS),
    };
    Ok(Opened { plane: Arc::new(log), about })
}

/// A stream's id as a position: milliseconds, and a number within them.
fn position(id: &Bytes) -> Result<Position> {
    let words = std::str::from_utf8(id).ok().and_then(|id| {
        let (millis, number) = id.split_once('-')?;
        Some((millis.parse::<u64>().ok()?, number.parse::<u64>().ok()?))
    });
    let (millis, number) = words.ok_or_else(|| Error::Corrupt("an id of a stream that is none".into()))?;
    Ok(Position::from_number(u128::from(millis) << 64 | u128::from(number)))
}

fn id(position: Position) -> String {
    let number = position.number();
    format!("{}-{}", (number >> 64) as u64, number as u64)
}

impl RedisLog {
    fn keys(&self, partition: u32) -> Result<[String; 2]> {
        if partition >= self.partitions {
            return Err(Error::Invalid(format!("partition {partition} of a log of {}", self.partitions)));
        }
        let stream = format!("{{{}:log:{partition}}}", self.prefix);
        let trimmed = format!("{stream}:trimmed");
        Ok([stream, trimmed])
    }
}

#[async_trait]
impl Log for RedisLog {
    fn partitions(&self) -> u32 {
        self.partitions
    }

    async fn append_after(&self, partition: u32, entries: Vec<Bytes>, read: Position) -> Result<Appended> {
        let keys = self.keys(partition)?;
        check_entries(&entries)?;
        if entries.is_empty() {
            return Ok(Appended::default());
        }
        let mut call = self.append.prepare_invoke();
        call.key(&keys).arg(id(read));
        for entry in &entries {
            call.arg(&entry[..]);
        }
        let answer: Vec<Bytes> = self.connection.run("cannot append", &call).await?;
        let positions = answer.iter().skip(1).map(position).collect::<Result<_>>()?;
        Ok(Appended { positions, is_next: answer.first().is_some_and(|word| word == "next") })
    }

    async fn read(&self, partition: u32, after: Position, bytes_max: usize) -> Result<Vec<Record>> {
        let mut call = self.read.prepare_invoke();
        call.key(&self.keys(partition)?).arg(id(after)).arg(bytes_max).arg(STEP_ENTRIES);
        let answer: Vec<Bytes> = self.connection.run("cannot read the log", &call).await?;
        match &answer[..] {
            [word, oldest] if word == "trimmed" => Err(Error::Trimmed { oldest: position(oldest)? }),
            [word, tail] if word == "beyond" => {
                let tail = position(tail)?;
                Err(Error::Invalid(format!("position {after} is behind the end of the log, {tail}")))
            }
            [_, found @ ..] => found
                .chunks_exact(2)
                .map(|pair| Ok(Record { position: position(&pair[0])?, entry: pair[1].clone() }))
                .collect(),
            [] => Err(Error::Corrupt("an empty answer of Redis".into())),
        }
    }

    async fn holds(&self, partition: u32, position: Position) -> Result<bool> {
        let mut call = self.holds.prepare_invoke();
        call.key(&self.keys(partition)?).arg(id(position));
        self.connection.run("cannot look up a position", &call).await
    }

    async fn bounds(&self, partition: u32) -> Result<Bounds> {
        let mut call = self.bounds.prepare_invoke();
        let (oldest, tail): (Bytes, Bytes) =
            self.connection.run("cannot read the bounds", call.key(&self.keys(partition)?)).await?;
        Ok(Bounds { oldest: position(&oldest)?, tail: position(&tail)? })
    }

    async fn trim(&self, partition: u32, upto: Position) -> Result<()> {
        let mut call = self.trim.prepare_invoke();
        call.key(&self.keys(partition)?).arg(id(upto));
        self.connection.run::<u8>("cannot trim", &call).await.map(drop)
    }
}
