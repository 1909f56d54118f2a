//! Bytes to commands, without copying them.
//!
//! The parser is flat: a command is a list of strings and nothing nests. It is resumable: when bytes are missing it remembers how far it came, so a
//! command that arrives in a thousand pieces is read once. And it takes no memory for what a client only announces.

use std::fmt;

/// Longest line that announces a length; Redis's own bound.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Longest inline command; Redis's own bound.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// Spans that a parser keeps room for between commands.
const SPANS_KEPT: usize = 64;

/// What a client may send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most arguments of a command, its name included.
    pub arguments_max: usize,
    /// Longest argument.
    pub bulk_bytes_max: usize,
    /// Longest command.
    pub command_bytes_max: usize,
    /// Whether the client has said who it is; errors name it otherwise.
    pub authenticated: bool,
}

/// What an HTTP request is told. A web page can make a browser send one, with commands in its body.
const HTTP: &str = "this is an HTTP request, and the port takes RESP only";

/// Something that is not RESP. The connection cannot go on after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError(String);

impl ProtocolError {
    /// Whether the client speaks HTTP, as browsers do.
    pub fn is_http(&self) -> bool {
        self.0 == HTTP
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERR Protocol error: {}", self.0)
    }
}

/// Where an argument is, from the first byte of its command.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    bytes: u32,
}

/// Finds commands in what a client sent.
#[derive(Debug, Default)]
pub struct Parser {
    spans: Vec<Span>,
    /// Arguments of an inline command, which may have to be unquoted.
    inline: Option<Vec<u8>>,
    /// Where to go on, from the first byte of the command.
    at: usize,
    /// Arguments that are still to come.
    left: usize,
    /// The length of the argument that comes next, if it was announced.
    bulk: Option<usize>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Fresh,
    Arguments,
    Done,
}

/// A command: its name and its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

/// A command that outlives the bytes that it came in.
#[derive(Clone, Debug)]
pub struct OwnedCommand {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedCommand {
    /// The command of these words.
    pub fn new(words: &[impl AsRef<[u8]>]) -> Self {
        let mut command = Self { bytes: Vec::new(), spans: Vec::with_capacity(words.len()) };
        for word in words.iter().map(AsRef::as_ref) {
            command.spans.push(Span { start: command.bytes.len() as u32, bytes: word.len() as u32 });
            command.bytes.extend_from_slice(word);
        }
        command
    }

    /// The command, as parsers give it.
    pub fn as_command(&self) -> Command<'_> {
        Command { bytes: &self.bytes, spans: &self.spans }
    }
}

impl<'a> Command<'a> {
    /// Its name and arguments by number; nothing past the last one.
    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        let Some(span) = self.spans.get(index) else { return &[] };
        let start = span.start as usize;
        self.bytes.get(start..start + span.bytes as usize).unwrap_or_default()
    }

    /// How many there are, its name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// The bytes that it begins with, before the argument of that number; nothing if they are not those that the client sent, as of an
    /// inline command.
    pub fn head(&self, argument: usize) -> &'a [u8] {
        let before = argument.checked_sub(1).and_then(|before| self.spans.get(before));
        let is_raw = self.bytes.first() == Some(&b'*');
        let end = before.filter(|_| is_raw).map_or(0, |span| (span.start + span.bytes) as usize + 2);
        self.bytes.get(..end).unwrap_or_default()
    }

    /// Whether there is not even a name. Parsers do not give such commands.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The arguments from one on.
    pub fn from(&self, first: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let command = *self;
        (first.min(self.len())..self.len()).map(move |index| command.get(index))
    }
}

impl Parser {
    /// Looks for a command at the start of `input`, and gives how many bytes it has; nothing if bytes are missing. Until a command is whole,
    /// each call has to see the bytes of the calls before it again, with more behind them.
    pub fn next(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        loop {
            if self.stage == Stage::Done {
                self.reset();
            }
            if self.stage == Stage::Fresh {
                match input.get(self.at) {
                    None => return Ok(None),
                    Some(b'*') => {
                        let Some(count) = self.count(input, limits)? else { return Ok(None) };
                        if count == 0 {
                            // Nothing was asked; what follows is the command.
                            continue;
                        }
                        self.left = count;
                        self.stage = Stage::Arguments;
                    }
                    Some(_) => match self.line(input, limits)? {
                        None => return Ok(None),
                        Some(0) => continue,
                        Some(_) => {
                            self.stage = Stage::Done;
                            return Ok(Some(self.at));
                        }
                    },
                }
            }
            return Ok(self.arguments(input, limits)?.then_some(self.at));
        }
    }

