use super::*;

const LIMITS: Limits =
    Limits { arguments_max: 1000, bulk_bytes_max: 1 << 20, command_bytes_max: 1 << 22, authenticated: true };

/// All commands in some bytes that arrive at once.
fn commands(input: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, String> {
    in_pieces(input, input.len().max(1))
}

/// All commands in some bytes that arrive a few at a time.
fn in_pieces(input: &[u8], piece: usize) -> Result<Vec<Vec<Vec<u8>>>, String> {
    let (mut parser, mut start, mut found) = (Parser::default(), 0, Vec::new());
    let ends = (piece..input.len()).step_by(piece).chain([input.len()]);
    for end in ends {
        while let Some(bytes) = parser.next(&input[start..end], &LIMITS).map_err(|error| error.to_string())? {
            let command = parser.command(&input[start..end]);
            found.push(command.from(0).map(<[u8]>::to_vec).collect());
            start += bytes;
        }
        start += parser.pass_over();
    }
    Ok(found)
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn finds_commands_however_they_are_cut() {
    let input = b"*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$4\r\na\r\nb\r\n*0\r\n*-1\r\nping  x\r\n\r\n*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$0\r\n\r\n";
    let expected = vec![
        words(&["BF.ADD", "f", "a\r\nb"]),
        words(&["ping", "x"]),
        words(&["PING"]),
        words(&["ECHO", ""]),
    ];
    for piece in 1..input.len() {
        assert_eq!(in_pieces(input, piece), Ok(expected.clone()), "pieces of {piece}");
    }
    assert_eq!(commands(input), Ok(expected));
}

#[test]
fn what_says_nothing_need_not_be_kept() {
    let mut parser = Parser::default();
    let nothing = b"\r\n*0\r\n\n*-1\r\n";
    let input = [&nothing[..], b"*1\r\n$4\r\nPI"].concat();
    for end in 0..=nothing.len() {
        let mut parser = Parser::default();
        assert_eq!(parser.next(&input[..end], &LIMITS), Ok(None));
        let passed = parser.pass_over();
        assert!(end - passed < 5, "of {end} bytes {passed} are passed over");
        assert_eq!(parser.pass_over(), 0);
    }
    // What a command has begun with is needed again.
    assert_eq!(parser.next(&input, &LIMITS), Ok(None));
    assert_eq!(parser.pass_over(), 0);
}

#[test]
fn takes_lines_as_redis_does() {
    let line = |line: &str| commands(format!("{line}\n").as_bytes());
    assert_eq!(line(r#"set "a b" 'c\'d' "\x41\n\"""#), Ok(vec![words(&["set", "a b", "c'd", "A\n\""])]));
    assert_eq!(line("  PING\t1 \r"), Ok(vec![words(&["PING", "1"])]));
    assert_eq!(line("\"a\"b"), Err("ERR Protocol error: unbalanced quotes in request".into()));
    assert_eq!(line("'a"), Err("ERR Protocol error: unbalanced quotes in request".into()));
}

#[test]
fn refuses_what_is_not_resp() {
    let refused = |input: &[u8]| commands(input).expect_err("it was taken");
    assert_eq!(refused(b"*x\r\n"), "ERR Protocol error: invalid multibulk length");
    assert_eq!(refused(b"*1001\r\n"), "ERR Protocol error: invalid multibulk length");
    assert_eq!(refused(b"*99999999999999999999999\r\n"), "ERR Protocol error: invalid multibulk length");
    assert_eq!(refused(b"*1\r\n:1\r\n"), "ERR Protocol error: expected '$', got ':'");
    assert_eq!(refused(b"*1\r\n$-1\r\n"), "ERR Protocol error: invalid bulk length");
    assert_eq!(refused(b"*1\r\n$1048577\r\n"), "ERR Protocol error: invalid bulk length");
    assert_eq!(refused(&[b'*'; 70_000]), "ERR Protocol error: too big mbulk count string");
    assert_eq!(refused(&[b'a'; 70_000]), "ERR Protocol error: too big inline request");
    // Ten thousand nested arrays are refused at the second level: nothing nests.
    assert_eq!(refused(&b"*1\r\n".repeat(10_000)), "ERR Protocol error: expected '$', got '*'");
}

#[test]
fn strangers_get_less() {
    let limits = Limits { arguments_max: 10, bulk_bytes_max: 16 << 10, authenticated: false, ..LIMITS };
    let refused =
        |input: &[u8]| Parser::default().next(input, &limits).expect_err("it was taken").to_string();
    assert_eq!(refused(b"*11\r\n"), "ERR Protocol error: unauthenticated multibulk length");
    assert_eq!(refused(b"*1\r\n$16385\r\n"), "ERR Protocol error: unauthenticated bulk length");
}

#[test]
fn announced_arguments_take_no_memory() {
    let limits = Limits { arguments_max: 1 << 30, ..LIMITS };
    let mut parser = Parser::default();
    assert_eq!(parser.next(b"*1000000000\r\n$1\r\na\r\n", &limits), Ok(None));
    assert!(parser.spans.capacity() < 100);
}

#[test]
fn what_is_alike_is_what_the_parser_finds() {
    let first: &[u8] = b"*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$3\r\nabc\r\n";
    let mut parser = Parser::default();
    assert_eq!(parser.next(first, &LIMITS), Ok(Some(first.len())));
    let head = parser.command(first).head(2).to_vec();
    assert_eq!(head, b"*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n");
    for (input, is_alike) in [
        ("*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$12\r\na\r\nb and more\r\nrest", true),
        ("*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$0\r\n\r\n", true),
        ("*3\r\n$6\r\nBF.ADD\r\n$1\r\ng\r\n$3\r\nabc\r\n", false),
        ("*4\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$3\r\nabc\r\n$1\r\nx\r\n", false),
        ("*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$-1\r\n\r\n", false),
        ("*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n:3\r\nabc\r\n", false),
        ("*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$1048577\r\n\r\n", false),
        ("PING\r\n", false),
    ] {
        for end in 0..=input.len() {
            let input = &input.as_bytes()[..end];
            let mut fresh = Parser::default();
            let found = fresh.next(input, &LIMITS).ok().flatten().filter(|_| is_alike);
            let found = found.map(|bytes| (fresh.command(input).get(2), bytes));
            assert_eq!(parser.next_alike(input, &head, &LIMITS), found, "{:?}", input.escape_ascii());
        }
    }
    // In the midst of a command, what comes is a part of it.
    assert_eq!(parser.next(b"*2\r\n$99\r\n", &LIMITS), Ok(None));
    assert_eq!(parser.next_alike(first, &head, &LIMITS), None);
    let mut inline = Parser::default();
    assert_eq!(inline.next(b"bf.add f abc\n", &LIMITS), Ok(Some(13)));
    assert_eq!(inline.command(b"bf.add f abc\n").head(2), b"", "no bytes of a client");
}

#[test]
fn http_requests_end_the_connection() {
    for line in [
        "POST / HTTP/1.1",
        "post /",
        "GET / HTTP/1.1",
        "GET /v1/filters HTTP/2",
        "OPTIONS * HTTP/1.1",
        "Host: umbel:6380",
        "host:",
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    ] {
        let input = format!("PING\r\n{line}\r\nDEL victim\r\n");
        for piece in [1, input.len()] {
            let error = in_pieces(input.as_bytes(), piece).unwrap_err();
            assert!(error.contains("HTTP request"), "{line}: {error}");
        }
    }
    // Commands that look a little like it, and the same words where no browser can put them.
    for line in ["GET key", "GET key value", "BF.EXISTS urls http://a/", "DEL Host:"] {
        assert_eq!(
            commands(format!("{line}\r\n").as_bytes()).map(|commands| commands.len()),
            Ok(1),
            "{line}"
        );
    }
    let post = b"*3\r\n$4\r\nPOST\r\n$1\r\n/\r\n$8\r\nHTTP/1.1\r\n";
    assert_eq!(commands(post), Ok(vec![words(&["POST", "/", "HTTP/1.1"])]));
}
