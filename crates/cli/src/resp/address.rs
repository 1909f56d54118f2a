//! Where a server is: `redis://[user:password@]host[:port][/database]`, or `rediss://` with `?ca=FILE&cert=FILE&key=FILE` behind it.

use std::fmt;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use umbel_client::Trust;
use umbel_core::url::refuse_open_password;

const PORT: u16 = 6379;

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Address {
    pub(crate) host: String,
    port: u16,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
    /// Whether it is spoken to over TLS, and whom to trust then.
    pub(crate) tls: Option<Trust>,
}

impl Address {
    /// Returns all addresses of the name, in the order in which they are to be tried.
    pub(crate) fn resolve(&self) -> Result<Vec<SocketAddr>, String> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let found: Vec<_> = found.map_err(|error| format!("{self}: {error}"))?.collect();
        if found.is_empty() { Err(format!("{self}: the name has no address")) } else { Ok(found) }
    }

    /// Connects to the first address of the name that takes the connection. Each gets that time for it.
    pub(crate) fn connect(&self, time: Duration) -> Result<TcpStream, String> {
        connect_to_any(&self.resolve()?, time).map_err(|why| format!("{self}: {why}"))
    }
}

fn connect_to_any(addresses: &[SocketAddr], time: Duration) -> Result<TcpStream, String> {
    let mut refusals = Vec::new();
    for address in addresses {
        match TcpStream::connect_timeout(address, time) {
            Ok(stream) => return Ok(stream),
            Err(error) if addresses.len() == 1 => return Err(error.to_string()),
            Err(error) => refusals.push(format!("{address}: {error}")),
        }
    }
    Err(refusals.join("; "))
}

impl FromStr for Address {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let example = "an address is written redis://127.0.0.1:6380";
        let (is_secure, rest) = match url.split_once("://") {
            Some(("redis", rest)) => (false, rest),
            Some(("rediss", rest)) => (true, rest),
            Some((scheme, _)) => return Err(format!("{scheme}:// is not spoken here; {example}")),
            None => return Err(example.to_owned()),
        };
        refuse_open_password(url).map_err(|error| error.to_string())?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let tls = trust(is_secure, parameters)?;
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or(("", login))) {
            Some((user, password)) => (decode(user)?, decode(password)?),
            None => (None, None),
        };
        let (host, port) = split_port(place)?;
        if host.is_empty() {
            return Err(format!("no host in it; {example}"));
        }
        let database = match database {
            "" => 0,
            number => number.parse().map_err(|_| format!("{number:?} is no number of a database"))?,
        };
        Ok(Self { host: host.to_owned(), port, user, password, database, tls })
    }
}

/// Without the password: this is printed.
impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, tls, .. } = self;
        let scheme = if tls.is_some() { "rediss" } else { "redis" };
        if host.contains(':') {
            write!(out, "{scheme}://[{host}]:{port}")
        } else {
            write!(out, "{scheme}://{host}:{port}")
        }
    }
}

/// What stands behind the question mark: as in the addresses of engines.
fn trust(is_secure: bool, parameters: &str) -> Result<Option<Trust>, String> {
    let (mut is_secure, mut ca, mut cert, mut key) = (is_secure, None, None, None);
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = decode(value)?.ok_or_else(|| format!("{name} has no value"))?;
        match (name, value.as_str()) {
            ("tls", "true") => is_secure = true,
            ("ca", file) => ca = Some(file.into()),
            ("cert", file) => cert = Some(file.into()),
            ("key", file) => key = Some(file.into()),
            _ => return Err(format!("{name:?}; it takes tls=true, ca, cert and key")),
        }
    }
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err("a certificate (cert) and its key (key) belong together".to_owned()),
    };
    // Somebody believes that it is encrypted.
    if !is_secure && (ca.is_some() || identity.is_some()) {
        return Err("certificates for an address that is not encrypted; use rediss://".to_owned());
    }
    Ok(is_secure.then_some(Trust { ca, identity }))
}

fn split_port(place: &str) -> Result<(&str, u16), String> {
    // It is not repeated: it may be a password whose host is missing.
    let number = |port: &str| port.parse().map_err(|_| "behind the host there is no port".to_owned());
    // An IPv6 address has colons of its own, so it stands in brackets.
    if let Some((host, rest)) = place.strip_prefix('[').and_then(|place| place.split_once(']')) {
        return Ok((host, rest.strip_prefix(':').map_or(Ok(PORT), number)?));
    }
    match place.split_once(':') {
        Some((host, port)) => Ok((host, number(port)?)),
        None => Ok((place, PORT)),
    }
}

