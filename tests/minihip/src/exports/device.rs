//! Devices, versions, errors.
use crate::api::{Out, hip_api};
use crate::device::devices;
use crate::error::{self, HipError};
use crate::thread_state::{self, current_device};
use std::ffi::c_char;

hip_api! {
    fn hipInit(flags: u32) { if flags != 0 { return Err(HipError::INVALID_VALUE); } if devices().is_empty() { Err(HipError::NO_DEVICE) } else { Ok(()) } }
    fn hipGetDeviceCount(out: Out<i32>) {
        out.set(devices().len() as i32)?;
        if devices().is_empty() { Err(HipError::NO_DEVICE) } else { Ok(()) }
    }
    fn hipGetDevice(out: Out<i32>) { out.set(current_device()?.index as i32) }
    fn hipSetDevice(index: i32) { thread_state::set_current_device(index) }
    fn hipDeviceSynchronize() {
        let device = current_device()?;
        crate::capture::forbid_unsafe_call()?;
        device.synchronize();
        Ok(())
    }
}

/// `hipGetLastError`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetLastError() -> i32 { thread_state::take_last_error() }
/// `hipPeekAtLastError`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipPeekAtLastError() -> i32 { thread_state::peek_last_error() }
/// `hipExtGetLastError`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipExtGetLastError() -> i32 { thread_state::take_command_error() }
/// `hipGetErrorName`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetErrorName(code: i32) -> *const c_char { error::name_of(code).unwrap_or(c"hipErrorUnknown").as_ptr() }
/// `hipGetErrorString`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetErrorString(code: i32) -> *const c_char { error::text_of(code).unwrap_or(c"unknown error").as_ptr() }
