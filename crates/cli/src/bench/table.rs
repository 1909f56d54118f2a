//! Results as numbers, and as lines for people or JSON for machines.

use serde_json::{Map, Value, json};

use super::histogram::{Histogram, median};
use super::request::Case;
use super::side::Sample;
use crate::units::grouped;

/// A number that is measured for each case and server.
pub(crate) struct Column {
    head: &'static str,
    /// Its name in JSON.
    name: &'static str,
    decimals: usize,
    /// Whether the ratio of two servers says something.
    is_compared: bool,
    value: fn(&Sample) -> Option<f64>,
}

impl Column {
    pub(crate) fn head(&self) -> &'static str {
        self.head
    }

    pub(crate) fn of(&self, sample: &Sample) -> Option<f64> {
        (self.value)(sample)
    }
}

const fn column(
    head: &'static str,
    name: &'static str,
    decimals: usize,
    is_compared: bool,
    value: fn(&Sample) -> Option<f64>,
) -> Column {
    Column { head, name, decimals, is_compared, value }
}

const RATE: Column = column("items/s", "items_per_second", 0, true, |sample| {
    Some(sample.tally.keys as f64 / sample.elapsed.as_secs_f64())
});
const CPU: Column = column("CPU us/item", "cpu_us_per_item", 3, true, |sample| {
    let keys = Some(sample.tally.keys).filter(|keys| *keys > 0)?;
    Some(sample.server?.as_secs_f64() * 1e6 / keys as f64)
});
const P50: Column = column("p50 us", "p50_us", 0, true, |sample| at(&sample.tally.latency, 0.5));
const P99: Column = column("p99 us", "p99_us", 0, true, |sample| at(&sample.tally.latency, 0.99));
const P999: Column = column("p99.9 us", "p999_us", 0, true, |sample| at(&sample.tally.latency, 0.999));
const MAX: Column =
    column("max us", "max_us", 0, true, |sample| Some(sample.tally.latency.max()? as f64 / 1e3));
const LATE: Column =
    column("sent late p99", "sent_late_p99_us", 0, false, |sample| at(&sample.tally.late, 0.99));
const ONES: Column = column("ones %", "ones_percent", 1, false, |sample| {
    Some(sample.tally.ones as f64 * 100.0 / (sample.tally.keys as f64).max(1.0))
});
const GENERATOR: Column = column("generator %", "generator_cpu_percent", 0, false, |sample| {
    Some(sample.generator?.as_secs_f64() * 100.0 / sample.elapsed.as_secs_f64())
});

/// What is shown of requests without a pause: medians over the rounds.
pub(crate) const CLOSED: &[Column] = &[RATE, CPU, P50, P99, P999, ONES, GENERATOR];
/// What is shown of requests on a schedule: of all rounds together, so that the tail is that of all requests.
pub(crate) const OPEN: &[Column] = &[RATE, CPU, P50, P99, P999, MAX, LATE];

/// What is shown of requests while something else happens.
pub(crate) const LATENCIES: &[Column] = &[RATE, P50, P99, P999, MAX];

const LABEL_WIDTH: usize = 20;

fn at(histogram: &Histogram, share: f64) -> Option<f64> {
    histogram.percentile(share).map(|nanoseconds| nanoseconds as f64 / 1e3)
}

/// What a case came to on one server: a number, or nothing, for each column.
pub(crate) type Figures = Vec<Option<f64>>;

pub(crate) fn medians(columns: &[Column], rounds: &[Sample]) -> Figures {
    let middle = |column: &Column| median(rounds.iter().filter_map(column.value).collect());
    columns.iter().map(middle).collect()
}

pub(crate) fn totals(columns: &[Column], rounds: Vec<Sample>) -> Figures {
    let sum = rounds.into_iter().reduce(|mut sum, round| {
        sum.merge(&round);
        sum
    });
    columns.iter().map(|column| sum.as_ref().and_then(column.value)).collect()
}

/// A case on one server or two.
pub(crate) struct Row {
    pub(crate) capacity: u64,
    pub(crate) filled: u64,
    pub(crate) case: Case,
    /// By the servers' labels.
    pub(crate) figures: Vec<(&'static str, Figures)>,
}

impl Row {
    /// Processor time for each server.
    pub(crate) fn cpu(&self, columns: &[Column]) -> Vec<Option<f64>> {
        let index = columns.iter().position(|column| column.name == CPU.name);
        self.figures.iter().map(|(_, figures)| index.and_then(|index| figures[index])).collect()
    }

    /// The first server's numbers by the second's.
    fn ratios(&self, columns: &[Column]) -> Option<Figures> {
        let [(_, first), (_, second)] = self.figures.as_slice() else { return None };
        let pairs = first.iter().zip(second).zip(columns);
        let ratio = |((first, second), column): ((&Option<f64>, &Option<f64>), &Column)| {
            let (first, second) = first.zip(*second)?;
            (column.is_compared && second > 0.0).then_some(first / second)
        };
        Some(pairs.map(ratio).collect())
    }

