//! What is counted of a node among others, for Prometheus. What has a label is bounded: a page is read every few seconds.

use umbel_core::cluster::Membership;
use umbel_core::engine::Hosted;

use crate::metrics::{Kind, Page};

/// Partitions that have samples of their own, the first by number. A cluster of the default size has fewer.
pub(crate) const PARTITIONS_SHOWN_MAX: usize = 1024;

/// Writes what is known of the cluster, and of the partitions that are hosted here. A slot's partition is its number modulo how many
/// partitions there are.
pub(super) fn collect(membership: &Membership, hosted: &[Hosted], page: &mut Page) {
    let view = membership.view();
    let without_host = (0..view.partitions()).filter(|partition| view.first(*partition).is_none()).count();
    let gauges = [
        ("umbel_cluster_nodes", "Nodes of the cluster.", view.nodes().len()),
        ("umbel_cluster_settled", "Whether all nodes act on the same.", view.is_settled().into()),
        ("umbel_cluster_partitions", "Partitions of the log.", view.partitions() as usize),
        ("umbel_partitions_without_host", "Partitions that no live node serves.", without_host),
        ("umbel_partitions_hosted", "Partitions that this node serves.", membership.serves().len()),
        ("umbel_partitions_first", "Partitions that it is the first host of.", membership.first_count()),
    ];
    for (name, help, value) in gauges {
        page.family(name, Kind::Gauge, help).sample(&[], value as u64);
    }
    let shown = &hosted[..hosted.len().min(PARTITIONS_SHOWN_MAX)];
    let mut family = |name, kind, help, value: &dyn Fn(&Hosted) -> f64| {
        let mut family = page.family(name, kind, help);
        for one in shown {
            family.sample(&[("partition", &one.partition.to_string())], value(one));
        }
    };
    let yes = |is_so: bool| f64::from(u8::from(is_so));
    family(
        "umbel_partition_first",
        Kind::Gauge,
        "Whether this node is the first host of a partition.",
        &|one| yes(one.is_first),
    );
    family("umbel_partition_hosts", Kind::Gauge, "Live nodes that serve a partition.", &|one| {
        view.hosts(one.partition).len() as f64
    });
    family(
        "umbel_partition_age_seconds",
        Kind::Gauge,
        "How long ago all that was in a partition's log was folded here, at most.",
        &|one| one.age.as_secs_f64(),
    );
    family("umbel_partition_entries_total", Kind::Counter, "Entries that were folded here.", &|one| {
        one.entries as f64
    });
    family(
        "umbel_partition_uncheckpointed_bytes",
        Kind::Gauge,
        "Bytes of entries that a partition's checkpoints do not have.",
        &|one| one.bytes_since_checkpoint as f64,
    );
}
