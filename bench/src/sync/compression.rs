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
    // At 0.001 a full filter has two fifths of its bits set; at this rate it has more than half of them.
    let centre = Centre::open(Spec::bloom(capacity, 0.02), 0)?;
    let fill = || 100.0 * centre.filter.stats().fill;
    let mut keys = 0;
    for percent in [10, 25, 50] {
        progress.step(format!("compression at {percent} % of the bits"));
        while fill() < f64::from(percent) {
            if keys >= capacity {
                return Err(format!("a full filter has {:.1} % of its bits set", fill()).into());
            }
            centre.add(keys..keys + capacity / 200)?;
            keys += capacity / 200;
        }
        let version = centre.runtime.block_on(centre.node.engine.publish(&centre.filter))?;
        let ids: Vec<_> = version.chunks().collect();
        let plain = bytes(&centre, &ids, "identity")?;
        for coding in ["zstd", "lz4", "snappy"] {
            let packed = bytes(&centre, &ids, coding)?;
            let what = format!("{coding} with {:.1} % of the bits set", fill());
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
