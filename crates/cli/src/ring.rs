//! `umbel ring`: where a cluster places what it hosts, or would, before there is one.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use umbel_core::ring::{Member, Ring};

mod live;
mod picture;

pub(crate) use live::node_state;

/// Shows which machines host which slots, and what moves when one joins or leaves
#[derive(clap::Args)]
#[command(after_help = "Examples:
  umbel ring --nodes 5
  umbel ring --nodes 5 --join new --leave node-2
  umbel ring --node a@east --node b@east --node c:200@west --copies 2 --svg ring.svg
  umbel ring --nodes 12 --table
  umbel ring --registry etcd://h1,h2 --table

Hosts are a function of the members alone: every node, and this command, places slots alike. A member has points on
the ring, as many as it has weight. A slot has the members whose points come next, past those that have a tenth more
than their share already, and in as many zones as there are.")]
pub(crate) struct Arguments {
    /// The registry of a cluster: shows its nodes, and the partitions of its log in the place of slots
    #[arg(long, env = "UMBEL_REGISTRY", hide_env_values = true, conflicts_with_all = ["nodes", "node"])]
    registry: Option<String>,
    /// So many machines of one kind, called node-1, node-2 and so on
    #[arg(long, default_value_t = 0)]
    nodes: usize,
    /// A machine: NAME, NAME:WEIGHT, NAME@ZONE or NAME:WEIGHT@ZONE; an ordinary one has weight 100
    #[arg(long, value_parser = parse_member)]
    node: Vec<Member>,
    /// A machine that joins: what moves then is shown
    #[arg(long, value_parser = parse_member)]
    join: Vec<Member>,
    /// The name of a machine that leaves: what moves then is shown
    #[arg(long)]
    leave: Vec<String>,
    /// Slots of the deployment
    #[arg(long, default_value_t = 256)]
    slots: u32,
    /// Hosts of each slot
    #[arg(long, default_value_t = 2)]
    copies: u32,
    /// Prints the hosts of every slot, too
    #[arg(long)]
    table: bool,
    /// Draws the ring
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

fn parse_member(text: &str) -> Result<Member, String> {
    let (text, zone) = text.split_once('@').unwrap_or((text, ""));
    let (name, weight) = match text.split_once(':') {
        Some((name, weight)) => {
            (name, weight.parse().map_err(|_| format!("weight {weight:?} is no number"))?)
        }
        None => (text, Member::WEIGHT),
    };
    Ok(Member::new(name).weight(weight).zone(zone))
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if let Some(registry) = &arguments.registry {
        return live::run(registry, arguments);
    }
    let mut members: Vec<_> =
        (1..=arguments.nodes).map(|number| Member::new(format!("node-{number}"))).collect();
    members.extend(arguments.node.iter().cloned());
    if members.is_empty() {
        return Err("no machines; name them with --node, or say how many with --nodes".into());
    }
    let ring = Ring::new(members.clone(), arguments.slots, arguments.copies)?;
    for name in &arguments.leave {
        if !members.iter().any(|member| member.name == *name) {
            return Err(format!("{name} cannot leave: it is not there").into());
        }
    }
    members.retain(|member| !arguments.leave.contains(&member.name));
    members.extend(arguments.join.iter().cloned());
    let changes = !arguments.join.is_empty() || !arguments.leave.is_empty();
    let next = changes.then(|| Ring::new(members, arguments.slots, arguments.copies)).transpose()?;
    let shown = next.as_ref().unwrap_or(&ring);
    if let Some(file) = &arguments.svg {
        fs::write(file, picture::draw(shown)).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let moved = next.as_ref().map(|next| ring.moves_to(next));
    if arguments.json {
        println!("{}", as_json(shown, moved));
    } else {
        print(shown, moved, arguments);
    }
    Ok(())
}

/// All hosts of all slots.
fn placements(ring: &Ring) -> usize {
    slots(ring).map(|slot| ring.hosts(slot).len()).sum()
}

fn slots(ring: &Ring) -> impl Iterator<Item = u16> + use<> {
    (0..ring.slots()).map(|slot| slot as u16)
}

fn print(ring: &Ring, moved: Option<usize>, arguments: &Arguments) {
    let all = placements(ring);
    let weights: u32 = ring.members().iter().map(|member| member.weight).sum();
    let names = ring.members().iter().map(|member| member.name.len()).max().unwrap_or(0).max("machine".len());
    println!("{:names$}  weight  slots  of all  by weight  zone", "machine");
    for member in ring.members() {
        let hosted = ring.slots_of(&member.name).count();
        println!(
            "{:names$}  {:>6}  {hosted:>5}  {:>5.1}%  {:>8.1}%  {}",
            member.name,
            member.weight,
            100.0 * hosted as f64 / all as f64,
            100.0 * f64::from(member.weight) / f64::from(weights),
            member.zone,
        );
    }
    println!("{} slots with {} hosts each", ring.slots(), ring.hosts(0).len());
    if let Some(moved) = moved {
        println!("{moved} of {all} are new where they are ({:.1}%)", 100.0 * moved as f64 / all as f64);
    }
    if arguments.table {
        println!();
        slots(ring).for_each(|slot| {
            let hosts: Vec<&str> = ring.hosts(slot).map(|host| host.name.as_str()).collect();
            println!("{slot:>4}  {}", hosts.join(" "));
        });
    }
}

fn as_json(ring: &Ring, moved: Option<usize>) -> Value {
    let members: Vec<Value> = ring
        .members()
        .iter()
        .map(|member| {
            let hosted = ring.slots_of(&member.name).count();
            json!({"name": member.name, "weight": member.weight, "zone": member.zone, "slots": hosted})
        })
        .collect();
    let hosts: Vec<Vec<&str>> =
        slots(ring).map(|slot| ring.hosts(slot).map(|host| host.name.as_str()).collect()).collect();
    json!({"members": members, "slots": hosts, "moved": moved})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_read_as_they_are_written() {
        assert_eq!(parse_member("a").expect("a name"), Member::new("a"));
        assert_eq!(parse_member("a:50@east").expect("all of it"), Member::new("a").weight(50).zone("east"));
        assert_eq!(parse_member("a@east").expect("no weight"), Member::new("a").zone("east"));
        assert!(parse_member("a:heavy").expect_err("no number").contains("heavy"));
    }

    #[test]
    fn a_picture_has_every_slot_and_machine() {
        let members = vec![Member::new("a<b"), Member::new("c"), Member::new("d")];
        let ring = Ring::new(members, 256, 2).expect("right members");
        let svg = picture::draw(&ring);
        assert_eq!(svg.matches("<path").count(), 512);
        assert!(svg.contains("a&lt;b") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
