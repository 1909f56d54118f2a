//! The HTTP door of a server, asked byte by byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use serde_json::Value;
use umbel_server::chores::Chores;

use super::{PATIENCE, Running};

/// A server with its HTTP door.
pub struct Door {
    pub running: Running,
    chores: Chores,
}

/// What a request got.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// A header of it.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// The code of a refusal.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().expect("a code").to_owned()
    }
}

impl Door {
    pub fn open(running: Running) -> Self {
        let chores = Chores::start(&[([127, 0, 0, 1], 0).into()]).expect("a port");
        chores.watch(&running.node, None);
        Self { running, chores }
    }

    /// Ends the server and keeps its folder, for the next one.
    pub fn stop(self) -> PathBuf {
        drop(self.chores);
        self.running.stop()
    }

    pub fn address(&self) -> SocketAddr {
        self.chores.addresses()[0]
    }

    /// Sends a request on a connection of its own.
    pub fn send(&self, method: &str, path: &str, head: &[&str], body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address()).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n");
        if !head.iter().any(|line| line.starts_with("content-length")) {
            request.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.iter().for_each(|line| request.push_str(&format!("{line}\r\n")));
        stream.write_all(format!("{request}\r\n").as_bytes()).expect("sent");
        stream.write_all(body).expect("sent");
        stream
    }

    /// All that comes back for a request.
    pub fn request(&self, method: &str, path: &str, head: &[&str], body: &[u8]) -> Answer {
        let (status, head, body) = self.ask_bytes(method, path, head, body);
        let mut answer = Answer { status, head, body };
        if answer.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            answer.body = joined(&answer.body);
        }
        answer
    }

    /// Fetches bytes.
    pub fn fetch(&self, path: &str, head: &[&str]) -> Answer {
        self.request("GET", path, head, b"")
    }

    /// Status, head and body of an answer.
    pub fn ask_bytes(&self, method: &str, path: &str, head: &[&str], body: &[u8]) -> (u16, String, Vec<u8>) {
        let mut answer = Vec::new();
        self.send(method, path, head, body).read_to_end(&mut answer).expect("an answer");
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(answer[..end].to_vec()).expect("text");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, head, answer.split_off(end + 4))
    }

    /// The same, where the body is text.
    pub fn ask(&self, method: &str, path: &str, head: &[&str], body: &[u8]) -> (u16, String, String) {
        let (status, head, body) = self.ask_bytes(method, path, head, body);
        (status, head, String::from_utf8(body).expect("text"))
    }

    pub fn get(&self, path: &str) -> (u16, Value) {
        let (status, _, body) = self.ask("GET", path, &[], b"");
        (status, serde_json::from_str(&body).expect("JSON"))
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.post_as(path, body, &[])
    }

    pub fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        self.json("PUT", path, body, &[])
    }

    pub fn post_as(&self, path: &str, body: &Value, head: &[&str]) -> (u16, Value) {
        self.json("POST", path, body, head)
    }

    pub fn json(&self, method: &str, path: &str, body: &Value, head: &[&str]) -> (u16, Value) {
        let head: Vec<&str> = head.iter().copied().chain(["content-type: application/json"]).collect();
        let (status, _, answer) = self.ask(method, path, &head, body.to_string().as_bytes());
        (status, serde_json::from_str(&answer).expect("JSON"))
    }

    pub fn lines(&self, path: &str, lines: &[u8]) -> (u16, Value) {
        let (status, _, answer) = self.ask("POST", path, &["content-type: text/plain"], lines);
        (status, serde_json::from_str(&answer).expect("JSON"))
    }

    pub fn delete(&self, path: &str) -> u16 {
        self.ask("DELETE", path, &[], b"").0
    }
}

/// The pieces of an answer whose length was not known, put together.
fn joined(mut rest: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = rest.windows(2).position(|end| end == b"\r\n").expect("a length");
        let text = std::str::from_utf8(&rest[..end]).expect("text");
        let length = usize::from_str_radix(text, 16).expect("a length");
        if length == 0 {
            return whole;
        }
        whole.extend_from_slice(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 2 + length + 2..];
    }
}
