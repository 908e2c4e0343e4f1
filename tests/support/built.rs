//! Where `scripts/build` put what is under test: `$HRR_OUT`, else `${CARGO_TARGET_DIR:-target}/hrr` of the repository.

use std::path::{Path, PathBuf};

/// The repository's root.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests' folder lies in the repository").to_owned()
}

/// The folder of built outputs.
pub fn folder() -> PathBuf {
    if let Some(out) = std::env::var_os("HRR_OUT") {
        return PathBuf::from(out);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    repository().join(target).join("hrr")
}

/// A built output, by its path in the folder.
///
/// # Panics
/// It is not there.
pub fn output(relative: &str) -> PathBuf {
    let path = folder().join(relative);
    assert!(path.exists(), "{} is missing: run scripts/build first", path.display());
    path
}

/// The folder with minihip and the capture library.
pub fn libraries() -> PathBuf {
    output("lib/libamdhip64.so.7");
    output("lib")
}

/// The runtime that stands for the machine's, minihip.
pub fn runtime() -> PathBuf {
    output("lib/libamdhip64.so.7")
}

/// The capture library.
pub fn capture_library() -> PathBuf {
    output("lib/libhrr_capture.so")
}

/// The replayer.
pub fn playback() -> PathBuf {
    output("bin/hrr-playback")
}
