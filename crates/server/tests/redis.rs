//! The same bytes as Redis itself, for every command that both have. Needs `redis-server`.

mod common;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Client, start};

/// Conversations: lines of one connection each. Lines without a reply are marked with `!`.
const CONVERSATIONS: &[&[&str]] = &[
    &["PING", "PING a", "PING a b", "ping \"a b\"", "ECHO \"a\\r\\nb\"", "ECHO", "ECHO a b"],
    &["SELECT 0", "SELECT 99", "SELECT -1", "SELECT x", "QUIT"],
    &[
        "HELLO 4",
        "HELLO x",
        "HELLO 2 AUTH",
        "HELLO 2 AUTH a",
        "HELLO 2 foo",
        "HELLO 3 AUTH a x",
        "HELLO 3 SETNAME \"a b\"",
    ],
    &["AUTH x", "AUTH a b", "AUTH default b", "AUTH a b c", "AUTH"],
    &[
        "CLIENT SETNAME abc",
        "CLIENT GETNAME",
        "RESET",
        "CLIENT GETNAME",
        "CLIENT SETNAME \"a\\nb\"",
        "CLIENT SETNAME \"\"",
        "CLIENT GETNAME",
    ],
    &[
        "CLIENT",
        "CLIENT FOO",
        "CLIENT FOO bar",
        "CLIENT ID x",
        "CLIENT REPLY x",
        "CLIENT NO-EVICT x",
        "CLIENT NO-EVICT on",
    ],
    &[
        "CLIENT KILL x",
        "CLIENT KILL 1.2.3.4:5",
        "CLIENT KILL ID a",
        "CLIENT KILL ID 0",
        "CLIENT KILL ID -1",
        "CLIENT KILL ID 55555",
    ],
    &[
        "CLIENT KILL ID 5 ADDR",
        "CLIENT KILL FOO bar",
        "CLIENT KILL TYPE foo",
        "CLIENT KILL TYPE master",
        "CLIENT KILL USER foo",
    ],
    &["CLIENT KILL SKIPME foo", "CLIENT KILL LADDR x", "CLIENT KILL SKIPME no TYPE normal"],
    &[
        "CLIENT LIST TYPE foo",
        "CLIENT LIST TYPE master",
        "CLIENT LIST TYPE",
        "CLIENT LIST ID",
        "CLIENT LIST ID x",
        "CLIENT LIST ID 77777",
        "CLIENT LIST foo",
    ],
    &[
        "CLIENT PAUSE x",
        "CLIENT PAUSE -1",
        "CLIENT PAUSE 1 x",
        "CLIENT PAUSE 1 WRITE x",
        "CLIENT PAUSE 0",
        "CLIENT UNPAUSE",
    ],
    &[
        "!CLIENT REPLY SKIP",
        "!PING",
        "PING",
        "!CLIENT REPLY OFF",
        "!PING",
        "!FOO",
        "!CLIENT REPLY SKIP",
        "!PING",
        "CLIENT REPLY ON",
        "PING",
    ],
    &["!CLIENT REPLY SKIP", "CLIENT REPLY ON", "!CLIENT REPLY SKIP", "!CLIENT REPLY SKIP", "!PING", "PING"],
    &["!CLIENT REPLY SKIP", "!CLIENT REPLY OFF", "!PING", "!CLIENT REPLY x", "RESET", "PING"],
    &["MULTI", "MULTI", "PING", "EXEC", "EXEC", "DISCARD", "MULTI", "DISCARD", "MULTI", "EXEC"],
    &["MULTI", "FOO", "PING", "EXEC", "MULTI", "EXISTS", "EXEC", "MULTI", "PING", "RESET", "EXEC"],
    &["MULTI", "PING", "AUTH x", "MONITOR", "SELECT 77", "CLIENT GETNAME", "EXEC"],
    &["MULTI", "SHUTDOWN", "EXEC", "MULTI", "SAVE", "DISCARD", "MULTI", "QUIT"],
    &[
        "ROLE",
        "SLOWLOG GET -2",
        "SLOWLOG GET x",
        "SLOWLOG GET -1",
        "SLOWLOG LEN",
        "SLOWLOG RESET",
        "SLOWLOG FOO",
        "SLOWLOG HELP",
        "SLOWLOG",
    ],
    &[
        "SLOWLOG GET 1 2",
        "SLOWLOG LEN x",
        "LATENCY DOCTOR",
        "LATENCY LATEST",
        "LATENCY HISTORY foo",
        "LATENCY HISTORY",
        "LATENCY RESET",
    ],
    &["LATENCY RESET foo bar", "LATENCY HISTOGRAM foo", "LATENCY FOO", "LATENCY"],
    &[
        "MEMORY USAGE foo",
        "MEMORY USAGE foo SAMPLES x",
        "MEMORY USAGE foo SAMPLES -1",
        "MEMORY USAGE foo BAR 1",
        "MEMORY USAGE foo SAMPLES",
    ],
    &["MEMORY DOCTOR", "MEMORY FOO", "MEMORY", "MODULE FOO", "MODULE"],
    &[
        "COMMAND FOO",
        "COMMAND GETKEYS",
        "COMMAND GETKEYS del a b",
        "COMMAND GETKEYS memory usage a",
        "COMMAND GETKEYS type a b",
    ],
    &[
        "COMMAND LIST FILTERBY ACLCAT foo",
        "COMMAND LIST FILTERBY MODULE foo",
        "COMMAND LIST FILTERBY PATTERN sc*n",
        "COMMAND LIST FILTERBY FOO x",
    ],
    &[
        "COMMAND LIST FILTERBY",
        "COMMAND LIST foo",
        "COMMAND INFO foo",
        "COMMAND INFO client|id client|getname",
        "COMMAND DOCS foo",
    ],
    &[
        "COMMAND INFO echo hello auth select quit reset multi discard monitor client|reply role shutdown slowlog|help",
    ],
    &[
        "SCAN x",
        "SCAN 0 COUNT 0",
        "SCAN 0 COUNT x",
        "SCAN 0 MATCH",
        "SCAN 0 FOO",
        "SCAN 0 TYPE foo",
        "SCAN -1",
        "SCAN 99999999999999999999999",
        "SCAN",
    ],
    &[
        "SCAN 0 MATCH a* COUNT 5",
        "RANDOMKEY",
        "KEYS *",
        "KEYS",
        "DBSIZE",
        "EXISTS a b",
        "TYPE a",
        "DEL a",
        "TOUCH a",
    ],
    &["DEBUG SLEEP 0", "DEBUG FOO", "DEBUG HELP", "DEBUG"],
    &[
        "SHUTDOWN FOO",
        "SHUTDOWN NOSAVE SAVE",
        "SHUTDOWN ABORT",
        "SHUTDOWN ABORT NOW",
        "BGSAVE FOO",
        "BGSAVE SCHEDULE x",
        "SAVE x",
    ],
    &["INFO foo", "INFO keyspace", "INFO keyspace foo", "INFO cluster", "TIME x", "LASTSAVE x", "ROLE x"],
    &[
        "foo",
        "foo bar baz",
        "\"\"",
        "client|id",
        "foo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b c",
    ],
    &["foo \"a\\r\\nb\"", "MONITOR", "RESET", "PING"],
];

