//! A way through the states, in words. Nodes are counted from 1 here.

use std::fmt::Write;

use crate::search::Verdict;
use crate::state::{Change, Content, Look, NODES, Query, State};
use crate::system::{Action, Configuration, Subject};

/// The counterexample of a configuration in words, a line for each step; nothing if there is none.
pub fn trace(configuration: &Configuration, verdict: &Verdict) -> String {
    let Verdict::Broken { from, way, fault } = verdict else { return String::new() };
    let mut text = String::new();
    let view = words_of(from.nodes[0].acting, configuration);
    // Writing to a string does not fail.
    let _ = writeln!(text, "   0  All nodes act on the settled view {view}.");
    let mut before = from;
    for (number, (action, after)) in way.iter().enumerate() {
        let _ = writeln!(text, "{:4}  {}", number + 1, step(configuration, *action, before, after));
        before = after;
    }
    let _ = writeln!(text, "   => {fault}");
    text
}

fn words_of(content: Content, configuration: &Configuration) -> String {
    let names = |is_in: &dyn Fn(usize) -> bool| {
        let names: Vec<String> =
            (0..NODES).filter(|node| is_in(*node)).map(|node| (node + 1).to_string()).collect();
        names.join(" ")
    };
    let mut text = format!("{{{}", names(&|node| content.has(node)));
    if configuration.bounds.wishes > 0 {
        let _ = write!(text, ", served by {}", names(&|node| content.serves(node)));
    }
    let isolated = names(&|node| content.has(node) && content.is_isolated(node));
    if !isolated.is_empty() {
        let _ = write!(text, ", isolated {isolated}");
    }
    text + "}"
}

fn step(configuration: &Configuration, action: Action, before: &State, after: &State) -> String {
    let lease = || lease_step(configuration, action, after);
    let registry = || registry_step(configuration, action, before, after);
    lease().or_else(registry).unwrap_or_else(|| client_step(configuration, action, before, after))
}

fn lease_step(configuration: &Configuration, action: Action, after: &State) -> Option<String> {
    let view = |content| words_of(content, configuration);
    let text = match action {
        Action::TrustEnds(node) => {
            format!("Node {}: its trust in its lease runs out; the registry still has the lease.", node + 1)
        }
        Action::KeepAlive(node) => {
            format!("Node {}: the registry renews its lease; a new term begins.", node + 1)
        }
        Action::LateAnswer(node) => {
            format!("Registry: renews the lease of node {}; the answer is in flight.", node + 1)
        }
        Action::LateAnswerArrives(node) => {
            format!("Node {}: the answer arrives, and it trusts its lease from now on.", node + 1)
        }
        Action::FollowerAnswers(node) => {
            format!("Node {}: a follower of the registry answers, and it trusts its lease.", node + 1)
        }
        Action::LeaseEnds(node) => {
            let trusts = if after.nodes[node].trusts {
                "which still trusts it"
            } else {
                "which sleeps or gets no answer, so its trust has run out"
            };
            format!("Registry: the lease of node {} ends, {trusts}; its record is gone.", node + 1)
        }
        Action::Return(node) => {
            let me = &after.nodes[node];
            let view = view(me.acting);
            let how = match (me.is_settled, me.is_stood_down) {
                (false, _) => format!("{view} counts as unsettled"),
                (true, true) => format!("no role, but {view} still counts as settled"),
                (true, false) => format!("{view} still counts as settled"),
            };
            format!("Node {}: takes a new lease and puts a record that names no view; {how}.", node + 1)
        }
        _ => return None,
    };
    Some(text)
}

