use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::{Disk, DiskFile, Lock};

/// The system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// Names of what is in a folder and of a wanted kind.
fn names(folder: &Path, wanted: impl Fn(fs::FileType) -> bool) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if wanted(entry.file_type()?) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

impl Disk for RealDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        names(folder, |kind| !kind.is_dir())
    }

    fn folders(&self, folder: &Path) -> io::Result<Vec<String>> {
        names(folder, |kind| kind.is_dir())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Lock(Some(file))),
            Err(TryLockError::WouldBlock) => Err(io::Error::other("another process has it open")),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        // The folder above a relative name has an empty one.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)?.sync_all()
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let volume = rustix::fs::statvfs(folder)?;
        Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
    }
}

impl DiskFile for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < bytes.len() {
            match FileExt::read_at(self, &mut bytes[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        match rustix::fs::fallocate(self, rustix::fs::FallocateFlags::empty(), 0, length) {
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            done => return Ok(done?),
        }
        // Where nothing can be reserved, a write may find the disk full, which is handled too.
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
