//! The registry in Redis: every call is a script, so it happens as a whole.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use redis::{FromRedisValue, Script, ScriptInvocation};
use umbel_core::registry::{Change, Expected, Lease, Listing, Registry, Versioned, check_name, check_value};
use umbel_core::{Error, Result};

use super::watch::Watch;
use super::{Connection, script};
use crate::{Opened, Url};

/// How often somebody who waits for changes looks. A message that Redis sends by itself can be lost; a look cannot.
const LOOK: Duration = Duration::from_millis(200);

/// What every script begins with.
///
/// `next` gives a revision: the time in microseconds, or one more than the last. So revisions grow even if Redis forgets its last
/// second in a crash, or everything, as long as its clock does not go back by more than it was away. They fit into the numbers
/// of Lua until the year 2255. Leases have their numbers in the same way, or the holder of one that was forgotten would keep alive what
/// somebody else got after it.
///
/// Leases have their ends in a sorted set, by the clock of the server, and every script begins with those that are over. That clock may be
/// set: so a caller ends a lease only if its time is over by the caller's own clock, too, which has watched the server's for the whole
/// length of that lease (the last two arguments, see [`Watch`]). A lease that has more time left than it ever had was granted before the
/// clock went back: it is counted anew from now, or else the place of one that died would be taken until the clock is where it was.
///
/// Every answer begins with what the clock shows.
const COMMON: &str = r"
local p = KEYS[1]
local values, versions, names = p .. ':values', p .. ':versions', p .. ':names'
local owners, ends, times = p .. ':owners', p .. ':ends', p .. ':times'
local time = redis.call('TIME')
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
local millis = math.floor(micros / 1000)
local function text(number) return string.format('%.0f', number) end
local function last() return tonumber(redis.call('GET', p .. ':revision') or '0') end
local function next()
  local revision = math.max(last() + 1, micros)
  redis.call('SET', p .. ':revision', text(revision))
  return text(revision)
end
local function remove(name)
  redis.call('HDEL', values, name)
  redis.call('HDEL', versions, name)
  redis.call('ZREM', names, name)
  local owner = redis.call('HGET', owners, name)
  if owner then
    redis.call('HDEL', owners, name)
    redis.call('SREM', p .. ':of:' .. owner, name)
  end
end
local function finish(lease)
  redis.call('ZREM', ends, lease)
  redis.call('HDEL', times, lease)
  local held = redis.call('SMEMBERS', p .. ':of:' .. lease)
  for _, name in ipairs(held) do remove(name) end
  if #held > 0 then next() end
end
local told, since = tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])
local over = math.min(millis, told)
local granted = redis.call('ZRANGE', ends, 0, -1, 'WITHSCORES')
for i = 1, #granted, 2 do
  local lease, ending = granted[i], tonumber(granted[i + 1])
  local length = tonumber(redis.call('HGET', times, lease) or '0')
  if ending > millis + length then redis.call('ZADD', ends, text(millis + length), lease)
  elseif ending <= over and over - since >= length then finish(lease) end
end
local function held(name)
  local version = redis.call('HGET', versions, name)
  if not version then return {} end
  return {redis.call('HGET', values, name), version}
end
local function fits(name, expected)
  if expected == 'any' then return true end
  local version = redis.call('HGET', versions, name)
  if expected == 'absent' then return not version end
  return version == expected
end
";

const GET: &str = "return held(ARGV[1])";

