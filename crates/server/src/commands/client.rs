//! `CLIENT`: what is known of connections, and what may be done to them.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::arguments::{Words, integer, is};
use super::connection::plain;
use super::{Outcome, SYNTAX, help};
use crate::acl::Acl;
use crate::clients::Client;
use crate::pause::What;
use crate::resp::Command;
use crate::session::{Session, Wants};

/// Longest pause; more would not be a time any more.
const PAUSE_MS_MAX: i64 = i64::MAX / 2;

/// `CLIENT ID`
pub(crate) fn id(session: &mut Session) -> Outcome {
    session.reply.count(session.client.id);
    Ok(())
}

/// `CLIENT GETNAME`
pub(crate) fn get_name(session: &mut Session) -> Outcome {
    let name = session.client.about().name.clone();
    if name.is_empty() {
        session.reply.null();
    } else {
        session.reply.bulk(name);
    }
    Ok(())
}

/// `CLIENT SETNAME name`
pub(crate) fn set_name_of(session: &mut Session, command: Command<'_>) -> Outcome {
    set_name(session, command.get(2))?;
    session.reply.ok();
    Ok(())
}

/// Names the connection; no name if it is empty.
pub(crate) fn set_name(session: &Session, name: &[u8]) -> Outcome {
    let refusal = || "ERR Client names cannot contain spaces, newlines or special characters.".into();
    let name = plain(name, refusal)?;
    session.client.about().name = name.into();
    Ok(())
}

/// `CLIENT SETINFO LIB-NAME|LIB-VER value`
pub(crate) fn set_info(session: &mut Session, command: Command<'_>) -> Outcome {
    let option = command.get(2);
    let is_name = is(option, "LIB-NAME");
    let shown = String::from_utf8_lossy(option);
    if !is_name && !is(option, "LIB-VER") {
        return Err(format!("ERR Unrecognized option '{shown}'").into());
    }
    let refusal = || format!("ERR {shown} cannot contain spaces, newlines or special characters.").into();
    let value = plain(command.get(3), refusal)?;
    {
        let mut about = session.client.about();
        *(if is_name { &mut about.library } else { &mut about.library_version }) = value.into();
    }
    session.reply.ok();
    Ok(())
}

/// `CLIENT NO-EVICT ON|OFF`, `CLIENT NO-TOUCH ON|OFF`: nothing is evicted here.
pub(crate) fn on_or_off(session: &mut Session, command: Command<'_>) -> Outcome {
    if !is(command.get(2), "ON") && !is(command.get(2), "OFF") {
        return Err(SYNTAX.into());
    }
    session.reply.ok();
    Ok(())
}

/// `CLIENT REPLY ON|OFF|SKIP`
pub(crate) fn reply(session: &mut Session, command: Command<'_>) -> Outcome {
    let mode = command.get(2);
    if is(mode, "ON") {
        session.wants = Wants::Replies;
        session.reply.ok();
    } else if is(mode, "OFF") {
        session.wants = Wants::Nothing;
    } else if is(mode, "SKIP") {
        if session.wants != Wants::Nothing {
            session.wants = Wants::NotTheNext;
        }
    } else {
        return Err(SYNTAX.into());
    }
    Ok(())
}

/// `CLIENT INFO`
pub(crate) fn info(session: &mut Session) -> Outcome {
    let mut text = line(&session.client, session.node.now());
    text.push('\n');
    session.reply.verbatim(&text);
    Ok(())
}

/// `CLIENT LIST [TYPE type] [ID id...]`
pub(crate) fn list(session: &mut Session, command: Command<'_>) -> Outcome {
    let mut words = Words::from(command, 2);
    let clients = match words.next() {
        None => session.node.clients.all(),
        Some(option) if is(option, "TYPE") && words.left() == 1 => {
            let normal = type_is_normal(words.next().unwrap_or_default())?;
            if normal { session.node.clients.all() } else { Vec::new() }
        }
        Some(option) if is(option, "ID") && words.left() > 0 => {
            let mut chosen = Vec::new();
            for word in words {
                let id = integer(word).ok_or("ERR Invalid client ID")?;
                chosen.extend(u64::try_from(id).ok().and_then(|id| session.node.clients.get(id)));
            }
            chosen
        }
        Some(_) => return Err(SYNTAX.into()),
    };
    let now = session.node.now();
    let mut text = String::new();
    for client in clients {
        text.push_str(&line(&client, now));
        text.push('\n');
    }
    session.reply.verbatim(&text);
    Ok(())
}

