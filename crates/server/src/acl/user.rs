//! A user: rules in the order in which `ACL SETUSER` takes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::rules::{Access, Rules, SYNTAX};
use super::{Commands, Denied, Error};
use crate::digest::Digest;

/// A user of the server. A changed user is another value: connections hold the one that they logged in as, and ask
/// [`super::Acl::user`] again when the list's version has changed.
#[derive(Clone, Debug)]
pub struct User {
    name: Arc<str>,
    /// Another one after it was removed and made again, so that old connections do not become the new user.
    id: u64,
    enabled: bool,
    no_password: bool,
    sanitize: bool,
    passwords: Vec<Digest>,
    rules: Rules,
    selectors: Vec<Rules>,
    /// Nothing has to be checked: what most connections pay.
    everything: bool,
}

/// What `ACL GETUSER` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// `on`, `nopass` and so on.
    pub flags: Vec<&'static str>,
    /// Digests, in hexadecimal.
    pub passwords: Vec<String>,
    /// The user's own permissions.
    pub root: Permissions,
    /// Its selectors.
    pub selectors: Vec<Permissions>,
}

/// Permissions as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// `-@all +get`.
    pub commands: String,
    /// `~a* %R~b*`.
    pub keys: String,
    /// `&a*`.
    pub channels: String,
}

impl Permissions {
    fn of(rules: &Rules) -> Self {
        Self {
            commands: rules.describe_commands(),
            keys: rules.describe_keys(),
            channels: rules.describe_channels(),
        }
    }
}

impl User {
    /// A new user: off, without passwords and permissions.
    pub fn new(name: &str, commands: &dyn Commands) -> Result<Self, Error> {
        if name.is_empty() || name.contains([' ', '\0', '\n', '\r']) {
            return Err(Error::Invalid("Usernames can't contain spaces or null characters".to_owned()));
        }
        Ok(Self { name: name.into(), ..blank(commands) })
    }

    /// The default user of a fresh server: on, with everything, with this password or with none.
    pub fn default_user(password: Option<Digest>, commands: &dyn Commands) -> Self {
        let mut rules = Rules::none(commands);
        for rule in ["allkeys", "allchannels", "allcommands"] {
            // These are rules of every table.
            let _known = rules.apply(rule, commands);
        }
        Self {
            name: super::DEFAULT.into(),
            enabled: true,
            no_password: password.is_none(),
            passwords: password.into_iter().collect(),
            rules,
            everything: true,
            ..blank(commands)
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is the same user, perhaps changed, and not another one of that name.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Whether it may log in.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether any password will do.
    pub fn needs_no_password(&self) -> bool {
        self.no_password
    }

    /// Whether it may log in with that password. Every password is compared, so that the time tells nothing.
    pub fn accepts(&self, password: &[u8]) -> bool {
        let digest = Digest::of(password);
        let found = self.passwords.iter().fold(false, |found, known| found | (*known == digest));
        self.enabled && (self.no_password | found)
    }

    /// Whether it may run a command of the table on these keys. The keys are gone through again for each selector.
    #[inline]
    pub fn can<'k, K>(&self, command: u16, keys: K, access: Access) -> Result<(), Denied>
    where
        K: IntoIterator<Item = &'k [u8]>,
        K::IntoIter: Clone,
    {
        if self.everything { Ok(()) } else { self.check(command.into(), &keys.into_iter(), access) }
    }

    fn check<'k>(
        &self,
        command: usize,
        keys: &(impl Iterator<Item = &'k [u8]> + Clone),
        access: Access,
    ) -> Result<(), Denied> {
        // The refusal that came nearest to a permission is told.
        let mut denied = Denied::Command;
        for rules in self.permissions() {
            if !rules.allows_command(command) {
                continue;
            }
            match keys.clone().find(|key| !rules.allows_key(key, access)) {
                None => return Ok(()),
                Some(key) => denied = Denied::Key(key.to_vec()),
            }
        }
        Err(denied)
    }

    /// Its own permissions, and those of its selectors.
    fn permissions(&self) -> impl Iterator<Item = &Rules> {
        std::iter::once(&self.rules).chain(&self.selectors)
    }

    /// Whether it may run a command of the table on every key there is, and on those to come.
    pub fn can_on_all_keys(&self, command: u16, access: Access) -> bool {
        self.everything || self.permissions().any(|rules| rules.allows_all_keys(command.into(), access))
    }

    /// Whether it may do all that another user may. Passwords, and whether either is on, do not matter.
    pub fn includes(&self, other: &Self) -> bool {
        self.everything || other.permissions().all(|theirs| Rules::include(self.permissions(), theirs))
    }

    /// Takes rules in order, all or none. The error is what `ACL SETUSER` says.
    pub fn with(&self, rules: &[&str], commands: &dyn Commands) -> Result<Self, Error> {
        let mut user = self.clone();
        for rule in join_selectors(rules)? {
            user.apply(&rule, commands).map_err(|why| {
                Error::Invalid(format!("Error in ACL SETUSER modifier '{}': {why}", mask(&rule)))
            })?;
        }
        user.everything = user.rules.is_everything();
        Ok(user)
    }

    fn apply(&mut self, rule: &str, commands: &dyn Commands) -> Result<(), &'static str> {
        const HASH: &str = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters";
        const ABSENT: &str = "The password you are trying to remove from the user does not exist";
        match rule.to_ascii_lowercase().as_str() {
            "on" => self.enabled = true,
            "off" => self.enabled = false,
            "nopass" => {
                self.no_password = true;
                self.passwords.clear();
            }
            "resetpass" => {
                self.no_password = false;
                self.passwords.clear();
            }
            "sanitize-payload" => self.sanitize = true,
            "skip-sanitize-payload" => self.sanitize = false,
            "clearselectors" => self.selectors.clear(),
            "reset" => {
                let fresh = Self { name: Arc::clone(&self.name), id: self.id, ..blank(commands) };
                *self = fresh;
            }
            _ => match rule.as_bytes().first() {
                Some(b'>') => self.add(Digest::of(&rule.as_bytes()[1..])),
                Some(b'#') => self.add(Digest::from_hex(&rule[1..]).ok_or(HASH)?),
                Some(b'<') => self.remove(Digest::of(&rule.as_bytes()[1..])).ok_or(ABSENT)?,
                Some(b'!') => self.remove(Digest::from_hex(&rule[1..]).ok_or(HASH)?).ok_or(ABSENT)?,
                Some(b'(') => {
                    let inner = rule[1..].strip_suffix(')').ok_or(SYNTAX)?;
                    let mut selector = Rules::none(commands);
                    for rule in inner.split(' ').filter(|rule| !rule.is_empty()) {
                        selector.apply(rule, commands).ok_or(SYNTAX)??;
                    }
                    self.selectors.push(selector);
                }
                _ => self.rules.apply(rule, commands).ok_or(SYNTAX)??,
            },
        }
        Ok(())
    }

    fn add(&mut self, digest: Digest) {
        self.no_password = false;
        if !self.passwords.contains(&digest) {
            self.passwords.push(digest);
        }
    }

    fn remove(&mut self, digest: Digest) -> Option<()> {
        let place = self.passwords.iter().position(|known| *known == digest)?;
        self.passwords.remove(place);
        Some(())
    }

    fn flags(&self) -> Vec<&'static str> {
        let enabled = if self.enabled { "on" } else { "off" };
        let sanitize = if self.sanitize { "sanitize-payload" } else { "skip-sanitize-payload" };
        let mut flags = vec![enabled];
        flags.extend(self.no_password.then_some("nopass"));
        flags.push(sanitize);
        flags
    }

