//! What must be known of a whole archive before it is planned, found in one pass over its records: whether one of them is
//! damaged, what is allocated on devices, and which host memory devices use directly. A long archive is not read more often
//! than that and once for the plan.

use std::path::PathBuf;

use hrr_format::archive::{Archive, ArchiveError};
use hrr_format::catalogue::{Api, Role};
use hrr_format::record::{Record, marker};
use hrr_format::stream_file::{Damage, StreamFile};
use rayon::prelude::*;
use rustc_hash::FxHashSet;

use crate::memory::addresses::joined;
use crate::plan::lower::bounds::MAX_ALLOCATION_BYTES;
use crate::plan::lower::{RecordInputs, out_bytes, word_at};
use crate::plan::order::looks::{Delayed, waits_for_value};

/// What the records of an archive told.
#[derive(Debug, Default)]
pub struct Survey {
    /// Number of calls.
    pub(crate) calls: u64,
    pub(crate) allocations: Allocations,
    /// First addresses of the allocations that markers about host memory tell of, anywhere in the archive. Another allocation
    /// may have had one of these addresses, too: it is then treated as if devices used it directly.
    pub(crate) direct_host_memory: FxHashSet<u64>,
    /// Whether work waits on a device for values that the program writes.
    waits_for_values: bool,
    damage: Option<(PathBuf, Damage)>,
}

/// What an archive allocates on devices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allocations {
    /// What can be placed: base, size in bytes and recorded device, oldest first in each thread.
    pub(crate) found: Vec<(u64, u64, i32)>,
    /// Addresses in allocations that the program makes handles of for other processes.
    pub(crate) exported: Vec<u64>,
    /// Whether the program resets a device.
    pub(crate) reset: bool,
    /// Addresses that the program reserved: start and end.
    pub(crate) reserved: Vec<(u64, u64)>,
}

/// What the calls of an entry point tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tells {
    Nothing,
    Device,
    Export,
    Reset,
    Reservation,
    Allocation,
    WaitsForValue,
}

impl Tells {
    fn of(api: &Api) -> Self {
        match api.name {
            "hipSetDevice" => Tells::Device,
            "hipIpcGetMemHandle" | "hipMemPoolExportPointer" => Tells::Export,
            "hipDeviceReset" | "hipDevicePrimaryCtxReset" => Tells::Reset,
            "hipMemAddressReserve" => Tells::Reservation,
            _ if waits_for_value(api) => Tells::WaitsForValue,
            _ if crate::memory::placement::is_placed_api(api) => Tells::Allocation,
            _ => Tells::Nothing,
        }
    }
}

impl Survey {
    /// The addresses of the device allocations, in pages of this size: start and end.
    pub(crate) fn device_ranges(&self, page_bytes: u64) -> Vec<(u64, u64)> {
        joined(&self.allocations.found, page_bytes)
    }

    /// Calls that count as entered later than they were.
    pub(crate) fn delayed(&self, archive: &Archive) -> Delayed {
        if self.waits_for_values { Delayed::find(archive) } else { Delayed::default() }
    }

    /// Goes over all records.
    pub fn of(archive: &Archive) -> Self {
        let tells: Vec<Tells> = (0..archive.manifest().apis.len())
            .map(|id| u16::try_from(id).ok().and_then(|id| archive.api(id).known).map_or(Tells::Nothing, Tells::of))
            .collect();
        let each: Vec<Survey> =
            archive.streams().par_iter().map(|stream| Survey::of_stream(archive, stream, &tells)).collect();
        let mut survey = Survey::default();
        for stream in each {
            survey.allocations.found.extend(stream.allocations.found);
            survey.allocations.exported.extend(stream.allocations.exported);
            survey.allocations.reset |= stream.allocations.reset;
            survey.allocations.reserved.extend(stream.allocations.reserved);
            survey.direct_host_memory.extend(stream.direct_host_memory);
            survey.waits_for_values |= stream.waits_for_values;
            survey.damage = survey.damage.or(stream.damage);
            survey.calls += stream.calls;
        }
        survey
    }

    /// Whether all records can be read: what lies behind a damaged one would be left out in silence.
    ///
    /// # Errors
    /// The first damage.
    pub(crate) fn check(&self) -> Result<(), ArchiveError> {
        match self.damage.clone() {
            Some((path, damage)) => Err(ArchiveError::Record { path, damage }),
            None => Ok(()),
        }
    }

    fn of_stream(archive: &Archive, stream: &StreamFile, tells: &[Tells]) -> Self {
        let mut survey = Survey::default();
        let mut device = 0;
        let checked = stream.check_each(|record| {
            survey.calls += u64::from(record.api() < marker::FIRST);
            match tells.get(usize::from(record.api())) {
                Some(Tells::Nothing) => {}
                Some(Tells::WaitsForValue) => survey.waits_for_values = true,
                Some(&tells) => {
                    if record.ret() == 0
                        && let Some(api) = archive.row_of(record)
                    {
                        survey.allocations.note(tells, api, record, &mut device);
                    }
                }
                None if marker::is_timed(record.api()) => {
                    survey.direct_host_memory.insert(record.word(0));
                }
                None => {}
            }
        });
        survey.damage = checked.err().map(|damage| (stream.path().to_owned(), damage));
        survey
    }
}

impl Allocations {
    /// Notes what a call tells; `device` is its thread's.
    fn note(&mut self, tells: Tells, api: &'static Api, record: &Record<'_>, device: &mut i32) {
        match tells {
            Tells::Nothing | Tells::WaitsForValue => {}
            Tells::Device => *device = record.word(0) as u32 as i32,
            Tells::Export => self.exported.push(record.word(1)),
            Tells::Reset => self.reset = true,
            Tells::Reservation => {
                let base = word_at(out_bytes(record, 0).unwrap_or_default(), 0);
                self.reserved.push((base, base.saturating_add(record.word(1))));
            }
            Tells::Allocation => {
                let memory = api.params.iter().enumerate().find_map(|(number, param)| match param.role {
                    Role::NewDevice(size) | Role::NewPitched(size) => Some((number as u8, size)),
                    _ => None,
                });
                let Some((number, size)) = memory else { return };
                let bytes = out_bytes(record, number).unwrap_or_default();
                let size_bytes = size.value(&RecordInputs { api, record, fields: bytes }).unwrap_or(0);
                let base = word_at(bytes, 0);
                // Beyond these no address can be one of a device's.
                if base != 0 && base < MAX_ALLOCATION_BYTES << 1 && size_bytes <= MAX_ALLOCATION_BYTES {
                    self.found.push((base, size_bytes, *device));
                }
            }
        }
    }
}