    /// How many bytes before the next command say nothing, such as empty lines, when [`next`](Self::next) has found no command: they need not be
    /// seen again.
    pub fn pass_over(&mut self) -> usize {
        if self.stage == Stage::Fresh { std::mem::take(&mut self.at) } else { 0 }
    }

    /// The last argument of a command at the start of `input` whose other bytes are those that another command began with
    /// ([`Command::head`]), and how many bytes it has. Nothing if it is another one, not whole, or wrong: [`next`](Self::next) finds out.
    #[inline]
    pub fn next_alike<'i>(&self, input: &'i [u8], head: &[u8], limits: &Limits) -> Option<(&'i [u8], usize)> {
        let is_between = self.stage == Stage::Done || self.stage == Stage::Fresh && self.at == 0;
        let rest = input.strip_prefix(head).filter(|_| is_between)?;
        let (Some(bytes), start) = number(rest.strip_prefix(b"$")?, 0, "").ok()?? else { return None };
        let (start, bytes) = (start + 1, usize::try_from(bytes).ok()?);
        let end = head.len() + start + bytes;
        let fits = bytes <= limits.bulk_bytes_max && end <= limits.command_bytes_max;
        let argument = rest.get(start..start + bytes).filter(|_| fits && input.len() >= end + 2)?;
        Some((argument, end + 2))
    }

    /// The command that was found; `input` is what [`next`](Self::next) saw.
    #[inline]
    pub fn command<'a>(&'a self, input: &'a [u8]) -> Command<'a> {
        Command { bytes: self.inline.as_deref().unwrap_or(input), spans: &self.spans }
    }

    fn reset(&mut self) {
        self.spans.clear();
        if self.spans.capacity() > SPANS_KEPT {
            self.spans.shrink_to(SPANS_KEPT);
        }
        self.inline = None;
        self.at = 0;
        self.stage = Stage::Fresh;
    }

    fn count(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        let Some((count, after)) = number(input, self.at + 1, "too big mbulk count string")? else {
            return Ok(None);
        };
        let invalid = || ProtocolError("invalid multibulk length".into());
        let count = count.ok_or_else(invalid)?;
        self.at = after;
        if count <= 0 {
            return Ok(Some(0));
        }
        match usize::try_from(count) {
            Ok(count) if count <= limits.arguments_max => Ok(Some(count)),
            _ if !limits.authenticated => Err(ProtocolError("unauthenticated multibulk length".into())),
            _ => Err(invalid()),
        }
    }

    /// Takes arguments until the command is whole, or bytes are missing.
    #[inline]
    fn arguments(&mut self, input: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        while self.left > 0 {
            let bytes = match self.bulk {
                Some(bytes) => bytes,
                None => {
                    match input.get(self.at) {
                        None => return Ok(false),
                        Some(b'$') => {}
                        Some(other) => {
                            return Err(ProtocolError(format!(
                                "expected '$', got '{}'",
                                other.escape_ascii()
                            )));
                        }
                    }
                    let Some((bytes, after)) = number(input, self.at + 1, "too big bulk count string")?
                    else {
                        return Ok(false);
                    };
                    let bytes = Self::bulk_length(bytes, after, limits)?;
                    self.at = after;
                    self.bulk = Some(bytes);
                    bytes
                }
            };
            let end = self.at + bytes;
            if input.len() < end + 2 {
                return Ok(false);
            }
            self.spans.push(Span { start: self.at as u32, bytes: bytes as u32 });
            // Redis does not look at the two bytes behind an argument either.
            self.at = end + 2;
            self.bulk = None;
            self.left -= 1;
        }
        self.stage = Stage::Done;
        Ok(true)
    }

    fn bulk_length(bytes: Option<i64>, start: usize, limits: &Limits) -> Result<usize, ProtocolError> {
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        match bytes {
            Some(bytes) if bytes <= limits.bulk_bytes_max && start + bytes <= limits.command_bytes_max => {
                Ok(bytes)
            }
            Some(_) if !limits.authenticated => Err(ProtocolError("unauthenticated bulk length".into())),
            _ => Err(ProtocolError("invalid bulk length".into())),
        }
    }

    /// Takes a command that a person typed; gives the number of its words.
    fn line(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        let rest = &input[self.at..];
        let Some(end) = rest.iter().take(INLINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
            if rest.len() >= INLINE_BYTES_MAX {
                return Err(ProtocolError("too big inline request".into()));
            }
            return Ok(None);
        };
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        let mut words = Vec::with_capacity(line.len());
        let Some(()) = split_words(line, &mut words, &mut self.spans) else {
            return Err(ProtocolError("unbalanced quotes in request".into()));
        };
        if self.spans.len() > limits.arguments_max {
            return Err(ProtocolError("invalid multibulk length".into()));
        }
        let word = |span: &Span| &words[span.start as usize..(span.start + span.bytes) as usize];
        if is_http(self.spans.iter().map(word)) {
            return Err(ProtocolError(HTTP.into()));
        }
        self.at += end + 1;
        self.inline = (!self.spans.is_empty()).then_some(words);
        Ok(Some(self.spans.len()))
    }
}