/// Whether the type of clients is the only one that there is here.
fn type_is_normal(word: &[u8]) -> Outcome<bool> {
    match () {
        () if is(word, "NORMAL") => Ok(true),
        () if ["MASTER", "REPLICA", "SLAVE", "PUBSUB"].iter().any(|kind| is(word, kind)) => Ok(false),
        () => Err(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(word)).into()),
    }
}

/// A connection as Redis prints it. What means nothing here is 0.
fn line(client: &Client, now: Instant) -> String {
    let about = client.about().clone();
    let age = now.saturating_duration_since(client.since).as_secs();
    let mut flags = String::new();
    if client.watches.load(Ordering::Relaxed) {
        flags.push('O');
    }
    if about.collected.is_some() {
        flags.push('x');
    }
    if client.is_killed() {
        flags.push('c');
    }
    if flags.is_empty() {
        flags.push('N');
    }
    let multi = about.collected.map_or(-1, |commands| commands as i64);
    let mut text = String::with_capacity(320);
    // Writing into a string does not fail.
    let _ = write!(
        text,
        "id={} addr={} laddr={} fd=0 name={} age={age} idle={} flags={flags} db=0 sub=0 psub=0 ssub=0 multi={multi} qbuf=0 \
         qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd={} user={} redir=-1 \
         resp={} lib-name={} lib-ver={}",
        client.id,
        client.address,
        client.local_address,
        about.name,
        client.idle(now).as_secs(),
        client.last_command(),
        about.user,
        if about.resp3 { 3 } else { 2 },
        about.library,
        about.library_version,
    );
    text
}

/// Which connections are to end.
#[derive(Debug, Default)]
struct Chosen {
    id: Option<u64>,
    address: Option<Vec<u8>>,
    local_address: Option<Vec<u8>>,
    user: Option<Vec<u8>>,
    normal: Option<bool>,
    age_s: Option<u64>,
    skips_me: bool,
}

impl Chosen {
    fn parse(command: Command<'_>, acl: &Acl) -> Outcome<Self> {
        let mut chosen = Self { skips_me: true, ..Self::default() };
        let mut words = Words::from(command, 2);
        while let Some(option) = words.next() {
            let value = words.next().ok_or(SYNTAX)?;
            if is(option, "ID") {
                let id = integer(value).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
                chosen.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
            } else if is(option, "MAXAGE") {
                let age = integer(value).ok_or("ERR maxage is not an integer or out of range")?;
                let age = u64::try_from(age).ok().filter(|age| *age > 0);
                chosen.age_s = Some(age.ok_or("ERR maxage should be greater than 0")?);
            } else if is(option, "TYPE") {
                chosen.normal = Some(type_is_normal(value)?);
            } else if is(option, "ADDR") {
                chosen.address = Some(value.to_vec());
            } else if is(option, "LADDR") {
                chosen.local_address = Some(value.to_vec());
            } else if is(option, "USER") {
                let name = String::from_utf8_lossy(value);
                if acl.user(&name).is_none() {
                    return Err(format!("ERR No such user '{name}'").into());
                }
                chosen.user = Some(value.to_vec());
            } else if is(option, "SKIPME") {
                chosen.skips_me = match () {
                    () if is(value, "YES") => true,
                    () if is(value, "NO") => false,
                    () => return Err(SYNTAX.into()),
                };
            } else {
                return Err(SYNTAX.into());
            }
        }
        Ok(chosen)
    }

    /// Whether this one is to end. One that ends already is not killed a second time.
    fn has(&self, client: &Client, me: &Arc<Client>, now: Instant) -> bool {
        let is = |wanted: &Option<Vec<u8>>, text: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == text.as_bytes())
        };
        !client.is_killed()
            && self.id.is_none_or(|id| id == client.id)
            && is(&self.address, &client.address.to_string())
            && is(&self.local_address, &client.local_address.to_string())
            && is(&self.user, &client.about().user)
            && self.normal != Some(false)
            && self.age_s.is_none_or(|age| now.saturating_duration_since(client.since).as_secs() >= age)
            && !(self.skips_me && client.id == me.id)
    }
}

