//! What a user, or one of its selectors, may do: commands as a bit set, keys as patterns.

use super::Commands;
use crate::glob;

/// What a command does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// It reads the key's data.
    pub read: bool,
    /// It changes the key's data.
    pub write: bool,
}

impl Access {
    /// Reads only.
    pub const READ: Self = Self { read: true, write: false };
    /// Writes only.
    pub const WRITE: Self = Self { read: false, write: true };
    /// Both.
    pub const READ_WRITE: Self = Self { read: true, write: true };

    fn covers(self, other: Self) -> bool {
        (self.read || !other.read) && (self.write || !other.write)
    }
}

/// Which keys, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    pattern: Vec<u8>,
    access: Access,
}

/// One set of permissions: the user's own, or a selector's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// A bit for each command of the table.
    bits: Vec<u64>,
    /// Commands that the table does not have yet, too: what `+@all` means.
    base: bool,
    /// What was said after `+@all` or `-@all`, in order: each with its sign.
    said: Vec<String>,
    keys: Vec<KeyPattern>,
    all_keys: bool,
    channels: Vec<Vec<u8>>,
    all_channels: bool,
}

/// Why a rule is refused, as Redis words it.
pub(super) const SYNTAX: &str = "Syntax error";
pub(super) const UNKNOWN: &str = "Unknown command or category name in ACL";
const AFTER_ALL_KEYS: &str = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns";
const AFTER_ALL_CHANNELS: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels";

impl Rules {
    /// Nothing is allowed.
    pub(super) fn none(commands: &dyn Commands) -> Self {
        Self {
            bits: vec![0; commands.len().div_ceil(64)],
            base: false,
            said: Vec::new(),
            keys: Vec::new(),
            all_keys: false,
            channels: Vec::new(),
            all_channels: false,
        }
    }

    /// Nothing is forbidden, and nothing has to be looked up.
    pub(super) fn is_everything(&self) -> bool {
        self.base && self.said.is_empty() && self.all_keys
    }

    pub(super) fn allows_command(&self, command: usize) -> bool {
        match self.bits.get(command / 64) {
            Some(word) => word >> (command % 64) & 1 == 1,
            None => self.base && self.said.is_empty(),
        }
    }

    pub(super) fn allows_key(&self, key: &[u8], access: Access) -> bool {
        // Redis asks for one pattern that covers all that the command does.
        let fits = |rule: &KeyPattern| rule.access.covers(access) && glob::matches(&rule.pattern, key);
        self.all_keys || self.keys.iter().any(fits)
    }

    /// Whether a command of the table is allowed with every key.
    pub(super) fn allows_all_keys(&self, command: usize, access: Access) -> bool {
        self.allows_command(command) && self.covers_key(b"*", access)
    }

    /// Whether all keys of a pattern are allowed.
    fn covers_key(&self, pattern: &[u8], access: Access) -> bool {
        let covers = |rule: &KeyPattern| rule.access.covers(access) && glob::covers(&rule.pattern, pattern);
        self.all_keys || self.keys.iter().any(covers)
    }

    fn covers_keys_of(&self, other: &Self) -> bool {
        let is_covered = |rule: &KeyPattern| self.covers_key(&rule.pattern, rule.access);
        if other.all_keys {
            self.covers_key(b"*", Access::READ_WRITE)
        } else {
            other.keys.iter().all(is_covered)
        }
    }

