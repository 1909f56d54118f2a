//! What one client sees of others, and does to them.

mod common;

use std::time::{Duration, Instant};

use common::{Client, start};

fn id_of(client: &mut Client) -> String {
    client.ask("CLIENT ID").trim_start_matches(':').trim_end().to_owned()
}

#[test]
fn lists_connections_as_redis_does() {
    let server = start();
    let (mut one, mut two) = (server.connect(), server.connect());
    one.ask("CLIENT SETNAME one");
    one.ask("CLIENT SETINFO LIB-NAME lib");
    two.ask("HELLO 3");
    let id = id_of(&mut one);
    let list = two.ask(&format!("CLIENT LIST ID {id} 77777"));
    let (head, line) = list.split_once("\r\n").expect("a head and a text");
    assert_eq!(head, format!("={}", line.len() - 2));
    assert!(line.starts_with(&format!("txt:id={id} addr=127.0.0.1:")), "{line}");
    assert!(
        line.contains(" laddr=127.0.0.1:") && line.contains(" name=one age=0 idle=0 flags=N db=0 sub=0 "),
        "{line}"
    );
    assert!(line.contains(" cmd=client|id user=default redir=-1 resp=2 lib-name=lib lib-ver=\n"), "{line}");
    assert_eq!(two.ask("CLIENT LIST").matches("id=").count(), 2);
    assert_eq!(two.ask("CLIENT LIST TYPE normal").matches("id=").count(), 2);
    assert_eq!(two.ask("CLIENT LIST TYPE master"), "=4\r\ntxt:\r\n");
    assert!(two.ask("CLIENT INFO").contains(" cmd=client|info user=default redir=-1 resp=3 "));
    one.ask("MULTI");
    one.ask("PING");
    assert!(two.ask(&format!("CLIENT LIST ID {id}")).contains(" flags=x db=0 sub=0 psub=0 ssub=0 multi=1 "));
    for (line, error) in [
        ("CLIENT LIST TYPE foo", "Unknown client type 'foo'"),
        ("CLIENT LIST TYPE", "syntax error"),
        ("CLIENT LIST ID x", "Invalid client ID"),
        ("CLIENT LIST ID", "syntax error"),
        ("CLIENT LIST foo", "syntax error"),
    ] {
        assert_eq!(two.ask(line), format!("-ERR {error}\r\n"));
    }
}

#[test]
fn kills_in_both_forms() {
    let server = start();
    let mut me = server.connect();
    let connect = || {
        let mut client = server.connect();
        let id = id_of(&mut client);
        (client, id)
    };
    let (mut one, id) = connect();
    assert_eq!(me.ask(&format!("CLIENT KILL ID {id}")), ":1\r\n");
    assert!(one.is_closed());
    let (mut one, id) = connect();
    let list = me.ask(&format!("CLIENT LIST ID {id}"));
    let address = list
        .split_once(" addr=")
        .and_then(|(_, rest)| rest.split_once(' '))
        .expect("an address")
        .0
        .to_owned();
    assert_eq!(me.ask(&format!("CLIENT KILL {address}")), "+OK\r\n");
    assert!(one.is_closed());
    assert_eq!(me.ask(&format!("CLIENT KILL {address}")), "-ERR No such client\r\n");
    let (mut one, _) = connect();
    assert_eq!(me.ask("CLIENT KILL MAXAGE 1000"), ":0\r\n");
    assert_eq!(me.ask("CLIENT KILL USER default TYPE normal"), ":1\r\n");
    assert!(one.is_closed());
    assert_eq!(me.ask("ACL SETUSER other on >secret +@all ~*"), "+OK\r\n");
    let (mut one, _) = connect();
    assert_eq!(one.ask("AUTH other secret"), "+OK\r\n");
    assert_eq!(me.ask("CLIENT KILL USER other"), ":1\r\n");
    assert!(one.is_closed());
    for (line, error) in [
        ("CLIENT KILL ID a", "client-id should be greater than 0"),
        ("CLIENT KILL ID 0", "client-id should be greater than 0"),
        ("CLIENT KILL ID 5 ADDR", "syntax error"),
        ("CLIENT KILL FOO bar", "syntax error"),
        ("CLIENT KILL TYPE foo", "Unknown client type 'foo'"),
        ("CLIENT KILL USER foo", "No such user 'foo'"),
        ("CLIENT KILL SKIPME foo", "syntax error"),
        ("CLIENT KILL MAXAGE x", "maxage is not an integer or out of range"),
        ("CLIENT KILL MAXAGE 0", "maxage should be greater than 0"),
    ] {
        assert_eq!(me.ask(line), format!("-ERR {error}\r\n"));
    }
    assert_eq!(me.ask("CLIENT KILL SKIPME no TYPE normal"), ":1\r\n");
    assert!(me.is_closed());
}