/// Whether a line belongs to the head of an HTTP request: `POST`, as in Redis, any other request line, or a header.
fn is_http<'w>(mut words: impl Iterator<Item = &'w [u8]>) -> bool {
    let Some(first) = words.next() else { return false };
    first.eq_ignore_ascii_case(b"POST")
        || first.ends_with(b":")
        || words.nth(1).is_some_and(|version| version.starts_with(b"HTTP/"))
}

/// A number, if there is one, and where the line after it begins.
type Number = (Option<i64>, usize);

/// A number and where the line after it begins; no number if there is something else in its place, nothing at all if bytes are missing.
#[inline(always)]
fn number(input: &[u8], at: usize, too_long: &str) -> Result<Option<Number>, ProtocolError> {
    // Most numbers have one or two digits.
    let mut value = 0_i64;
    let mut end = at;
    while let Some(digit) = input.get(end).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        if end - at >= 15 {
            break;
        }
        value = value * 10 + i64::from(digit);
        end += 1;
    }
    if end > at && input.get(end) == Some(&b'\r') {
        // The second byte of the line's end is not looked at, as in Redis, but it has to be there.
        return Ok((input.len() > end + 1).then_some((Some(value), end + 2)));
    }
    unusual_number(input, at, too_long)
}

#[cold]
fn unusual_number(input: &[u8], at: usize, too_long: &str) -> Result<Option<Number>, ProtocolError> {
    let rest = input.get(at..).unwrap_or_default();
    let Some(end) = rest.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\r') else {
        if rest.len() >= LINE_BYTES_MAX {
            return Err(ProtocolError(too_long.into()));
        }
        return Ok(None);
    };
    if rest.len() < end + 2 {
        return Ok(None);
    }
    let value = std::str::from_utf8(&rest[..end]).ok().and_then(|text| text.parse().ok());
    Ok(Some((value, at + end + 2)))
}

/// Splits a line at blanks; quotes and escapes are those of `redis-cli`. Nothing if a quote is open in the end.
fn split_words(line: &[u8], words: &mut Vec<u8>, spans: &mut Vec<Span>) -> Option<()> {
    let mut at = 0;
    let next = |at: &mut usize| {
        let byte = line.get(*at).copied();
        *at += 1;
        byte
    };
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if at >= line.len() {
            return Some(());
        }
        let start = words.len();
        match line[at] {
            b'"' => {
                at += 1;
                loop {
                    match next(&mut at)? {
                        b'"' => break,
                        b'\\' => match next(&mut at)? {
                            b'n' => words.push(b'\n'),
                            b'r' => words.push(b'\r'),
                            b't' => words.push(b'\t'),
                            b'b' => words.push(8),
                            b'a' => words.push(7),
                            b'x' => {
                                let digits = line.get(at..at + 2).and_then(hexadecimal);
                                words.push(digits.unwrap_or(b'x'));
                                at += if digits.is_some() { 2 } else { 0 };
                            }
                            other => words.push(other),
                        },
                        byte => words.push(byte),
                    }
                }
            }
            b'\'' => {
                at += 1;
                loop {
                    match next(&mut at)? {
                        b'\'' => break,
                        b'\\' if line.get(at) == Some(&b'\'') => {
                            words.push(b'\'');
                            at += 1;
                        }
                        byte => words.push(byte),
                    }
                }
            }
            _ => {
                while let Some(byte) = line.get(at).copied().filter(|byte| !byte.is_ascii_whitespace()) {
                    words.push(byte);
                    at += 1;
                }
            }
        }
        // A closing quote ends its word.
        if line.get(at).is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return None;
        }
        spans.push(Span { start: start as u32, bytes: (words.len() - start) as u32 });
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(digits[0])? * 16 + digit(digits[1])?) as u8)
}

#[cfg(test)]
mod tests;
