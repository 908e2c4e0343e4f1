//! Virtual memory management.

use crate::abi::{MemAccessDesc, MemAllocationProp, MemLocation};
use crate::api::{In, Out, hip_api};
use crate::error::HipError;
use crate::thread_state::current_device;
use crate::vmm;

hip_api! {
    fn hipMemGetAllocationGranularity(out: Out<usize>, props: In<MemAllocationProp>, option: i32) {
        vmm::device_of(&props.get()?.normalized())?;
        match option {
            0 => out.set(vmm::MIN_GRANULARITY),
            1 => out.set(vmm::RECOMMENDED_GRANULARITY),
            _ => Err(HipError::INVALID_VALUE),
        }
    }
    fn hipMemAddressReserve(out: Out<usize>, len_bytes: usize, alignment: usize, address: usize, flags: u64) {
        out.check()?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        current_device()?;
        out.set(vmm::reserve(len_bytes, alignment, address)?)
    }
    fn hipMemAddressFree(address: usize, len_bytes: usize) { vmm::free(address, len_bytes) }
    fn hipMemCreate(out: Out<usize>, len_bytes: usize, props: In<MemAllocationProp>, flags: u64) {
        out.check()?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        out.set(vmm::create(len_bytes, &props.get()?.normalized())?)
    }
    fn hipMemRelease(handle: usize) { vmm::release(handle) }
    fn hipMemMap(address: usize, len_bytes: usize, offset_bytes: usize, handle: usize, flags: u64) {
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        vmm::map(address, len_bytes, offset_bytes, handle)
    }
    fn hipMemUnmap(address: usize, len_bytes: usize) { vmm::unmap_range(address, len_bytes) }
    fn hipMemSetAccess(address: usize, len_bytes: usize, descriptors: In<MemAccessDesc>, count: usize) {
        if count == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        vmm::set_access(address, len_bytes, &descriptors.array(count)?)
    }
    fn hipMemGetAccess(flags: Out<u64>, location: In<MemLocation>, address: usize) {
        flags.check()?;
        flags.set(vmm::access(&location.get()?, address)?)
    }
    fn hipMemGetAllocationPropertiesFromHandle(out: Out<MemAllocationProp>, handle: usize) { out.set(vmm::properties(handle)?) }
    fn hipMemRetainAllocationHandle(out: Out<usize>, address: usize) {
        out.check()?;
        out.set(vmm::retain(address)?)
    }
    fn hipMemExportToShareableHandle(out: Out<i32>, handle: usize, handle_type: i32, flags: u64) {
        out.check()?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        out.set(vmm::export(handle, handle_type)?)
    }
    fn hipMemImportFromShareableHandle(out: Out<usize>, descriptor: usize, handle_type: i32) {
        out.check()?;
        let descriptor = i32::try_from(descriptor).map_err(|_| HipError::INVALID_VALUE)?;
        out.set(vmm::import(descriptor, handle_type, current_device()?)?)
    }
}
