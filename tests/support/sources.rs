//! The repository's Rust sources, for tests that compare pages with them.

use std::path::{Path, PathBuf};

use crate::built;

/// Folders of the crates that are installed.
const FOLDERS: [&str; 5] = ["capture/src", "cli/src", "format/src", "perf/src", "replay/src"];

/// The sources of what is installed: paths and text.
///
/// # Panics
/// They cannot be read.
pub fn installed() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        collect(&built::repository().join(folder), &mut found);
    }
    found
}

fn collect(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.map(|entry| entry.expect("the folder can be listed").path()) {
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            found.push((path, text));
        }
    }
}