#[test]
fn a_pause_holds_commands_back() {
    let server = start();
    let (mut one, mut two) = (server.connect(), server.connect());
    assert_eq!(one.ask("CLIENT PAUSE 300"), "+OK\r\n");
    let begin = Instant::now();
    assert_eq!(two.ask("PING"), "+PONG\r\n");
    assert!(begin.elapsed() >= Duration::from_millis(250), "{:?}", begin.elapsed());

    assert_eq!(one.ask("CLIENT PAUSE 100000 WRITE"), "+OK\r\n");
    assert_eq!(two.ask("PING"), "+PONG\r\n");
    two.write(b"BF.ADD f a\r\n");
    assert!(two.is_silent());
    assert_eq!(one.ask("BF.EXISTS f a"), ":0\r\n");
    assert_eq!(one.ask("CLIENT UNPAUSE"), "+OK\r\n");
    assert_eq!(two.reply(), ":1\r\n");

    one.ask("CLIENT PAUSE 100000 WRITE");
    two.ask("MULTI");
    two.ask("PING");
    assert_eq!(two.ask("EXEC"), "*1\r\n+PONG\r\n");
    let mut three = server.connect();
    let id = id_of(&mut three);
    three.write(b"BF.ADD f b\r\n");
    assert!(three.is_silent());
    assert_eq!(one.ask(&format!("CLIENT KILL ID {id}")), ":1\r\n");
    assert!(three.is_closed(), "who waits can be killed");
    one.ask("CLIENT UNPAUSE");
    assert_eq!(one.ask("BF.EXISTS f b"), ":0\r\n", "and what it asked for was not done");
    for (line, error) in [
        ("CLIENT PAUSE x", "timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "timeout is negative"),
        ("CLIENT PAUSE 1 x", "CLIENT PAUSE mode must be WRITE or ALL"),
        (
            "CLIENT PAUSE 1 WRITE x",
            "unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP.",
        ),
    ] {
        assert_eq!(one.ask(line), format!("-ERR {error}\r\n"));
    }
    // A server that ends waits for no pause.
    one.ask("CLIENT PAUSE 100000");
    two.write(b"PING\r\n");
}

#[test]
fn watches_what_others_do() {
    let server = start();
    let (mut watcher, mut other) = (server.connect(), server.connect());
    assert_eq!(watcher.ask("MONITOR"), "+OK\r\n");
    other.send(&[b"bf.add", b"f", b"a\"\\\r\n\t\x07\x08\x00\xff"]);
    let line = watcher.reply();
    assert!(line.contains(" [0 127.0.0.1:"), "{line}");
    assert!(line.ends_with("] \"bf.add\" \"f\" \"a\\\"\\\\\\r\\n\\t\\a\\b\\x00\\xff\"\r\n"), "{line}");
    let time = line.trim_start_matches('+').split(' ').next().expect("a time");
    assert_eq!(time.split_once('.').map(|(_, micros)| micros.len()), Some(6));
    // Secrets and what administers are not shown; what is collected is shown when it is run.
    other.ask("AUTH default secret");
    other.ask("CLIENT LIST");
    for line in ["MULTI", "PING", "EXEC"] {
        other.ask(line);
    }
    for shown in ["\"MULTI\"", "\"PING\"", "\"EXEC\""] {
        let line = watcher.reply();
        assert!(line.ends_with(&format!("] {shown}\r\n")), "{line}");
    }
    other.ask("MULTI");
    other.ask("MONITOR");
    assert_eq!(other.ask("EXEC"), "*1\r\n-ERR MONITOR isn't allowed for DENY BLOCKING client\r\n");
}