const LIST: &str = r"
local found = {text(last())}
for _, name in ipairs(redis.call('ZRANGEBYLEX', names, '[' .. ARGV[1], '+')) do
  if string.sub(name, 1, #ARGV[1]) ~= ARGV[1] then break end
  local pair = held(name)
  table.insert(found, name)
  table.insert(found, pair[1])
  table.insert(found, pair[2])
end
return found";

const PUT: &str = r"
local name, value, expected, lease = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if lease ~= '' and not redis.call('ZSCORE', ends, lease) then return {'ended'} end
if not fits(name, expected) then
  local current = held(name)
  return {'conflict', current[1], current[2]}
end
remove(name)
local revision = next()
redis.call('HSET', values, name, value)
redis.call('HSET', versions, name, revision)
redis.call('ZADD', names, 0, name)
if lease ~= '' then
  redis.call('HSET', owners, name, lease)
  redis.call('SADD', p .. ':of:' .. lease, name)
end
return {'done', revision}";

const DELETE: &str = r"
local name, expected = ARGV[1], ARGV[2]
if not fits(name, expected) then
  local current = held(name)
  return {'conflict', current[1], current[2]}
end
if not redis.call('HGET', versions, name) then return {'done', text(last())} end
remove(name)
return {'done', next()}";

const REVISION: &str = "return text(last())";

const GRANT: &str = r"
local lease = text(math.max(tonumber(redis.call('GET', p .. ':lease') or '0') + 1, micros))
redis.call('SET', p .. ':lease', lease)
redis.call('HSET', times, lease, ARGV[1])
redis.call('ZADD', ends, text(millis + tonumber(ARGV[1])), lease)
return lease";

const KEEP: &str = r"
local length = redis.call('HGET', times, ARGV[1])
if not length then return 0 end
redis.call('ZADD', ends, text(millis + tonumber(length)), ARGV[1])
return 1";

const REVOKE: &str = "finish(ARGV[1]) return 1";

/// A registry below a prefix of Redis. All its keys have the same hash tag, so that a cluster keeps them together.
#[derive(Debug)]
struct RedisRegistry {
    connection: Connection,
    key: String,
    scripts: Scripts,
    watch: Watch,
}

#[derive(Debug)]
struct Scripts {
    get: Script,
    list: Script,
    put: Script,
    delete: Script,
    revision: Script,
    grant: Script,
    keep: Script,
    revoke: Script,
}

/// Opens `redis://user:password@host:port/prefix`.
pub(crate) async fn open(url: &Url) -> Result<Opened<dyn Registry>> {
    url.allow(&["ca", "cert", "key", "timeout_ms", "tls"])?;
    let connection = Connection::new(url)?;
    let about = connection.about().await?;
    let make =
        |code| script(COMMON, &format!("local function act()\n{code}\nend\nreturn {{text(millis), act()}}"));
    let scripts = Scripts {
        get: make(GET),
        list: make(LIST),
        put: make(PUT),
        delete: make(DELETE),
        revision: make(REVISION),
        grant: make(GRANT),
        keep: make(KEEP),
        revoke: make(REVOKE),
    };
    let key = format!("{{{}:registry}}", url.path_or("umbel"));
    Ok(Opened { plane: Arc::new(RedisRegistry { connection, key, scripts, watch: Watch::default() }), about })
}

impl RedisRegistry {
    fn call<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        script.key(&self.key)
    }

    async fn run<T: FromRedisValue>(&self, doing: &str, call: &mut ScriptInvocation<'_>) -> Result<T> {
        let asked = Instant::now();
        let (told, since) = self.watch.told(asked);
        let (clock, answer) = self.connection.run(doing, call.arg(told).arg(since)).await?;
        self.watch.heard(clock, asked, Instant::now());
        Ok(answer)
    }

    async fn change(&self, doing: &str, call: &mut ScriptInvocation<'_>) -> Result<Change> {
        let answer: Vec<Bytes> = self.run(doing, call).await?;
        match &answer[..] {
            [word, revision] if word == "done" => Ok(Change::Done(number(revision)?)),
            [word, rest @ ..] if word == "conflict" => Ok(Change::Conflict(versioned(rest)?)),
            _ => Err(Error::Invalid("the lease has ended".into())),
        }
    }
}

fn number(text: &Bytes) -> Result<u64> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::Corrupt("a revision in Redis that is no number".into()))
}

fn versioned(pair: &[Bytes]) -> Result<Option<Versioned>> {
    match pair {
        [value, version] => Ok(Some(Versioned { value: value.clone(), version: number(version)? })),
        _ => Ok(None),
    }
}

fn word(expected: Expected) -> String {
    match expected {
        Expected::Anything => "any".into(),
        Expected::Absent => "absent".into(),
        Expected::Version(version) => version.to_string(),
    }
}

#[async_trait]
impl Registry for RedisRegistry {
    async fn get(&self, name: &str) -> Result<Option<Versioned>> {
        check_name(name)?;
        let mut call = self.call(&self.scripts.get);
        let answer: Vec<Bytes> = self.run("cannot read a name", call.arg(name)).await?;
        versioned(&answer)
    }

    async fn list(&self, prefix: &str) -> Result<Listing> {
        let mut call = self.call(&self.scripts.list);
        let answer: Vec<Bytes> = self.run("cannot list names", call.arg(prefix)).await?;
        let [revision, found @ ..] = &answer[..] else {
            return Err(Error::Corrupt("a listing of Redis without a revision".into()));
        };
        let mut entries = Vec::new();
        for entry in found.chunks(3) {
            let name = std::str::from_utf8(&entry[0]).ok().map(str::to_owned);
            match (name, versioned(&entry[1..])?) {
                (Some(name), Some(held)) => entries.push((name, held)),
                _ => return Err(Error::Corrupt("a name in Redis that is no text or has no value".into())),
            }
        }
        Ok(Listing { revision: number(revision)?, entries })
    }

    async fn put(
        &self,
        name: &str,
        value: Bytes,
        expected: Expected,
        lease: Option<Lease>,
    ) -> Result<Change> {
        check_name(name)?;
        check_value(&value)?;
        let lease = lease.map_or_else(String::new, |lease| lease.0.to_string());
        let mut call = self.call(&self.scripts.put);
        call.arg(name).arg(&value[..]).arg(word(expected)).arg(lease);
        self.change("cannot put a name", &mut call).await
    }

    async fn delete(&self, name: &str, expected: Expected) -> Result<Change> {
        check_name(name)?;
        let mut call = self.call(&self.scripts.delete);
        self.change("cannot delete a name", call.arg(name).arg(word(expected))).await
    }

    async fn changed(&self, _prefix: &str, after: u64) -> Result<()> {
        loop {
            let mut call = self.call(&self.scripts.revision);
            let revision: Bytes = self.run("cannot look for changes", &mut call).await?;
            if number(&revision)? > after {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn grant(&self, time: Duration) -> Result<Lease> {
        let mut call = self.call(&self.scripts.grant);
        call.arg(time.as_millis().max(1).min(u128::from(u32::MAX)) as u64);
        self.run("cannot grant a lease", &mut call).await.map(Lease)
    }

    async fn keep_alive(&self, lease: Lease) -> Result<bool> {
        let mut call = self.call(&self.scripts.keep);
        self.run("cannot keep a lease alive", call.arg(lease.0)).await
    }

    async fn revoke(&self, lease: Lease) -> Result<()> {
        let mut call = self.call(&self.scripts.revoke);
        self.run("cannot revoke a lease", call.arg(lease.0)).await
    }
}
