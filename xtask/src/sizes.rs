//! What engines cost a build: its time and the size of the command, without them and with all of them.

use std::time::Instant;

use crate::step::{self, Failure, command, root};

const BUILDS: [(&str, &str); 2] = [("default", ""), ("full", "--features full")];
const MIB: f64 = (1 << 20) as f64;

/// Builds `umbel` from nothing, in a folder of its own, and prints what it took: the time depends on what else the machine does, that of
/// its processors hardly. The last column is what a package would ship. The commands stay where they were built.
pub(crate) fn run() -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (name, features) in BUILDS {
        let folder = root().join("target/sizes").join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let mut build = command(&format!("cargo build --release -p umbel {features}"));
        let (begin, before) = (Instant::now(), processor_seconds()?);
        step::run(&format!("clean build, {name}"), build.env("CARGO_TARGET_DIR", &folder))?;
        let (took, processor) = (begin.elapsed().as_secs_f64(), processor_seconds()? - before);
        let binary = folder.join("release/umbel");
        let built = std::fs::metadata(&binary)?.len() as f64 / MIB;
        let stripped = folder.join("stripped");
        step::run("strip", command("strip -o").arg(&stripped).arg(&binary))?;
        let stripped = std::fs::metadata(&stripped)?.len() as f64 / MIB;
        rows.push(format!(
            "| {name} | {took:.0} s | {processor:.0} s | {built:.1} MiB | {stripped:.1} MiB |"
        ));
    }
    println!(
        "| build | time | processor | binary | stripped |\n| --- | --- | --- | --- | --- |\n{}",
        rows.join("\n")
    );
    Ok(())
}

/// What commands that have ended took of the processors: the kernel counts it in hundredths of a second.
fn processor_seconds() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may have spaces: of its children, the time in programs is the 14th field, that in the kernel the 15th.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / 100.0)
}
