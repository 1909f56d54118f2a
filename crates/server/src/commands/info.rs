//! `INFO`: what the server is and does, in the words of Redis.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use super::Outcome;
use super::arguments::text;
use crate::node::{BLOOM_VERSION, Node, unix_time};
use crate::process;
use crate::resp::Command;
use crate::session::Session;
use crate::totals::{CommandTotals, Totals};

/// A section: its name, whether everybody gets it, and what writes it.
type Section = (&'static str, Shown, fn(&Node, &Totals, &mut String));

/// Who gets a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// Everybody.
    Always,
    /// Those who ask for it, or for all.
    Asked,
}

/// All sections in Redis's order.
const SECTIONS: [Section; 14] = [
    ("server", Shown::Always, server),
    ("clients", Shown::Always, clients),
    ("memory", Shown::Always, memory),
    ("persistence", Shown::Always, persistence),
    ("stats", Shown::Always, stats),
    ("replication", Shown::Always, replication),
    ("cpu", Shown::Always, cpu),
    ("modules", Shown::Always, modules),
    ("commandstats", Shown::Asked, command_stats),
    ("errorstats", Shown::Always, error_stats),
    ("latencystats", Shown::Asked, latency_stats),
    ("cluster", Shown::Always, cluster),
    ("keyspace", Shown::Always, keyspace),
    ("umbel", Shown::Always, umbel),
];

/// `INFO [section...]`
pub(crate) fn info(session: &mut Session, command: Command<'_>) -> Outcome {
    let asked: Vec<String> = command.from(1).filter_map(text).map(str::to_lowercase).collect();
    let written = write(&session.node, &asked);
    session.reply.verbatim(&written);
    Ok(())
}

/// The sections that were asked for; those that everybody gets, if none was.
fn write(node: &Node, asked: &[String]) -> String {
    let has = |name: &str| asked.iter().any(|asked| asked == name);
    // What was meant for nobody is nothing: an unknown section has no lines.
    let default = asked.is_empty() || has("default");
    let all = has("all") || has("everything");
    let totals = node.totals();
    let mut out = String::with_capacity(4096);
    for (name, shown, write) in SECTIONS {
        if all || has(name) || default && shown == Shown::Always {
            if !out.is_empty() {
                out.push_str("\r\n");
            }
            let title = if name == "cpu" { "CPU".to_owned() } else { capitalised(name) };
            line(&mut out, &format!("# {title}"));
            write(node, &totals, &mut out);
        }
    }
    out
}

fn capitalised(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_uppercase() + rest
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push_str("\r\n");
}

/// Writes `field:value` lines.
macro_rules! fields {
    ($out:ident, $($name:literal: $value:expr),* $(,)?) => {
        // Writing into a string does not fail.
        $(let _ = write!($out, "{}:{}\r\n", $name, $value);)*
    };
}

fn server(node: &Node, _: &Totals, out: &mut String) {
    let uptime = node.now().saturating_duration_since(node.started).as_secs();
    let executable = std::env::current_exe().unwrap_or_default();
    fields!(out,
        "redis_version": node.config.load().redis_version,
        "redis_git_sha1": "00000000",
        "redis_git_dirty": 0,
        "redis_build_id": 0,
        "redis_mode": "standalone",
        "umbel_version": env!("CARGO_PKG_VERSION"),
        "os": process::system(),
        "arch_bits": usize::BITS,
        "multiplexing_api": "epoll",
        "process_id": std::process::id(),
        "process_supervised": "no",
        "run_id": node.run_id,
        "tcp_port": node.facts().port,
        "server_time_usec": unix_time().as_micros(),
        "uptime_in_seconds": uptime,
        "uptime_in_days": uptime / 86_400,
        "hz": 10,
        "configured_hz": 10,
        "executable": executable.display(),
        "config_file": node.facts().config_file,
    );
}

fn clients(node: &Node, _: &Totals, out: &mut String) {
    fields!(out,
        "connected_clients": node.clients.len(),
        "cluster_connections": 0,
        "maxclients": node.config.load().max_clients,
        "client_recent_max_input_buffer": 0,
        "client_recent_max_output_buffer": 0,
        "blocked_clients": 0,
        "tracking_clients": 0,
        "clients_in_timeout_table": 0,
    );
}

