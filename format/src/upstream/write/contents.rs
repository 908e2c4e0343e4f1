//! Blobs and code objects under the names that their contents give them, for their owner alone.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::{WriteError, Writer};
use crate::archive::Archive;
use crate::code_object;
use crate::record::BlobRef;
use crate::upstream::hash::ContentHash;

impl Writer<'_> {
    /// Writes a file that must not be there yet, for its owner alone.
    pub(super) fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
        let failed = |reason| WriteError::Write { path: path.to_owned(), reason };
        if let Some(parent) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
        }
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        file.and_then(|mut file| file.write_all(bytes)).map_err(failed)
    }

    /// Stores a blob; none for contents that are not there.
    pub(super) fn blob(&mut self, reference: BlobRef) -> Result<ContentHash, WriteError> {
        if let Some(&hash) = self.blobs.get(&reference.number) {
            return Ok(hash);
        }
        let archive = self.archive;
        let hash = match archive.blobs().get(reference.number)? {
            None => ContentHash::NONE,
            Some(contents) => self.store_blob(&contents)?,
        };
        self.blobs.insert(reference.number, hash);
        Ok(hash)
    }

    pub(super) fn store_blob(&mut self, contents: &[u8]) -> Result<ContentHash, WriteError> {
        let hash = ContentHash::of(contents);
        let name = hash.to_string();
        self.store(hash, &self.path.join("blobs").join(&name[..2]).join(format!("{name}.blob")), contents)
    }

    fn store_code(&mut self, image: &[u8]) -> Result<ContentHash, WriteError> {
        let hash = ContentHash::of(image);
        self.store(hash, &self.path.join("code_objects").join(format!("{hash}.hsaco")), image)
    }

    fn store(&mut self, hash: ContentHash, path: &Path, contents: &[u8]) -> Result<ContentHash, WriteError> {
        if !path.exists() {
            self.put(path, contents)?;
            self.contents += 1;
        }
        Ok(hash)
    }

    /// Stores a code object.
    pub(super) fn code(&mut self, number: u64) -> Result<ContentHash, WriteError> {
        if let Some(&hash) = self.codes.get(&number) {
            return Ok(hash);
        }
        let archive = self.archive;
        let hash = match archive.code_objects().get(number)? {
            None => ContentHash::NONE,
            Some(image) => self.store_code(&image)?,
        };
        self.codes.insert(number, hash);
        Ok(hash)
    }

    /// The code object that a launch of a kernel names: of a fat binary, the device's image in it.
    pub(super) fn kernel_code(&mut self, kernel: u32) -> Result<ContentHash, WriteError> {
        if let Some(&hash) = self.kernels.get(&kernel) {
            return Ok(hash);
        }
        let archive = self.archive;
        let known = archive.kernels().of_launch(kernel.saturating_add(1));
        let hash = match known.and_then(|known| Some((known, known.code_object?))) {
            None => ContentHash::NONE,
            Some((known, number)) if self.fat_binaries.contains(&number) => {
                let image = archive.code_objects().get(number)?;
                let part = image.as_deref().and_then(|image| device_image(archive, image, &known.name));
                match part {
                    Some(part) => self.store_code(&part)?,
                    None => self.code(number)?,
                }
            }
            Some((_, number)) => self.code(number)?,
        };
        self.kernels.insert(kernel, hash);
        Ok(hash)
    }
}

/// The image in a fat binary that has a kernel, for the recorded device where there is a choice.
fn device_image(archive: &Archive, image: &[u8], kernel: &str) -> Option<Vec<u8>> {
    let arch = archive.manifest().devices.first().map_or("", |device| device.arch.as_str());
    let arch = arch.split(':').next().unwrap_or_default();
    let mut found: Option<Vec<u8>> = None;
    // An image that cannot be read is not the one.
    let _ = code_object::visit_targets(image, |target| {
        let names = code_object::signatures(target.image).unwrap_or_default();
        if names.iter().any(|known| known.name == kernel) {
            let preferred = !arch.is_empty() && target.id.contains(arch);
            if found.is_none() || preferred {
                found = Some(target.image.to_vec());
            }
        }
        Ok(())
    });
    found
}