    /// Whether these permissions, taken together, allow all that `other` allows. Each command needs one of them that has all keys of
    /// `other`, since a command may name several. Channels mean nothing here: no command uses one.
    pub(super) fn include<'r>(ours: impl Iterator<Item = &'r Self>, other: &Self) -> bool {
        let (mut left, mut base) = (other.bits.clone(), other.base);
        for rules in ours.filter(|rules| rules.covers_keys_of(other)) {
            left.iter_mut().zip(&rules.bits).for_each(|(left, allowed)| *left &= !allowed);
            base &= !rules.base;
        }
        !base && left.iter().all(|word| *word == 0)
    }

    /// Takes one rule. `None` if it is no rule of this kind.
    pub(super) fn apply(&mut self, rule: &str, commands: &dyn Commands) -> Option<Result<(), &'static str>> {
        let small = rule.to_ascii_lowercase();
        match small.as_str() {
            "allkeys" | "~*" => {
                self.all_keys = true;
                self.keys.clear();
            }
            "resetkeys" => {
                self.all_keys = false;
                self.keys.clear();
            }
            "allchannels" | "&*" => {
                self.all_channels = true;
                self.channels.clear();
            }
            "resetchannels" => {
                self.all_channels = false;
                self.channels.clear();
            }
            "allcommands" | "+@all" => self.all_commands(true),
            "nocommands" | "-@all" => self.all_commands(false),
            _ => {
                return match rule.as_bytes().first() {
                    Some(b'~' | b'%') => Some(self.key(rule)),
                    Some(b'&') => Some(self.channel(&rule[1..])),
                    Some(b'+') => Some(self.command(&small[1..], true, commands)),
                    Some(b'-') => Some(self.command(&small[1..], false, commands)),
                    _ => None,
                };
            }
        }
        Some(Ok(()))
    }

    fn all_commands(&mut self, allow: bool) {
        self.bits.fill(if allow { u64::MAX } else { 0 });
        self.base = allow;
        self.said.clear();
    }

    fn key(&mut self, rule: &str) -> Result<(), &'static str> {
        let (access, pattern) = match rule.strip_prefix('%') {
            None => (Access::READ_WRITE, &rule[1..]),
            Some(rest) => {
                let (flags, pattern) = rest.split_once('~').ok_or(SYNTAX)?;
                let mut access = Access { read: false, write: false };
                for flag in flags.chars() {
                    match flag.to_ascii_uppercase() {
                        'R' if !access.read => access.read = true,
                        'W' if !access.write => access.write = true,
                        _ => return Err(SYNTAX),
                    }
                }
                if !access.read && !access.write {
                    return Err(SYNTAX);
                }
                (access, pattern)
            }
        };
        if pattern.contains([' ', '\0']) {
            return Err(SYNTAX);
        }
        if self.all_keys {
            return Err(AFTER_ALL_KEYS);
        }
        if pattern == "*" && access == Access::READ_WRITE {
            self.all_keys = true;
            self.keys.clear();
            return Ok(());
        }
        // The same pattern again adds to what it was for.
        match self.keys.iter_mut().find(|rule| rule.pattern == pattern.as_bytes()) {
            Some(rule) => {
                rule.access.read |= access.read;
                rule.access.write |= access.write;
            }
            None => self.keys.push(KeyPattern { pattern: pattern.into(), access }),
        }
        Ok(())
    }

    fn channel(&mut self, pattern: &str) -> Result<(), &'static str> {
        if pattern.contains([' ', '\0']) {
            return Err(SYNTAX);
        }
        if self.all_channels {
            return Err(AFTER_ALL_CHANNELS);
        }
        if !self.channels.iter().any(|channel| channel == pattern.as_bytes()) {
            self.channels.push(pattern.into());
        }
        Ok(())
    }

    fn command(&mut self, name: &str, allow: bool, commands: &dyn Commands) -> Result<(), &'static str> {
        let mut chosen = Vec::new();
        for index in 0..commands.len() {
            let ours = commands.name(index);
            let fits = match name.strip_prefix('@') {
                Some(category) => commands.categories(index).contains(&category),
                // A command goes with its subcommands.
                None => ours.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('|')),
            };
            if fits {
                chosen.push(index);
            }
        }
        let known = match name.strip_prefix('@') {
            Some(category) => super::CATEGORIES.contains(&category) || !chosen.is_empty(),
            None => chosen.iter().any(|index| commands.name(*index) == name),
        };
        if !known {
            return Err(UNKNOWN);
        }
        for index in chosen {
            if let Some(word) = self.bits.get_mut(index / 64) {
                *word = *word & !(1 << (index % 64)) | u64::from(allow) << (index % 64);
            }
        }
        // What was said of the same command, or of its subcommands, holds no longer.
        self.said.retain(|said| {
            said[1..].strip_prefix(name).is_none_or(|rest| !rest.is_empty() && !rest.starts_with('|'))
        });
        self.said.push(format!("{}{name}", if allow { '+' } else { '-' }));
        Ok(())
    }

    /// `-@all +get`.
    pub(super) fn describe_commands(&self) -> String {
        let all = if self.base { "+@all" } else { "-@all" }.to_owned();
        std::iter::once(&all).chain(&self.said).map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// `~a* %R~b*`.
    pub(super) fn describe_keys(&self) -> String {
        if self.all_keys {
            return "~*".to_owned();
        }
        let describe = |rule: &KeyPattern| {
            let flags = match (rule.access.read, rule.access.write) {
                (true, true) => "~",
                (true, false) => "%R~",
                _ => "%W~",
            };
            format!("{flags}{}", String::from_utf8_lossy(&rule.pattern))
        };
        self.keys.iter().map(describe).collect::<Vec<_>>().join(" ")
    }

    /// `&a*`.
    pub(super) fn describe_channels(&self) -> String {
        if self.all_channels {
            return "&*".to_owned();
        }
        let describe = |channel: &Vec<u8>| format!("&{}", String::from_utf8_lossy(channel));
        self.channels.iter().map(describe).collect::<Vec<_>>().join(" ")
    }

    /// All of it, as `ACL LIST` has it.
    pub(super) fn describe(&self) -> String {
        let mut channels = self.describe_channels();
        if !self.all_channels {
            // Without it, the line would mean something else where channels are open by default.
            channels = format!("resetchannels {channels}").trim_end().to_owned();
        }
        let parts = [self.describe_keys(), channels, self.describe_commands()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }
}