/// `CLIENT KILL address`, `CLIENT KILL option value...`
pub(crate) fn kill(session: &mut Session, command: Command<'_>) -> Outcome {
    let is_old = command.len() == 3;
    let chosen = if is_old {
        let address = Some(command.get(2).to_vec());
        Chosen { address, ..Chosen::default() }
    } else {
        Chosen::parse(command, &session.node.acl)?
    };
    let now = session.node.now();
    let mut killed = 0;
    for client in session.node.clients.all() {
        if chosen.has(&client, &session.client, now) {
            killed += 1;
            if client.id == session.client.id {
                // It gets its reply first.
                session.is_closing = true;
            } else {
                client.kill();
            }
        }
    }
    match (is_old, killed) {
        (true, 0) => return Err("ERR No such client".into()),
        (true, _) => session.reply.ok(),
        (false, killed) => session.reply.integer(killed),
    }
    Ok(())
}

/// `CLIENT PAUSE milliseconds [WRITE|ALL]`
pub(crate) fn pause(session: &mut Session, command: Command<'_>) -> Outcome {
    let mode = match command.len() {
        3 => What::All,
        4 if is(command.get(3), "WRITE") => What::Writes,
        4 if is(command.get(3), "ALL") => What::All,
        4 => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        _ => {
            return Err(
                "ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP.".into()
            );
        }
    };
    let time = integer(command.get(2)).ok_or("ERR timeout is not an integer or out of range")?;
    let time = u64::try_from(time.min(PAUSE_MS_MAX)).map_err(|_| "ERR timeout is negative")?;
    session.node.pause.pause(session.node.now(), Duration::from_millis(time), mode);
    session.reply.ok();
    Ok(())
}

/// `CLIENT UNPAUSE`
pub(crate) fn unpause(session: &mut Session) -> Outcome {
    session.node.pause.end();
    session.reply.ok();
    Ok(())
}

/// `CLIENT HELP`
pub(crate) fn show_help(session: &mut Session) -> Outcome {
    help(
        session,
        "CLIENT",
        &[
            "GETNAME",
            "    Return the name of the current connection.",
            "ID",
            "    Return the ID of the current connection.",
            "INFO",
            "    Return information about the current client connection.",
            "KILL <ip:port>",
            "    Kill connection made from <ip:port>.",
            "KILL <option> <value> [<option> <value> [...]]",
            "    Kill connections. Options are:",
            "    * ADDR (<ip:port>|<unixsocket>:0)",
            "      Kill connections made from the specified address",
            "    * LADDR (<ip:port>|<unixsocket>:0)",
            "      Kill connections made to specified local address",
            "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
            "      Kill connections by type.",
            "    * USER <username>",
            "      Kill connections authenticated by <username>.",
            "    * SKIPME (YES|NO)",
            "      Skip killing current connection (default: yes).",
            "    * ID <client-id>",
            "      Kill connections by client id.",
            "    * MAXAGE <maxage>",
            "      Kill connections older than the specified age.",
            "LIST [options ...]",
            "    Return information about client connections. Options:",
            "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
            "      Return clients of specified type.",
            "UNPAUSE",
            "    Stop the current client pause, resuming traffic.",
            "PAUSE <timeout> [WRITE|ALL]",
            "    Suspend all, or just write, clients for <timeout> milliseconds.",
            "REPLY (ON|OFF|SKIP)",
            "    Control the replies sent to the current connection.",
            "SETNAME <name>",
            "    Assign the name <name> to the current connection.",
            "SETINFO <option> <value>",
            "    Set client meta attr. Options are:",
            "    * LIB-NAME: the client lib name.",
            "    * LIB-VER: the client lib version.",
            "NO-EVICT (ON|OFF)",
            "    Protect current client connection from eviction.",
            "NO-TOUCH (ON|OFF)",
            "    Will not touch LRU/LFU stats when this mode is on.",
        ],
    )
}
