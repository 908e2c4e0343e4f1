//! What the manifest says of the runtime and its devices.

use std::ffi::CStr;
use std::sync::OnceLock;

use hrr_format::manifest::{Device, Runtime};

use crate::interception::real;
use crate::runtime::{self, LastError};

/// More than `hipDeviceProp_t` takes in any version.
const PROPERTIES_BYTES: usize = 8192;
/// The device's name stands first in its properties; the architecture's after it.
const NAME_BYTES: usize = 256;
/// Most devices that are described.
const MAX_DEVICES: i32 = 256;

/// The runtime and its devices, asked for once.
#[derive(Debug, Default)]
pub(crate) struct Description {
    found: OnceLock<(Runtime, Vec<Device>)>,
}

impl Description {
    /// Asks the runtime, unless that was done. Called inside a recorded call after which the runtime is surely set up, so
    /// that asking changes nothing for the program.
    pub(crate) fn ask(&self) {
        self.found.get_or_init(|| {
            let _last_error = LastError::keep();
            (describe_runtime(), describe_devices())
        });
    }

    /// What is known.
    pub(crate) fn known(&self) -> (Runtime, Vec<Device>) {
        self.found.get().cloned().unwrap_or_default()
    }
}

fn describe_runtime() -> Runtime {
    let mut version = 0;
    // SAFETY: `version` is writable.
    unsafe { runtime::runtime_get_version(&mut version) };
    Runtime { path: real::library_path().unwrap_or_default(), version }
}

fn describe_devices() -> Vec<Device> {
    let mut count = 0;
    // SAFETY: `count` is writable.
    if unsafe { runtime::get_device_count(&mut count) } != 0 {
        return Vec::new();
    }
    (0..count.min(MAX_DEVICES)).map(describe_device).collect()
}

fn describe_device(ordinal: i32) -> Device {
    let mut name = [0u8; 256];
    let mut pci_bus_id = [0u8; 64];
    let mut properties = vec![0u8; PROPERTIES_BYTES];
    let mut total = 0usize;
    // SAFETY: the ordinal is one of the runtime's devices, and every buffer is as long as is said, or longer than the
    // struct that is written.
    unsafe {
        runtime::device_get_name(name.as_mut_ptr(), name.len() as i32 - 1, ordinal);
        runtime::device_total_mem(&mut total, ordinal);
        runtime::device_get_pci_bus_id(pci_bus_id.as_mut_ptr(), pci_bus_id.len() as i32 - 1, ordinal);
        runtime::get_device_properties(properties.as_mut_ptr().cast(), ordinal);
    }
    Device {
        ordinal,
        name: text(&name),
        arch: arch(&properties),
        total_global_mem_bytes: total as u64,
        pci_bus_id: text(&pci_bus_id),
    }
}

/// `gcnArchName`. HIP 6 and 7 have it at one offset; in other versions it is looked for, as the one text that begins with
/// `gfx`.
fn arch(properties: &[u8]) -> String {
    /// Offset of `gcnArchName` in `hipDeviceProp_tR0600`.
    const OFFSET: usize = 1160;
    if let Some(found) = properties.get(OFFSET..).filter(|found| found.starts_with(b"gfx")) {
        return text(found);
    }
    let after_name = properties.get(NAME_BYTES..).unwrap_or_default();
    let start = after_name.windows(3).position(|window| window == b"gfx");
    start.map(|start| text(&after_name[start..])).unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_architecture_is_found_wherever_it_lies() {
        let mut properties = vec![0; 1472];
        properties[..10].copy_from_slice(b"gfx Tester");
        assert_eq!(arch(&properties), "");
        properties[1160..1160 + 21].copy_from_slice(b"gfx942:sramecc+:xnack");
        assert_eq!(arch(&properties), "gfx942:sramecc+:xnack");
    }
}
