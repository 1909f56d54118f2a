//! Bytes that a change takes on the way to one replica, heads and signs of life included, beside a copy of all.

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use umbel_client::{Answer, Replica};
use umbel_filter::Spec;

use super::centre::{Centre, key};
use super::proxy::Proxy;
use super::{INTERVAL, STRATEGIES, replica_options};
use crate::measure::Progress;
use crate::report::{Figure, Report};

const KEYS_A_CHANGE: u64 = 100;

pub(super) fn run(quick: bool, report: &mut Report, progress: &mut Progress) -> Result<(), Box<dyn Error>> {
    let (capacity, changes) = if quick { (1_000_000, 5) } else { (10_000_000, 30) };
    let keys = capacity / 2;
    let centre = Centre::open(Spec::bloom(capacity, 0.001), keys)?;
    let full = centre.filter.bytes();
    report.figure(Figure::new(
        "wire",
        format!("a full copy of {capacity} keys' room"),
        full as f64,
        "bytes",
    ))?;
    let mut next = keys;
    for strategy in STRATEGIES {
        progress.step(format!("bytes on the wire: {strategy}"));
        if strategy == "strong" {
            // They need a version to begin with. It comes last: what is pinned for them, others follow too.
            centre.switch()?;
        }
        let (proxy, replica) = centre.runtime.block_on(async {
            let proxy = Proxy::start(centre.port()).await?;
            let replica = Replica::open(replica_options(&proxy.url(), strategy)).await?;
            Ok::<_, Box<dyn Error>>((proxy, replica))
        })?;
        let first = proxy.bytes();
        sleep(2 * INTERVAL);
        let (before, begun) = (proxy.bytes(), Instant::now());
        sleep(Duration::from_secs(2));
        let idle = (proxy.bytes() - before) as f64 / begun.elapsed().as_secs_f64();
        let (before, begun) = (proxy.bytes(), Instant::now());
        for _ in 0..changes {
            centre.add(next..next + KEYS_A_CHANGE)?;
            if strategy == "strong" {
                centre.switch()?;
            }
            let last = key(next + KEYS_A_CHANGE - 1);
            let patience = Instant::now() + Duration::from_secs(20);
            while replica.contains(&last) != Answer::Maybe {
                if Instant::now() > patience {
                    return Err(format!("{strategy}: a change did not come: {:?}", replica.status()).into());
                }
                sleep(Duration::from_millis(1));
            }
            next += KEYS_A_CHANGE;
        }
        let taken = (proxy.bytes() - before) as f64 - idle * begun.elapsed().as_secs_f64();
        let each = taken.max(0.0) / f64::from(changes);
        centre.runtime.block_on(replica.close())?;
        let what = |what: &str| format!("{strategy}: {what}");
        report.figure(
            Figure::new("wire", what("to begin"), first as f64, "bytes")
                .against(first as f64 / full as f64, "a full copy"),
        )?;
        report.figure(Figure::new("wire", what("nothing changes"), idle, "bytes/s"))?;
        report.figure(
            Figure::new("wire", what("a change of 100 keys"), each, "bytes")
                .against(each / full as f64, "a full copy"),
        )?;
    }
    Ok(())
}