/// Resolves `%40` and the like; nothing if the text is empty.
fn decode(text: &str) -> Result<Option<String>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, coded)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        let code = coded.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(code.ok_or("a % in a user or password is written %25")?);
        rest = &coded[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    let text = String::from_utf8(bytes).map_err(|_| "a user or password is no UTF-8")?;
    Ok((!text.is_empty()).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Address {
        url.parse().unwrap()
    }

    #[test]
    fn parts_are_found() {
        let plain = parsed("redis://127.0.0.1");
        assert_eq!((plain.host.as_str(), plain.port, plain.database), ("127.0.0.1", 6379, 0));
        assert_eq!((&plain.user, &plain.password), (&None, &None));
        let full = parsed("redis://me:p%40s%2Fs@example.org:7000/3");
        assert_eq!((full.host.as_str(), full.port, full.database), ("example.org", 7000, 3));
        assert_eq!((full.user.as_deref(), full.password.as_deref()), (Some("me"), Some("p@s/s")));
        for url in ["redis://:secret@h", "redis://secret@h/"] {
            let address = parsed(url);
            assert_eq!((address.user, address.password.as_deref()), (None, Some("secret")), "{url}");
        }
        let six = parsed("redis://[::1]:6380");
        assert_eq!((six.host.as_str(), six.port), ("::1", 6380));
        assert_eq!(parsed("redis://[::1]").port, 6379);
    }

    #[test]
    fn every_address_of_a_name_is_tried() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        // Addresses of this machine where no server listens; the first one is what `localhost` means first on many machines.
        let closed: Vec<SocketAddr> =
            ["::1", "127.0.0.3"].map(|ip| SocketAddr::new(ip.parse().unwrap(), open.port())).to_vec();
        let time = Duration::from_secs(5);
        let all = [&closed[..], &[open]].concat();
        assert_eq!(connect_to_any(&all, time).unwrap().peer_addr().unwrap(), open);
        let why = connect_to_any(&closed, time).unwrap_err();
        assert!(closed.iter().all(|address| why.contains(&address.to_string())), "{why}");
    }

    #[test]
    fn certificates_are_named_behind_it() {
        assert_eq!(parsed("redis://h").tls, None);
        for url in ["rediss://h", "redis://h?tls=true", "rediss://h:6379/?tls=true"] {
            assert_eq!((parsed(url).tls, parsed(url).port), (Some(Trust::default()), 6379), "{url}");
        }
        let full = parsed("rediss://me:secret@h:1/2?ca=/a%20b.pem&cert=c.pem&key=k.pem");
        let identity = Some(("c.pem".into(), "k.pem".into()));
        assert_eq!(full.tls, Some(Trust { ca: Some("/a b.pem".into()), identity }));
        assert_eq!((full.database, full.to_string().as_str()), (2, "rediss://h:1"));
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(parsed("redis://me:secret@h:1/2").to_string(), "redis://h:1");
        assert_eq!(parsed("redis://[::1]:1").to_string(), "redis://[::1]:1");
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (url, word) in [
            ("127.0.0.1:6380", "redis://"),
            ("rediss://h?ca=", "ca"),
            ("rediss://h?insecure=true", "insecure"),
            ("rediss://h?cert=a", "key"),
            ("redis://h?ca=a", "rediss"),
            ("redis+unix:///tmp/s", "redis+unix"),
            ("redis://", "host"),
            ("redis://:6380", "host"),
            ("redis://h:port", "port"),
            ("redis://h:70000", "port"),
            ("redis://h/x", "database"),
            ("redis://:secret/x@h", "%2F"),
            ("redis://:x/secret@h", "%2F"),
            ("redis://:x?secret@h", "%3F"),
            ("redis://me:secret", "port"),
            ("redis://h?insecure=secret", "insecure"),
            ("redis://a%zz@h", "%25"),
            ("redis://a%é@h", "%25"),
        ] {
            let said = url.parse::<Address>().unwrap_err();
            assert!(said.contains(word) && !said.contains("secret"), "{url}: {said}");
        }
    }
}
