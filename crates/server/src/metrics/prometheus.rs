//! Prometheus's text format, version 0.0.4.

use std::collections::HashSet;
use std::fmt::Write;

use super::Counts;

/// The content type of the page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Powers of two of microseconds that are buckets: 1 us to 17 s. Prometheus stores each for every command.
const POWERS: [u32; 13] = [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24];

/// What a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up only.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Times in buckets.
    Histogram,
}

/// A number: whole ones stay exact.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A count.
    Whole(u64),
    /// A measurement.
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// The page while it is written.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    families: HashSet<String>,
}

impl Page {
    /// Begins a family. All of its samples have to come before the next one begins. A name that was there already is
    /// left out with its samples, because a page with it would be refused as a whole.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let fresh = is_name(name) && self.families.insert(name.to_owned());
        debug_assert!(fresh, "{name} is no name or was there already");
        if fresh {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        }
        Family { page: self, name, fresh }
    }

    /// The page.
    pub fn finish(self) -> String {
        self.text
    }

    fn write(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _written = self.text.write_fmt(arguments);
    }
}

fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b':';
    name.bytes().next().is_some_and(letter) && name.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
}

/// A family whose samples are being written.
#[derive(Debug)]
pub struct Family<'p> {
    page: &'p mut Page,
    name: &'static str,
    fresh: bool,
}

impl Family<'_> {
    /// One sample. Label names are ours, and plain; values may be anything.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Into<Value>) -> &mut Self {
        self.line("", labels, None, value.into());
        self
    }

    /// The samples of a histogram of times, in seconds.
    pub fn histogram(&mut self, labels: &[(&str, &str)], counts: &Counts) -> &mut Self {
        for power in POWERS {
            let edge = ((1_u64 << power) as f64 / 1e6).to_string();
            self.line("_bucket", labels, Some(&edge), counts.up_to(power).into());
        }
        self.line("_bucket", labels, Some("+Inf"), counts.calls().into());
        self.line("_sum", labels, None, counts.total().as_secs_f64().into());
        self.line("_count", labels, None, counts.calls().into());
        self
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], edge: Option<&str>, value: Value) {
        if !self.fresh {
            return;
        }
        self.page.write(format_args!("{}{suffix}", self.name));
        let labels = labels.iter().copied().chain(edge.map(|edge| ("le", edge)));
        let mut before = '{';
        for (name, value) in labels {
            debug_assert!(is_name(name), "{name}");
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            self.page.write(format_args!("{before}{name}=\"{value}\""));
            before = ',';
        }
        let end = if before == ',' { "}" } else { "" };
        match value {
            Value::Whole(value) => self.page.write(format_args!("{end} {value}\n")),
            Value::Real(f64::INFINITY) => self.page.write(format_args!("{end} +Inf\n")),
            Value::Real(f64::NEG_INFINITY) => self.page.write(format_args!("{end} -Inf\n")),
            Value::Real(value) => self.page.write(format_args!("{end} {value}\n")),
        }
    }
}

/// Something that has metrics. Closures are, too.
pub trait Collect: Send + Sync {
    /// Writes them.
    fn collect(&self, page: &mut Page);
}

impl<F: Fn(&mut Page) + Send + Sync> Collect for F {
    fn collect(&self, page: &mut Page) {
        self(page);
    }
}

impl<C: Collect + ?Sized> Collect for std::sync::Arc<C> {
    fn collect(&self, page: &mut Page) {
        (**self).collect(page);
    }
}

/// All that have metrics.
#[derive(Default)]
pub struct Registry {
    sources: Vec<Box<dyn Collect>>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("sources", &self.sources.len()).finish()
    }
}

impl Registry {
    /// Adds one.
    pub fn with(mut self, source: impl Collect + 'static) -> Self {
        self.sources.push(Box::new(source));
        self
    }

    /// A page with all of them.
    pub fn page(&self) -> Page {
        let mut page = Page::default();
        for source in &self.sources {
            source.collect(&mut page);
        }
        page
    }
}
