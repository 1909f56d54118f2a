//! Anything as RESP: no panic, and the same commands however the bytes are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_server::resp::{Limits, Parser};

const LIMITS: Limits = Limits {
    arguments_max: 1 << 20,
    bulk_bytes_max: 1 << 20,
    command_bytes_max: 1 << 22,
    authenticated: true,
};

/// The commands, and the error that ended them, if one did.
fn commands(input: &[u8], cuts: impl Iterator<Item = usize>) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
    let (mut parser, mut start, mut found) = (Parser::default(), 0, Vec::new());
    for end in cuts.map(|cut| cut.min(input.len())).chain([input.len()]) {
        loop {
            let rest = &input[start..end.max(start)];
            match parser.next(rest, &LIMITS) {
                Ok(Some(bytes)) => {
                    let command = parser.command(rest);
                    assert!(!command.is_empty() && bytes > 0 && bytes <= rest.len());
                    found.push(command.from(0).map(<[u8]>::to_vec).collect());
                    start += bytes;
                }
                Ok(None) => break,
                Err(error) => return (found, Some(error.to_string())),
            }
        }
    }
    (found, None)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let piece = usize::from(piece).max(1);
    let whole = commands(bytes, std::iter::empty());
    let cut = commands(bytes, (piece..bytes.len()).step_by(piece));
    assert_eq!(whole, cut);
});
