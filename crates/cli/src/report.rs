//! Output for people, as aligned lines, or for machines, as JSON.

use serde_json::{Map, Value};
use umbel_filter::Spec;

use crate::units::grouped;

/// Facts in the order in which they are to be read.
#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<(&'static str, String)>,
    fields: Map<String, Value>,
}

impl Report {
    /// A line for people.
    pub(crate) fn line(&mut self, label: &'static str, text: impl Into<String>) -> &mut Self {
        self.lines.push((label, text.into()));
        self
    }

    /// A field for machines.
    pub(crate) fn field(&mut self, name: &str, value: impl Into<Value>) -> &mut Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// What a filter was made for.
    pub(crate) fn spec(&mut self, spec: &Spec) -> &mut Self {
        let (keys, error) = (grouped(spec.capacity.into()), spec.error);
        self.line("filter", format!("{} of {keys} keys at an error rate of {error}", spec.kind))
            .field("kind", spec.kind.to_string())
            .field("layout", spec.layout.to_string())
            .field("family", spec.family.name())
            .field("capacity", spec.capacity)
            .field("error", spec.error)
    }

    pub(crate) fn print(self, json: bool) {
        if json {
            println!("{}", Value::Object(self.fields));
            return;
        }
        let width = self.lines.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        for (label, text) in self.lines {
            println!("{label:width$}  {text}");
        }
    }
}
