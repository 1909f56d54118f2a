//! Whole files, read and written at once.

use std::io;
use std::path::Path;

use umbel_core::disk::Disk;

/// All of a file that is not longer than this.
pub(crate) fn read_whole(disk: &dyn Disk, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let length = file.length()?;
    if length > most {
        return Err(io::Error::other(format!("{length} bytes; at most {most}")));
    }
    let mut bytes = vec![0; length as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Puts a file in place of one that has the name: whoever looks finds all of the old or all of the new bytes.
pub(crate) fn replace(disk: &dyn Disk, folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    let file = disk.create(&new)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&new, &folder.join(name))?;
    disk.sync_folder(folder)
}
