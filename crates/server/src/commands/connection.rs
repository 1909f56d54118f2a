//! The connection itself: who is there, and how both sides speak.

use umbel_core::random::{Random, SystemRandom};

use super::arguments::{Words, integer, is, text};
use super::client::set_name;
use super::{Outcome, Refusal};
use crate::acl::{DEFAULT, Reason};
use crate::node::{BLOOM_VERSION, unix_time};
use crate::resp::{Command, Protocol, Reply};
use crate::session::{Session, Wants};

/// `PING [message]`
pub(crate) fn ping(session: &mut Session, command: Command<'_>) -> Outcome {
    match command.len() {
        1 => session.reply.simple("PONG"),
        2 => session.reply.bulk(command.get(1)),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

/// `ECHO message`
pub(crate) fn echo(session: &mut Session, command: Command<'_>) -> Outcome {
    session.reply.bulk(command.get(1));
    Ok(())
}

/// `SELECT index`: there is one database.
pub(crate) fn select(session: &mut Session, command: Command<'_>) -> Outcome {
    match integer(command.get(1)) {
        None => Err("ERR value is not an integer or out of range".into()),
        Some(0) => {
            session.reply.ok();
            Ok(())
        }
        Some(_) => Err("ERR DB index is out of range".into()),
    }
}

/// `QUIT`
pub(crate) fn quit(session: &mut Session) -> Outcome {
    session.reply.ok();
    session.is_closing = true;
    Ok(())
}

/// `RESET`: as if the client had just come.
pub(crate) fn reset(session: &mut Session) -> Outcome {
    session.transaction = None;
    session.wants = Wants::Replies;
    session.reply.set_protocol(Protocol::Resp2);
    session.node.clients.unwatch(&session.client);
    // Lines that wait are not sent any more.
    drop(session.client.take_watched());
    session.login = session.node.acl.greet();
    {
        let mut about = session.client.about();
        about.name.clear();
        about.user = DEFAULT.into();
        about.resp3 = false;
        about.collected = None;
    }
    session.reply.simple("RESET");
    Ok(())
}

/// `AUTH [username] password`
pub(crate) fn auth(session: &mut Session, command: Command<'_>) -> Outcome {
    match command.len() {
        2 if session.node.acl.is_open() => Err("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?".into()),
        2 => authenticate(session, DEFAULT.as_bytes(), command.get(1)),
        3 => authenticate(session, command.get(1), command.get(2)),
        _ => Err("ERR syntax error".into()),
    }?;
    session.reply.ok();
    Ok(())
}

/// Lets the client be a user, if that is the user's password.
pub(crate) fn authenticate(session: &mut Session, user: &[u8], password: &[u8]) -> Outcome {
    let name = String::from_utf8_lossy(user);
    match session.node.acl.authenticate(&name, password) {
        Ok(login) => {
            session.client.about().user = login.user().name().to_owned();
            session.login = Some(login);
            Ok(())
        }
        Err(refusal) => {
            let (line, now) = (session.client.line(session.node.now()), unix_time().as_millis() as u64);
            session.node.acl.log().record(Reason::Auth, "toplevel", b"AUTH", &name, line, now);
            Err(refusal.into())
        }
    }
}

/// `HELLO [version [AUTH username password] [SETNAME name]]`
pub(crate) fn hello(session: &mut Session, command: Command<'_>) -> Outcome {
    let mut words = Words::from(command, 1);
    let version = match words.next().map(integer) {
        None => None,
        Some(None) => return Err("ERR Protocol version is not an integer or out of range".into()),
        Some(Some(2)) => Some(Protocol::Resp2),
        Some(Some(3)) => Some(Protocol::Resp3),
        Some(Some(_)) => return Err("NOPROTO unsupported protocol version".into()),
    };
    let (mut user, mut name) = (None, None);
    while let Some(option) = words.next() {
        if is(option, "AUTH") && words.left() >= 2 {
            user = words.next().zip(words.next());
        } else if is(option, "SETNAME") && words.left() >= 1 {
            name = words.next();
        } else {
            let option = String::from_utf8_lossy(option);
            return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
        }
    }
    if let Some((user, password)) = user {
        authenticate(session, user, password)?;
    }
    if session.login.is_none() {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time".into());
    }
    if let Some(name) = name {
        set_name(session, name)?;
    }
    if let Some(version) = version {
        session.reply.set_protocol(version);
        session.client.about().resp3 = version == Protocol::Resp3;
    }
    greet(session);
    Ok(())
}

fn greet(session: &mut Session) {
    let id = session.client.id;
    let redis_version = session.node.config.load().redis_version.clone();
    let reply = &mut session.reply;
    let version = if reply.protocol() == Protocol::Resp3 { 3 } else { 2 };
    reply.map(7);
    for (field, value) in [("server", "redis"), ("version", &redis_version)] {
        reply.bulk(field);
        reply.bulk(value);
    }
    reply.bulk("proto");
    reply.integer(version);
    reply.bulk("id");
    reply.count(id);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(field);
        reply.bulk(value);
    }
    reply.bulk("modules");
    write_modules(reply);
}

/// The modules that a client of Redis looks for before it sends `BF.*`.
pub(crate) fn write_modules(reply: &mut Reply) {
    reply.array(1);
    reply.map(4);
    reply.bulk("name");
    reply.bulk("bf");
    reply.bulk("ver");
    reply.integer(BLOOM_VERSION);
    reply.bulk("path");
    reply.bulk("");
    reply.bulk("args");
    reply.array(0);
}

/// A word that Redis takes for names: no blanks, nothing that cannot be seen.
pub(crate) fn plain(word: &[u8], refusal: impl FnOnce() -> Refusal) -> Outcome<&str> {
    text(word).filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic())).ok_or_else(refusal)
}

/// Forty digits that no other server has.
pub(crate) fn run_id() -> String {
    let random = SystemRandom::default();
    format!("{:016x}{:016x}{:08x}", random.next(), random.next(), random.next() as u32)
}
