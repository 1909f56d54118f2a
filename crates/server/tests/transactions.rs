//! `MULTI` and `EXEC`.

mod common;

use common::start;

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.\r\n";

#[test]
fn runs_what_was_collected() {
    let server = start();
    let mut client = server.connect();
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    assert_eq!(client.ask("MULTI"), "-ERR MULTI calls can not be nested\r\n");
    for line in ["BF.ADD f a", "BF.MADD f a b", "BF.EXISTS f b", "CF.EXISTS f b", "CLIENT ID x y"] {
        let expected = if line.starts_with("CLIENT") {
            "-ERR wrong number of arguments for 'client|id' command\r\n"
        } else {
            "+QUEUED\r\n"
        };
        assert_eq!(client.ask(line), expected);
    }
    assert_eq!(client.ask("EXEC"), ABORTED);
    assert_eq!(client.ask("EXISTS f"), ":0\r\n");
    client.ask("MULTI");
    for line in ["BF.ADD f a", "BF.MADD f a b", "BF.EXISTS f b", "CF.EXISTS f b", "PING"] {
        assert_eq!(client.ask(line), "+QUEUED\r\n");
    }
    assert_eq!(
        client.ask("EXEC"),
        "*5\r\n:1\r\n*2\r\n:0\r\n:1\r\n:1\r\n-WRONGTYPE Operation against a key holding the wrong kind of value\r\n+PONG\r\n"
    );
    assert_eq!(client.ask("EXEC"), "-ERR EXEC without MULTI\r\n");
    assert_eq!(client.ask("DISCARD"), "-ERR DISCARD without MULTI\r\n");
    client.ask("MULTI");
    client.ask("DEL f");
    assert_eq!(client.ask("DISCARD"), "+OK\r\n");
    assert_eq!(client.ask("EXISTS f"), ":1\r\n");
    client.ask("MULTI");
    assert_eq!(client.ask("EXEC"), "*0\r\n");
}

#[test]
fn knows_what_must_not_be_collected() {
    let server = start();
    let mut client = server.connect();
    for line in ["FOO", "SHUTDOWN", "SAVE", "BF.ADD f"] {
        client.ask("MULTI");
        let error = client.ask(line);
        assert!(error.starts_with("-ERR "), "{error}");
        assert_eq!(client.ask("EXEC"), ABORTED);
    }
    client.ask("MULTI");
    assert_eq!(client.ask("SHUTDOWN"), "-ERR Command not allowed inside a transaction\r\n");
    assert_eq!(client.ask("QUIT"), "+OK\r\n");
    assert!(client.is_closed());
}

#[test]
fn changes_the_version_in_the_middle() {
    let server = start();
    let mut client = server.connect();
    client.ask("MULTI");
    client.ask("BF.EXISTS f a");
    client.ask("HELLO 3");
    client.ask("BF.EXISTS f a");
    let reply = client.ask("EXEC");
    assert!(reply.starts_with("*3\r\n:0\r\n%7\r\n") && reply.ends_with("*0\r\n#f\r\n"), "{reply}");
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let server = start();
    let mut client = server.connect();
    client
        .write(b"BF.ADD f a\r\nMULTI\r\nBF.ADD f a\r\nBF.ADD f b\r\nEXEC\r\nBF.ADD f b\r\nBF.EXISTS f b\r\n");
    let replies: Vec<String> = (0..7).map(|_| client.reply()).collect();
    let expected = [":1", "+OK", "+QUEUED", "+QUEUED", "*2\r\n:0\r\n:1", ":0", ":1"];
    assert_eq!(replies, expected.map(|reply| format!("{reply}\r\n")));
}
