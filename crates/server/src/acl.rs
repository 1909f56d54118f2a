//! Redis's users: who may run which commands on which keys.
//!
//! Readers never wait: a connection holds its [`User`], and finds out with one atomic load whether any user was changed
//! since. A user that may do everything costs a flag test.

mod file;
mod log;
mod rules;
#[cfg(test)]
mod tests;
mod user;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::digest::{Digest, hex};
pub use log::{Entry, Log, Reason};
pub use rules::Access;
pub use user::{Description, Permissions, User};

/// The user that connections are before they log in.
pub const DEFAULT: &str = "default";
/// More users than this are refused.
pub const USERS_MAX: usize = 10_000;

/// The table of commands, as rules see it. A subcommand is an entry of its own, `config|get`, beside `config`.
pub trait Commands: Send + Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// The name at that place, in lower case.
    fn name(&self, index: usize) -> &str;

    /// The categories of the command at that place, in lower case and without `@`.
    fn categories(&self, index: usize) -> &[&str];

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The categories of Redis, in its order. A table may have more.
pub const CATEGORIES: [&str; 23] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
    "bloom",
    "cuckoo",
];

/// What is wrong with a request, without the error code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// As Redis words it.
    #[error("{0}")]
    Invalid(String),
    /// The caller lacks rights that this user has, or would have.
    #[error("user '{0}' has, or would have, rights that you do not have")]
    Beyond(String),
}

/// Why a command may not be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The command itself.
    Command,
    /// This key.
    Key(Vec<u8>),
}

impl Denied {
    /// The whole error reply, with its code.
    pub fn reply(&self, user: &str, command: &str) -> String {
        match self {
            Self::Command => format!("NOPERM User {user} has no permissions to run the '{command}' command"),
            Self::Key(_) => "NOPERM No permissions to access a key".to_owned(),
        }
    }
}

/// The reply to a wrong name or password. It does not tell which.
pub const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

type Users = BTreeMap<String, Arc<User>>;

/// All users.
pub struct Acl {
    commands: Arc<dyn Commands>,
    users: ArcSwap<Users>,
    version: AtomicU64,
    writing: Mutex<()>,
    log: Mutex<Log>,
}

impl std::fmt::Debug for Acl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acl").field("users", &self.users.load().len()).finish_non_exhaustive()
    }
}

/// Who a connection is.
#[derive(Clone, Debug)]
pub struct Login {
    user: Arc<User>,
    version: u64,
}

impl Login {
    /// The user as it was when last looked at.
    pub fn user(&self) -> &Arc<User> {
        &self.user
    }
}

/// Refuses what differs from the other users and is not within the rights of `by`.
fn check_within(by: &User, users: &Users, others: &Users) -> Result<(), Error> {
    let is_same = |user: &Arc<User>| others.get(user.name()).is_some_and(|other| Arc::ptr_eq(user, other));
    match users.values().find(|user| !is_same(user) && !by.includes(user)) {
        Some(user) => Err(Error::Beyond(user.name().to_owned())),
        None => Ok(()),
    }
}

impl Acl {
    /// The default user alone, with this password or with none.
    pub fn new(commands: Arc<dyn Commands>, password: Option<Digest>) -> Self {
        let user = Arc::new(User::default_user(password, &*commands));
        let users = Users::from([(DEFAULT.to_owned(), user)]);
        Self {
            commands,
            users: ArcSwap::from_pointee(users),
            version: AtomicU64::new(0),
            writing: Mutex::new(()),
            log: Mutex::new(Log::new(128)),
        }
    }

    /// A user by name.
    pub fn user(&self, name: &str) -> Option<Arc<User>> {
        self.users.load().get(name).cloned()
    }

    /// Who a new connection is: the default user, if that needs no password.
    pub fn greet(&self) -> Option<Login> {
        let version = self.version.load(Ordering::Acquire);
        let user = self.user(DEFAULT).filter(|user| user.is_enabled() && user.needs_no_password())?;
        Some(Login { user, version })
    }

    /// Whether other machines may come in although nobody set a password: what protected mode asks.
    pub fn is_open(&self) -> bool {
        self.greet().is_some()
    }

