//! `UMBEL.PEER`: what other nodes ask. `UMBEL.NODE`: what people ask of nodes.

use std::sync::Arc;

use umbel_core::version::VersionShard;
use umbel_core::{Error, Result, cluster};

use super::arguments::text;
use super::table::Id;
use super::{Outcome, Refusal};
use crate::api;
use crate::cluster::wire::{changes, looks, parts};
use crate::cluster::{Nodes, wire};
use crate::node::Node;
use crate::resp::Command;
use crate::session::Session;
use crate::work::{apart, beside};

fn nodes(session: &Session) -> Outcome<Arc<Nodes>> {
    session.node.cluster.clone().ok_or_else(|| "ERR this server is no node of a cluster".into())
}

/// `UMBEL.PEER HELLO secret cluster name`, and then `UMBEL.PEER SUBMIT|ASK|LOOK|VERIFY|REACH|FIND|COUNTS|KEYS|SHAPES|BLOCKS|PUBLISH|CHANGES|PASS|NOTICE|PING message`
pub(super) async fn run(id: Id, session: &mut Session, command: Command<'_>) -> Outcome {
    let nodes = nodes(session)?;
    if id == Id::UmbelPeerHello {
        return hello(session, &nodes, command);
    }
    if !session.is_peer {
        return Err("NOAUTH a node says UMBEL.PEER HELLO first".into());
    }
    // To the engine, what is wrong with a message is an error as any other.
    match answer(id, session, command.get(2)).await {
        Ok(bytes) => {
            session.reply.bulk(bytes);
            Ok(())
        }
        Err(error) => Err(Refusal(wire::put_error(&error).into())),
    }
}

async fn answer(id: Id, session: &Session, message: &[u8]) -> Result<Vec<u8>> {
    let engine = &session.node.engine;
    match id {
        Id::UmbelPeerSubmit => {
            let applied = engine.submit_for_peer(wire::entries(message)?).await?;
            Ok(wire::put_applied(&applied))
        }
        Id::UmbelPeerAsk => {
            let (filter, after, keys) = wire::question(message)?;
            let answers = engine.contains_for_peer(filter, &keys, &after).await?;
            Ok(wire::put_answers(&answers))
        }
        Id::UmbelPeerLook => {
            let (consistency, filter, after, keys) = looks::look(message)?;
            Ok(looks::put_told(&engine.look_for_peer(filter, &keys, &after, consistency).await?))
        }
        Id::UmbelPeerVerify => {
            let (filter, _, keys) = wire::question(message)?;
            Ok(wire::put_numbers(&engine.verify_for_peer(filter, &keys).await?))
        }
        Id::UmbelPeerReach => {
            let (partition, position) = wire::reach(message)?;
            engine.reach_for_peer(partition, position).await?;
            Ok(Vec::new())
        }
        Id::UmbelPeerFind => Ok(wire::put_found(engine.find_for_peer(wire::name(message)?).await?)),
        Id::UmbelPeerCounts => {
            let (filter, partitions) = wire::count(message)?;
            Ok(wire::put_counts(&engine.counts_for_peer(filter, &partitions).await?))
        }
        // What reads much is not for the loop that answers lookups.
        Id::UmbelPeerKeys => {
            let (part, after) = parts::keys(message)?;
            let read = |node: Arc<Node>| async move { node.engine.keys_for_peer(part, after).await };
            Ok(parts::put_page(&apart(&session.node, read).await?))
        }
        Id::UmbelPeerShapes => {
            let (asked, digested) = parts::parts(message)?;
            let read = |node: Arc<Node>| async move { node.engine.shapes_for_peer(&asked, digested).await };
            Ok(parts::put_shapes(&apart(&session.node, read).await?))
        }
        Id::UmbelPeerPublish => {
            let (asked, order) = parts::publish(message)?;
            let make = |node: Arc<Node>| async move { node.engine.publish_for_peer(&asked, &order).await };
            Ok(VersionShard::encode_all(&apart(&session.node, make).await?))
        }
        Id::UmbelPeerPing => Ok(Vec::new()),
        Id::UmbelPeerPass => {
            let request = message.to_vec();
            apart(&session.node, |node| async move { api::answer_for(node, &request).await }).await
        }
        Id::UmbelPeerNotice => {
            let notice = serde_json::from_slice(message)
                .map_err(|error| Error::Invalid(format!("a notice of another node: {error}")))?;
            session.node.sync.notices.tell(notice);
            Ok(Vec::new())
        }
        Id::UmbelPeerChanges => {
            let (filter, after) = changes::asked(message)?;
            let read = |node: Arc<Node>| async move { node.engine.changes_for_peer(filter, &after).await };
            Ok(changes::put_told(&apart(&session.node, read).await?))
        }
        _ => {
            let (part, from, most) = parts::blocks(message)?;
            let read = |node: Arc<Node>| async move { node.engine.blocks_for_peer(part, from, most).await };
            Ok(apart(&session.node, read).await?.to_vec())
        }
    }
}

