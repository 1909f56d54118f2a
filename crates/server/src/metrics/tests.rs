use std::collections::HashMap;
use std::process::Command as Process;
use std::sync::Arc;

use super::*;

fn counted() -> Arc<Metrics> {
    let metrics = Metrics::new(["bf.add", "bf.exists", "ping"], 2);
    for number in 0..1000 {
        metrics.of_loop(number).called(0, 1, Duration::from_micros(number as u64));
    }
    let one = metrics.of_loop(1);
    one.called(2, 1, Duration::from_secs(1000));
    one.failed(0);
    one.rejected(2);
    one.error("NOPERM User alice has no permissions");
    one.error("WEIRD thing");
    one.opened();
    one.opened();
    one.closed();
    one.refused();
    one.received(10);
    one.sent(20);
    // Past the table: not counted, and no harm done.
    one.called(999, 1, Duration::ZERO);
    Arc::new(metrics)
}

#[test]
fn loops_are_summed() {
    let metrics = counted();
    let totals = metrics.read();
    assert_eq!(totals.commands.iter().map(|command| &*command.name).collect::<Vec<_>>(), ["bf.add", "ping"]);
    let add = &totals.commands[0];
    assert_eq!((add.latency.calls(), add.failed, add.rejected, totals.calls()), (1000, 1, 0, 1001));
    assert_eq!(add.latency.total(), Duration::from_micros(499_500));
    assert_eq!(metrics.latency(0).calls(), 1000);
    assert_eq!(totals.errors, [("NOPERM", 1), ("OTHER", 1)]);
    assert_eq!((totals.opened, totals.open, totals.refused), (2, 1, 1));
    assert_eq!((totals.bytes_in, totals.bytes_out), (10, 20));
    metrics.reset();
    let totals = metrics.read();
    assert_eq!((totals.calls(), totals.open, totals.bytes_in, totals.errors.len()), (0, 1, 0, 0));
}

#[test]
fn nothing_is_lost_between_threads() {
    let metrics = Metrics::new(["a"], 1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..10_000).for_each(|_| metrics.of_loop(0).called(0, 1, Duration::from_micros(5)));
            });
        }
    });
    assert_eq!(metrics.latency(0).calls(), 40_000);
    assert_eq!(metrics.latency(0).total(), Duration::from_millis(200));
}

fn page() -> String {
    let filters = |page: &mut Page| {
        let mut family = page.family("umbel_filter_fill_ratio", Kind::Gauge, "How full\nit \\ is.");
        family.sample(&[("filter", "a\"b\\c\nd{}é")], 0.25).sample(&[("filter", "")], f64::INFINITY);
        family.sample(&[("filter", "n")], f64::NAN).sample(&[("filter", "t")], 1e-9);
    };
    Registry::default().with(counted()).with(filters).page().finish()
}

/// Reads the format strictly: families with their types first, their samples together, every sample once.
#[test]
fn the_page_is_well_formed() {
    let page = page();
    let mut samples: HashMap<&str, f64> = HashMap::new();
    let mut types: HashMap<&str, &str> = HashMap::new();
    let mut family = "";
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split_once(' ').unwrap().0;
            assert!(!types.contains_key(family), "{family} twice");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, family);
            assert!(types.insert(name, kind).is_none());
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let suffix = name.strip_prefix(family).unwrap();
            let allowed: &[&str] =
                if types[family] == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(allowed.contains(&suffix), "{line}");
            let value = value.trim_start_matches('+').parse().unwrap();
            assert!(samples.insert(series, value).is_none(), "{series} twice");
        }
    }
    // Newer readers know a counter without its ending; then no other may have that name.
    let mut plain: Vec<_> = types.keys().map(|name| name.trim_end_matches("_total")).collect();
    plain.sort_unstable();
    assert!(plain.windows(2).all(|pair| pair[0] != pair[1]), "{plain:?}");
    let of = |series: &str| *samples.get(series).unwrap_or_else(|| panic!("{series} is not in\n{page}"));
    assert_eq!(of("umbel_commands_total{command=\"bf.add\"}"), 1000.0);
    assert_eq!(of("umbel_command_duration_seconds_count{command=\"bf.add\"}"), 1000.0);
    assert_eq!(of("umbel_command_duration_seconds_bucket{command=\"bf.add\",le=\"0.000001\"}"), 2.0);
    assert_eq!(of("umbel_command_duration_seconds_bucket{command=\"bf.add\",le=\"0.000256\"}"), 257.0);
    assert_eq!(of("umbel_command_duration_seconds_bucket{command=\"ping\",le=\"16.777216\"}"), 0.0);
    assert_eq!(of("umbel_command_duration_seconds_bucket{command=\"ping\",le=\"+Inf\"}"), 1.0);
    assert_eq!(of("umbel_command_duration_seconds_sum{command=\"ping\"}"), 1000.0);
    assert_eq!((of("umbel_connections_open"), of("umbel_errors_total{code=\"OTHER\"}")), (1.0, 1.0));
    assert_eq!(of("umbel_filter_fill_ratio{filter=\"a\\\"b\\\\c\\nd{}é\"}"), 0.25);
    assert!(page.contains("# HELP umbel_filter_fill_ratio How full\\nit \\\\ is.\n"));
}

/// The reader of Prometheus's own Python client. It needs `pip install prometheus-client`.
#[test]
#[ignore = "needs Python with prometheus_client"]
fn the_page_is_read_by_prometheus() {
    let path = std::env::temp_dir().join(format!("umbel-metrics-{}", std::process::id()));
    std::fs::write(&path, page()).unwrap();
    let program = "import sys
from prometheus_client.parser import text_string_to_metric_families as read
families = {family.name: family for family in read(open(sys.argv[1], encoding='utf-8').read())}
fill = families['umbel_filter_fill_ratio'].samples
assert fill[0].labels['filter'] == 'a\"b\\\\c\\nd{}é' and fill[0].value == 0.25, fill
assert families['umbel_command_duration_seconds'].type == 'histogram'
assert len(families) == 13, list(families)";
    let python = std::env::var("UMBEL_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let output = Process::new(python).args(["-c", program]).arg(&path).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
