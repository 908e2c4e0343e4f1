//! Stream-ordered allocation and memory pools.

use crate::abi::{MemAccessDesc, MemLocation, MemPoolProps};
use crate::api::{In, Out, hip_api};
use crate::device::{device, device_by_ordinal};
use crate::error::{HipError, HipResult};
use crate::exports::ipc::{self, IpcHandle};
use crate::pool;
use crate::stream::{self, DefaultStream};

/// `hipMemHandleTypePosixFileDescriptor`.
const POSIX_FD: i32 = 1;

fn allocate(out: Out<usize>, len_bytes: usize, pool: Option<usize>, stream: usize) -> HipResult {
    out.check()?;
    let stream = stream::resolve(stream, DefaultStream::Legacy)?;
    let pool = match pool {
        Some(pool) => pool,
        None => pool::current_of(device(stream.device)?)?,
    };
    out.set(pool::allocate(&stream, pool, len_bytes)?)
}

/// The pool of a location: devices only.
fn of_location(location: In<MemLocation>) -> HipResult<&'static crate::device::Device> {
    let location = location.get()?;
    if location.kind == crate::abi::LOCATION_DEVICE {
        device_by_ordinal(location.id)
    } else {
        Err(HipError::NOT_SUPPORTED)
    }
}

hip_api! {
    fn hipMallocAsync(out: Out<usize>, len_bytes: usize, stream: usize) { allocate(out, len_bytes, None, stream) }
    fn hipMallocFromPoolAsync(out: Out<usize>, len_bytes: usize, pool: usize, stream: usize) { allocate(out, len_bytes, Some(pool), stream) }
    fn hipFreeAsync(address: usize, stream: usize) {
        let stream = stream::resolve(stream, DefaultStream::Legacy)?;
        if address == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        pool::free(&stream, address)
    }
    fn hipMemPoolCreate(out: Out<usize>, props: In<MemPoolProps>) {
        out.check()?;
        out.set(pool::create(&props.get()?)?)
    }
    fn hipMemPoolExportToShareableHandle(out: Out<i32>, pool: usize, handle_type: i32, flags: u32) {
        out.check()?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        if handle_type != POSIX_FD {
            return Err(HipError::NOT_SUPPORTED);
        }
        out.set(pool::export(pool)?)
    }
    fn hipMemPoolImportFromShareableHandle(out: Out<usize>, descriptor: usize, handle_type: i32, flags: u32) {
        out.check()?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        if handle_type != POSIX_FD {
            return Err(HipError::NOT_SUPPORTED);
        }
        let descriptor = i32::try_from(descriptor).map_err(|_| HipError::INVALID_VALUE)?;
        out.set(pool::import(descriptor)?)
    }
    fn hipMemPoolExportPointer(out: Out<IpcHandle>, address: usize) {
        out.check()?;
        let (base, id) = pool::exported(address)?;
        out.set(ipc::handle(ipc::POOL_MEMORY, base, id))
    }
    fn hipMemPoolImportPointer(out: Out<usize>, pool: usize, data: In<IpcHandle>) {
        out.check()?;
        let data = data.get()?;
        out.set(pool::resolve(pool)?.import_pointer(ipc::check(&data, ipc::POOL_MEMORY)?, data.id)?)
    }
    fn hipMemPoolDestroy(pool: usize) { pool::destroy(pool) }
    fn hipMemPoolTrimTo(pool: usize, keep_bytes: usize) {
        pool::resolve(pool)?.trim_to(keep_bytes);
        Ok(())
    }
    fn hipMemPoolGetAttribute(pool: usize, attribute: i32, value: Out<u8>) {
        value.check()?;
        let read = pool::resolve(pool)?.attribute(attribute)?;
        if attribute <= 3 { value.cast::<i32>().set(read as i32) } else { value.cast::<u64>().set(read) }
    }
    fn hipMemPoolSetAttribute(pool: usize, attribute: i32, value: Out<u8>) {
        let pool = pool::resolve(pool)?;
        let wanted = if attribute <= 3 { value.cast::<i32>().read()? as u64 } else { value.cast::<u64>().read()? };
        pool.set_attribute(attribute, wanted)
    }
    fn hipMemPoolSetAccess(pool: usize, descriptors: In<MemAccessDesc>, count: usize) {
        if count == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        pool::resolve(pool)?.set_access(&descriptors.array(count)?)
    }
    fn hipMemPoolGetAccess(flags: Out<u32>, pool: usize, location: In<MemLocation>) {
        flags.check()?;
        flags.set(pool::resolve(pool)?.access(&location.get()?)?)
    }
    fn hipDeviceGetDefaultMemPool(out: Out<usize>, ordinal: i32) {
        out.check()?;
        out.set(pool::default_of(device_by_ordinal(ordinal)?)?)
    }
    fn hipDeviceGetMemPool(out: Out<usize>, ordinal: i32) {
        out.check()?;
        out.set(pool::current_of(device_by_ordinal(ordinal)?)?)
    }
    fn hipDeviceSetMemPool(ordinal: i32, pool: usize) { pool::set_current(device_by_ordinal(ordinal)?, pool) }
    fn hipMemGetMemPool(out: Out<usize>, location: In<MemLocation>, _kind: i32) {
        out.check()?;
        out.set(pool::current_of(of_location(location)?)?)
    }
    fn hipMemSetMemPool(location: In<MemLocation>, _kind: i32, pool: usize) { pool::set_current(of_location(location)?, pool) }
    fn hipMemGetDefaultMemPool(out: Out<usize>, location: In<MemLocation>, _kind: i32) {
        out.check()?;
        out.set(pool::default_of(of_location(location)?)?)
    }
}
