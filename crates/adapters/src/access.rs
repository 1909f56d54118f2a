//! Who we are to an engine and whom we trust there: as the URL says, or as the engine's own tools are told.

use std::path::{Path, PathBuf};

use umbel_core::{Error, Result};

use crate::Url;

/// What the command line tools of an engine read from the environment; nothing where they do not.
#[derive(Clone, Copy, Default)]
pub(crate) struct Convention {
    /// The file with the authorities that are trusted.
    pub(crate) ca: &'static str,
    /// The file with our own certificate.
    pub(crate) cert: &'static str,
    /// The file with the key of it.
    pub(crate) key: &'static str,
    /// The user; of etcd's, the password may stand behind a colon.
    pub(crate) user: &'static str,
    /// The password.
    pub(crate) password: &'static str,
}

/// Files of a connection that is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    /// Authorities to trust instead of those of the system.
    pub(crate) authority: Option<PathBuf>,
    /// Our own certificate and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

/// What is said in an engine's own way.
pub(crate) struct Access {
    /// User and password.
    pub(crate) credentials: Option<(String, String)>,
    /// Whether the connection is encrypted, and how.
    pub(crate) tls: Option<Tls>,
}

impl Access {
    /// Takes from the URL what it says, and the rest from the environment. Files that are named for a connection that is not
    /// encrypted are an error: somebody believes that it is.
    pub(crate) fn of(url: &Url, convention: Convention) -> Result<Self> {
        Self::with(url, convention, |name| std::env::var(name).ok())
    }

    fn with(url: &Url, convention: Convention, environment: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let told = |name: &str| environment(name).filter(|text| !name.is_empty() && !text.is_empty());
        let credentials = match url.credentials() {
            Some((user, password)) => Some((user.to_owned(), password.to_owned())),
            None => match (told(convention.user), told(convention.password)) {
                (None, None) => None,
                (user, Some(password)) => Some((user.unwrap_or_default(), password)),
                (Some(user), None) => match user.split_once(':') {
                    Some((user, password)) => Some((user.to_owned(), password.to_owned())),
                    None => Some((user, String::new())),
                },
            },
        };
        if !url.tls()? {
            return match ["ca", "cert", "key"].iter().find(|name| url.parameter(name).is_some()) {
                Some(name) => Err(Error::Invalid(format!("{url} has {name}, but not tls=true"))),
                None => Ok(Self { credentials, tls: None }),
            };
        }
        let file = |name: &str, variable: &str| {
            url.parameter(name).map(str::to_owned).or_else(|| told(variable)).map(PathBuf::from)
        };
        let identity = match (file("cert", convention.cert), file("key", convention.key)) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                return Err(Error::Invalid(format!(
                    "{url}: a certificate (cert) and its key (key) belong together"
                )));
            }
        };
        Ok(Self { credentials, tls: Some(Tls { authority: file("ca", convention.ca), identity }) })
    }
}

impl Tls {
    /// The authorities as they stand in the file.
    pub(crate) fn authority_pem(&self) -> Result<Option<String>> {
        self.authority.as_deref().map(read).transpose()
    }

    /// Our certificate and its key as they stand in the files.
    pub(crate) fn identity_pem(&self) -> Result<Option<(String, String)>> {
        let Some((cert, key)) = &self.identity else { return Ok(None) };
        Ok(Some((read(cert)?, read(key)?)))
    }
}

fn read(file: &Path) -> Result<String> {
    let read = std::fs::read_to_string(file);
    read.map_err(|error| Error::Invalid(format!("cannot read {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETCD: Convention =
        Convention { ca: "CA", cert: "CERT", key: "KEY", user: "USER", password: "PASSWORD" };

    fn access(url: &str, environment: &[(&str, &str)]) -> Result<Access> {
        let find = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Access::with(&Url::parse(url)?, ETCD, find)
    }

    #[test]
    fn the_url_comes_before_the_environment() {
        let all = [("CA", "/ca"), ("CERT", "/cert"), ("KEY", "/key"), ("USER", "me:mine")];
        let told = access("etcd://h?tls=true", &all).unwrap();
        assert_eq!(told.credentials, Some(("me".into(), "mine".into())));
        let identity = Some(("/cert".into(), "/key".into()));
        assert_eq!(told.tls, Some(Tls { authority: Some("/ca".into()), identity }));
        let said = access("etcd://you:yours@h?tls=true&ca=/other", &all[..1]).unwrap();
        assert_eq!(said.credentials, Some(("you".into(), "yours".into())));
        assert_eq!(said.tls, Some(Tls { authority: Some("/other".into()), identity: None }));
        let alone = access("etcd://h", &[("USER", ""), ("PASSWORD", "secret")]).unwrap();
        assert_eq!((alone.credentials, alone.tls), (Some((String::new(), "secret".into())), None));
    }

    #[test]
    fn halves_are_refused() {
        for url in ["etcd://h?tls=true&cert=/cert", "etcd://h?tls=true&key=/key", "etcd://h?ca=/ca"] {
            assert!(matches!(access(url, &[]), Err(Error::Invalid(_))), "{url}");
        }
        let missing = Tls { authority: Some("/nowhere".into()), identity: None };
        assert!(missing.authority_pem().unwrap_err().to_string().contains("/nowhere"));
    }
}