    pub(crate) fn lines(&self, columns: &[Column]) -> String {
        let mut text = String::new();
        let mut title = self.case.to_string();
        for (label, figures) in &self.figures {
            let cells = figures.iter().zip(columns).map(|(figure, column)| cell(*figure, column.decimals));
            push(&mut text, &title, label, cells, columns);
            title.clear();
        }
        if let Some(ratios) = self.ratios(columns) {
            let cells = ratios.iter().zip(columns).map(|(ratio, column)| match ratio {
                None if !column.is_compared => String::new(),
                ratio => cell(*ratio, 2),
            });
            push(&mut text, "", "A:B", cells, columns);
        }
        text
    }

    pub(crate) fn json(&self, columns: &[Column]) -> Value {
        let object = |figures: &Figures| -> Map<String, Value> {
            let fields = columns.iter().zip(figures);
            fields.map(|(column, figure)| (column.name.to_owned(), json!(figure))).collect()
        };
        let mut row = json!({
            "capacity": self.capacity,
            "filled": self.filled,
            "case": self.case.operation.name(),
            "keys": self.case.operation.keys(),
            "pipeline": self.case.pipeline,
        });
        for (label, figures) in &self.figures {
            row[label.to_lowercase()] = Value::Object(object(figures));
        }
        if let Some(ratios) = self.ratios(columns) {
            let mut ratios = object(&ratios);
            ratios.retain(|name, _| columns.iter().any(|column| column.is_compared && column.name == name));
            row["ratio"] = Value::Object(ratios);
        }
        row
    }
}

pub(crate) fn head(columns: &[Column]) -> String {
    let mut text = String::new();
    push(&mut text, "case", "", columns.iter().map(|column| column.head.to_owned()), columns);
    text
}

fn push(
    text: &mut String,
    title: &str,
    label: &str,
    cells: impl Iterator<Item = String>,
    columns: &[Column],
) {
    let mut line = format!("{title:LABEL_WIDTH$}  {label:3}");
    for (cell, column) in cells.zip(columns) {
        let width = column.head.len().max(9);
        line.push_str(&format!("  {cell:>width$}"));
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// What is not known is a dash.
fn cell(figure: Option<f64>, decimals: usize) -> String {
    match figure {
        None => "-".to_owned(),
        Some(figure) if decimals == 0 => grouped(figure.round() as u128),
        // Three digits that say something, whether it is 14.1 or 0.431.
        Some(figure) => format!("{figure:.*}", if figure >= 10.0 { 1 } else { decimals }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Operation;
    use super::*;
    use std::time::Duration;

    fn sample(keys: u64, cpu: Option<u64>) -> Sample {
        let mut sample = Sample { elapsed: Duration::from_secs(2), ..Sample::default() };
        sample.tally.keys = keys;
        sample.tally.ones = keys / 2;
        (1..=1_000).for_each(|i| sample.tally.latency.record(i * 1_000));
        sample.server = cpu.map(Duration::from_millis);
        sample
    }

    fn row(b: Option<u64>) -> Row {
        let a = [sample(100_000, Some(100)), sample(400_000, Some(200)), sample(200_000, Some(100))];
        let figures = vec![("A", medians(CLOSED, &a)), ("B", medians(CLOSED, &[sample(50_000, b)]))];
        let case = Case { operation: Operation::Exists, pipeline: 16 };
        Row { capacity: 1_000, filled: 500, case, figures }
    }

    #[test]
    fn medians_and_ratios_are_printed() {
        // 990 and 999 microseconds, to one part in 128.
        let lines = row(Some(100)).lines(CLOSED);
        let words: Vec<Vec<_>> = lines.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            words[0],
            ["EXISTS,", "pipeline", "16", "A", "100,000", "0.500", "501", "989", "997", "50.0", "-"]
        );
        assert_eq!(words[1][..3], ["B", "25,000", "2.000"]);
        assert_eq!(words[2], ["A:B", "4.00", "0.25", "1.00", "1.00", "1.00"]);
        let widths: Vec<_> = lines.lines().take(2).map(str::len).collect();
        assert!(widths.iter().all(|width| *width == head(CLOSED).trim_end().len()), "{lines}");
    }

    #[test]
    fn what_is_unknown_is_a_dash_and_null() {
        let row = row(None);
        let last = row.lines(CLOSED);
        let last: Vec<_> = last.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last[..3], ["A:B", "4.00", "-"]);
        let json = row.json(CLOSED);
        assert_eq!(json["a"]["items_per_second"], 100_000.0);
        assert!(json["b"]["cpu_us_per_item"].is_null() && json["ratio"]["cpu_us_per_item"].is_null());
        assert_eq!((&json["ratio"]["items_per_second"], &json["pipeline"]), (&json!(4.0), &json!(16)));
        assert!(json["ratio"].get("ones_percent").is_none());
        assert_eq!(row.cpu(CLOSED), [Some(0.5), None]);
    }

    #[test]
    fn totals_join_the_rounds() {
        let totals = totals(OPEN, vec![sample(100, Some(1)), sample(300, Some(3))]);
        assert_eq!(totals[..2], [Some(100.0), Some(10.0)]);
    }
}
