//! Licences of all that we depend on, against those that `deny.toml` allows.
//!
//! cargo-deny knows more (texts, sources, bans), and takes minutes to build; this takes what packages say of themselves.

use serde_json::Value;

use crate::step::{Failure, command, output, root};

/// Refuses what no licence allows that we allow.
pub(crate) fn check() -> Result<(), Failure> {
    eprintln!("== licences");
    let allowed = allowed(&std::fs::read_to_string(root().join("deny.toml"))?)?;
    let metadata = output(&mut command("cargo metadata --format-version 1 --all-features"))?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let refused: Vec<String> = packages
        .iter()
        .map(|package| (&package["name"], package["license"].as_str().unwrap_or_default()))
        .filter(|(_, licence)| !is_allowed(licence, &allowed))
        .map(|(name, licence)| format!("{name} ({licence})"))
        .collect();
    match refused.is_empty() {
        true => Ok(()),
        false => Err(format!("deny.toml does not allow the licences of {}", refused.join(", ")).into()),
    }
}

/// The list in `deny.toml`.
fn allowed(text: &str) -> Result<Vec<String>, Failure> {
    let list = text.split_once("\nallow = [").and_then(|(_, rest)| rest.split_once(']'));
    let (list, _) = list.ok_or("deny.toml has no list of licences")?;
    Ok(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Whether an expression of licences can be met. `AND` binds closer than `OR`; a slash is an old way to say `OR`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let met = any(&mut words, allowed);
    met == Some(true) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut met = all(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        met |= all(words, allowed)?;
    }
    Some(met)
}

fn all(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut met = one(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allowed)?;
    }
    Some(met)
}

fn one(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let first = words.next()?;
    if first == "(" {
        let met = any(words, allowed)?;
        return (words.next() == Some(")")).then_some(met);
    }
    let mut licence = first.to_owned();
    if words.next_if_eq(&"WITH").is_some() {
        licence = format!("{first} WITH {}", words.next()?);
    }
    Some(allowed.contains(&licence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_or_not() {
        let allowed: Vec<String> =
            allowed("[licenses]\nallow = [\"MIT\", \"ISC\",\n \"Apache-2.0 WITH LLVM-exception\"]\n")
                .unwrap();
        assert_eq!(allowed.len(), 3);
        for met in [
            "MIT",
            "GPL-3.0 OR MIT",
            "GPL-3.0/MIT",
            "MIT AND (ISC OR GPL-3.0)",
            "(GPL-3.0 OR ISC) AND MIT",
            "Apache-2.0 WITH LLVM-exception",
            "GPL-3.0 AND GPL-2.0 OR MIT",
        ] {
            assert!(is_allowed(met, &allowed), "{met}");
        }
        for unmet in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "Apache-2.0",
            "MIT)",
            "(MIT",
            "MIT OR",
            "MIT ISC",
            "MIT AND (GPL-3.0 OR",
        ] {
            assert!(!is_allowed(unmet, &allowed), "{unmet}");
        }
    }
}
