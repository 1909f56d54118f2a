//! `ACL`: users and what they may do. A client sees and changes users within its own rights only.

use std::sync::Arc;

use super::arguments::{integer, text, unsigned};
use super::table::{self, Id};
use super::{Outcome, Refusal};
use crate::acl::{self, Access, Denied, User};
use crate::node::unix_time;
use crate::resp::Command;
use crate::session::Session;

impl From<acl::Error> for Refusal {
    fn from(error: acl::Error) -> Self {
        match error {
            acl::Error::Invalid(_) => format!("ERR {error}"),
            acl::Error::Beyond(_) => format!("NOPERM {error}"),
        }
        .into()
    }
}

/// Runs a subcommand.
pub(super) fn run(id: Id, session: &mut Session, command: Command<'_>) -> Outcome {
    let by = session.user().ok_or("NOAUTH Authentication required.")?;
    let by = &*by;
    match id {
        Id::AclWhoami => {
            let name = session.login.as_ref().map_or(acl::DEFAULT, |login| login.user().name()).to_owned();
            session.reply.bulk(name);
        }
        Id::AclUsers => {
            let users = session.node.acl.users_within(Some(by));
            write_list(session, &users.iter().map(|user| user.name().to_owned()).collect::<Vec<_>>());
        }
        Id::AclList => {
            let users = session.node.acl.users_within(Some(by));
            write_list(session, &users.iter().map(|user| user.line()).collect::<Vec<_>>());
        }
        Id::AclCat if command.len() > 3 => {
            return Err("ERR unknown subcommand or wrong number of arguments for 'CAT'. Try ACL HELP.".into());
        }
        Id::AclCat => {
            let acl = &session.node.acl;
            let names = if command.len() == 3 {
                acl.category(text(command.get(2)).unwrap_or_default())?
            } else {
                acl.categories()
            };
            write_list(session, &names);
        }
        Id::AclGenpass => {
            let bits = if command.len() == 3 {
                integer(command.get(2)).ok_or("ERR value is not an integer or out of range")?
            } else {
                256
            };
            session.reply.bulk(acl::generate_password(bits)?);
        }
        Id::AclSetuser => {
            let words = texts(command, 2)?;
            session.node.acl.set_user(Some(by), words[0], &words[1..])?;
            session.reply.ok();
        }
        Id::AclDeluser => {
            let deleted = session.node.acl.delete_users(Some(by), &texts(command, 2)?)?;
            session.reply.count(deleted as u64);
        }
        Id::AclGetuser => get_user(session, by, command)?,
        Id::AclDryrun => return dry_run(session, by, command),
        Id::AclLog => {
            session.permit_all_keys(id)?;
            return log(session, command);
        }
        Id::AclLoad => {
            session.node.acl.load(Some(by), &file(session)?)?;
            session.reply.ok();
        }
        Id::AclSave => {
            session.permit_all_keys(id)?;
            session.node.acl.save(&file(session)?)?;
            session.reply.ok();
        }
        _ => super::help::write(session, "ACL"),
    }
    Ok(())
}

fn write_list(session: &mut Session, texts: &[String]) {
    session.reply.array(texts.len());
    texts.iter().for_each(|text| session.reply.bulk(text));
}

fn texts<'a>(command: Command<'a>, first: usize) -> Outcome<Vec<&'a str>> {
    let texts: Option<Vec<&str>> = command.from(first).map(text).collect();
    texts.ok_or_else(|| "ERR users and rules are text".into())
}

fn file(session: &Session) -> Outcome<std::path::PathBuf> {
    session.node.config.load().acl_file.clone().ok_or_else(|| {
        "ERR This Umbel instance is not configured to use an ACL file. Name one with acl_file and start it again.".into()
    })
}

/// The user of that name, if there is one. One with more rights than the client is not told of.
pub(super) fn known_user(session: &Session, by: &User, name: &str) -> Outcome<Option<Arc<User>>> {
    let user = session.node.acl.user(name);
    match &user {
        Some(user) if !by.includes(user) => Err(acl::Error::Beyond(name.to_owned()).into()),
        _ => Ok(user),
    }
}