fn registry_step(
    configuration: &Configuration,
    action: Action,
    before: &State,
    after: &State,
) -> Option<String> {
    let view = |content| words_of(content, configuration);
    let text = match action {
        Action::List(node) => match after.nodes[node].look {
            Look::Listed { content, is_settled, .. } => {
                let settled = if is_settled { "settled" } else { "not settled" };
                format!("Registry: lists {} for node {}, {settled}.", view(content), node + 1)
            }
            _ => format!("Registry: lists the records for node {}.", node + 1),
        },
        Action::Act(node) | Action::ActLate(node) => {
            let me = &after.nodes[node];
            let settled = if me.is_settled { "settled" } else { "unsettled" };
            let (acting, number) = (view(me.acting), node + 1);
            match me.look {
                Look::Putting(content) if content != me.acting => {
                    format!(
                        "Node {number}: sends a record that names {}, before it acts on it.",
                        view(content)
                    )
                }
                Look::Putting(_) => {
                    format!("Node {number}: acts on {acting}, {settled}, and sends a record that names it.")
                }
                _ => format!("Node {number}: acts on {acting}, {settled}."),
            }
        }
        Action::Put(node) => match after.records[node].names {
            Some(content) if after.records[node].is_there => {
                format!("Registry: the record of node {} names {} now.", node + 1, view(content))
            }
            _ => format!("Registry: refuses the record of node {}.", node + 1),
        },
        Action::GiveUp(node) => {
            format!("Node {}: gives up waiting for its put; the record is still in flight.", node + 1)
        }
        Action::StrayArrives => {
            let node = usize::from(before.stray.node);
            let names = after.records[node].names.map_or_else(|| "no view".to_owned(), view);
            format!("Registry: the late record of node {} arrives; it names {names} now.", node + 1)
        }
        Action::Wish(node) if after.nodes[node].wish.serves => {
            format!("Node {}: has loaded the partition, and wants to serve it.", node + 1)
        }
        Action::Wish(node) => format!("Node {}: wants to stop serving the partition.", node + 1),
        Action::Report(node, other) => {
            let reaches = after.nodes[node].wish.reports >> other & 1 == 0;
            let finds = if reaches { "reaches" } else { "does not reach" };
            format!("Node {}: finds that it {finds} node {}.", node + 1, other + 1)
        }
        _ => return None,
    };
    Some(text)
}

fn client_step(configuration: &Configuration, action: Action, before: &State, after: &State) -> String {
    let thing = if configuration.subject == Subject::Name { "name" } else { "key" };
    match action {
        Action::Read(node) => format!("Node {}: reads the log to its end, once for this term.", node + 1),
        Action::BarrierBegins(node) => format!("Node {}: begins to read the log to its end.", node + 1),
        Action::LeadsEarly(node) => format!("Node {}: finds that it leads, and goes on to append.", node + 1),
        Action::Append(node) => {
            format!("Client: changes the {thing} at node {}, which appends the entry and folds it.", node + 1)
        }
        Action::ChangeLease => format!("Node {}: finds its lease valid.", appender(before)),
        Action::ChangeView => {
            let node = appender(before);
            let content = before.nodes[usize::from(node) - 1].acting;
            let view = words_of(content, configuration);
            format!("Node {node}: finds {view} settled, or takes it for that.")
        }
        Action::Confirm(node) => format!("Node {}: confirms that it has folded the entry.", node + 1),
        Action::Acknowledge => format!("Client: hears that the {thing} is there."),
        Action::Ask(node) => {
            let first = match after.query {
                Query::Viewed(_) => "its view is settled and lets it answer",
                Query::Remembered(..) => "its memory lacks it",
                _ => "its lease is valid",
            };
            format!("Client: asks node {} for the {thing}; {first}.", node + 1)
        }
        Action::AskOn => {
            let node = asked(after);
            match after.query {
                Query::Denied(_) => {
                    format!("Node {node}: may answer alone, it finds, and answers \"absent\".")
                }
                Query::Passed(_) => format!("Node {node}: may answer alone, it finds, and remembers that."),
                _ => format!("Node {node}: finds its lease valid."),
            }
        }
        Action::Deny(node) => {
            format!("Client: asks node {} for the {thing}; it answers \"absent\".", node + 1)
        }
        other => format!("{other:?}"),
    }
}

/// The number of the node that appended, from 1.
fn appender(state: &State) -> u8 {
    match state.change {
        Change::None | Change::Acknowledged => 1,
        Change::Early(node) | Change::Folded(node) | Change::Leased(node) => node + 1,
        Change::Viewed(node, _) | Change::Confirming(node, _) => node + 1,
    }
}

/// The number of the node that is asked, from 1.
fn asked(state: &State) -> u8 {
    match state.query {
        Query::None => 0,
        Query::Leased(node) | Query::Viewed(node) | Query::Passed(node) => node + 1,
        Query::Remembered(node, _) | Query::Denied(node) => node + 1,
    }
}
