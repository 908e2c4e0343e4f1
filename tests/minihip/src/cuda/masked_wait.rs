//! Waits for a masked value in memory, which the driver has not: a kernel of one thread looks until the value is there.
//!
//! Some need no kernel. A wait for a bit of the value has its mask in the value, and of what is masked out no bit is set in
//! either word, so that a wait for a bit that both lack is over at once.

use super::context::current_index;
use super::driver::{self as cu, got};
use super::handles::on;
use super::module::relaxed;
use crate::abi::Dim3;
use crate::error::{HipError, HipResult};
use crate::registry::lock;
use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Mutex;

/// `hipStreamWaitValue*`'s conditions, the numbers of the driver's.
const EQUAL: u32 = 1;
const AND: u32 = 2;
const NOR: u32 = 3;

/// Size of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Bits32,
    Bits64,
}

impl Width {
    fn every_bit(self) -> u64 {
        match self {
            Width::Bits32 => u32::MAX.into(),
            Width::Bits64 => u64::MAX,
        }
    }

    fn len_bytes(self) -> usize {
        match self {
            Width::Bits32 => 4,
            Width::Bits64 => 8,
        }
    }
}

/// `minihip_wait_32` or `minihip_wait_64` (address, value, mask, condition): until the masked word is the value, or not below it by
/// its signed difference, as the driver compares.
macro_rules! wait_kernel {
    ($bits:literal) => {
        concat!(
            "\n.visible .entry minihip_wait_",
            $bits,
            "(.param .u64 param_address, .param .u64 param_value, .param .u64 param_mask, .param .u32 param_condition)
{
  .reg .pred %is_equal, %is_there;
  .reg .b32 %condition;
  .reg .b64 %generic, %address;
  .reg .b",
            $bits,
            " %value, %mask, %word, %difference;
  ld.param.u64 %generic, [param_address];
  cvta.to.global.u64 %address, %generic;
  ld.param.u",
            $bits,
            " %value, [param_value];
  ld.param.u",
            $bits,
            " %mask, [param_mask];
  ld.param.u32 %condition, [param_condition];
  setp.eq.u32 %is_equal, %condition, 1;
LOOK:
  ld.acquire.sys.global.u",
            $bits,
            " %word, [%address];
  and.b",
            $bits,
            " %word, %word, %mask;
  sub.s",
            $bits,
            " %difference, %word, %value;
  setp.eq.s",
            $bits,
            " %is_there, %difference, 0;
  @%is_there bra THERE;
  setp.gt.s",
            $bits,
            " %is_there, %difference, 0;
  @%is_equal bra AGAIN;
  @%is_there bra THERE;
AGAIN:
  nanosleep.u32 200;
  bra LOOK;
THERE:
  ret;
}
"
        )
    };
}

/// The kernels of both widths.
const CODE: &CStr = {
    let code =
        concat!("\n.version 6.3\n.target sm_70\n.address_size 64\n", wait_kernel!("32"), wait_kernel!("64"), "\0");
    match CStr::from_bytes_with_nul(code.as_bytes()) {
        Ok(code) => code,
        Err(_) => panic!("the text holds no NUL besides its last byte"),
    }
};

/// The functions of both widths, by device; an error where the driver took no such code.
static FUNCTIONS: Mutex<Option<HashMap<usize, HipResult<[usize; 2]>>>> = Mutex::new(None);

/// Loads the kernels on the current device.
fn make() -> HipResult<[usize; 2]> {
    relaxed(|| {
        let module =
            got(|module| cu::module_load_data(module, CODE.as_ptr().cast(), 0, std::ptr::null(), std::ptr::null()))?;
        let function = |name: &CStr| got(|function| cu::module_get_function(function, module, name.as_ptr()));
        Ok([function(c"minihip_wait_32")?, function(c"minihip_wait_64")?])
    })
}

fn functions(device: usize) -> HipResult<[usize; 2]> {
    *lock(&FUNCTIONS).get_or_insert_default().entry(device).or_insert_with(make)
}

/// Loads the kernels on `device`, which is current: later, loading them might wait for what waits.
pub(super) fn load(device: usize) {
    // What the driver did not take is an error of the wait that needs it.
    let _ = functions(device);
}

/// Forgets the kernels of a device that is reset.
pub(super) fn forget_device(device: usize) {
    if let Some(known) = lock(&FUNCTIONS).as_mut() {
        known.remove(&device);
    }
}

/// What a wait becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The driver's own wait, for this value.
    Driver(u64),
    /// It is over at once.
    Nothing,
    /// A kernel, for this value.
    Kernel(u64),
}

fn way(width: Width, value: u64, mask: u64, condition: u32) -> HipResult<Way> {
    let (value, mask) = (value & width.every_bit(), mask & width.every_bit());
    match condition {
        _ if condition > NOR => Err(HipError::INVALID_VALUE),
        _ if mask == width.every_bit() => Ok(Way::Driver(value)),
        AND => Ok(Way::Driver(value & mask)),
        NOR => Ok(Way::Nothing),
        _ => Ok(Way::Kernel(value & mask)),
    }
}

/// `hipStreamWaitValue32` and `...64`.
pub(super) fn wait(handle: usize, address: usize, width: Width, value: u64, mask: u64, condition: u32) -> HipResult {
    let way = way(width, value, mask, condition)?;
    on(handle, |stream| match (way, width) {
        (Way::Nothing, _) => Ok(()),
        (Way::Driver(value), Width::Bits32) => cu::stream_wait_value32(stream, address, value as u32, condition),
        (Way::Driver(value), Width::Bits64) => cu::stream_wait_value64(stream, address, value, condition),
        (Way::Kernel(value), _) => {
            if address == 0 || !address.is_multiple_of(width.len_bytes()) {
                return Err(HipError::INVALID_VALUE);
            }
            let function = functions(current_index())?[usize::from(width == Width::Bits64)];
            let (mask, is_equal) = (mask & width.every_bit(), u32::from(condition == EQUAL));
            let params: [*const std::ffi::c_void; 4] = [
                (&raw const address).cast(),
                (&raw const value).cast(),
                (&raw const mask).cast(),
                (&raw const is_equal).cast(),
            ];
            let one = Dim3 { x: 1, y: 1, z: 1 };
            cu::launch(function, one, one, 0, stream, params.as_ptr() as usize, 0)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comparisons_of_a_part_of_the_word_need_a_kernel() {
        let (narrow, wide) = (Width::Bits32, Width::Bits64);
        for condition in 0..4 {
            assert_eq!(way(narrow, 7, u32::MAX.into(), condition), Ok(Way::Driver(7)));
            assert_eq!(way(narrow, 7, u64::MAX, condition), Ok(Way::Driver(7)), "bits beyond the word");
            assert_eq!(way(wide, 7, u64::MAX, condition), Ok(Way::Driver(7)));
        }
        assert_eq!(way(wide, 0x1234, u32::MAX.into(), 0), Ok(Way::Kernel(0x1234)), "half of the word");
        assert_eq!(way(narrow, 0x1234, 0xFF, EQUAL), Ok(Way::Kernel(0x34)));
        assert_eq!(way(narrow, 0x1234, 0xFF, AND), Ok(Way::Driver(0x34)));
        assert_eq!(way(narrow, 0x1234, 0xFF, NOR), Ok(Way::Nothing));
        assert_eq!(way(narrow, 0, u32::MAX.into(), 4), Err(HipError::INVALID_VALUE));
    }
}
