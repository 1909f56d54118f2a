//! What compression saves of the chunks of a filter, by how full it is.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;

use umbel_filter::Spec;

use super::FILTER;
use super::centre::Centre;
use crate::measure::Progress;
use crate::report::{Figure, Report};

pub(super) fn run(quick: bool, report: &mut Report, progress: &mut Progress) -> Result<(), Box<dyn Error>> {
    let capacity: u64 = if quick { 200_000 } else { 2_000_000 };
    let centre = Centre::open(Spec::bloom(capacity, 0.001), 0)?;
    let mut keys = 0;
    // Of the keys that the filter is made for: a full one has two fifths of its bits set.
    for percent in [10, 25, 50, 100] {
        progress.step(format!("compression at {percent} % of the keys"));
        let wanted = capacity * percent / 100;
        centre.add(keys..wanted)?;
        keys = wanted;
        let version = centre.runtime.block_on(centre.node.engine.publish(&centre.filter))?;
        let ids: Vec<_> = version.chunks().collect();
        let plain = bytes(&centre, &ids, "identity")?;
        for coding in ["zstd", "lz4", "snappy"] {
            let packed = bytes(&centre, &ids, coding)?;
            let what = format!(
                "{coding} at {percent} % of the keys, {:.0} % of the bits",
                100.0 * centre.filter.stats().fill
            );
            report.figure(
                Figure::new("compression", what, packed as f64, "bytes")
                    .against(packed as f64 / plain as f64, "uncompressed"),
            )?;
        }
    }
    Ok(())
}

/// Bytes of the bodies of all chunks in a coding.
fn bytes<Id: std::fmt::Display>(centre: &Centre, ids: &[Id], coding: &str) -> Result<usize, Box<dyn Error>> {
    let mut sum = 0;
    for id in ids {
        let mut stream = TcpStream::connect(("127.0.0.1", centre.port()))?;
        write!(
            stream,
            "GET /v1/filters/{FILTER}/chunks/{id} HTTP/1.1\r\nhost: bench\r\naccept-encoding: {coding}\r\nconnection: close\r\n\r\n"
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("an answer without a head")?;
        if !answer.starts_with(b"HTTP/1.1 200") {
            return Err(String::from_utf8_lossy(&answer[..end]).into_owned().into());
        }
        sum += answer.len() - end - 4;
    }
    Ok(sum)
}
