//! What `HELP` of a command of commands says: the rows of the table.

use super::table;
use crate::session::Session;

/// Writes the subcommands of a command with what they are for.
pub(super) fn write(session: &mut Session, container: &str) {
    let Some(id) = table::find(container.as_bytes()) else { return session.reply.array(0) };
    let rows: Vec<_> = id.row().subcommands().collect();
    session.reply.array(1 + 2 * rows.len());
    session.reply.simple(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for row in rows {
        session.reply.simple(&row.own_name().to_uppercase());
        session.reply.simple(&format!("    {}.", row.summary));
    }
}
