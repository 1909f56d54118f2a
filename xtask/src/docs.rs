//! The commands of the documentation, run as they stand there.
//!
//! A page is a session of its own in an empty folder. Its blocks of shell are run in order:
//!
//! | block | what is done |
//! | --- | --- |
//! | `sh` | run; a line that ends with `# => text` has to print just that |
//! | `sh serve` | started, and waited for until it is ready |
//! | `sh kill` | the server is killed, as the command says |
//! | `sh elsewhere` | shown only: it needs machines that are not here |

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::packages::{Need, install};
use crate::server::binary;
use crate::step::{self, Failure, root};

const NEEDS: [Need; 2] = [
    Need { check: "redis-cli --version", package: "redis-tools" },
    Need { check: "curl --version", package: "curl" },
];
const PAGES: [&str; 4] = ["start", "strategies", "operating", "migrating"];

/// What every script begins with. A server that is still there in the end goes with the session.
const PRELUDE: &str = r#"set -euo pipefail
trap 'kill -9 $server 2>/dev/null || true' EXIT
server=
redis-cli() { command redis-cli -e "$@"; }
serve() {
    "$@" >> server.log 2>&1 &
    server=$!
    for _ in $(seq 600); do
        curl -sf localhost:6381/readyz > /dev/null && return
        kill -0 $server || break
        sleep 0.1
    done
    cat server.log; exit 1
}
prints() {
    local printed
    printed=$(eval "$1")
    [ "$printed" = "$2" ] || { echo "$1 printed \"$printed\", not \"$2\""; exit 1; }
}
"#;

/// A block of shell: what kind it is, and its lines.
struct Block<'a> {
    kind: &'a str,
    text: &'a str,
}

/// Runs the commands of all pages, and says how many there were.
pub(crate) fn run() -> Result<(), Failure> {
    install(&NEEDS)?;
    let binary = binary()?;
    let (mut commands, mut shown) = (0, 0);
    for page in PAGES {
        let text = std::fs::read_to_string(root().join("docs").join(page).with_extension("md"))?;
        let blocks = blocks(&text);
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            blocks.iter().partition::<Vec<&Block<'_>>, _>(|block| block.kind != "elsewhere");
        session(page, &binary, &script(&here))?;
        commands += here.iter().map(|block| block.commands().count()).sum::<usize>();
        shown += elsewhere.iter().map(|block| block.commands().count()).sum::<usize>();
    }
    println!("documentation: {commands} commands run on {} pages, {shown} shown only", PAGES.len());
    Ok(())
}

impl Block<'_> {
    fn commands(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| !line.trim().is_empty())
    }
}

/// The blocks of shell of a page.
fn blocks(page: &str) -> Vec<Block<'_>> {
    let after_fence = page.split("```sh").skip(1);
    let whole = after_fence.filter_map(|rest| rest.split_once("```"));
    whole
        .filter_map(|(block, _)| block.split_once('\n'))
        .map(|(kind, text)| Block { kind: kind.trim(), text })
        .collect()
}

/// One script for all blocks of a page.
fn script(blocks: &[&Block<'_>]) -> String {
    let mut script = PRELUDE.to_owned();
    for block in blocks {
        for line in block.commands() {
            let shown = quoted(line);
            // Nothing can go wrong: it is written into memory.
            let _ = match (block.kind, line.split_once("# =>")) {
                ("serve", _) => writeln!(script, "echo {shown}\nserve {line}"),
                // Only the server of this session, whichever others run.
                ("kill", _) => writeln!(
                    script,
                    "echo {shown}\npidof() {{ echo $server; }}\n{line}\nwait $server || true"
                ),
                (_, Some((command, expected))) => writeln!(
                    script,
                    "echo {shown}\nprints {} {}",
                    quoted(command.trim_end()),
                    quoted(expected.trim())
                ),
                (_, None) => writeln!(script, "echo {shown}\n{line}"),
            };
        }
    }
    script
}

/// A word of the shell, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn session(page: &str, binary: &Path, script: &str) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("umbel-docs-{page}-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let programs = binary.parent().ok_or("the command is in no folder")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(script).current_dir(&folder);
    shell.env("PATH", format!("{}:{path}", programs.display())).env("SOURCES", root());
    let outcome = step::run(&format!("commands of docs/{page}.md"), &mut shell);
    std::fs::remove_dir_all(&folder)?;
    outcome
}
