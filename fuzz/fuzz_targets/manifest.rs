//! Manifests of processes.
#![no_main]

use std::path::Path;

use hrr_format::manifest::ProcessManifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match ProcessManifest::parse(Path::new("manifest.json"), data) {
        Ok(manifest) => {
            let _ = (manifest.clock.ticks_to_ns(u64::MAX), manifest.clock.ns_since_start(7));
        }
        Err(error) => assert!(error.to_string().contains("manifest.json")),
    }
});