fn memory(node: &Node, _: &Totals, out: &mut String) {
    let used = super::memory::used_bytes(node);
    let peak = node.engine.budget().peak().max(used);
    let usage = process::usage();
    let (dataset, limit) = (node.engine.budget().used(), node.engine.budget().limit());
    let total = process::memory_bytes();
    fields!(out,
        "used_memory": used,
        "used_memory_human": human(used),
        "used_memory_rss": usage.resident_bytes,
        "used_memory_rss_human": human(usage.resident_bytes),
        "used_memory_peak": peak,
        "used_memory_peak_human": human(peak),
        "used_memory_peak_perc": format_args!("{:.2}%", percent(used, peak)),
        "used_memory_overhead": used - dataset.min(used),
        "used_memory_startup": 0,
        "used_memory_dataset": dataset,
        "used_memory_dataset_perc": format_args!("{:.2}%", percent(dataset, used)),
        "total_system_memory": total,
        "total_system_memory_human": human(total),
        "used_memory_lua": 0,
        "used_memory_lua_human": human(0),
        "maxmemory": limit,
        "maxmemory_human": human(limit),
        "maxmemory_policy": "noeviction",
        "mem_fragmentation_ratio": format_args!("{:.2}", percent(usage.resident_bytes, used) / 100.0),
        "mem_clients_slaves": 0,
        "mem_clients_normal": 0,
        "mem_aof_buffer": 0,
        "active_defrag_running": 0,
        "lazyfree_pending_objects": 0,
        "lazyfreed_objects": 0,
    );
}

fn persistence(node: &Node, _: &Totals, out: &mut String) {
    let status = |is_ok: bool| if is_ok { "ok" } else { "err" };
    let is_well = node.engine.failure().is_none();
    fields!(out,
        "loading": 0,
        "async_loading": 0,
        "rdb_changes_since_last_save": 0,
        "rdb_bgsave_in_progress": u8::from(node.saves.is_running()),
        "rdb_last_save_time": node.counts.last_save.load(Ordering::Relaxed),
        "rdb_last_bgsave_status": status(node.saves.was_good()),
        "rdb_last_bgsave_time_sec": node.saves.last_seconds(),
        "rdb_current_bgsave_time_sec": node.saves.current_seconds(),
        "rdb_saves": node.saves.count(),
        "aof_enabled": 1,
        "aof_rewrite_in_progress": 0,
        "aof_rewrite_scheduled": 0,
        "aof_last_rewrite_time_sec": -1,
        "aof_current_rewrite_time_sec": -1,
        "aof_last_bgrewrite_status": "ok",
        "aof_last_write_status": status(is_well),
    );
}

fn stats(node: &Node, totals: &Totals, out: &mut String) {
    fields!(out,
        "total_connections_received": node.clients.received.load(Ordering::Relaxed),
        "total_commands_processed": totals.commands,
        "instantaneous_ops_per_sec": totals.commands_per_second,
        "total_net_input_bytes": totals.input_bytes,
        "total_net_output_bytes": totals.output_bytes,
        "instantaneous_input_kbps": format_args!("{:.2}", totals.input_kbps),
        "instantaneous_output_kbps": format_args!("{:.2}", totals.output_kbps),
        "rejected_connections": node.clients.rejected.load(Ordering::Relaxed),
        "sync_full": 0,
        "sync_partial_ok": 0,
        "sync_partial_err": 0,
        "expired_keys": totals.expired,
        "evicted_keys": 0,
        "evicted_clients": 0,
        "keyspace_hits": totals.hits,
        "keyspace_misses": totals.misses,
        "pubsub_channels": 0,
        "pubsub_patterns": 0,
        "latest_fork_usec": 0,
        "total_forks": 0,
        "unexpected_error_replies": 0,
        "total_error_replies": totals.errors,
    );
}

fn replication(node: &Node, _: &Totals, out: &mut String) {
    fields!(out,
        "role": "master",
        "connected_slaves": 0,
        "master_failover_state": "no-failover",
        "master_replid": node.run_id,
        "master_replid2": "0".repeat(40),
        "master_repl_offset": 0,
        "second_repl_offset": -1,
        "repl_backlog_active": 0,
        "repl_backlog_size": 0,
        "repl_backlog_first_byte_offset": 0,
        "repl_backlog_histlen": 0,
    );
}

