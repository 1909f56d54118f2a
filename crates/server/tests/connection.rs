//! The connection itself: greetings, names, replies that are not wanted, the end.

mod common;

use common::{field, start};

const NO_NAME: &str = "-ERR Client names cannot contain spaces, newlines or special characters.\r\n";

#[test]
fn pings_and_echoes() {
    let server = start();
    let mut client = server.connect();
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    assert_eq!(client.ask("ping \"a b\""), "$3\r\na b\r\n");
    assert_eq!(client.ask("PING a b"), "-ERR wrong number of arguments for 'ping' command\r\n");
    assert_eq!(client.send(&[b"ECHO", b"\xe2\x82\xac\r\n"]), "$5\r\n€\r\n\r\n");
    assert_eq!(client.ask("SELECT 0"), "+OK\r\n");
    assert_eq!(client.ask("SELECT 1"), "-ERR DB index is out of range\r\n");
    assert_eq!(client.ask("SELECT x"), "-ERR value is not an integer or out of range\r\n");
    assert_eq!(client.ask("QUIT"), "+OK\r\n");
    assert!(client.is_closed());
}

#[test]
fn greets_in_both_versions() {
    let server = start();
    let mut client = server.connect();
    let id = client.ask("CLIENT ID");
    let id = id.trim_start_matches(':').trim_end();
    let middle = "$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n8.2.0\r\n$5\r\nproto\r\n";
    let end = "$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*1\r\n";
    let module =
        "$4\r\nname\r\n$2\r\nbf\r\n$3\r\nver\r\n:80200\r\n$4\r\npath\r\n$0\r\n\r\n$4\r\nargs\r\n*0\r\n";
    let two = format!("*14\r\n{middle}:2\r\n$2\r\nid\r\n:{id}\r\n{end}*8\r\n{module}");
    let three = format!("%7\r\n{middle}:3\r\n$2\r\nid\r\n:{id}\r\n{end}%4\r\n{module}");
    assert_eq!(client.ask("HELLO"), two);
    assert_eq!(client.ask("HELLO 3"), three);
    assert_eq!(client.ask("CLIENT GETNAME"), "_\r\n");
    assert_eq!(client.ask("HELLO 3 SETNAME me AUTH default any"), three);
    assert_eq!(client.ask("CLIENT GETNAME"), "$2\r\nme\r\n");
    assert_eq!(client.ask("HELLO 2"), two);
    assert_eq!(client.ask("HELLO 4"), "-NOPROTO unsupported protocol version\r\n");
    assert_eq!(client.ask("HELLO x"), "-ERR Protocol version is not an integer or out of range\r\n");
    assert_eq!(client.ask("HELLO 2 AUTH"), "-ERR Syntax error in HELLO option 'AUTH'\r\n");
    assert_eq!(client.ask("HELLO 2 foo"), "-ERR Syntax error in HELLO option 'foo'\r\n");
    assert_eq!(client.ask("HELLO 2 SETNAME \"a b\""), NO_NAME);
    assert!(client.ask("HELLO 3 AUTH a b").starts_with("-WRONGPASS "));
    assert_eq!(client.ask("CLIENT GETNAME"), "$2\r\nme\r\n");
}

#[test]
fn knows_no_password() {
    let server = start();
    let mut client = server.connect();
    assert_eq!(
        client.ask("AUTH x"),
        "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n"
    );
    assert_eq!(client.ask("AUTH default x"), "+OK\r\n");
    assert_eq!(client.ask("AUTH a b"), "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    assert_eq!(client.ask("AUTH a b c"), "-ERR syntax error\r\n");
}

#[test]
fn a_reset_forgets_everything() {
    let server = start();
    let mut client = server.connect();
    client.ask("HELLO 3 SETNAME me");
    client.ask("MULTI");
    assert_eq!(client.ask("PING"), "+QUEUED\r\n");
    assert_eq!(client.ask("RESET"), "+RESET\r\n");
    assert_eq!(client.ask("EXEC"), "-ERR EXEC without MULTI\r\n");
    assert_eq!(client.ask("CLIENT GETNAME"), "$-1\r\n");
    assert_eq!(client.ask("MONITOR"), "+OK\r\n");
    assert_eq!(client.ask("RESET"), "+RESET\r\n");
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    assert!(client.is_silent(), "it watches no more");
}

#[test]
fn replies_only_where_they_are_wanted() {
    let server = start();
    let mut client = server.connect();
    client.write(b"CLIENT REPLY SKIP\r\nPING 1\r\n");
    assert_eq!(client.ask("PING 2"), "$1\r\n2\r\n");
    client.write(b"CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nPING 1\r\n");
    assert_eq!(client.ask("PING 2"), "$1\r\n2\r\n");
    client.write(b"CLIENT REPLY SKIP\r\nBF.ADD skipped a\r\nCLIENT REPLY SKIP\r\nBF.MEXISTS skipped a b\r\n");
    assert_eq!(client.ask("BF.EXISTS skipped a"), ":1\r\n");
    client.write(b"CLIENT REPLY SKIP\r\n");
    assert_eq!(client.ask("CLIENT REPLY ON"), "+OK\r\n");
    client.write(
        b"CLIENT REPLY OFF\r\nPING\r\nFOO\r\nBF.ADD f a\r\nCLIENT REPLY x\r\nCLIENT REPLY SKIP\r\nPING\r\n",
    );
    assert!(client.is_silent());
    assert_eq!(client.ask("CLIENT REPLY ON"), "+OK\r\n");
    assert_eq!(client.ask("BF.EXISTS f a"), ":1\r\n");
    client.write(b"CLIENT REPLY SKIP\r\nCLIENT REPLY OFF\r\nPING\r\n");
    assert_eq!(client.ask("RESET"), "+RESET\r\n");
    assert_eq!(client.ask("CLIENT REPLY x"), "-ERR syntax error\r\n");
}

#[test]
fn the_first_things_that_clients_ask() {
    let server = start();
    let mut client = server.connect();
    assert_eq!(client.ask("CLIENT SETINFO LIB-NAME redis-py"), "+OK\r\n");
    assert_eq!(client.ask("CLIENT SETINFO lib-ver 5.0"), "+OK\r\n");
    assert_eq!(client.ask("CLIENT SETINFO LIB-FOO 5.0"), "-ERR Unrecognized option 'LIB-FOO'\r\n");
    assert_eq!(
        client.ask("CLIENT SETINFO lib-ver \"5 0\""),
        "-ERR lib-ver cannot contain spaces, newlines or special characters.\r\n"
    );
    assert_eq!(
        client.ask("CLIENT MAINT_NOTIFICATIONS ON"),
        "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.\r\n"
    );
    assert_eq!(client.ask("CLIENT"), "-ERR wrong number of arguments for 'client' command\r\n");
    assert_eq!(client.ask("CLIENT SETNAME \"a b\""), NO_NAME);
    assert_eq!(client.ask("CLIENT SETNAME a"), "+OK\r\n");
    assert_eq!(client.ask("CLIENT SETNAME \"\""), "+OK\r\n");
    assert_eq!(client.ask("CLIENT GETNAME"), "$-1\r\n");
    assert!(client.ask("COMMAND DOCS").starts_with('*'));
    let info = client.ask("INFO");
    assert_eq!(field(&info, "redis_version"), "8.2.0");
    assert_eq!(field(&info, "connected_clients"), "1");
}
