//! Folders of files, for tests that compare or damage them. Of the standard library alone: other crates' tests take this file in by
//! its path.

use std::fs;
use std::path::{Path, PathBuf};

/// Every file below a folder, in order.
///
/// # Panics
/// A folder cannot be listed.
pub fn below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.expect("a folder can be listed to its end").path();
        if path.is_dir() { found.extend(below(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}
