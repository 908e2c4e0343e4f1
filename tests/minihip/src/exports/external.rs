//! Memory of other interfaces, by file descriptors.

use crate::abi::{ExternalMemoryBufferDesc, ExternalMemoryHandleDesc, ExternalMemoryMipmappedArrayDesc};
use crate::api::{In, Out, hip_api};
use crate::array::Layout;
use crate::device::{Device, devices};
use crate::error::HipError;
use crate::external;
use crate::thread_state::current_device;

fn size(value: u64) -> Result<usize, HipError> {
    usize::try_from(value).map_err(|_| HipError::INVALID_VALUE)
}

hip_api! {
    fn hipImportExternalMemory(out: Out<usize>, description: In<ExternalMemoryHandleDesc>) {
        out.check()?;
        let ExternalMemoryHandleDesc { kind, descriptor, len_bytes, .. } = description.get()?;
        out.set(external::import(kind, descriptor, size(len_bytes)?, current_device()?.index)?)
    }
    fn hipDestroyExternalMemory(memory: usize) {
        devices().iter().for_each(Device::synchronize);
        external::destroy(memory)
    }
    fn hipExternalMemoryGetMappedBuffer(out: Out<usize>, memory: usize, description: In<ExternalMemoryBufferDesc>) {
        out.check()?;
        let ExternalMemoryBufferDesc { offset_bytes, len_bytes, flags, .. } = description.get()?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        out.set(external::buffer(memory, size(offset_bytes)?, size(len_bytes)?)?)
    }
    fn hipExternalMemoryGetMappedMipmappedArray(out: Out<usize>, memory: usize, description: In<ExternalMemoryMipmappedArrayDesc>) {
        out.check()?;
        let ExternalMemoryMipmappedArrayDesc { offset_bytes, channels, extent, flags, levels } = description.get()?;
        let layout = Layout::from_channels(&channels, extent.width, extent.height, extent.depth, flags)?;
        out.set(external::mipmapped(memory, size(offset_bytes)?, layout, levels)?)
    }
}
