//! Which nodes have which items of a filter, for clients that ask the right one at once. Any node answers for all, so whoever knows an
//! older table gets the same answers, later.

use super::Outcome;
use super::umbel::any_filter;
use crate::resp::Command;
use crate::session::Session;

/// `UMBEL.ROUTES key`
pub(super) async fn routes(session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = any_filter(session, command.get(1)).await?;
    let view = session.node.cluster.as_ref().map(|nodes| nodes.membership().view());
    let mut slots = filter.slots();
    // A small filter has all its items in one slot.
    let home = slots.next().filter(|_| slots.next().is_none());
    let all_slots = session.node.engine.settings().slots;
    let reply = &mut session.reply;
    reply.map(6);
    reply.simple("family");
    reply.simple(filter.hasher().family().name());
    reply.simple("erasable");
    reply.boolean(filter.is_erasable());
    reply.simple("slots");
    reply.count(all_slots.into());
    reply.simple("home");
    match home {
        Some(home) => reply.count(home.into()),
        None => reply.null(),
    }
    reply.simple("nodes");
    let nodes = view.iter().flat_map(|view| view.nodes());
    reply.array(nodes.clone().count());
    nodes.for_each(|node| reply.bulk(&node.address));
    // Of each partition, the number of the node that is asked first. Slot 17 of 8 partitions is in partition 1.
    reply.simple("hosts");
    let partitions = view.as_ref().map_or(0, |view| view.partitions());
    reply.array(partitions as usize);
    for partition in 0..partitions {
        let first = view.as_ref().and_then(|view| {
            let first = view.first(partition)?;
            view.nodes().iter().position(|node| node.name == first.name)
        });
        match first {
            Some(number) => reply.count(number as u64),
            None => reply.null(),
        }
    }
    Ok(())
}
