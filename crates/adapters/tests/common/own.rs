//! A server of one test, set up otherwise than those that all tests share.

use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use super::fresh;

/// Ports of a server: it gets this many in a row.
const PORTS: u16 = 9;

/// A server with a folder; both go with it.
pub(crate) struct Own {
    process: Child,
    script: String,
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
}

impl Own {
    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Ends it at once with all that it started, and starts it where it ended.
    pub(crate) fn restart(&mut self) {
        self.end();
        self.process = spawn(&self.script, &self.folder);
        self.wait();
    }

    fn end(&mut self) {
        let group = format!("-{}", self.process.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.process.wait();
    }

    /// Waits until it listens.
    fn wait(&mut self) {
        let end = Instant::now() + Duration::from_secs(90);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let has_ended = self.process.try_wait().unwrap().is_some();
            if has_ended || Instant::now() > end {
                panic!("it does not start: {}", std::fs::read_to_string(self.folder.join("output")).unwrap());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.end();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Ports in a row that nobody has, and no other test of this process gets.
fn ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let taken = NEXT.fetch_add(1, Ordering::Relaxed);
        let first = 12_000 + ((std::process::id() % 400) as u16 * 20 + taken * PORTS) % 8000;
        if (0..PORTS).all(|more| is_free(first + more)) {
            return first;
        }
    }
}

/// Writes files into a folder and starts a server by a script for the shell. In the script and in the files, `{folder}`, `{port}`
/// and `{port1}` to `{port8}` stand for where it is. It is there when it listens on the first of its ports.
pub(crate) fn start(script: &str, files: &[(&str, &str)]) -> Own {
    let folder = std::env::temp_dir().join(fresh("umbel-own"));
    std::fs::create_dir_all(folder.join("data")).unwrap();
    let port = ports();
    let filled = |text: &str| {
        let text = text.replace("{folder}", folder.to_str().unwrap()).replace("{port}", &port.to_string());
        (1..PORTS)
            .fold(text, |text, more| text.replace(&format!("{{port{more}}}"), &(port + more).to_string()))
    };
    for (name, text) in files {
        std::fs::write(folder.join(name), filled(text)).unwrap();
    }
    let script = filled(script);
    let process = spawn(&script, &folder);
    let mut own = Own { process, script, folder, port };
    own.wait();
    own
}

fn spawn(script: &str, folder: &Path) -> Child {
    let output = std::fs::File::create(folder.join("output")).unwrap();
    Command::new("sh")
        .args(["-c", script])
        .current_dir(folder.join("data"))
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap()
}

/// A script that starts RabbitMQ with what stands in the file `rabbitmq.conf`.
pub(crate) fn rabbitmq(more: &str) -> String {
    format!(
        "export HOME={{folder}}/data ERL_EPMD_PORT={{port2}} ERL_EPMD_ADDRESS=127.0.0.1\n\
         export RABBITMQ_NODENAME=own{{port}}@localhost RABBITMQ_DIST_PORT={{port1}} RABBITMQ_MNESIA_BASE={{folder}}/data\n\
         export RABBITMQ_LOG_BASE={{folder}}/data RABBITMQ_PID_FILE={{folder}}/data/erlang.pid\n\
         export RABBITMQ_CONFIG_FILE={{folder}}/rabbitmq.conf RABBITMQ_CONF_ENV_FILE=/dev/null\n\
         export RABBITMQ_ENABLED_PLUGINS_FILE={{folder}}/plugins RABBITMQ_GENERATED_CONFIG_DIR={{folder}}/data/config\n\
         {more}\n\
         epmd -port {{port2}} -address 127.0.0.1 &\nexec /usr/lib/rabbitmq/bin/rabbitmq-server"
    )
}