fn hello(session: &mut Session, nodes: &Nodes, command: Command<'_>) -> Outcome {
    if !nodes.knows(command.get(2), command.get(3)) {
        session.is_closing = true;
        return Err(format!(
            "WRONGPASS this is a node of the cluster {}, and another secret or cluster was named",
            nodes.cluster()
        )
        .into());
    }
    let name = text(command.get(4)).ok_or("ERR the name of a node is text")?;
    session.client.about().name = format!("node-{name}");
    session.is_peer = true;
    session.reply.ok();
    Ok(())
}

/// `UMBEL.NODE DIGESTS`: of each slot that is hosted here, what it is when all of the log is folded, and in words what that is made of.
/// Hosts of a slot have the same digest.
pub(super) async fn digests(session: &mut Session) -> Outcome {
    nodes(session)?;
    let read = |node: Arc<Node>| async move { node.engine.hosted_digests().await };
    let hosted = beside(&session.node, read).await?;
    session.reply.map(hosted.len());
    for (slot, digest, parts) in hosted {
        session.reply.count(slot.into());
        session.reply.array(2);
        session.reply.bulk(format!("{digest:032x}"));
        session.reply.bulk(parts);
    }
    Ok(())
}

/// `UMBEL.NODE LIST`, `UMBEL.NODE DRAIN [name]`, `UMBEL.NODE UNDRAIN [name]`
pub(super) async fn node(id: Id, session: &mut Session, command: Command<'_>) -> Outcome {
    let nodes = nodes(session)?;
    let membership = nodes.membership();
    if id == Id::UmbelNodeList {
        return list(session, &nodes);
    }
    let name = match command.len() {
        2 => membership.name().to_owned(),
        _ => text(command.get(2)).ok_or("ERR the name of a node is text")?.to_owned(),
    };
    if membership.view().node(&name).is_none() {
        return Err(format!("ERR no node is called {}", name.escape_debug()).into());
    }
    cluster::set_leaving(&**membership.registry(), &name, id == Id::UmbelNodeDrain).await?;
    membership.wake();
    session.reply.ok();
    Ok(())
}

fn list(session: &mut Session, nodes: &Nodes) -> Outcome {
    let view = nodes.membership().view();
    let first = |name: &str| {
        let all = 0..view.partitions();
        all.filter(|partition| view.first(*partition).is_some_and(|node| node.name == name)).count() as u64
    };
    let reply = &mut session.reply;
    reply.array(view.nodes().len());
    for node in view.nodes() {
        reply.map(9);
        for (field, value) in [("name", &node.name), ("address", &node.address), ("zone", &node.zone)] {
            reply.simple(field);
            reply.bulk(value);
        }
        let wanted = view.wanted(&node.name).len() as u64;
        let counts = [
            ("weight", node.weight.into()),
            ("serves", node.serves.len() as u64),
            ("first", first(&node.name)),
            ("wanted", wanted),
        ];
        for (field, value) in counts {
            reply.simple(field);
            reply.count(value);
        }
        for (field, value) in [("leaving", node.leaving), ("isolated", view.is_isolated(&node.name))] {
            reply.simple(field);
            reply.boolean(value);
        }
    }
    Ok(())
}
