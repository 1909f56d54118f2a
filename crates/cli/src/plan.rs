//! `umbel plan`: what a filter takes, before anything is allocated.

use std::error::Error;

use clap::ValueEnum;
use umbel_core::ring::{Member, Ring, members_needed};
use umbel_filter::{Counter, Family, Geometry, Kind, Layout, Plan, Spec};

use crate::report::Report;
use crate::units::{bytes, grouped, parse_bytes, parse_count};

/// Says what memory, shards and machines a filter takes
#[derive(clap::Args)]
#[command(after_help = "Examples:
  umbel plan --capacity 30e9 --error 0.001
  umbel plan --capacity 30e9 --error 0.001 --copies 2 --nodes 8
  umbel plan --capacity 1e6 --error 1e-4 --kind counting --shards 1 --json
  umbel plan --capacity 5e6 --error 0.01 --layout guava --shards 1")]
pub(crate) struct Arguments {
    /// Distinct elements up to which the error rate holds
    #[arg(long, value_parser = parse_count)]
    capacity: u64,
    /// Share of absent keys that may be answered "maybe"
    #[arg(long, default_value_t = 0.01)]
    error: f64,
    /// Whether elements can be removed
    #[arg(long, value_enum, default_value_t = KindName::Bloom)]
    kind: KindName,
    /// Native layout, or that of another system
    #[arg(long, value_enum, default_value_t = LayoutName::Blocked)]
    layout: LayoutName,
    /// How keys are hashed: murmur3, redisbloom, redisson, xxh3 or keyed; hosted layouts fix it
    #[arg(long)]
    family: Option<Family>,
    /// Equal parts, one for each slot
    #[arg(long, default_value_t = 256)]
    shards: u32,
    /// Copies of every shard
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    copies: u32,
    /// Machines: shows what the ring gives each of them
    #[arg(long)]
    nodes: Option<usize>,
    /// Memory of one machine
    #[arg(long, default_value = "64GiB", value_parser = parse_bytes)]
    node_memory: u64,
    /// Share of a machine's memory that filters may take; the rest is for growth, buffers and the system
    #[arg(long, default_value_t = 0.8)]
    node_share: f64,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum KindName {
    /// Bits: adds only
    Bloom,
    /// Four-bit counters
    Counting,
    /// Eight-bit counters
    Counting8,
}

#[derive(Clone, Copy, ValueEnum)]
enum LayoutName {
    /// A cache line a key
    Blocked,
    /// As Guava's `BloomFilter`
    Guava,
    /// As `RedisBloom`'s first sub-filter
    Redisbloom,
    /// As Redisson's `RBloomFilter`
    Redisson,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let kind = match arguments.kind {
        KindName::Bloom => Kind::Bloom,
        KindName::Counting => Kind::Counting(Counter::Nibble),
        KindName::Counting8 => Kind::Counting(Counter::Byte),
    };
    let layout = match arguments.layout {
        LayoutName::Blocked => Layout::Blocked,
        LayoutName::Guava => Layout::Guava,
        LayoutName::Redisbloom => Layout::RedisBloom { expansion: None },
        LayoutName::Redisson => Layout::Redisson,
    };
    if !(arguments.node_share > 0.0 && arguments.node_share <= 1.0) {
        return Err(
            format!("invalid node share: {}; it must be over 0 and up to 1", arguments.node_share).into()
        );
    }
    let hosted = Spec::hosted(layout, arguments.capacity, arguments.error).kind(kind);
    let spec = arguments.family.map_or(hosted, |family| hosted.family(family));
    let plan = Plan::new(&spec, arguments.shards)?;
    let ring = arguments.nodes.map(|nodes| ring(nodes, arguments)).transpose()?;
    report(&plan, ring.as_ref(), arguments).print(arguments.json);
    Ok(())
}

/// Machines of one kind, with a slot for each shard.
fn ring(nodes: usize, arguments: &Arguments) -> Result<Ring, Box<dyn Error>> {
    let members = (1..=nodes).map(|number| Member::new(format!("node-{number}")));
    Ok(Ring::new(members.collect(), arguments.shards, arguments.copies)?)
}

fn report(plan: &Plan, ring: Option<&Ring>, arguments: &Arguments) -> Report {
    let Plan { spec, shards, geometry } = plan;
    let bits = geometry.bits() * u128::from(*shards);
    let shard_keys = spec.capacity.div_ceil(u64::from(*shards));
    let usable = (arguments.node_memory as f64 * arguments.node_share) as u128;
    // Shards are not divided among machines.
    let shards_a_node = usable / geometry.bytes();
    let nodes = members_needed((*shards).into(), arguments.copies.into(), shards_a_node);
    let touched = match *geometry {
        Geometry::Blocked { banks: 1, .. } => "one cache line a key".to_owned(),
        Geometry::Blocked { banks, .. } => format!("{banks} cache lines a key"),
        Geometry::Classic { hashes, .. } => format!("{hashes} bits a key, anywhere"),
    };

    let mut report = Report::default();
    report
        .spec(spec)
        .line("layout", format!("{}, {touched}; family {}", spec.layout, spec.family))
        .line("expected", format!("an error rate of {:.3e} at capacity", plan.expected_error()))
        .line(
            "bits",
            format!(
                "{}: {:.2} a key, {:.3} times the classic formula's {:.2}",
                grouped(bits),
                plan.bits_per_key(),
                plan.bits_per_key() / plan.classic_bits_per_key(),
                plan.classic_bits_per_key()
            ),
        )
        .line("bytes", format!("{} ({})", grouped(plan.bytes()), bytes(plan.bytes())))
        .line(
            "shards",
            format!("{shards} of {}, {} keys each", bytes(geometry.bytes()), grouped(shard_keys.into())),
        )
        .line("nodes", {
            let machine = format!(
                "{} of which {:.0} % for filters",
                bytes(arguments.node_memory.into()),
                arguments.node_share * 100.0
            );
            match nodes {
                Some(nodes) => {
                    format!("{nodes} of {machine}, for {} of each shard", copies(arguments.copies))
                }
                None => format!("none: a shard alone is larger than {machine}; take more shards"),
            }
        });
    report
        .field("expected_error", plan.expected_error())
        .field("bits", bits as u64)
        .field("bits_per_key", plan.bits_per_key())
        .field("classic_bits_per_key", plan.classic_bits_per_key())
        .field("hashes", geometry.hashes())
        .field("bytes", plan.bytes() as u64)
        .field("shards", *shards)
        .field("shard_bytes", geometry.bytes() as u64)
        .field("shard_capacity", shard_keys)
        .field("copies", arguments.copies)
        .field("node_memory", arguments.node_memory)
        .field("node_share", arguments.node_share)
        .field("nodes", nodes.map(|nodes| nodes as u64));
    if let Some(ring) = ring {
        let hosted = ring.members().iter().map(|member| ring.slots_of(&member.name).count() as u128);
        let (least, most) =
            hosted.fold((u128::MAX, 0), |(least, most), slots| (least.min(slots), most.max(slots)));
        let fullest = most * geometry.bytes();
        let verdict = if fullest <= usable { "which fit" } else { "which DO NOT FIT" };
        report
            .line(
                "ring",
                format!(
                    "{} nodes with {least} to {most} shards, up to {}, {verdict} into {}",
                    ring.members().len(),
                    bytes(fullest),
                    bytes(usable)
                ),
            )
            .field("ring_nodes", ring.members().len())
            .field("ring_node_bytes_max", fullest as u64)
            .field("ring_fits", fullest <= usable);
    }
    report
}

fn copies(copies: u32) -> String {
    if copies == 1 { "one copy".to_owned() } else { format!("{copies} copies") }
}
