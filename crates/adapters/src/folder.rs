//! Blobs in a folder that is not the server's own, say one on another disk.

use std::path::Path;
use std::sync::Arc;

use object_store::ObjectStore;
use umbel_core::blobs::FolderStore;
use umbel_core::disk::{Disk, RealDisk};
use umbel_core::{Error, Result};

use crate::{About, Durability, Opened, Url};

/// Opens `file:///folder`.
///
/// ```text
/// <folder>/lock       held by the process that has it
/// <folder>/objects    the objects
/// ```
pub(crate) fn open_blobs(url: &Url) -> Result<Opened<dyn ObjectStore>> {
    url.allow(&[])?;
    let folder = url.folder()?;
    let failed =
        |error: std::io::Error| Error::Invalid(format!("cannot open {url}: {}: {error}", folder.display()));
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    disk.create_folder(&folder).map_err(failed)?;
    if let Some(above) = folder.parent().filter(|above| *above != Path::new("")) {
        disk.sync_folder(above).map_err(failed)?;
    }
    let lock = disk.lock(&folder.join("lock")).map_err(failed)?;
    // Nobody else has it, so nobody else is about to finish what is unfinished.
    let store = FolderStore::new(disk, folder.join("objects")).keeping(lock);
    store.remove_leftovers()?;
    let about = About {
        engine: "folder",
        version: String::new(),
        durability: Durability::Synced,
        lacks: "its disk is all there is".into(),
    };
    Ok(Opened { plane: Arc::new(store), about })
}
