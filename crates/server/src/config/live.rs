//! Settings while the server runs: read without a lock, changed by `CONFIG SET`.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};

use super::{Config, Error, ROWS, Row, Source, find};
use crate::glob;

/// The settings in force. Readers never wait.
#[derive(Debug)]
pub struct Live {
    current: ArcSwap<Config>,
    writing: Mutex<()>,
}

/// What Redis has settings for and Umbel does not: clients ask for them.
const CONSTANTS: [(&str, &str); 6] = [
    ("appendonly", "yes"),
    ("save", ""),
    ("databases", "1"),
    ("maxmemory-policy", "noeviction"),
    ("cluster-enabled", "no"),
    ("latency-tracking", "yes"),
];

impl Live {
    /// Starts with these settings.
    pub fn new(config: Config) -> Self {
        Self { current: ArcSwap::from_pointee(config), writing: Mutex::new(()) }
    }

    /// The settings now, for a short look.
    pub fn load(&self) -> Guard<Arc<Config>> {
        self.current.load()
    }

    /// The settings now, to keep.
    pub fn load_full(&self) -> Arc<Config> {
        self.current.load_full()
    }

    /// `CONFIG GET`: names and values, in the order of the table. Patterns match Redis's names and our own.
    pub fn get(&self, patterns: &[&[u8]]) -> Vec<(String, String)> {
        let config = self.load();
        let matches =
            |name: &str| patterns.iter().any(|pattern| glob::matches_any_case(pattern, name.as_bytes()));
        let mut found = Vec::new();
        for row in ROWS {
            // Our own name is answered with if it was asked for, so that a client finds what it looked for.
            let names = [row.redis_name(), row.name.to_owned()];
            if let Some(name) = names.into_iter().find(|name| matches(name)) {
                found.push((name, (row.print_redis)(&config)));
            }
        }
        let constants = CONSTANTS.iter().filter(|(name, _)| matches(name));
        found.extend(constants.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        found
    }

    /// `CONFIG SET`: all of the pairs or none. Answers with the rows that were named, so that the caller can act on
    /// them; errors are as Redis words them, after `ERR `.
    pub fn set(&self, pairs: &[(&str, &str)]) -> Result<Vec<&'static Row>, Error> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut config = Config::clone(&self.load());
        let mut rows: Vec<&'static Row> = Vec::with_capacity(pairs.len());
        for (name, value) in pairs {
            let fail = |why: &str| {
                Err(Error(format!("CONFIG SET failed (possibly related to argument '{name}') - {why}")))
            };
            let Some((index, row)) = find(name) else {
                match CONSTANTS.iter().find(|(constant, _)| constant.eq_ignore_ascii_case(name)) {
                    Some((_, only)) if only.eq_ignore_ascii_case(value) => continue,
                    Some(_) => return fail("can't set immutable config"),
                    None => {
                        let unknown = "Unknown option or number of arguments for CONFIG SET";
                        return Err(Error(format!("{unknown} - '{name}'")));
                    }
                }
            };
            if !row.live {
                return fail("can't set immutable config");
            }
            if rows.iter().any(|before| before.name == row.name) {
                return fail("duplicate parameter");
            }
            if let Err(Error(why)) = config.set(index, value, Source::Command) {
                return fail(&why);
            }
            rows.push(row);
        }
        if let Err(Error(why)) = config.check() {
            return Err(Error(format!("CONFIG SET failed - {why}")));
        }
        self.current.store(Arc::new(config));
        Ok(rows)
    }
}