fn get_user(session: &mut Session, by: &User, command: Command<'_>) -> Outcome {
    let name = text(command.get(2)).unwrap_or_default();
    let Some(user) = known_user(session, by, name)? else {
        session.reply.null_array();
        return Ok(());
    };
    let about = user.describe();
    let reply = &mut session.reply;
    reply.map(6);
    reply.bulk("flags");
    reply.set(about.flags.len());
    about.flags.iter().for_each(|flag| reply.bulk(flag));
    reply.bulk("passwords");
    reply.array(about.passwords.len());
    about.passwords.iter().for_each(|password| reply.bulk(password));
    for (name, value) in
        [("commands", &about.root.commands), ("keys", &about.root.keys), ("channels", &about.root.channels)]
    {
        reply.bulk(name);
        reply.bulk(value);
    }
    reply.bulk("selectors");
    reply.array(about.selectors.len());
    for selector in &about.selectors {
        reply.map(3);
        for (name, value) in
            [("commands", &selector.commands), ("keys", &selector.keys), ("channels", &selector.channels)]
        {
            reply.bulk(name);
            reply.bulk(value);
        }
    }
    Ok(())
}

/// `ACL DRYRUN user command [argument...]`
fn dry_run(session: &mut Session, by: &User, command: Command<'_>) -> Outcome {
    let name = text(command.get(2)).unwrap_or_default();
    let user = known_user(session, by, name)?.ok_or_else(|| format!("ERR User '{name}' not found"))?;
    let called = command.get(3);
    let Some(mut id) = table::find(called) else {
        return Err(format!("ERR Command '{}' not found", String::from_utf8_lossy(called)).into());
    };
    if id.row().is("container") && command.len() > 4 {
        id = table::find_subcommand(id.row(), command.get(4)).unwrap_or(id);
    }
    let row = id.row();
    let words = command.len() - 3;
    if !row.takes(words) {
        return Err(format!("ERR wrong number of arguments for '{}' command", row.name).into());
    }
    let access = if row.is("write") { Access::WRITE } else { Access::READ };
    let keys = row.key_positions(words).map(|position| command.get(position + 3));
    match user.can(row.id as u16, keys, access) {
        Ok(()) => session.reply.ok(),
        Err(Denied::Command) => {
            session.reply.bulk(format!("User {name} has no permissions to run the '{}' command", row.name));
        }
        Err(Denied::Key(key)) => {
            let key = String::from_utf8_lossy(&key);
            session.reply.bulk(format!("User {name} has no permissions to access the '{key}' key"));
        }
    }
    Ok(())
}

/// `ACL LOG [count | RESET]`
fn log(session: &mut Session, command: Command<'_>) -> Outcome {
    if command.get(2).eq_ignore_ascii_case(b"RESET") {
        session.node.acl.log().clear();
        session.reply.ok();
        return Ok(());
    }
    let most = match command.len() {
        2 => 10,
        _ => unsigned(command.get(2)).ok_or("ERR value is out of range, must be positive")? as usize,
    };
    let now = unix_time().as_millis() as u64;
    let entries: Vec<acl::Entry> = session.node.acl.log().entries().take(most).cloned().collect();
    session.reply.array(entries.len());
    for entry in entries {
        let reply = &mut session.reply;
        reply.map(10);
        reply.bulk("count");
        reply.count(entry.count);
        for (name, value) in [
            ("reason", entry.reason.name().as_bytes()),
            ("context", entry.context.as_bytes()),
            ("object", &entry.object),
            ("username", entry.username.as_bytes()),
        ] {
            reply.bulk(name);
            reply.bulk(value);
        }
        reply.bulk("age-seconds");
        reply.double(entry.age(now));
        reply.bulk("client-info");
        reply.bulk(&entry.client);
        for (name, value) in [
            ("entry-id", entry.id),
            ("timestamp-created", entry.created_ms),
            ("timestamp-last-updated", entry.updated_ms),
        ] {
            reply.bulk(name);
            reply.count(value);
        }
    }
    Ok(())
}