    /// What `ACL GETUSER` answers.
    pub fn describe(&self) -> Description {
        Description {
            flags: self.flags(),
            passwords: self.passwords.iter().map(Digest::hex).collect(),
            root: Permissions::of(&self.rules),
            selectors: self.selectors.iter().map(Permissions::of).collect(),
        }
    }

    /// The line of `ACL LIST` and of the file: `user alice on #... ~a* resetchannels -@all +get`.
    pub fn line(&self) -> String {
        let mut parts = vec!["user".to_owned(), self.name.to_string()];
        parts.extend(self.flags().into_iter().map(str::to_owned));
        parts.extend(self.passwords.iter().map(|digest| format!("#{}", digest.hex())));
        parts.push(self.rules.describe());
        parts.extend(self.selectors.iter().map(|selector| format!("({})", selector.describe())));
        parts.join(" ")
    }
}

/// Off, without a name, passwords and permissions.
fn blank(commands: &dyn Commands) -> User {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    User {
        name: "".into(),
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        enabled: false,
        no_password: false,
        sanitize: true,
        passwords: Vec::new(),
        rules: Rules::none(commands),
        selectors: Vec::new(),
        everything: false,
    }
}

/// A password that is refused is not repeated in an error, which may be logged.
fn mask(rule: &str) -> &str {
    match rule.as_bytes().first() {
        Some(b'>') => ">(hidden)",
        Some(b'<') => "<(hidden)",
        _ => rule,
    }
}

/// A selector may come as several arguments: `(+get`, `~a*)`.
pub(super) fn join_selectors(rules: &[&str]) -> Result<Vec<String>, Error> {
    let mut joined: Vec<String> = Vec::with_capacity(rules.len());
    let mut open: Option<String> = None;
    for rule in rules {
        match &mut open {
            Some(selector) => {
                selector.push(' ');
                selector.push_str(rule);
            }
            None if rule.starts_with('(') => open = Some((*rule).to_owned()),
            None => joined.push((*rule).to_owned()),
        }
        if let Some(selector) = open.take_if(|selector| selector.ends_with(')')) {
            joined.push(selector);
        }
    }
    match open {
        None => Ok(joined),
        Some(selector) => {
            let first = selector.split(' ').next().unwrap_or_default();
            Err(Error::Invalid(format!("Unmatched parenthesis in acl selector starting at '{first}'.")))
        }
    }
}