    /// Logs in, or answers with the whole error reply.
    pub fn authenticate(&self, name: &str, password: &[u8]) -> Result<Login, &'static str> {
        let version = self.version.load(Ordering::Acquire);
        let user = self.user(name).filter(|user| user.accepts(password)).ok_or(WRONG_PASSWORD)?;
        Ok(Login { user, version })
    }

    /// The user of a connection as it is now. `None` if it was removed: then the connection is closed.
    #[inline]
    pub fn current<'l>(&self, login: &'l mut Login) -> Option<&'l User> {
        let version = self.version.load(Ordering::Acquire);
        if version != login.version {
            login.user = self.user(login.user.name()).filter(|user| user.is_same(&login.user))?;
            login.version = version;
        }
        Some(&login.user)
    }

    /// Changes users, all or none. `by` may neither give nor take rights that it does not have itself; the server may.
    fn change<T>(
        &self,
        by: Option<&User>,
        change: impl FnOnce(&mut Users) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.users.load();
        let mut users = Users::clone(&before);
        let outcome = change(&mut users)?;
        if let Some(by) = by {
            check_within(by, &before, &users)?;
            check_within(by, &users, &before)?;
        }
        self.users.store(Arc::new(users));
        // After the users: who sees the new version finds them.
        self.version.fetch_add(1, Ordering::Release);
        Ok(outcome)
    }

    /// `ACL SETUSER`: rules in order, all or none. A user that is not there is made.
    pub fn set_user(&self, by: Option<&User>, name: &str, rules: &[&str]) -> Result<(), Error> {
        self.change(by, |users| {
            let user = match users.get(name) {
                Some(user) => Arc::clone(user),
                None if users.len() >= USERS_MAX => {
                    return Err(Error::Invalid(format!("there are {USERS_MAX} users, which is the limit")));
                }
                None => Arc::new(User::new(name, &*self.commands)?),
            };
            let user = user.with(rules, &*self.commands)?;
            users.insert(name.to_owned(), Arc::new(user));
            Ok(())
        })
    }

    /// `ACL DELUSER`: how many there were. The default user stays.
    pub fn delete_users(&self, by: Option<&User>, names: &[&str]) -> Result<usize, Error> {
        if names.contains(&DEFAULT) {
            return Err(Error::Invalid("The 'default' user cannot be removed".to_owned()));
        }
        self.change(by, |users| Ok(names.iter().filter(|name| users.remove(**name).is_some()).count()))
    }

    /// `CONFIG SET requirepass`: the only password of the default user, or none.
    pub fn set_password(&self, password: Option<Digest>) -> Result<(), Error> {
        match password {
            Some(digest) => self.set_user(None, DEFAULT, &["resetpass", &format!("#{}", digest.hex())]),
            None => self.set_user(None, DEFAULT, &["nopass"]),
        }
    }

    /// `ACL LIST` and `ACL USERS`: those whose rights the asking user has, by name; all for the server itself.
    pub fn users_within(&self, by: Option<&User>) -> Vec<Arc<User>> {
        let users = self.users.load();
        users.values().filter(|user| by.is_none_or(|by| by.includes(user))).cloned().collect()
    }

    /// `ACL CAT`: all categories.
    pub fn categories(&self) -> Vec<String> {
        let mut all: Vec<&str> = CATEGORIES.to_vec();
        for category in (0..self.commands.len()).flat_map(|index| self.commands.categories(index)) {
            if !all.contains(category) {
                all.push(category);
            }
        }
        all.into_iter().map(str::to_owned).collect()
    }

    /// `ACL CAT category`: the commands of one.
    pub fn category(&self, name: &str) -> Result<Vec<String>, Error> {
        let small = name.to_ascii_lowercase();
        let has = |index: &usize| self.commands.categories(*index).contains(&small.as_str());
        let commands: Vec<_> = (0..self.commands.len()).filter(has).collect();
        if commands.is_empty() && !CATEGORIES.contains(&small.as_str()) {
            return Err(Error::Invalid(format!("Unknown category '{name}'")));
        }
        Ok(commands.into_iter().map(|index| self.commands.name(index).to_owned()).collect())
    }

    /// `ACL DRYRUN`: `Ok(None)` if the user may, else why not, as a plain reply.
    pub fn dry_run(
        &self,
        name: &str,
        command: u16,
        keys: &[&[u8]],
        access: Access,
    ) -> Result<Option<String>, Error> {
        let user = self.user(name).ok_or_else(|| Error::Invalid(format!("User '{name}' not found")))?;
        let called =
            if usize::from(command) < self.commands.len() { self.commands.name(command.into()) } else { "?" };
        Ok(user.can(command, keys.iter().copied(), access).err().map(|denied| match denied {
            Denied::Command => format!("User {name} has no permissions to run the '{called}' command"),
            Denied::Key(key) => {
                let key = String::from_utf8_lossy(&key);
                format!("User {name} has no permissions to access the '{key}' key")
            }
        }))
    }

    /// The log of refusals.
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `ACL GENPASS`: so many bits of the system's randomness, in hexadecimal.
pub fn generate_password(bits: i64) -> Result<String, Error> {
    if !(1..=4096).contains(&bits) {
        return Err(Error::Invalid(
            "ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096"
                .to_owned(),
        ));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| Error::Invalid("the system has no random bytes".to_owned()))?;
    let mut text = hex(&bytes);
    text.truncate(digits);
    Ok(text)
}
