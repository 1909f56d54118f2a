//! Commands: one file a family, and the way to them.

mod acl;
pub mod arguments;
pub mod bf;
pub mod cf;
mod config;
mod help;
pub mod keys;
pub mod table;
mod umbel;

use std::borrow::Cow;
use std::sync::Arc;

use umbel_core::definition::Growth;
use umbel_core::engine::Handle;

use crate::clients::Client;
use crate::names::name_of;
use crate::node::unix_time;
use crate::resp::Command;
use crate::session::{Session, is_erasable};
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
            Error::Retry(why) => format!("TRYAGAIN {why}").into(),
            Error::Closed(why) => format!("MISCONF {why}").into(),
            other => format!("ERR {other}").into(),
        }
    }
}

impl From<umbel_filter::Error> for Refusal {
    fn from(error: umbel_filter::Error) -> Self {
        format!("ERR {error}").into()
    }
}

/// A filter of the other kind, or what clients take for one.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Runs a command that is known, permitted and has as many words as it takes.
pub async fn run(id: Id, session: &mut Session, command: Command<'_>) -> Outcome {
    match id {
        Id::BfAdd | Id::BfMadd => bf::add(session, command).await,
        Id::BfInsert => bf::insert(session, command).await,
        Id::BfExists | Id::BfMexists => bf::exists(session, command).await,
        Id::BfReserve => bf::reserve(session, command).await,
        Id::BfInfo => bf::info(session, command),
        Id::BfCard => bf::card(session, command),
        Id::BfDebug => bf::debug(session, command),
        Id::CfAdd | Id::CfAddnx => cf::add(session, command).await,
        Id::CfInsert | Id::CfInsertnx => cf::insert(session, command).await,
        Id::CfExists | Id::CfMexists => cf::exists(session, command).await,
        Id::CfDel => cf::del(session, command).await,
        Id::CfCount => cf::count(session, command).await,
        Id::CfReserve => cf::reserve(session, command).await,
        Id::CfInfo => cf::info(session, command),
        Id::CfCompact => cf::compact(session, command).await,
        Id::UmbelCreate => umbel::create(session, command).await,
        Id::UmbelAdd => umbel::add(session, command).await,
        Id::UmbelRemove => umbel::remove(session, command).await,
        Id::UmbelExists => umbel::exists(session, command).await,
        Id::UmbelVerify => umbel::verify(session, command).await,
        Id::UmbelWait => umbel::wait(session, command).await,
        Id::UmbelResize => umbel::resize(session, command).await,
        Id::UmbelClear => umbel::clear(session, command).await,
        Id::UmbelList => umbel::list(session),
        Id::UmbelHelp => umbel::help(session),
        Id::AclCat | Id::AclDeluser | Id::AclDryrun | Id::AclGenpass | Id::AclGetuser | Id::AclList | Id::AclLoad | Id::AclLog
        | Id::AclSave | Id::AclSetuser | Id::AclUsers | Id::AclWhoami | Id::AclHelp => acl::run(id, session, command),
        Id::ConfigGet | Id::ConfigSet | Id::ConfigResetstat | Id::ConfigRewrite | Id::ConfigHelp => config::run(id, session, command),
        Id::Del | Id::Unlink => keys::del(session, command).await,
        Id::Exists | Id::Touch => keys::exists(session, command),
        Id::Type => keys::kind(session, command),
        Id::Keys => keys::keys(session, command),
        Id::Dbsize => keys::dbsize(session),
        Id::Flushall | Id::Flushdb => keys::flush(session).await,
        Id::Ping => {
            session.reply.simple("PONG");
            Ok(())
        }
        _ => Err("ERR not here yet".into()),
    }
}

/// The filter that a command names in its first argument.
pub fn filter_of(session: &Session, key: &[u8], is_cuckoo: bool) -> Outcome<Arc<Handle>> {
    let filter = session.node.engine.filter(&name_of(key)).ok_or("ERR not found")?;
    check_kind(&filter, is_cuckoo)?;
    Ok(filter)
}

/// Commands of one kind of filter are not for those of the other.
pub fn check_kind(filter: &Handle, is_cuckoo: bool) -> Outcome {
    if is_erasable(filter) == is_cuckoo { Ok(()) } else { Err(WRONG_TYPE.into()) }
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
    let mut text =
        format!("ERR unknown command '{}', with args beginning with: ", shown(command.get(0), 128));
    for argument in command.from(1) {
        if text.len() >= 128 {
            break;
        }
        text.push_str(&format!("'{}' ", shown(argument, 128 - text.len().min(128))));
    }
    text.into()
}

/// Nobody knows this subcommand.
pub fn unknown_subcommand(container: &Row, command: Command<'_>) -> Refusal {
    let name = container.name.to_uppercase();
    format!("ERR unknown subcommand '{}'. Try {name} HELP.", shown(command.get(1), 128)).into()
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
        line.extend_from_slice(b" \"");
        line.extend(word.escape_ascii());
        line.push(b'"');
    }
    line.extend_from_slice(b"\r\n");
    line
}
