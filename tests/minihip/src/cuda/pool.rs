//! Stream-ordered allocation and memory pools.

use super::context::device;
use super::cuda_api;
use super::driver::{self as cu, got};
use super::handles::on;
use crate::abi::{LOCATION_DEVICE, MemAccessDesc, MemLocation, MemPoolProps};
use crate::api::{In, Out};
use crate::error::{HipError, HipResult};

/// The device of a location that is one.
fn of_location(location: In<MemLocation>) -> HipResult<i32> {
    let location = location.get()?;
    if location.kind == LOCATION_DEVICE { Ok(device(location.id)?.id) } else { Err(HipError::NOT_SUPPORTED) }
}

cuda_api! {
    fn hipMallocAsync(out: Out<usize>, len_bytes: usize, stream: usize) {
        out.check()?;
        out.set(on(stream, |stream| {
            if len_bytes == 0 { Ok(0) } else { got(|address| cu::mem_alloc_async(address, len_bytes, stream)) }
        })?)
    }
    fn hipMallocFromPoolAsync(out: Out<usize>, len_bytes: usize, pool: usize, stream: usize) {
        out.check()?;
        out.set(on(stream, |stream| got(|address| cu::mem_alloc_from_pool_async(address, len_bytes, pool, stream)))?)
    }
    fn hipFreeAsync(address: usize, stream: usize) {
        if address == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        on(stream, |stream| cu::mem_free_async(address, stream))
    }
    fn hipMemPoolCreate(out: Out<usize>, props: In<MemPoolProps>) {
        out.check()?;
        // HIP reserves words the driver gave a meaning since.
        let props = MemPoolProps { reserved: [0; 56], ..props.get()? };
        out.set(got(|pool| cu::mem_pool_create(pool, &props))?)
    }
    fn hipMemPoolDestroy(pool: usize) { cu::mem_pool_destroy(pool) }
    fn hipMemPoolTrimTo(pool: usize, keep_bytes: usize) { cu::mem_pool_trim_to(pool, keep_bytes) }
    fn hipMemPoolGetAttribute(pool: usize, attribute: i32, value: Out<u8>) {
        value.check()?;
        cu::mem_pool_get_attribute(pool, attribute, value.address())
    }
    fn hipMemPoolSetAttribute(pool: usize, attribute: i32, value: Out<u8>) {
        value.check()?;
        cu::mem_pool_set_attribute(pool, attribute, value.address())
    }
    fn hipMemPoolSetAccess(pool: usize, descriptors: In<MemAccessDesc>, count: usize) {
        if count == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        cu::mem_pool_set_access(pool, descriptors.address(), count)
    }
    fn hipMemPoolGetAccess(flags: Out<u32>, pool: usize, location: In<MemLocation>) {
        flags.check()?;
        let location = location.get()?;
        flags.set(got(|flags| cu::mem_pool_get_access(flags, pool, &location))?)
    }
    fn hipDeviceGetDefaultMemPool(out: Out<usize>, ordinal: i32) {
        out.check()?;
        let device = device(ordinal)?.id;
        out.set(got(|pool| cu::device_get_default_mem_pool(pool, device))?)
    }
    fn hipDeviceGetMemPool(out: Out<usize>, ordinal: i32) {
        out.check()?;
        let device = device(ordinal)?.id;
        out.set(got(|pool| cu::device_get_mem_pool(pool, device))?)
    }
    fn hipDeviceSetMemPool(ordinal: i32, pool: usize) { cu::device_set_mem_pool(device(ordinal)?.id, pool) }
    fn hipMemGetMemPool(out: Out<usize>, location: In<MemLocation>, _kind: i32) {
        out.check()?;
        let device = of_location(location)?;
        out.set(got(|pool| cu::device_get_mem_pool(pool, device))?)
    }
    fn hipMemSetMemPool(location: In<MemLocation>, _kind: i32, pool: usize) { cu::device_set_mem_pool(of_location(location)?, pool) }
    fn hipMemGetDefaultMemPool(out: Out<usize>, location: In<MemLocation>, _kind: i32) {
        out.check()?;
        let device = of_location(location)?;
        out.set(got(|pool| cu::device_get_default_mem_pool(pool, device))?)
    }
}
