//! What an address says of encryption: `?tls=true&ca=FILE&cert=FILE&key=FILE`, as the addresses of engines do.

use umbel_client::Trust;
use umbel_core::url::{Url, refuse_open_password};

use crate::{Error, Result};

/// What concerns us, of the parameters of a database's address.
const OURS: [&str; 4] = ["tls", "ca", "cert", "key"];

/// An address without these, for the database's own library, and whom to trust if it is to be encrypted.
///
/// Some libraries look for the password's end in the whole address and others only before its path: one with a / or ? in it is refused
/// whoever would find it, since the address is shown as the latter understand it.
pub(super) fn split(address: &str) -> Result<(String, Option<Trust>)> {
    refuse_open_password(address).map_err(|error| Error::Invalid(error.to_string()))?;
    let Some((place, parameters)) = address.split_once('?') else { return Ok((address.to_owned(), None)) };
    let name = |parameter: &str| parameter.split('=').next().unwrap_or_default().to_owned();
    let (ours, others): (Vec<&str>, Vec<&str>) =
        parameters.split('&').partition(|parameter| OURS.contains(&name(parameter).as_str()));
    let rest = if others.is_empty() { place.to_owned() } else { format!("{place}?{}", others.join("&")) };
    if ours.is_empty() {
        return Ok((rest, None));
    }
    // Their values are read as those of engines are.
    let url = Url::parse(&format!("database://here?{}", ours.join("&")))
        .map_err(|error| Error::Invalid(error.to_string()))?;
    let is_secure = url.tls().map_err(|error| Error::Invalid(error.to_string()))?;
    let file = |name: &str| url.parameter(name).map(std::path::PathBuf::from);
    let identity = match (file("cert"), file("key")) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err(Error::Invalid("a certificate (cert) and its key (key) belong together".into())),
    };
    let trust = Trust { ca: file("ca"), identity };
    if !is_secure && trust != Trust::default() {
        // Somebody believes that it is encrypted.
        return Err(Error::Invalid("certificates for an address without tls=true".into()));
    }
    Ok((rest, is_secure.then_some(trust)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_are_taken_out_and_others_stay() {
        let plain = "postgres://me:secret@h/db";
        assert_eq!(split(plain).unwrap(), (plain.to_owned(), None));
        let theirs = format!("{plain}?connect_timeout=3&application_name=x");
        assert_eq!(split(&theirs).unwrap(), (theirs.clone(), None));
        assert_eq!(split(&format!("{plain}?tls=true")).unwrap(), (plain.to_owned(), Some(Trust::default())));
        let all = format!("{plain}?ca=/a%20b&tls=true&connect_timeout=3&cert=c&key=k");
        let trust = Trust { ca: Some("/a b".into()), identity: Some(("c".into(), "k".into())) };
        assert_eq!(split(&all).unwrap(), (format!("{plain}?connect_timeout=3"), Some(trust)));
        for bad in ["ca=/a", "tls=true&cert=c", "tls=maybe"] {
            let said = split(&format!("{plain}?{bad}")).unwrap_err().to_string();
            assert!(!said.contains("secret"), "{said}");
        }
        for bad in ["me:sec/ret@h/db", "me:sec?ret@h/db", "me:1/secret@h/db", "me:secret/1@h"] {
            let said = split(&format!("postgres://{bad}")).unwrap_err().to_string();
            assert!(said.contains("%2F") && !said.contains("sec"), "{said}");
        }
        assert!(split("postgres:///db?host=/run/postgresql").is_ok());
    }
}
