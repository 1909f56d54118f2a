//! What replies mean, in either version of the protocol.

/// What a server says.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Simple(String),
    Error(String),
    Integer(i64),
    Boolean(bool),
    Double(f64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Value>),
    /// Keys and values in turn.
    Map(Vec<Value>),
}

impl Value {
    /// The meaning of one whole reply.
    pub fn parse(reply: &[u8]) -> Self {
        let (value, end) = Self::parse_at(reply, 0);
        assert_eq!(end, reply.len(), "one reply");
        value
    }

    /// The value at a place, and where it ends.
    fn parse_at(reply: &[u8], at: usize) -> (Self, usize) {
        let (line, after) = line_at(reply, at).expect("a line");
        let text = || String::from_utf8_lossy(line).into_owned();
        let count = || text().parse::<i64>().expect("a number");
        let list = |count: i64| {
            let mut end = after;
            let value = |_| {
                let value;
                (value, end) = Self::parse_at(reply, end);
                value
            };
            let values = (0..count).map(value).collect();
            (values, end)
        };
        let value = match reply[at] {
            b'+' => Self::Simple(text()),
            b'-' => Self::Error(text()),
            b':' => Self::Integer(count()),
            b'#' => Self::Boolean(line == b"t"),
            b',' => Self::Double(text().parse().expect("a number")),
            b'_' => Self::Null,
            b'$' | b'=' | b'*' if count() < 0 => Self::Null,
            b'$' | b'=' => {
                let end = after + count() as usize;
                return (Self::Bulk(reply[after..end].to_vec()), end + 2);
            }
            b'*' | b'~' | b'>' => {
                let (values, end) = list(count());
                return (Self::Array(values), end);
            }
            b'%' => {
                let (values, end) = list(2 * count());
                return (Self::Map(values), end);
            }
            other => panic!("a reply begins with {:?}", char::from(other)),
        };
        (value, after)
    }

    /// Yes or no.
    pub fn truth(&self) -> Option<bool> {
        match self {
            Self::Boolean(truth) => Some(*truth),
            Self::Integer(0) => Some(false),
            Self::Integer(1) => Some(true),
            _ => None,
        }
    }

    pub fn error(&self) -> Option<&str> {
        if let Self::Error(text) = self { Some(text) } else { None }
    }

    /// What a map says under a name.
    pub fn field(&self, name: &str) -> Option<&Value> {
        let (Self::Map(pairs) | Self::Array(pairs)) = self else { return None };
        let named = |key: &Value| match key {
            Value::Simple(key) => key == name,
            Value::Bulk(key) => key == name.as_bytes(),
            _ => false,
        };
        pairs.chunks(2).find(|pair| named(&pair[0])).map(|pair| &pair[1])
    }
}

/// The line at a place without its first byte, and where the next one begins.
fn line_at(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(at..)?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    Some((rest.get(1..end)?, at + end + 2))
}

/// Where the reply at a place ends, if all of it is there.
pub(super) fn end_of(bytes: &[u8], at: usize) -> Option<usize> {
    let (line, after) = line_at(bytes, at)?;
    let number = || std::str::from_utf8(line).ok()?.parse::<i64>().ok();
    let children = match bytes[at] {
        b'$' | b'=' => {
            let Ok(length) = usize::try_from(number()?) else { return Some(after) };
            return (bytes.len() >= after + length + 2).then_some(after + length + 2);
        }
        b'*' | b'~' | b'>' => number()?,
        b'%' => 2 * number()?,
        _ => 0,
    };
    let mut end = after;
    for _ in 0..children {
        end = end_of(bytes, end)?;
    }
    Some(end)
}
