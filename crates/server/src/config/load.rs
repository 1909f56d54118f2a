//! Where settings come from: a file, the environment, flags.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::{Config, Error, ROWS, Source, find};

/// A file of settings is short; a larger one is some other file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is read, the later over the earlier.
#[derive(Debug, Default)]
pub struct Sources {
    /// A TOML file, if one is named. None is looked for.
    pub file: Option<PathBuf>,
    /// Environment variables; others than `UMBEL_...` are passed over.
    pub environment: Vec<(String, String)>,
    /// Flags without their dashes, with their values.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// The process's environment, and these flags. The file may be named by `UMBEL_CONFIG` too.
    pub fn of_process(file: Option<PathBuf>, flags: Vec<(String, String)>) -> Self {
        // What is not Unicode cannot be a setting's name; its value would be refused.
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        };
        let environment: Vec<_> =
            std::env::vars_os().filter_map(text).filter(|(name, _)| name.starts_with("UMBEL_")).collect();
        let named = environment.iter().find(|(name, _)| name == "UMBEL_CONFIG");
        let file = file.or_else(|| named.map(|(_, path)| path.into()));
        Self { file, environment, flags }
    }
}

/// `UMBEL_` variables that are no settings, with what was perhaps meant: for a warning.
pub fn unknown_environment(environment: &[(String, String)]) -> Vec<String> {
    let ours = environment.iter().filter_map(|(name, _)| Some((name, name.strip_prefix("UMBEL_")?)));
    let unknown = ours.filter(|(_, name)| *name != "CONFIG" && find(name).is_none());
    unknown.map(|(variable, name)| format!("{variable} is no setting{}", suggestion(name))).collect()
}

impl Config {
    /// Reads all sources and checks what they come to.
    pub fn load(sources: &Sources) -> Result<Self, Error> {
        let mut config = Self::default();
        if let Some(path) = &sources.file {
            let fail = |error: &dyn std::fmt::Display| Error(format!("{}: {error}", path.display()));
            let size = fs::metadata(path).map_err(|error| fail(&error))?.len();
            if size > FILE_BYTES_MAX {
                return Err(fail(&format!("{size} bytes; a file of settings has up to {FILE_BYTES_MAX}")));
            }
            let text = fs::read_to_string(path).map_err(|error| fail(&error))?;
            config.read_toml(&text, path)?;
        }
        for (index, row) in ROWS.iter().enumerate() {
            let variable = row.variable();
            if let Some((_, value)) = sources.environment.iter().find(|(name, _)| *name == variable) {
                config.set(index, value, Source::Environment(variable))?;
            }
        }
        for (name, value) in &sources.flags {
            let Some((index, _)) = find(name) else {
                return Err(Error(format!("--{name} is no setting{}", suggestion(name))));
            };
            config.set(index, value, Source::Flag(name.clone()))?;
        }
        config.read_first_line("password", "password_file")?;
        config.read_first_line("cluster_secret", "cluster_secret_file")?;
        config.check()?;
        Ok(config)
    }

    /// Takes the settings of a file. Names must be known and stand there once.
    pub fn read_toml(&mut self, text: &str, path: &Path) -> Result<(), Error> {
        let line = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
        let at = |offset: usize, what: String| Error(format!("{}:{}: {what}", path.display(), line(offset)));
        let table = DeTable::parse(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            at(offset, error.message().to_owned())
        })?;
        let source: Arc<Path> = path.into();
        let mut seen: Vec<Option<String>> = vec![None; ROWS.len()];
        for (key, value) in table.get_ref() {
            let (name, offset) = (key.get_ref().as_ref(), key.span().start);
            if matches!(name, "catalogs" | "domains") {
                self.read_domains(name, value, &|offset, what| at(offset, what))?;
                continue;
            }
            let Some((index, row)) = find(name) else {
                return Err(at(offset, format!("{name:?} is no setting{}", suggestion(name))));
            };
            if let Some(before) = seen.get_mut(index).and_then(|place| place.replace(name.to_owned())) {
                return Err(at(offset, format!("{before} and {name} are the same setting")));
            }
            let value = plain(value.get_ref()).ok_or_else(|| {
                at(offset, format!("{} is a table or a date; it must be a plain value", row.name))
            })?;
            self.set(index, &value, Source::File(Arc::clone(&source)))
                .map_err(|Error(text)| at(offset, text))?;
        }
        Ok(())
    }

    /// A secret, if a file is named for it. Two of them are refused: one would be forgotten.
    fn read_first_line(&mut self, secret: &str, file: &str) -> Result<(), Error> {
        let named = match file {
            "password_file" => self.password_file.clone(),
            _ => self.cluster_secret_file.clone(),
        };
        let Some(path) = named else { return Ok(()) };
        if self.is_given(secret) {
            return Err(Error(format!("{secret} and {file} are both set; one is enough")));
        }
        let fail = |error: &dyn std::fmt::Display| Error(format!("{file} {}: {error}", path.display()));
        let text = fs::read_to_string(&path).map_err(|error| fail(&error))?;
        let first = text.lines().next().unwrap_or_default();
        if first.is_empty() {
            return Err(fail(&format!(
                "its first line is empty; it must be the {}",
                secret.rsplit('_').next().unwrap_or(secret)
            )));
        }
        let source = self.source(file).cloned().unwrap_or_default();
        let index = find(secret).map_or(usize::MAX, |(index, _)| index);
        self.set(index, first, source)
    }
}

/// A value as it would be written in a flag; lists with spaces between.
pub(super) fn plain(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(true) => Some("yes".to_owned()),
        DeValue::Boolean(false) => Some("no".to_owned()),
        DeValue::Array(items) => {
            let items: Option<Vec<_>> = items.iter().map(|item| plain(item.get_ref())).collect();
            items.map(|items| items.join(" "))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

/// `; did you mean "port"?`, if a name is near enough.
pub(super) fn suggestion(name: &str) -> String {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let names = ROWS.iter().flat_map(|row| [row.name, row.redis]).filter(|name| !name.is_empty());
    let nearest = names.map(|ours| (distance(&name, &ours.replace('-', "_")), ours)).min();
    match nearest {
        // Two: letters that changed places.
        Some((distance, ours)) if distance <= 2 + ours.len() / 8 && distance < name.len() => {
            format!("; did you mean {ours:?}?")
        }
        _ => "; `umbel config` lists all settings".to_owned(),
    }
}

/// How many letters have to change (Levenshtein). Long names are far from everything.
fn distance(left: &str, right: &str) -> usize {
    if left.len() > 64 {
        return usize::MAX;
    }
    let right: Vec<u8> = right.bytes().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (place, other) in right.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[place + 1];
            row[place + 1] = changed.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[right.len()]
}
