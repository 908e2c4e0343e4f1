//! Virtual memory management.

use super::abi::MemAllocationProp as DriverProp;
use super::cuda_api;
use super::descriptor;
use super::driver::{self as cu, got};
use crate::abi::{MemAccessDesc, MemAllocationProp, MemLocation};
use crate::api::{In, Out};
use crate::error::HipError;
use std::os::fd::AsRawFd;

/// `hipMemHandleTypePosixFileDescriptor`.
const DESCRIPTOR: i32 = 1;

fn to_driver(props: MemAllocationProp) -> DriverProp {
    let props = props.normalized();
    DriverProp {
        kind: props.kind,
        requested_handle_types: props.requested_handle_type,
        location: props.location,
        win32_handle_meta_data: 0,
        compression_type: props.compression_type,
        gpu_direct_rdma_capable: props.gpu_direct_rdma_capable,
        usage: props.usage,
        reserved: [0; 4],
    }
}

cuda_api! {
    fn hipMemGetAllocationGranularity(out: Out<usize>, props: In<MemAllocationProp>, option: i32) {
        out.check()?;
        let props = to_driver(props.get()?);
        out.set(got(|len_bytes| cu::mem_get_allocation_granularity(len_bytes, &props, option))?)
    }
    fn hipMemAddressReserve(out: Out<usize>, len_bytes: usize, alignment: usize, address: usize, flags: u64) {
        out.check()?;
        out.set(got(|reserved| cu::mem_address_reserve(reserved, len_bytes, alignment, address, flags))?)
    }
    fn hipMemAddressFree(address: usize, len_bytes: usize) { cu::mem_address_free(address, len_bytes) }
    fn hipMemCreate(out: Out<usize>, len_bytes: usize, props: In<MemAllocationProp>, flags: u64) {
        out.check()?;
        let props = to_driver(props.get()?);
        out.set(got(|handle| cu::mem_create(handle, len_bytes, &props, flags))?)
    }
    fn hipMemRelease(handle: usize) { cu::mem_release(handle) }
    fn hipMemMap(address: usize, len_bytes: usize, offset_bytes: usize, handle: usize, flags: u64) {
        cu::mem_map(address, len_bytes, offset_bytes, handle, flags)
    }
    fn hipMemUnmap(address: usize, len_bytes: usize) { cu::mem_unmap(address, len_bytes) }
    fn hipMemSetAccess(address: usize, len_bytes: usize, descriptors: In<MemAccessDesc>, count: usize) {
        if count == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let descriptors = descriptors.array(count)?;
        cu::mem_set_access(address, len_bytes, descriptors.as_ptr(), count)
    }
    fn hipMemGetAccess(flags: Out<u64>, location: In<MemLocation>, address: usize) {
        flags.check()?;
        let location = location.get()?;
        flags.set(got(|flags| cu::mem_get_access(flags, &location, address))?)
    }
    fn hipMemGetAllocationPropertiesFromHandle(out: Out<MemAllocationProp>, handle: usize) {
        let props = got(|props| cu::mem_get_allocation_properties(props, handle))?;
        out.set(MemAllocationProp {
            kind: props.kind,
            requested_handle_type: props.requested_handle_types,
            location: props.location,
            win32_handle_meta_data: 0,
            compression_type: props.compression_type,
            gpu_direct_rdma_capable: props.gpu_direct_rdma_capable,
            usage: props.usage,
        })
    }
    fn hipMemRetainAllocationHandle(out: Out<usize>, address: usize) {
        out.check()?;
        out.set(got(|handle| cu::mem_retain_allocation_handle(handle, address))?)
    }
    fn hipMemExportToShareableHandle(out: Out<i32>, handle: usize, handle_type: i32, flags: u64) {
        out.check()?;
        // Only file descriptors fit the result.
        if handle_type != DESCRIPTOR {
            return Err(HipError::NOT_SUPPORTED);
        }
        out.set(descriptor::give_out(got(|descriptor| cu::mem_export(descriptor, handle, handle_type, flags))?))
    }
    fn hipMemImportFromShareableHandle(out: Out<usize>, descriptor: usize, handle_type: i32) {
        out.check()?;
        // What this backend did not give out may still be the driver's, by another of its interfaces.
        let of_driver = if handle_type == DESCRIPTOR { descriptor::of_driver(descriptor as i32) } else { None };
        let given = of_driver.as_ref().map_or(descriptor, |file| file.as_raw_fd() as usize);
        out.set(got(|handle| cu::mem_import(handle, given, handle_type))?)
    }
}
