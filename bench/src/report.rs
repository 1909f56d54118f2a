//! Figures for people and for programs.

use std::io::{IsTerminal, Write};

use serde_json::json;

/// One figure.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) part: &'static str,
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// How the figure stands to another one, and to which.
    pub(crate) ratio: Option<(f64, &'static str)>,
    pub(crate) target: Option<Target>,
}

/// What is to be reached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl Figure {
    pub(crate) fn new(part: &'static str, what: String, value: f64, unit: &'static str) -> Self {
        Self { part, what, value, unit, ratio: None, target: None }
    }

    pub(crate) fn against(self, ratio: f64, other: &'static str) -> Self {
        Self { ratio: Some((ratio, other)), ..self }
    }

    pub(crate) fn target(self, target: Target) -> Self {
        Self { target: Some(target), ..self }
    }
}

/// Where figures go: lines of JSON, or a table that grows while the run goes on.
pub(crate) struct Report {
    json: bool,
    colours: bool,
    headed: bool,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { json, colours: colours && !json, headed: false }
    }

    pub(crate) fn figure(&mut self, figure: Figure) -> std::io::Result<()> {
        self.figures(&[figure])
    }

    pub(crate) fn figures(&mut self, figures: &[Figure]) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.json {
            return figures.iter().try_for_each(|figure| writeln!(out, "{}", object(figure)));
        }
        if !self.headed {
            let head = format!("{:<10} {:<58} {:>10} {:<12} ratio", "part", "what", "value", "unit");
            writeln!(out, "{}", self.paint("1", &head))?;
            self.headed = true;
        }
        for figure in figures {
            let Figure { part, what, value, unit, ratio, target } = figure;
            let ratio =
                ratio.map_or_else(String::new, |(ratio, other)| format!("{} of {other}", short(ratio)));
            let verdict = target.map_or_else(String::new, |target| {
                let wanted = match target {
                    Target::AtLeast(least) => format!(">= {least}"),
                    Target::AtMost(most) => format!("<= {most}"),
                };
                let met =
                    if target.is_met(*value) { self.paint("32", "met") } else { self.paint("31", "MISSED") };
                format!("  target {wanted}: {met}")
            });
            let line = format!("{part:<10} {what:<58} {:>10} {unit:<12} {ratio}{verdict}", short(*value));
            writeln!(out, "{}", line.trim_end())?;
        }
        writeln!(out)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Three digits, whatever the size.
fn short(value: f64) -> String {
    let digits = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else if value.abs() >= 1.0 {
        2
    } else {
        4
    };
    format!("{value:.digits$}")
}

fn object(figure: &Figure) -> serde_json::Value {
    let (least, most) = match figure.target {
        Some(Target::AtLeast(least)) => (Some(least), None),
        Some(Target::AtMost(most)) => (None, Some(most)),
        None => (None, None),
    };
    json!({
        "part": figure.part,
        "what": figure.what,
        "value": figure.value,
        "unit": figure.unit,
        "ratio": figure.ratio.map(|(ratio, _)| ratio),
        "ratio_to": figure.ratio.map(|(_, other)| other),
        "at_least": least,
        "at_most": most,
        "met": figure.target.map(|target| target.is_met(figure.value)),
    })
}