fn cpu(_: &Node, _: &Totals, out: &mut String) {
    let usage = process::usage();
    fields!(out,
        "used_cpu_sys": format_args!("{:.6}", usage.system_s),
        "used_cpu_user": format_args!("{:.6}", usage.user_s),
        "used_cpu_sys_children": "0.000000",
        "used_cpu_user_children": "0.000000",
    );
}

fn modules(_: &Node, _: &Totals, out: &mut String) {
    let module = format!(
        "module:name=bf,ver={BLOOM_VERSION},api=1,filters=0,usedby=[],using=[],options=[handle-io-errors]"
    );
    line(out, &module);
}

fn command_stats(_: &Node, totals: &Totals, out: &mut String) {
    for CommandTotals { id, calls, took_us, rejected, failed, .. } in &totals.by_command {
        let average = if *calls == 0 { 0.0 } else { *took_us as f64 / *calls as f64 };
        let name = id.row().name;
        let text = format!(
            "cmdstat_{name}:calls={calls},usec={took_us},usec_per_call={average:.2},rejected_calls={rejected},failed_calls={failed}"
        );
        line(out, &text);
    }
}

fn error_stats(_: &Node, totals: &Totals, out: &mut String) {
    for (kind, count) in &totals.by_error {
        line(out, &format!("errorstat_{kind}:count={count}"));
    }
}

fn latency_stats(_: &Node, totals: &Totals, out: &mut String) {
    for command in totals.by_command.iter().filter(|command| command.calls > 0) {
        let [half, most, nearly] = command.percentiles_us;
        let name = command.id.row().name;
        line(out, &format!("latency_percentiles_usec_{name}:p50={half:.3},p99={most:.3},p99.9={nearly:.3}"));
    }
}

fn cluster(node: &Node, _: &Totals, out: &mut String) {
    // Clients that know Redis's cluster would look for its slots: ours talk to any node.
    line(out, "cluster_enabled:0");
    let Some(nodes) = &node.cluster else { return };
    let (membership, view) = (nodes.membership(), nodes.membership().view());
    fields!(out,
        "umbel_cluster": nodes.cluster(),
        "umbel_node": membership.name(),
        "umbel_nodes": view.nodes().len(),
        "umbel_settled": u8::from(view.is_settled()),
        "umbel_leaving": u8::from(membership.is_leaving()),
        "umbel_partitions": view.partitions(),
        "umbel_partitions_served": membership.serves().len(),
        "umbel_partitions_first": membership.first_count(),
    );
    for other in view.nodes() {
        let (name, address, zone, serves) = (&other.name, &other.address, &other.zone, other.serves.len());
        let leaving = u8::from(other.leaving);
        let text =
            format!("umbel_node_{name}:address={address},zone={zone},serves={serves},leaving={leaving}");
        line(out, &text);
    }
}

fn keyspace(node: &Node, totals: &Totals, out: &mut String) {
    let keys = node.engine.filters().len();
    // Redis has no line for a database without keys.
    if keys > 0 {
        line(out, &format!("db0:keys={keys},expires={},avg_ttl=0", totals.expiring));
    }
}

fn umbel(node: &Node, _: &Totals, out: &mut String) {
    let filters = node.engine.filters();
    let resident = filters.iter().filter(|filter| filter.is_resident()).count();
    let bytes: u64 = filters.iter().map(|filter| filter.bytes()).sum();
    let items: u64 = filters.iter().map(|filter| filter.items()).sum();
    let failure = node.engine.failure().map_or_else(String::new, |failure| failure.to_string());
    fields!(out,
        "filters": filters.len(),
        "filters_in_memory": resident,
        "filter_bytes": bytes,
        "filter_items": items,
        "slots": node.engine.settings().slots,
        "durability": node.facts().durability,
        "background_failure": failure.replace(['\r', '\n'], " "),
    );
    for (partition, position) in node.engine.token().positions() {
        line(out, &format!("log_position_{partition}:{position}"));
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 }
}

/// Bytes as people read them, in Redis's way.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_readable() {
        assert_eq!(human(0), "0B");
        assert_eq!(human(1023), "1023B");
        assert_eq!(human(2_276_704), "2.17M");
        assert_eq!(human(25_274_793_984), "23.54G");
    }
}
