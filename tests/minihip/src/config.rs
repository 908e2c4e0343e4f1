//! What the environment asks for, read once.

use std::env;
use std::sync::OnceLock;

/// The `MINIHIP_*` variables.
#[derive(Debug)]
pub(crate) struct Config {
    /// `MINIHIP_DEVICES`: number of devices, 0 to 64.
    pub(crate) device_count: usize,
    /// `MINIHIP_CHAOS`: seed of the random delays in the queues; `None` runs without delays.
    pub(crate) chaos_seed: Option<u64>,
    /// `MINIHIP_TRACE=1`: one line on stderr per call.
    pub(crate) trace: bool,
    /// `MINIHIP_ADDRESS_BLOCK_MB`: addresses that are asked for are given out only in blocks of so many MiB, as some drivers do.
    pub(crate) address_block_bytes: usize,
    /// `MINIHIP_ARCH`: the `gcnArchName` the devices report.
    pub(crate) arch: String,
    /// `MINIHIP_ALIAS=1`: devices have other addresses for host memory than the host.
    pub(crate) alias: bool,
    /// `MINIHIP_REVERSE=1`: kernels of a code object are enumerated in the opposite order.
    pub(crate) reverse: bool,
    /// `MINIHIP_VRAM_MB`: device memory in MiB per device.
    pub(crate) vram_bytes: usize,
}

/// The process's configuration.
pub(crate) fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        if let Ok(backend) = env::var("MINIHIP_BACKEND")
            && !matches!(backend.as_str(), "" | "cpu" | "cuda")
        {
            eprintln!("minihip: MINIHIP_BACKEND={backend} is not available, using cpu");
        }
        Config {
            device_count: number("MINIHIP_DEVICES", 1).min(64) as usize,
            chaos_seed: env::var("MINIHIP_CHAOS").ok().filter(|v| !v.trim().is_empty()).map(|v| seed(&v)),
            trace: env::var("MINIHIP_TRACE").is_ok_and(|v| v == "1"),
            alias: env::var("MINIHIP_ALIAS").is_ok_and(|v| v == "1"),
            reverse: env::var("MINIHIP_REVERSE").is_ok_and(|v| v == "1"),
            address_block_bytes: (number("MINIHIP_ADDRESS_BLOCK_MB", 0).min(1 << 20) as usize) << 20,
            arch: env::var("MINIHIP_ARCH").unwrap_or_else(|_| "gfx942:sramecc+:xnack-".to_owned()),
            vram_bytes: (number("MINIHIP_VRAM_MB", 16 * 1024).clamp(16, 1 << 20) as usize) << 20,
        }
    })
}

fn number(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(text) if !text.trim().is_empty() => text.trim().parse().unwrap_or_else(|_| {
            eprintln!("minihip: {name}={text} is not a number, using {default}");
            default
        }),
        _ => default,
    }
}

/// A number is taken as it is; any other text is hashed (FNV-1a), so that a name can be a seed too.
fn seed(text: &str) -> u64 {
    text.trim().parse().unwrap_or_else(|_| {
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    })
}
