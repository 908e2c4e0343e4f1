//! The call that makes an in-tree launch again: in which of HIP's shapes, with which words and attributes.

use super::kernels::Target;
use super::output::{Call, SOME_POINTER, unsigned};
use crate::catalogue::{Api, Policy, Role};
use crate::record::{Presence, SectionTag};
use crate::upstream::launch::Launch;

/// The call that makes a launch, and the parameter that its kernel's arguments are passed by.
pub(super) fn shaped(name: &str, launch: &Launch<'_>, target: Target, stream: u64) -> Result<(Call, u8), String> {
    let cooperative = name.contains("Cooperative");
    let attributes = passed_on(launch)?;
    let mut grid = launch.grid;
    if name == "hipExtModuleLaunchKernel" {
        // Older recorders write the grid in work items under this name.
        for (extent, block) in grid.iter_mut().zip(launch.block) {
            *extent = extent.div_ceil(block.max(1));
        }
    }
    let [gx, gy, gz] = grid.map(u64::from);
    let [bx, by, bz] = launch.block.map(u64::from);
    let shared = u64::from(launch.shared_bytes);
    if !attributes.is_empty() {
        return with_attributes(target, grid, launch, stream, &attributes);
    }
    let (native, words) = match (target, cooperative) {
        (Target::Function(function), true) => {
            ("hipModuleLaunchCooperativeKernel", vec![function, gx, gy, gz, bx, by, bz, shared, stream, SOME_POINTER])
        }
        (Target::Function(function), false) => {
            ("hipModuleLaunchKernel", vec![function, gx, gy, gz, bx, by, bz, shared, stream, SOME_POINTER, 0])
        }
        (Target::Symbol(symbol), cooperative) => {
            let native = if cooperative { "hipLaunchCooperativeKernel" } else { "hipLaunchKernel" };
            (native, vec![symbol, gx | gy << 32, gz, bx | by << 32, bz, SOME_POINTER, shared, stream])
        }
    };
    let api = Api::by_name(native).ok_or("this build cannot launch kernels")?;
    let param = api.param_with(|role| matches!(role, Role::KernelParams)).ok_or("this build cannot launch kernels")?;
    let mut call = Call::new(api);
    debug_assert!(!matches!(api.policy, Policy::Refuse(_)));
    call.words = words;
    Ok((call, param as u8))
}

/// Size in bytes of a launch attribute: its id and a value of 64 bytes.
const ATTRIBUTE_BYTES: usize = 72;

/// The attributes of a launch that can be given to the runtime again, end to end.
fn passed_on(launch: &Launch<'_>) -> Result<Vec<u8>, String> {
    /// `hipLaunchAttributeID`s with addresses in them: a window of memory to keep in the cache, which is a hint, and the
    /// description of data to be fetched, of which only the address is recorded and which upstream leaves out, too.
    const ACCESS_WINDOW: u64 = 1;
    const PREFETCH: u64 = 1024;
    let id = |attribute: &[u8]| unsigned(attribute, 0, 4).unwrap_or(0);
    let told = launch.attributes.iter().filter(|attribute| ![ACCESS_WINDOW, PREFETCH].contains(&id(attribute)));
    let mut attributes = Vec::new();
    for attribute in told {
        if attribute.len() != ATTRIBUTE_BYTES {
            let (id, len) = (id(attribute), attribute.len());
            return Err(format!("its launch attribute {id} is {len} bytes long where {ATTRIBUTE_BYTES} are known"));
        }
        attributes.extend_from_slice(attribute);
    }
    Ok(attributes)
}

/// A launch by a configuration, which has room for attributes.
fn with_attributes(
    target: Target,
    grid: [u32; 3],
    launch: &Launch<'_>,
    stream: u64,
    attributes: &[u8],
) -> Result<(Call, u8), String> {
    let (native, words) = match target {
        Target::Function(function) => ("hipDrvLaunchKernelEx", vec![SOME_POINTER, function, SOME_POINTER, 0]),
        Target::Symbol(symbol) => ("hipLaunchKernelExC", vec![SOME_POINTER, symbol, SOME_POINTER]),
    };
    let api = Api::by_name(native).ok_or("this build cannot launch kernels")?;
    let param = api.param_with(|role| matches!(role, Role::KernelParams)).ok_or("this build cannot launch kernels")?;
    let mut call = Call::new(api);
    call.words = words;
    // hipLaunchConfig_t and HIP_LAUNCH_CONFIG: grid, block, shared bytes, stream, attributes and their number.
    let mut config = Vec::with_capacity(56);
    config.extend(grid.iter().chain(&launch.block).flat_map(|extent| extent.to_le_bytes()));
    config.extend(u64::from(launch.shared_bytes).to_le_bytes());
    config.extend(stream.to_le_bytes());
    config.extend(SOME_POINTER.to_le_bytes());
    config.extend(((attributes.len() / ATTRIBUTE_BYTES) as u64).to_le_bytes());
    call.section(SectionTag::In, 0, Presence::Present, config);
    call.section(SectionTag::In, 0, Presence::Present, attributes.to_vec());
    Ok((call, param as u8))
}
