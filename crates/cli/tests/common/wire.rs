//! Commands and replies as they stand on the wire.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Sends a command and gives its reply as it stands on the wire.
pub(crate) fn ask(url: &str, words: &[&[u8]]) -> Vec<u8> {
    let stream = TcpStream::connect(url.strip_prefix("redis://").unwrap()).unwrap();
    ask_over(&stream, words)
}

/// The same over a connection that stays.
pub(crate) fn ask_over(stream: &TcpStream, words: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend(format!("${}\r\n", word.len()).into_bytes());
        request.extend_from_slice(word);
        request.extend(b"\r\n");
    }
    let mut output = stream;
    output.write_all(&request).unwrap();
    let mut input = BufReader::new(stream);
    let mut reply = Vec::new();
    read_reply(&mut input, &mut reply);
    reply
}

fn read_reply(input: &mut BufReader<&TcpStream>, reply: &mut Vec<u8>) {
    let mut line = String::new();
    input.read_line(&mut line).unwrap();
    let length = || line[1..].trim_end().parse::<i64>().unwrap();
    reply.extend(line.as_bytes());
    match line.as_bytes()[0] {
        b'$' if length() >= 0 => {
            let mut text = vec![0; length() as usize + 2];
            input.read_exact(&mut text).unwrap();
            reply.extend(text);
        }
        b'*' => (0..length()).for_each(|_| read_reply(input, reply)),
        _ => {}
    }
}

/// The reply to a command that is text, one word a word.
pub(crate) fn told(url: &str, line: &str) -> String {
    let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
    String::from_utf8_lossy(&ask(url, &words)).trim_end().to_owned()
}