#[test]
#[ignore = "needs redis-server"]
fn answers_as_redis_does() {
    let redis = Redis::start();
    let ours = start();
    let mut differences = Vec::new();
    for resp3 in [false, true] {
        for conversation in CONVERSATIONS {
            let mut both = [Client::to(redis.address), ours.connect()];
            if resp3 {
                both.iter_mut().for_each(|client| drop(client.ask("HELLO 3")));
            }
            for line in *conversation {
                if let Some(line) = line.strip_prefix('!') {
                    both.iter_mut().for_each(|client| client.write(format!("{line}\r\n").as_bytes()));
                    continue;
                }
                let [theirs, ours] = both.each_mut().map(|client| unordered(line, client.ask(line)));
                if theirs != ours {
                    differences.push(format!("{line} (resp3 {resp3})\n  redis {theirs:?}\n  umbel {ours:?}"));
                }
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
#[ignore = "needs redis-cli"]
fn redis_cli_talks_to_it() {
    let server = start();
    let port = server.address().port().to_string();
    let run = |arguments: &[&str]| {
        let output = Command::new("redis-cli").args(["-p", &port]).args(arguments).output();
        let output = output.expect("redis-cli is installed");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    };
    assert_eq!(run(&["PING"]), "PONG");
    assert_eq!(run(&["-3", "BF.ADD", "f", "a"]), "(true)");
    assert_eq!(run(&["BF.EXISTS", "f", "a"]), "1");
    assert_eq!(run(&["--scan", "--pattern", "f*"]), "f");
    assert_eq!(run(&["-n", "0", "DBSIZE"]), "1");
    assert!(run(&["-3", "INFO", "server"]).contains("redis_version:"));
    assert_eq!(run(&["-r", "3", "ECHO", "x"]), "x\nx\nx");
}

/// Sets have no order: their lines are compared sorted.
fn unordered(line: &str, reply: String) -> String {
    if !line.starts_with("COMMAND INFO") {
        return reply;
    }
    let mut lines: Vec<&str> = reply.lines().collect();
    lines.sort_unstable();
    lines.join("\r\n")
}

/// A real Redis on a free port. It ends when it is dropped.
struct Redis {
    process: Child,
    folder: PathBuf,
    address: SocketAddr,
}

impl Redis {
    fn start() -> Self {
        let free =
            TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr()).expect("a free port");
        let folder = std::env::temp_dir().join(format!("umbel-redis-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let process = Command::new("redis-server")
            .args([
                "--port",
                &free.port().to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let begin = Instant::now();
        while TcpStream::connect(free).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(20), "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { process, folder, address: free }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
