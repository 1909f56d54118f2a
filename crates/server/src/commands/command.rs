//! `COMMAND`: the table of commands, for clients that ask for it.

use super::arguments::{Words, is, text};
use super::table::{self, Row};
use super::{Outcome, SYNTAX, help};
use crate::glob;
use crate::resp::{Command, Reply};
use crate::session::Session;

/// Flags that the table has for itself.
const OWN_FLAGS: [&str; 1] = ["container"];

/// `COMMAND`
pub(crate) fn all(session: &mut Session) -> Outcome {
    session.reply.array(table::commands().count());
    table::commands().for_each(|row| write_row(&mut session.reply, row));
    Ok(())
}

/// `COMMAND COUNT`
pub(crate) fn count(session: &mut Session) -> Outcome {
    session.reply.count(table::commands().count() as u64);
    Ok(())
}

/// `COMMAND INFO [name...]`
pub(crate) fn info(session: &mut Session, command: Command<'_>) -> Outcome {
    if command.len() == 2 {
        return all(session);
    }
    session.reply.array(command.len() - 2);
    for name in command.from(2) {
        match table::find(name) {
            Some(id) => write_row(&mut session.reply, id.row()),
            None => session.reply.null(),
        }
    }
    Ok(())
}

fn write_row(reply: &mut Reply, row: &Row) {
    reply.array(10);
    reply.bulk(row.name);
    reply.integer(row.arity.into());
    let flags: Vec<&str> = row.flags.iter().copied().filter(|flag| !OWN_FLAGS.contains(flag)).collect();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    let (first, last, step) = row.keys;
    [first, last, step].into_iter().for_each(|place| reply.integer(place.into()));
    let categories = row.all_categories();
    reply.set(categories.len());
    categories.iter().for_each(|category| reply.simple(&format!("@{category}")));
    // Neither tips nor specifications of keys: the three numbers say all there is.
    reply.set(0);
    reply.set(0);
    let subcommands: Vec<&Row> = row.subcommands().collect();
    if subcommands.is_empty() {
        return reply.set(0);
    }
    reply.array(subcommands.len());
    subcommands.iter().for_each(|row| write_row(reply, row));
}

/// `COMMAND DOCS [name...]`
pub(crate) fn docs(session: &mut Session, command: Command<'_>) -> Outcome {
    let rows: Vec<&Row> = if command.len() == 2 {
        table::commands().collect()
    } else {
        command.from(2).filter_map(table::find).map(table::Id::row).collect()
    };
    session.reply.map(rows.len());
    rows.iter().for_each(|row| write_docs(&mut session.reply, row));
    Ok(())
}

fn write_docs(reply: &mut Reply, row: &Row) {
    let subcommands: Vec<&Row> = row.subcommands().collect();
    reply.bulk(row.name);
    reply.map(3 + usize::from(row.is("module")) + usize::from(!subcommands.is_empty()));
    for (field, value) in
        [("summary", row.summary), ("since", env!("CARGO_PKG_VERSION")), ("group", row.group)]
    {
        reply.bulk(field);
        reply.bulk(value);
    }
    if row.is("module") {
        reply.bulk("module");
        reply.bulk("bf");
    }
    if !subcommands.is_empty() {
        reply.bulk("subcommands");
        reply.map(subcommands.len());
        subcommands.iter().for_each(|row| write_docs(reply, row));
    }
}

/// `COMMAND LIST [FILTERBY MODULE name|ACLCAT category|PATTERN pattern]`
pub(crate) fn list(session: &mut Session, command: Command<'_>) -> Outcome {
    let mut words = Words::from(command, 2);
    let rows: Vec<&Row> = match words.next() {
        None => table::commands().collect(),
        Some(word) if is(word, "FILTERBY") && words.left() == 2 => {
            let (by, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let all = table::TABLE.iter();
            match () {
                () if is(by, "MODULE") => all.filter(|row| row.is("module") && value == b"bf").collect(),
                () if is(by, "ACLCAT") => {
                    let category = text(value).unwrap_or_default().to_lowercase();
                    all.filter(|row| row.all_categories().contains(&category.as_str())).collect()
                }
                () if is(by, "PATTERN") => {
                    let pattern = value.to_ascii_lowercase();
                    all.filter(|row| glob::matches(&pattern, row.name.as_bytes())).collect()
                }
                () => return Err(SYNTAX.into()),
            }
        }
        Some(_) => return Err(SYNTAX.into()),
    };
    session.reply.array(rows.len());
    rows.iter().for_each(|row| session.reply.bulk(row.name));
    Ok(())
}

/// `COMMAND GETKEYS command argument...`
pub(crate) fn get_keys(session: &mut Session, command: Command<'_>) -> Outcome {
    let mut row = table::find(command.get(2)).ok_or("ERR Invalid command specified")?.row();
    if row.is("container") {
        row = table::find_subcommand(row, command.get(3)).ok_or("ERR Invalid command specified")?.row();
    }
    let words = command.len() - 2;
    if row.keys.0 == 0 {
        return Err("ERR The command has no key arguments".into());
    }
    if !row.takes(words) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let keys: Vec<usize> = row.key_positions(words).collect();
    session.reply.array(keys.len());
    keys.iter().for_each(|key| session.reply.bulk(command.get(2 + key)));
    Ok(())
}

/// `COMMAND HELP`
pub(crate) fn show_help(session: &mut Session) -> Outcome {
    let lines = [
        "(no subcommand)",
        "    Return details about all Redis commands.",
        "COUNT",
        "    Return the total number of commands in this Redis server.",
        "LIST",
        "    Return a list of all commands in this Redis server.",
        "INFO [<command-name> ...]",
        "    Return details about multiple Redis commands.",
        "    If no command names are given, documentation details for all",
        "    commands are returned.",
        "DOCS [<command-name> ...]",
        "    Return documentation details about multiple Redis commands.",
        "    If no command names are given, documentation details for all",
        "    commands are returned.",
        "GETKEYS <full-command>",
        "    Return the keys from a full Redis command.",
    ];
    help(session, "COMMAND", &lines)
}
