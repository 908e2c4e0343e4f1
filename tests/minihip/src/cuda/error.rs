//! From CUDA's error codes to HIP's.
//!
//! HIP took its numbers from CUDA, so most codes are the same in both; [`DIFFERENT`] lists those that are not, and what
//! HIP says in that case. Numbers HIP does not define become `hipErrorUnknown`.

use crate::error::{HipError, name_of};

/// CUDA code, HIP code, why.
const DIFFERENT: &[(i32, HipError, &str)] = &[
    (34, HipError::NO_DEVICE, "a stub library: there is no driver"),
    (46, HipError::NO_DEVICE, "the device is taken by somebody else"),
    (47, HipError::OUT_OF_MEMORY, "MPS resources are used up"),
    (102, HipError::NO_DEVICE, "no licence for the device"),
    (220, HipError::ECC, "an uncorrectable NVLink error: a hardware fault, like ECC"),
    (221, HipError::NO_BINARY_FOR_GPU, "no PTX compiler: the bundle has no code the device can run"),
    (222, HipError::NO_BINARY_FOR_GPU, "PTX newer than the driver: likewise"),
    (223, HipError::NO_BINARY_FOR_GPU, "just-in-time compilation is disabled: likewise"),
    (218, HipError::INVALID_IMAGE, "PTX that does not compile: HIP's code objects fail as invalid images"),
    (703, HipError::LAUNCH_FAILURE, "incompatible texturing: HIP has no code of its own"),
    (714, HipError::LAUNCH_FAILURE, "a hardware stack error: HIP reports a failed launch"),
    (715, HipError::LAUNCH_FAILURE, "an illegal instruction: likewise"),
    (716, HipError::ILLEGAL_ADDRESS, "a misaligned address: HIP has one code for bad addresses"),
    (717, HipError::ILLEGAL_ADDRESS, "an address outside its space: likewise"),
    (718, HipError::ILLEGAL_ADDRESS, "an invalid program counter: likewise"),
    (721, HipError::LAUNCH_OUT_OF_RESOURCES, "a cluster too large"),
    (800, HipError::NOT_SUPPORTED, "not permitted: HIP has no such code"),
    (802, HipError::NOT_INITIALIZED, "the system is not ready yet"),
    (803, HipError::INSUFFICIENT_DRIVER, "driver and kernel module differ"),
    (804, HipError::INSUFFICIENT_DRIVER, "forward compatibility is not offered on this device"),
    (909, HipError::LAUNCH_TIMEOUT, "a stream wait that timed out"),
];

/// The HIP error for a CUDA error.
#[cold]
pub(super) fn from_cuda(code: i32) -> HipError {
    if let Some(row) = DIFFERENT.iter().find(|row| row.0 == code) {
        return row.1;
    }
    if code != 0 && name_of(code).is_some() { HipError(code) } else { HipError::UNKNOWN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_both_define_stay_and_others_do_not() {
        for same in
            [1, 2, 3, 100, 101, 200, 201, 209, 301, 400, 500, 600, 700, 704, 705, 712, 713, 719, 801, 900, 906, 910]
        {
            assert_eq!(from_cuda(same), HipError(same));
        }
        assert_eq!(from_cuda(716), HipError::ILLEGAL_ADDRESS);
        assert_eq!(from_cuda(222), HipError::NO_BINARY_FOR_GPU);
        assert_eq!(from_cuda(911), HipError(911));
        assert_eq!(from_cuda(12345), HipError::UNKNOWN);
    }

    #[test]
    fn every_row_gives_a_code_hip_names_and_no_code_twice() {
        for (i, (cuda, hip, _)) in DIFFERENT.iter().enumerate() {
            assert!(name_of(hip.0).is_some(), "{cuda}");
            assert_ne!(*cuda, hip.0);
            assert!(DIFFERENT[..i].iter().all(|row| row.0 != *cuda), "{cuda} twice");
        }
    }
}
