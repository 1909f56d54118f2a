//! Sources that are read to their end.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use umbel_load::{Batch, Bookmark, Part, Result, Source};

pub(crate) fn texts(batch: &Batch) -> impl Iterator<Item = String> {
    batch.keys().map(|key| String::from_utf8_lossy(key).into_owned())
}

pub(crate) fn sorted(mut keys: Vec<String>) -> Vec<String> {
    keys.sort();
    keys
}

pub(crate) fn said<T>(result: Result<T>) -> String {
    result.err().expect("this is refused").to_string()
}

/// All keys of a source, rows without one, and in how many parts they are. `is_resumed`: each batch by a connection of its own.
pub(crate) fn read(source: &dyn Source, parts: usize, is_resumed: bool) -> Result<(Vec<String>, u64, usize)> {
    let (mut keys, mut nulls) = (Vec::new(), 0);
    let parts = source.parts(parts)?;
    for part in &parts {
        let (found, skipped) = read_part(source, part, is_resumed)?;
        keys.extend(found);
        nulls += skipped;
    }
    Ok((keys, nulls, parts.len()))
}

/// All keys of a part. `is_resumed`: each batch by a connection of its own that begins at the bookmark of the one before.
pub(crate) fn read_part(source: &dyn Source, part: &Part, is_resumed: bool) -> Result<(Vec<String>, u64)> {
    let (mut keys, mut nulls, mut batch) = (Vec::new(), 0, Batch::default());
    let mut cursor = source.open(part, None)?;
    loop {
        batch.clear();
        let Some(bookmark) = cursor.next(&mut batch)? else { return Ok((keys, nulls)) };
        keys.extend(texts(&batch));
        nulls += batch.nulls();
        if is_resumed {
            // As another process reads it from a checkpoint.
            let after = Bookmark::new(bookmark.as_str())?;
            cursor = source.open(part, Some(&after))?;
        }
    }
}
