//! Users in a file: a `user ...` line for each, read all or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::{Acl, DEFAULT, Error, USERS_MAX, User, Users};

/// A file of users is short; a larger one is some other file.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// More errors than this are not told at once.
const ERRORS_MAX: usize = 10;

impl Acl {
    /// `ACL LOAD`: the users of the file instead of those that are there. If anything is wrong with it, nothing changes.
    pub fn load(&self, by: Option<&User>, path: &Path) -> Result<(), Error> {
        let fail = |error: &dyn std::fmt::Display| Error::Invalid(format!("{}: {error}", path.display()));
        let size = fs::metadata(path).map_err(|error| fail(&error))?.len();
        if size > FILE_BYTES_MAX {
            return Err(fail(&format!("{size} bytes; a file of users has up to {FILE_BYTES_MAX}")));
        }
        let text = fs::read_to_string(path).map_err(|error| fail(&error))?;
        self.load_text(by, &text, &path.display().to_string())
    }

    /// The same, from a text; `place` is named in errors. A text without the default user leaves it as it is.
    pub fn load_text(&self, by: Option<&User>, text: &str, place: &str) -> Result<(), Error> {
        let mut loaded = Users::new();
        let mut errors = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match self.read_line(line, &loaded) {
                Ok(user) => {
                    loaded.insert(user.name().to_owned(), Arc::new(user));
                }
                Err(why) => errors.push(format!("{place}:{}: {why}", index + 1)),
            }
            if errors.len() >= ERRORS_MAX {
                break;
            }
        }
        if !errors.is_empty() {
            return Err(Error::Invalid(format!("{}. No user was changed.", errors.join(". "))));
        }
        self.change(by, |users| {
            // Who is the same as before stays logged in; others have to log in again, as with Redis.
            for (name, user) in &mut loaded {
                if let Some(before) = users.get(name).filter(|before| before.line() == user.line()) {
                    *user = Arc::clone(before);
                }
            }
            if let Some(default) = users.remove(DEFAULT) {
                loaded.entry(DEFAULT.to_owned()).or_insert(default);
            }
            *users = loaded;
            Ok(())
        })
    }

    fn read_line(&self, line: &str, before: &Users) -> Result<User, Error> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [word, name, rules @ ..] = &words[..] else {
            return Err(Error::Invalid("a line must be: user NAME RULES".to_owned()));
        };
        if *word != "user" {
            return Err(Error::Invalid("a line must begin with the word user".to_owned()));
        }
        if before.contains_key(*name) {
            return Err(Error::Invalid(format!("user '{name}' is there twice")));
        }
        if before.len() >= USERS_MAX {
            return Err(Error::Invalid(format!("more than {USERS_MAX} users, which is the limit")));
        }
        User::new(name, &*self.commands)?.with(rules, &*self.commands).map_err(|error| {
            // It is no SETUSER that failed here.
            Error::Invalid(error.to_string().replacen(
                "Error in ACL SETUSER modifier",
                "Error in modifier",
                1,
            ))
        })
    }

    /// `ACL SAVE`: the file is replaced as a whole, so that a crash leaves the old one or the new one.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let mut name = path.as_os_str().to_owned();
        name.push(".tmp");
        let beside = Path::new(&name);
        let text: String = self.users_within(None).iter().map(|user| user.line() + "\n").collect();
        let written = (|| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let mut file = options.open(beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(beside, path)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        })();
        written.map_err(|error| Error::Invalid(format!("{}: {error}", path.display())))
    }
}
