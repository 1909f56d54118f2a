//! Commands: one file a family, and the way to them.

mod acl;
pub mod arguments;
pub mod bf;
pub mod cf;
pub(crate) mod client;
pub(crate) mod command;
mod config;
pub(crate) mod connection;
pub(crate) mod expiry;
mod help;
pub(crate) mod info;
pub mod keys;
pub(crate) mod latency;
pub(crate) mod look;
mod lookup;
pub(crate) mod memory;
mod peer;
mod rebuild;
mod routes;
pub(crate) mod server;
pub(crate) mod slowlog;
pub mod table;
pub(crate) mod transactions;
mod transfer;
mod umbel;

use std::borrow::Cow;
use std::sync::Arc;

use umbel_core::definition::Growth;
use umbel_core::engine::Handle;

use crate::clients::Client;
use crate::cluster::DOWN;
use crate::names::name_of;
use crate::node::unix_time;
use crate::resp::Command;
use crate::session::Session;
use table::{Id, Row};

/// Why a command is not done: the error that the client gets.
#[derive(Clone, Debug)]
pub struct Refusal(pub Cow<'static, str>);

/// What came of a command. If it is done, its reply is written.
pub type Outcome<T = ()> = Result<T, Refusal>;

impl From<&'static str> for Refusal {
    fn from(text: &'static str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<umbel_core::Error> for Refusal {
    fn from(error: umbel_core::Error) -> Self {
        use umbel_core::Error;
        match error {
            // Clients know these first words: the one may be tried again, the other not.
            Error::Retry(why) if why.starts_with(DOWN) => why.into(),
            Error::Retry(why) => format!("TRYAGAIN {why}").into(),
            Error::Closed(why) => format!("{CLOSED} {why}").into(),
            other => format!("ERR {other}").into(),
        }
    }
}

impl From<umbel_filter::Error> for Refusal {
    fn from(error: umbel_filter::Error) -> Self {
        format!("ERR {error}").into()
    }
}

/// The first word of an error after which the server ends.
pub(crate) const CLOSED: &str = "MISCONF";

/// A filter of the other kind, or what clients take for one.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Words that do not fit together.
pub(crate) const SYNTAX: &str = "ERR syntax error";
/// A word that is no number, where one is needed.
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// Bytes of a command that an error repeats.
const SHOWN_BYTES: usize = 128;

/// Runs a command that is known, permitted and has as many words as it takes.
pub async fn run(id: Id, session: &mut Session, command: Command<'_>) -> Outcome {
    match id {
        Id::BfAdd | Id::BfMadd => bf::add(session, command).await,
        Id::BfInsert => bf::insert(session, command).await,
        Id::BfExists | Id::BfMexists => bf::exists(session, command).await,
        Id::BfReserve => bf::reserve(session, command).await,
        Id::BfInfo => bf::info(session, command).await,
        Id::BfCard => bf::card(session, command).await,
        Id::BfDebug => bf::debug(session, command).await,
        Id::CfAdd | Id::CfAddnx => cf::add(session, command).await,
        Id::CfInsert | Id::CfInsertnx => cf::insert(session, command).await,
        Id::CfExists | Id::CfMexists => cf::exists(session, command).await,
        Id::CfDel => cf::del(session, command).await,
        Id::CfCount => cf::count(session, command).await,
        Id::CfReserve => cf::reserve(session, command).await,
        Id::CfInfo => cf::info(session, command).await,
        Id::CfCompact => cf::compact(session, command).await,
        Id::UmbelCreate => umbel::create(session, command).await,
        Id::UmbelAdd => umbel::add(session, command).await,
        Id::UmbelRemove => umbel::remove(session, command).await,
        Id::UmbelExists => umbel::exists(session, command).await,
        Id::UmbelVerify => umbel::verify(session, command).await,
        Id::UmbelWait => umbel::wait(session, command).await,
        Id::UmbelResize => umbel::resize(session, command).await,
        Id::UmbelClear => umbel::clear(session, command).await,
        Id::UmbelList => umbel::list(session).await,
        Id::UmbelHelp => umbel::help(session),
        Id::UmbelStats => umbel::stats(session, command).await,
        Id::UmbelGrowth => umbel::growth(session, command).await,
        Id::UmbelRoutes => routes::routes(session, command).await,
        Id::UmbelLookup => lookup::lookup(session, command).await,
        Id::UmbelHottest => lookup::hottest(session, command),
        Id::UmbelPeerHello
        | Id::UmbelPeerSubmit
        | Id::UmbelPeerAsk
        | Id::UmbelPeerVerify
        | Id::UmbelPeerReach
        | Id::UmbelPeerFind
        | Id::UmbelPeerCounts
        | Id::UmbelPeerLook
        | Id::UmbelPeerKeys
        | Id::UmbelPeerShapes
        | Id::UmbelPeerBlocks
        | Id::UmbelPeerPublish
        | Id::UmbelPeerChanges
        | Id::UmbelPeerPass
        | Id::UmbelPeerNotice
        | Id::UmbelPeerPing => peer::run(id, session, command).await,
        Id::UmbelNodeDigests => peer::digests(session).await,
        Id::UmbelNodeList | Id::UmbelNodeDrain | Id::UmbelNodeUndrain => {
            peer::node(id, session, command).await
        }
        Id::UmbelRebuildStart => rebuild::start(session, command).await,
        Id::UmbelRebuildAdd => rebuild::add(session, command).await,
        Id::UmbelRebuildStatus => rebuild::status(session, command).await,
        Id::UmbelRebuildFinish => rebuild::finish(session, command).await,
        Id::UmbelRebuildAbort => rebuild::abort(session, command).await,
        Id::UmbelRebuildHelp => rebuild::show_help(session),
        Id::UmbelExport => transfer::export(session, command).await,
        Id::UmbelImport => transfer::import(session, command).await,
        Id::UmbelMerge => transfer::merge(session, command).await,
        Id::BfScandump => transfer::scan_dump(session, command, false).await,
        Id::CfScandump => transfer::scan_dump(session, command, true).await,
        Id::BfLoadchunk => transfer::load_chunk(session, command, false).await,
        Id::CfLoadchunk => transfer::load_chunk(session, command, true).await,
        Id::Dump => transfer::dump(session, command).await,
        Id::Restore => transfer::restore(session, command).await,
        Id::Rename | Id::Renamenx | Id::UmbelRename => expiry::rename(id, session, command).await,
        Id::Expire | Id::Pexpire | Id::Expireat | Id::Pexpireat => expiry::expire(id, session, command).await,
        Id::Ttl | Id::Pttl | Id::Expiretime | Id::Pexpiretime => {
            expiry::time_left(id, session, command).await
        }
        Id::Persist => expiry::persist(session, command).await,
        Id::AclCat
        | Id::AclDeluser
        | Id::AclDryrun
        | Id::AclGenpass
        | Id::AclGetuser
        | Id::AclList
        | Id::AclLoad
        | Id::AclLog
        | Id::AclSave
        | Id::AclSetuser
        | Id::AclUsers
        | Id::AclWhoami
        | Id::AclHelp => acl::run(id, session, command),
        Id::ConfigGet | Id::ConfigSet | Id::ConfigResetstat | Id::ConfigRewrite | Id::ConfigHelp => {
            config::run(id, session, command)
        }
        Id::Del | Id::Unlink => keys::del(session, command).await,
        Id::Exists | Id::Touch => keys::exists(session, command).await,
        Id::Type => keys::kind(session, command).await,
        Id::Keys => keys::keys(session, command).await,
        Id::Scan => keys::scan(session, command).await,
        Id::Randomkey => keys::random(session).await,
        Id::Dbsize => keys::dbsize(session).await,
        Id::Flushall | Id::Flushdb => keys::flush(id, session).await,
        Id::Ping => connection::ping(session, command),
        Id::Echo => connection::echo(session, command),
        Id::Hello => connection::hello(session, command),
        Id::Auth => connection::auth(session, command),
        Id::Select => connection::select(session, command),
        Id::Quit => connection::quit(session),
        Id::Reset => connection::reset(session),
        Id::ClientId => client::id(session),
        Id::ClientInfo => client::info(session),
        Id::ClientList => client::list(session, command),
        Id::ClientKill => client::kill(session, command),
        Id::ClientGetname => client::get_name(session),
        Id::ClientSetname => client::set_name_of(session, command),
        Id::ClientSetinfo => client::set_info(session, command),
        Id::ClientNoEvict | Id::ClientNoTouch => client::on_or_off(session, command),
        Id::ClientReply => client::reply(session, command),
        Id::ClientPause => client::pause(session, command),
        Id::ClientUnpause => client::unpause(session),
        Id::ClientHelp => client::show_help(session),
        Id::Command => command::all(session),
        Id::CommandCount => command::count(session),
        Id::CommandInfo => command::info(session, command),
        Id::CommandDocs => command::docs(session, command),
        Id::CommandList => command::list(session, command),
        Id::CommandGetkeys => command::get_keys(session, command),
        Id::CommandHelp => command::show_help(session),
        Id::Info => info::info(session, command),
        Id::Time => server::time(session),
        Id::Role => server::role(session),
        Id::ModuleList => server::modules(session),
        Id::Lastsave => server::last_save(session),
        Id::Save => server::save(session).await,
        Id::Bgsave => server::background_save(session, command),
        Id::Shutdown => server::shutdown(session, command).await,
        Id::DebugSleep => server::debug_sleep(session, command).await,
        Id::DebugReload => server::debug_reload(session).await,
        Id::DebugHelp => server::debug_help(session),
        Id::Monitor => server::monitor(session),
        Id::SlowlogGet => slowlog::get(session, command),
        Id::SlowlogLen => slowlog::len(session),
        Id::SlowlogReset => slowlog::reset(session),
        Id::SlowlogHelp => slowlog::show_help(session),
        Id::LatencyDoctor => latency::doctor(session),
        Id::LatencyHistogram => latency::histogram(session, command),
        Id::LatencyHistory => latency::history(session, command),
        Id::LatencyLatest => latency::latest(session),
        Id::LatencyReset => latency::reset(session, command),
        Id::LatencyHelp => latency::show_help(session),
        Id::Multi => transactions::multi(session),
        Id::Discard => transactions::discard(session),
        // It runs commands, this function among them.
        Id::Exec => Box::pin(transactions::exec(session)).await,
        Id::MemoryUsage => memory::usage(session, command).await,
        Id::MemoryStats => memory::stats(session),
        Id::MemoryDoctor => memory::doctor(session),
        Id::MemoryHelp => memory::show_help(session),
        // Whoever looks a command up gets one of their subcommands.
        Id::Acl
        | Id::Client
        | Id::Config
        | Id::Debug
        | Id::Latency
        | Id::Memory
        | Id::Module
        | Id::Slowlog
        | Id::UmbelNode
        | Id::UmbelPeer
        | Id::UmbelRebuild => Err(unknown_subcommand(id.row(), command)),
    }
}

/// Does something with the filter that a name means. If that filter was dropped meanwhile, the name is looked up again, behind a read
/// barrier, and it is done once more with the filter that `again` gives.
pub(crate) async fn with_filter<T>(
    key: &[u8],
    filter: &Arc<Handle>,
    again: impl AsyncFnOnce() -> Outcome<Arc<Handle>>,
    work: impl AsyncFn(&Arc<Handle>) -> umbel_core::Result<T>,
) -> Outcome<T> {
    match work(filter).await {
        Err(umbel_core::Error::Gone(_)) => {}
        done => return Ok(done?),
    }
    work(&again().await?).await.map_err(|error| failed_again(key, error))
}

/// The filter that a name means now, after the one that it meant was dropped.
pub(crate) async fn filter_again(session: &Session, key: &[u8], or: &'static str) -> Outcome<Arc<Handle>> {
    session.node.filter_again(&name_of(key)).await?.ok_or_else(|| or.into())
}

/// Why a command is not done that was done once more after its filter was dropped.
pub(crate) fn failed_again(key: &[u8], error: umbel_core::Error) -> Refusal {
    if matches!(error, umbel_core::Error::Gone(_)) { dropped(key) } else { error.into() }
}

/// What a client is told whose filter was dropped again and again while its command ran.
pub(crate) fn dropped(key: &[u8]) -> Refusal {
    let name = name_of(key);
    format!("TRYAGAIN the filter {} was dropped while the command ran: try it again", name.escape_debug())
        .into()
}

/// The filter that a command names in its first argument.
pub async fn filter_of(session: &Session, key: &[u8], is_cuckoo: bool) -> Outcome<Arc<Handle>> {
    let filter = session.node.filter(&name_of(key)).await?.ok_or("ERR not found")?;
    check_kind(&filter, is_cuckoo)?;
    Ok(filter)
}

/// Commands of one kind of filter are not for those of the other: clients call those that are erasable cuckoo filters.
pub fn check_kind(filter: &Handle, is_cuckoo: bool) -> Outcome {
    if filter.is_erasable() == is_cuckoo { Ok(()) } else { Err(WRONG_TYPE.into()) }
}

/// Whether a filter never grows.
pub fn is_fixed(filter: &Handle) -> bool {
    filter.definition().growth == Growth::Fixed
}

/// What a client is told when a filter takes no more.
pub fn full(why: &str) -> String {
    if why.contains("is full") { "ERR non scaling filter is full".to_owned() } else { format!("ERR {why}") }
}

/// Nobody can tell now whether the keys are there.
pub fn cannot_tell(key: &[u8]) -> Refusal {
    format!("TRYAGAIN the filter {} cannot be asked now", name_of(key).escape_debug()).into()
}

/// Nobody knows this command.
pub fn unknown(command: Command<'_>) -> Refusal {
    let mut arguments = String::new();
    for argument in command.from(1) {
        // Redis's own bound, for all arguments together.
        let Some(left) = SHOWN_BYTES.checked_sub(arguments.len()).filter(|left| *left > 0) else { break };
        arguments.push_str(&format!("'{}' ", shown(argument, left)));
    }
    let name = shown(command.get(0), SHOWN_BYTES);
    format!("ERR unknown command '{name}', with args beginning with: {arguments}").into()
}

/// Nobody knows this subcommand.
pub fn unknown_subcommand(container: &Row, command: Command<'_>) -> Refusal {
    let name = container.name.to_uppercase();
    format!("ERR unknown subcommand '{}'. Try {name} HELP.", shown(command.get(1), SHOWN_BYTES)).into()
}

/// How a command of commands is called, as Redis writes it.
pub(crate) fn help(session: &mut Session, name: &str, lines: &[&str]) -> Outcome {
    session.reply.array(lines.len() + 3);
    session.reply.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| session.reply.simple(line));
    session.reply.simple("HELP");
    session.reply.simple("    Prints this help.");
    Ok(())
}

fn shown(bytes: &[u8], most: usize) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(most)]).into_owned()
}

/// A command as those see it who watch.
pub fn monitor_line(client: &Client, command: Command<'_>) -> Vec<u8> {
    let time = unix_time();
    let mut line =
        format!("+{}.{:06} [0 {}]", time.as_secs(), time.subsec_micros(), client.address).into_bytes();
    for word in command.from(0) {
        line.push(b' ');
        quote(word, &mut line);
    }
    line.extend_from_slice(b"\r\n");
    line
}

/// Writes a word in quotes, as Redis does.
fn quote(word: &[u8], line: &mut Vec<u8>) {
    line.push(b'"');
    for byte in word {
        match byte {
            b'\\' | b'"' => line.extend_from_slice(&[b'\\', *byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            7 => line.extend_from_slice(b"\\a"),
            8 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(*byte),
            _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_like_redis() {
        let mut line = Vec::new();
        quote(b"a'\"\\\n\r\t\x07\x08\x00\xff ~", &mut line);
        assert_eq!(line, br#""a'\"\\\n\r\t\a\b\x00\xff ~""#);
    }
}
