//! Files, behind a seam, so that tests can cut the power and fill the disk.

mod memory;
mod real;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use memory::{Fault, MemoryDisk};
pub use real::RealDisk;

/// A place for files.
///
/// What is written is durable once the file was synced; that a file exists, has its name or is gone, once its folder was.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Makes a folder and those above it.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;
    /// Names of the files in a folder, in no order.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Names of the folders in a folder, in no order. A disk may leave out those without files.
    fn folders(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Makes an empty file; one that is there already is emptied.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file that is there.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives a file a new name, in place of one that has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Keeps other processes from what this one has, for as long as the lock is held. The file is made if it is not there.
    fn lock(&self, path: &Path) -> io::Result<Lock>;
    /// Makes creations, new names and removals in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Bytes that may still be written to the volume of a folder.
    fn free_bytes(&self, folder: &Path) -> io::Result<u64>;
}

/// A lock on a file, which ends when it is dropped, or with the process.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "it is held, not used")] Option<std::fs::File>);

/// An open file, for any number of threads.
pub trait DiskFile: Debug + Send + Sync {
    /// Reads up to the end of the buffer or of the file.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes`, or an unknown part of it and fails.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Bytes in the file.
    fn length(&self) -> io::Result<u64>;
    /// Cuts or lengthens with zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Reserves space, so that writing there needs no more; it reads as zeros.
    fn allocate(&self, length: u64) -> io::Result<()>;
    /// Makes what was written durable. After a failure it is unknown what is: never try again.
    fn sync(&self) -> io::Result<()>;
}
