//! `umbel doctor`: what engines are worth before a server stands on them.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use umbel_adapters::{Plane, Report, probe};
use umbel_core::Result;
use umbel_core::url::Url;

use crate::planes;

/// Looks at the engines that a server is to stand on: what they are, what holds, what they lack
///
/// Opens each as a server does, which makes a log that is not there yet; nothing is appended to it. What is put elsewhere to try it is
/// deleted again. The exit status is 1 if one of them cannot be used.
#[derive(clap::Args)]
#[command(
    after_help = "Credentials are better in the environment than on the command line, where other users see them.
Examples:
  umbel doctor --log kafka://h1,h2/umbel?partitions=64 --blobs s3://bucket/umbel --registry etcd://h1,h2
  UMBEL_REGISTRY=redis://:password@h1/umbel umbel doctor
  umbel doctor --log nats://h1 --json"
)]
pub(crate) struct Arguments {
    /// The log: kafka://, nats://, rabbitmq:// or redis://
    #[arg(long, value_name = "URL", env = "UMBEL_LOG", hide_env_values = true)]
    log: Option<String>,
    /// Checkpoints and the archive: s3://, gs://, az://, redis:// or file:///folder
    #[arg(long, value_name = "URL", env = "UMBEL_BLOBS", hide_env_values = true)]
    blobs: Option<String>,
    /// What all nodes agree on: etcd://, zookeeper:// or redis://
    #[arg(long, value_name = "URL", env = "UMBEL_REGISTRY", hide_env_values = true)]
    registry: Option<String>,
    /// One JSON object for each, one a line
    #[arg(long)]
    json: bool,
}

/// One engine and what came of the look at it.
struct Finding {
    plane: Plane,
    /// Without its secrets.
    url: String,
    outcome: Result<Report>,
}

pub(crate) fn run(arguments: &Arguments) -> std::result::Result<ExitCode, Box<dyn Error>> {
    let named = [
        (Plane::Log, &arguments.log),
        (Plane::Blobs, &arguments.blobs),
        (Plane::Registry, &arguments.registry),
    ];
    let runtime = planes::runtime()?;
    let mut findings = Vec::new();
    for (plane, text) in named {
        let Some(text) = text else { continue };
        let (url, outcome) = match Url::parse(text) {
            Ok(url) => (url.to_string(), runtime.block_on(probe(plane, &url))),
            Err(error) => ("(no URL)".to_owned(), Err(error)),
        };
        findings.push(Finding { plane, url, outcome });
    }
    if findings.is_empty() {
        return Err(
            "no engine is named: --log, --blobs or --registry; without them all is in the data folder".into(),
        );
    }
    if arguments.json {
        findings.iter().for_each(|finding| println!("{}", object(finding)));
    } else {
        print(&findings);
    }
    let usable = findings.iter().all(|finding| finding.outcome.is_ok());
    Ok(if usable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e5).round() / 100.0
}

fn object(finding: &Finding) -> Value {
    let mut object =
        json!({ "plane": finding.plane.name(), "url": finding.url, "usable": finding.outcome.is_ok() });
    let more = match &finding.outcome {
        Err(error) => json!({ "why": error.to_string() }),
        Ok(Report { about, held }) => {
            let held: Vec<_> =
                held.iter().map(|(what, took)| json!({ "what": what, "ms": milliseconds(*took) })).collect();
            json!({
                "engine": about.engine,
                "version": about.version,
                "durability": about.durability.class(),
                "means": about.durability.to_string(),
                "lacks": about.lacks,
                "holds": held,
            })
        }
    };
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}

fn print(findings: &[Finding]) {
    let head = ["plane", "address", "engine", "durability", "holds, ms", "lacks"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(findings.iter().map(row)).collect();
    let widths: [usize; 5] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    for row in &rows {
        let padded = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}  "));
        println!("{}{}", padded.collect::<String>(), row[5]);
    }
    println!();
    for Finding { plane, outcome, .. } in findings {
        match outcome {
            Ok(report) => println!("{}: {}", plane.name(), report.about.durability),
            Err(error) => println!("{}: CANNOT BE USED: {error}", plane.name()),
        }
    }
}

fn row(finding: &Finding) -> [String; 6] {
    let (plane, url) = (finding.plane.name().to_owned(), finding.url.clone());
    match &finding.outcome {
        Err(_) => [plane, url, "-".into(), "-".into(), "-".into(), "see below".into()],
        Ok(Report { about, held }) => {
            let engine = format!("{} {}", about.engine, about.version).trim_end().to_owned();
            let held: Vec<_> =
                held.iter().map(|(what, took)| format!("{what} {:.1}", milliseconds(*took))).collect();
            let lacks = if about.lacks.is_empty() { "nothing" } else { &about.lacks };
            [plane, url, engine, about.durability.class().into(), held.join(", "), lacks.to_owned()]
        }
    }
}
