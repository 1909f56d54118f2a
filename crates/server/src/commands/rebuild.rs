//! `UMBEL.REBUILD`: a filter is filled anew while it is used.

use std::sync::Arc;

use umbel_core::engine::{Handle, Refill};

use super::arguments::{Words, is, text};
use super::umbel::{any_filter, hashed, options, request, write_written};
use super::{Outcome, help};
use crate::making::set_refill;
use crate::node::Node;
use crate::rebuild::{self, Progress};
use crate::resp::Command;
use crate::session::Session;
use crate::work::beside;

const HELP: &[&str] = &[
    "START <key> [CAPACITY <elements>] [ERROR <rate>] [KIND bloom|counting|counting8] [LAYOUT blocked|guava|redisson] [RETAIN yes|no]",
    "    Begins to fill a filter anew, or goes on with what was begun alike. From here on it takes and loses what the filter does.",
    "ADD <key> [SESSION <id> SEQUENCE <number>] ITEMS <item> [<item> ...]",
    "    Adds items of the source to what is being filled. To add one twice does no harm.",
    "STATUS <key>",
    "    How far it is.",
    "FINISH <key> [ID <id>] [FORCE]",
    "    Lets it take the filter's place. FORCE: also with no items, or with less than half of the filter's.",
    "ABORT <key>",
    "    Gives it up. The filter stays as it is.",
];

/// `UMBEL.REBUILD HELP`
pub(super) fn show_help(session: &mut Session) -> Outcome {
    help(session, "UMBEL.REBUILD", HELP)
}

/// `UMBEL.REBUILD START key [option...]`
pub(super) async fn start(session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = any_filter(session, command.get(2)).await?;
    let mut asked = Refill::default();
    let mut words = Words::from(command, 3);
    while let Some(word) = words.next() {
        let option = String::from_utf8_lossy(word).to_uppercase();
        let value = words.next().and_then(text).ok_or_else(|| format!("ERR {option} takes a value"))?;
        set_refill(&mut asked, &option.to_lowercase(), value)
            .map_err(|why| format!("ERR {why}: see UMBEL.REBUILD HELP"))?;
    }
    let begin = |node: Arc<Node>| async move { rebuild::begin(&node, &filter, &asked).await };
    let (progress, is_resumed) = beside(&session.node, begin).await?;
    write_progress(session, &progress, Some(is_resumed));
    Ok(())
}

async fn begun(session: &Session, command: Command<'_>) -> Outcome<(Arc<Handle>, Arc<Handle>)> {
    let filter = any_filter(session, command.get(2)).await?;
    let rebuild = session.node.engine.rebuild_of(&filter).await?;
    Ok((filter, rebuild.ok_or("ERR no rebuild of this filter was begun")?))
}

/// `UMBEL.REBUILD ADD key [SESSION id SEQUENCE number] ITEMS item...`
pub(super) async fn add(session: &mut Session, command: Command<'_>) -> Outcome {
    let ([id, sequence], first) = options(command, 3, ["SESSION", "SEQUENCE"])?;
    let request = request(id, sequence)?;
    let (_, rebuild) = begun(session, command).await?;
    let keys = hashed(&rebuild, command, first);
    let written = session.node.engine.fill(&rebuild, &keys, request).await?;
    write_written(session, &written);
    Ok(())
}

/// `UMBEL.REBUILD STATUS key`
pub(super) async fn status(session: &mut Session, command: Command<'_>) -> Outcome {
    let (filter, rebuild) = begun(session, command).await?;
    let progress = rebuild::progress(&session.node, &filter, &rebuild).await?;
    write_progress(session, &progress, None);
    Ok(())
}

/// `UMBEL.REBUILD FINISH key [ID id] [FORCE]`
pub(super) async fn finish(session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = any_filter(session, command.get(2)).await?;
    let (mut wanted, mut force) = (None, false);
    let mut words = Words::from(command, 3);
    while let Some(word) = words.next() {
        if is(word, "FORCE") {
            force = true;
        } else if is(word, "ID") {
            let id = words.next().and_then(text).ok_or("ERR ID takes a value")?;
            wanted = Some(id.to_owned());
        } else {
            return Err("ERR unknown option; UMBEL.REBUILD FINISH takes ID and FORCE".into());
        }
    }
    let finish = |node: Arc<Node>| async move {
        rebuild::finish(&node, &filter, wanted.as_deref(), force).await.map(drop)
    };
    beside(&session.node, finish).await?;
    session.reply.ok();
    Ok(())
}

/// `UMBEL.REBUILD ABORT key`
pub(super) async fn abort(session: &mut Session, command: Command<'_>) -> Outcome {
    let (filter, _) = begun(session, command).await?;
    session.node.engine.abort_rebuild(&filter).await?;
    session.reply.ok();
    Ok(())
}

fn write_progress(session: &mut Session, progress: &Progress, is_resumed: Option<bool>) {
    let reply = &mut session.reply;
    let words = [
        ("id", progress.id.clone()),
        ("state", progress.state().to_owned()),
        ("kind", progress.kind.to_string()),
        ("layout", progress.layout.to_string()),
    ];
    let counts = [
        ("began_ms", progress.began_ms),
        ("items", progress.items),
        ("filter_items", progress.filter_items),
        ("capacity", progress.capacity),
        ("bytes", progress.bytes),
    ];
    let shares = [("error", progress.error), ("fill", progress.fill)];
    reply.map(words.len() + counts.len() + shares.len() + 2 + usize::from(is_resumed.is_some()));
    for (name, value) in words {
        reply.simple(name);
        reply.bulk(value);
    }
    for (name, value) in counts {
        reply.simple(name);
        reply.count(value);
    }
    for (name, value) in shares {
        reply.simple(name);
        reply.double(value);
    }
    reply.simple("retain");
    reply.boolean(progress.retain);
    reply.simple("failed");
    match &progress.failed {
        Some(why) => reply.bulk(why),
        None => reply.null(),
    }
    if let Some(is_resumed) = is_resumed {
        reply.simple("resumed");
        reply.boolean(is_resumed);
    }
}
