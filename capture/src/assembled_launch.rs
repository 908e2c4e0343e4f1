//! Launches that are put together call by call: what the last call does not say of them, the ones before it said.

use crate::contents::host_memory;
use crate::hooks::AssembledHook;

/// Longest argument in bytes that is looked through: longer ones no kernel takes.
const LONGEST_BYTES: u64 = 1 << 16;
/// Launches begun and not made that are followed: nobody nests them deeper.
const MOST: usize = 64;

/// The launches of a thread that are being put together, the last one innermost.
#[derive(Debug, Default)]
pub(crate) struct AssembledLaunches(Vec<Assembled>);

/// A launch that is being put together.
#[derive(Debug)]
struct Assembled {
    stream: u64,
    /// Addresses in host memory among its arguments so far.
    addresses: Vec<u64>,
}

impl AssembledLaunches {
    /// A call is part of a launch. Returns the stream, and the addresses in host memory, of one that is made now.
    ///
    /// # Safety
    /// The words are those of a call to the part's entry point, as valid as it demands.
    pub(crate) unsafe fn part(&mut self, part: AssembledHook, words: &[u64]) -> Option<(u64, Vec<u64>)> {
        match part {
            AssembledHook::Configure => {
                if self.0.len() == MOST {
                    self.0.remove(0);
                }
                let stream = words.last().copied().unwrap_or(0);
                self.0.push(Assembled { stream, addresses: Vec::new() });
                None
            }
            AssembledHook::Argument => {
                let (address, len_bytes) = (words[0], words[1]);
                let takes_part = address != 0 && len_bytes <= LONGEST_BYTES && host_memory::any();
                let launch = self.0.last_mut().filter(|_| takes_part)?;
                // SAFETY: by the caller's contract.
                let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, len_bytes as usize) };
                // Packed structs hold addresses at any place.
                let words =
                    bytes.windows(8).filter_map(|word| word.first_chunk()).map(|word| u64::from_le_bytes(*word));
                launch.addresses.extend(words.filter(|&word| host_memory::may_hold(word)));
                None
            }
            AssembledHook::Launch => self.0.pop().map(|launch| (launch.stream, launch.addresses)),
        }
    }
}
