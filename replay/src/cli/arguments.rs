//! The options of `hrr-playback`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use hrr_cli::{Generate, whole};

use crate::choices::{Replacement, Synthetic};
use crate::info::{EventRange, Glob};
use crate::machine::device_map::DeviceMap;
use crate::machine::topology::PinPolicy;
use crate::plan::order::OrderMode;
use crate::processes::Rank;
use crate::report::options::Pace;

const EXAMPLES: &str = "\
Examples:
  hrr-playback capture.hrr                       replay on as many workers as there were threads
  hrr-playback capture.hrr --threads 4           replay on four worker threads
  hrr-playback capture.hrr --hip-lib /opt/rocm-7.1/lib/libamdhip64.so
  hrr-playback capture.hrr --sync-watchdog-ms 5000
  hrr-playback capture.hrr --all-processes       every recorded process, at the same time
  srun -n 8 hrr-playback capture.hrr --rank own  each rank its own process
  hrr-playback capture.hrr --repeat 20 --warmup 2 --timing --report a.json     for hrr-perf
  hrr-playback capture.hrr --kernels 100..200 --trace t.json.gz    a timeline, for ui.perfetto.dev
  hrr-playback capture.hrr --info --events       what was recorded; needs no GPU
  hrr-playback capture.hrr --shape-only          times of allocations and copies, without contents
  hrr-playback --pack capture.hrr capture.hrrz   one file to send; replays as it is

Exit codes: 0 pass, or --shape-only came to its end; 1 a result differs, a call failed or was
refused, or any other error; 2 stopped early because too many results differ; 124 the watchdog fired.";

/// Replays the HIP calls of an archive, without the program, and checks what the device produced.
#[derive(Debug, Parser)]
#[command(name = "hrr-playback", disable_version_flag = true, after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Archive: the directory HIP_HRR_CAPTURE_OUTPUT named, a pid-* directory in it, or a packed archive
    #[arg(required_unless_present_any = ["version", "generate"])]
    pub(super) archive: Option<PathBuf>,

    /// Worker threads that issue calls; 0 = one per captured thread
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0..), allow_negative_numbers = true, help_heading = "Replay")]
    pub(super) threads: usize,

    /// Replay every process of the archive at the same time, each in a process of its own. Files that each writes get its name:
    /// a.json becomes a.pid-7.json
    #[arg(long, conflicts_with_all = ["rank", "info", "action"], help_heading = "Replay")]
    pub(super) all_processes: bool,

    /// Replay, or inspect, the process that had this rank; `own`: the one that a launcher gave this process
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Replay")]
    pub(super) rank: Option<Rank>,

    /// One worker per captured thread: the same as --threads 0
    #[arg(long, conflicts_with = "threads", help_heading = "Replay")]
    pub(super) multi_thread: bool,

    /// Order kept between captured threads
    #[arg(long, value_enum, default_value_t = OrderArgument::Capture, help_heading = "Replay")]
    pub(super) order: OrderArgument,

    /// HIP runtime to replay on; default: the loader's libamdhip64.so, then ${ROCM_PATH:-/opt/rocm}/lib
    #[arg(long, value_name = "PATH", help_heading = "Replay")]
    pub(super) hip_lib: Option<PathBuf>,

    /// Cores for the workers: auto (near the device), none, or a list like 0,2-5
    #[arg(long, value_name = "POLICY", default_value = "auto", allow_hyphen_values = true, help_heading = "Replay")]
    pub(super) pin: PinPolicy,

    /// Host memory for plan and staging in MiB: a smaller archive is prepared whole before the clock starts [default: a
    /// quarter of the machine's memory]
    #[arg(long, value_name = "MIB", value_parser = whole::<u64>(0..), allow_negative_numbers = true, help_heading = "Replay")]
    pub(super) memory_budget: Option<u64>,

    /// Which device stands for each recorded one: RECORDED:LIVE pairs, like 0:0,1:0
    #[arg(long, value_name = "MAP", allow_hyphen_values = true, help_heading = "Replay")]
    pub(super) device_map: Option<DeviceMap>,

    /// Allocate with the recorded calls instead of mapping memory at its recorded addresses
    #[arg(long, help_heading = "Replay")]
    pub(super) no_placement: bool,

    /// Launch only kernels whose name contains this, or none with `-`; no result is compared
    #[arg(long, value_name = "TEXT", help_heading = "Replay")]
    pub(super) kernel_filter: Option<String>,

    /// Launch the kernel of this name from a code object file instead; may be given several times
    #[arg(long, value_name = "NAME=PATH", help_heading = "Replay")]
    pub(super) replace_kernel: Vec<Replacement>,

    /// Replay without recorded contents and code, of any archive, for times: copies move zeros, noise or noise:SEED, kernels and
    /// what needs code are left out and listed. Ends with SHAPE, never with PASS
    #[arg(
        long,
        value_name = "BYTES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "zeros",
        conflicts_with_all = ["kernel_filter", "replace_kernel", "warn_untranslated_args", "kernels"],
        help_heading = "Replay"
    )]
    pub(super) shape_only: Option<Synthetic>,

    /// Do not use region sidecars
    #[arg(long, help_heading = "Regions")]
    pub(super) no_regions: bool,

    /// Fail where an access lies outside the live blocks of region sidecars
    #[arg(long, help_heading = "Regions")]
    pub(super) regions_strict: bool,

    /// Map each device allocation, and each segment of a sidecar, between addresses at which nothing is mapped; needs region
    /// sidecars, and turns placement off
    #[arg(long, group = "guards", help_heading = "Regions")]
    pub(super) guard_segments: bool,

    /// The same for each block of a sidecar
    #[arg(long, group = "guards", help_heading = "Regions")]
    pub(super) guard_blocks: bool,

    /// Smallest size in bytes to guard
    #[arg(long, value_name = "BYTES", default_value_t = 0, requires = "guards", value_parser = whole::<u64>(0..), allow_negative_numbers = true, help_heading = "Regions")]
    pub(super) guard_min_bytes: u64,

    /// Largest size in bytes to guard
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = u64::MAX,
        hide_default_value = true,
        requires = "guards",
        value_parser = whole::<u64>(0..),
        allow_negative_numbers = true,
        help_heading = "Regions"
    )]
    pub(super) guard_max_bytes: u64,

    /// Device memory in MiB to guard
    #[arg(long, value_name = "MIB", default_value_t = 4096, requires = "guards", value_parser = whole::<u64>(0..), allow_negative_numbers = true, help_heading = "Regions")]
    pub(super) guard_budget_mb: u64,

    /// Put the end of what is guarded right at its guard, however its beginning is aligned then
    #[arg(long, requires = "guards", help_heading = "Regions")]
    pub(super) guard_exact_align: bool,

    /// Name every kernel pointer argument that lies in no live allocation
    #[arg(long, help_heading = "Replay")]
    pub(super) warn_untranslated_args: bool,

    /// Replay this often in one process and report each repetition
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = whole::<u32>(1..), allow_negative_numbers = true, help_heading = "Timing runs")]
    pub(super) repeat: u32,

    /// Replay this often before that, unreported
    #[arg(long, value_name = "W", default_value_t = 0, value_parser = whole::<u32>(0..), allow_negative_numbers = true, help_heading = "Timing runs")]
    pub(super) warmup: u32,

    /// Write a run report as JSON, for hrr-perf; with --info: of the recorded run. When the watchdog fires, with its diagnosis
    #[arg(long, value_name = "FILE", help_heading = "Timing runs")]
    pub(super) report: Option<PathBuf>,

    /// Time kernels, graphs and copies by events around them
    #[arg(long, help_heading = "Timing runs")]
    pub(super) timing: bool,

    /// Draw a timeline of the first reported repetition, for ui.perfetto.dev: .json or .pftrace, and .gz behind it.
    /// Turns --timing on. With --info: of the recorded run, without a GPU
    #[arg(long, value_name = "FILE", help_heading = "Timing runs")]
    pub(super) trace: Option<PathBuf>,

    /// The program's own gaps between calls: asap (none), recorded, or xF to shorten them F times
    #[arg(long, value_name = "PACE", default_value = "asap", allow_hyphen_values = true, help_heading = "Timing runs")]
    pub(super) pace: Pace,

    /// Measure only events A up to, not including, B (or A..=B, A.., ..B): those before are replayed as set-up, those behind
    /// not at all. With --info: list and draw only these
    #[arg(
        long,
        value_name = "A..B",
        conflicts_with = "kernels",
        allow_hyphen_values = true,
        help_heading = "Timing runs"
    )]
    pub(super) range: Option<EventRange>,

    /// As --range, by kernel launches: from launch A up to, not including, launch B
    #[arg(long, value_name = "A..B", allow_hyphen_values = true, help_heading = "Timing runs")]
    pub(super) kernels: Option<EventRange>,

    /// Go on after a call that fails, and count it
    #[arg(long, help_heading = "Replay")]
    pub(super) continue_on_error: bool,

    /// Print what hangs and exit with 124 when a call or wait takes longer; 0 = never. Records an event behind each enqueue,
    /// to tell how far each stream has come
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 0,
        env = "HIP_HRR_REPLAY_SYNC_WATCHDOG_MS",
        value_parser = whole::<u64>(0..),
        allow_negative_numbers = true,
        help_heading = "Triage"
    )]
    pub(super) sync_watchdog_ms: u64,

    /// Behind which operations the watchdog records an event, to tell how far each stream has come
    #[arg(long, value_enum, default_value = "paced", value_name = "WHICH", help_heading = "Triage")]
    pub(super) watchdog_marks: MarksArgument,

    /// When the watchdog fires: write the diagnosis to FILE, as JSON
    #[arg(long, value_name = "FILE", requires = "sync_watchdog_ms", help_heading = "Triage")]
    pub(super) triage: Option<PathBuf>,

    /// Wait for the device after each kernel and graph launch. Hangs where a stream waits for what a later call brings about
    #[arg(long, help_heading = "Triage")]
    pub(super) sync_after_launch: bool,

    /// Wait for the device after every call. Hangs likewise
    #[arg(long, help_heading = "Triage")]
    pub(super) sync_after_event: bool,

    /// Leave out the program's hipDeviceSynchronize and hipStreamSynchronize, and compare results at the end; what the program
    /// ordered by them may come out different
    #[arg(long, conflicts_with_all = ["sync_after_launch", "sync_after_event"], help_heading = "Triage")]
    pub(super) skip_device_sync: bool,

    /// Print each kernel and graph launch before it is made
    #[arg(long, help_heading = "Triage")]
    pub(super) trace_kernels: bool,

    /// Print each call that waits, before it is made and when it has returned
    #[arg(long, help_heading = "Triage")]
    pub(super) trace_sync: bool,

    /// Print a progress line after every N kernels; 0 = never
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        env = "HIP_HRR_REPLAY_PROGRESS_KERNELS",
        value_parser = whole::<u64>(0..),
        allow_negative_numbers = true,
        help_heading = "Triage"
    )]
    pub(super) progress_kernels: u64,

    /// Print a progress line every S seconds; 0 = never
    #[arg(
        long,
        value_name = "S",
        default_value_t = 0,
        env = "HIP_HRR_REPLAY_PROGRESS_SECONDS",
        value_parser = whole::<u64>(0..),
        allow_negative_numbers = true,
        help_heading = "Triage"
    )]
    pub(super) progress_seconds: u64,

    /// Write when each call of the last repetition was issued and had returned to FILE, for --check-order
    #[arg(long, value_name = "FILE", help_heading = "Triage")]
    pub(super) log_order: Option<PathBuf>,

    /// Check that the replay that wrote LOG kept the order of this archive's calls; needs no HIP runtime
    #[arg(long, value_name = "LOG", conflicts_with_all = ["log_order", "info", "all_processes"], help_heading = "Triage")]
    pub(super) check_order: Option<PathBuf>,

    /// Print what was recorded and exit; needs no HIP runtime
    #[arg(long, help_heading = "Inspection")]
    pub(super) info: bool,

    /// With --info: list every call
    #[arg(long, requires = "info", help_heading = "Inspection")]
    pub(super) events: bool,

    /// With --info: as JSON
    #[arg(long, requires = "info", help_heading = "Inspection")]
    pub(super) json: bool,

    /// With --events, --csv or --trace: only calls of this captured thread
    #[arg(long, value_name = "N", requires = "info", value_parser = whole::<u32>(0..), allow_negative_numbers = true, help_heading = "Inspection")]
    pub(super) thread: Option<u32>,

    /// With --events, --csv or --trace: only calls whose name matches, such as 'hipMemcpy*,hipFree'
    #[arg(long, value_name = "GLOB", requires = "info", help_heading = "Inspection")]
    pub(super) api: Option<Glob>,

    /// With --info: write tables with the columns of rocprofv3's into a directory; kernels and copies have the times of their
    /// calls, since a recording has none of the device
    #[arg(long, value_name = "DIR", requires = "info", help_heading = "Inspection")]
    pub(super) csv: Option<PathBuf>,

    /// Repair a recording that did not end well, a process or a whole root; what is cut off is kept beside it
    #[arg(long, group = "action", help_heading = "Archives")]
    pub(super) repair: bool,

    /// Check every record, hash and reference; exit code 1 if anything is wrong
    #[arg(long, group = "action", help_heading = "Archives")]
    pub(super) verify: bool,

    /// Pack the archive into one file, TARGET, which can be replayed and inspected as it is
    #[arg(long, group = "action", requires = "target", help_heading = "Archives")]
    pub(super) pack: bool,

    /// Unpack a packed archive into a new directory, TARGET
    #[arg(long, group = "action", requires = "target", help_heading = "Archives")]
    pub(super) unpack: bool,

    /// Convert the archive, into a new directory TARGET: one of AMD's in-tree HRR to a native one, a native one to the in-tree
    /// format, version 8
    #[arg(long, group = "action", requires = "target", help_heading = "Archives")]
    pub(super) convert: bool,

    /// With --convert: write what the in-tree format can hold, and list what is lost
    #[arg(long, requires = "convert", help_heading = "Archives")]
    pub(super) lossy: bool,

    /// With --pack, --unpack and --convert: the file or directory to make
    #[arg(value_name = "TARGET", help_heading = "Archives")]
    pub(super) target: Option<PathBuf>,

    /// Print the version of the program and of the archive format
    #[arg(long, short = 'V', help_heading = "Inspection")]
    pub(super) version: bool,

    /// Write the manual page, completions for a shell, or the reference of options and variables
    #[arg(long, value_enum, hide = true)]
    pub(super) generate: Option<Generate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum MarksArgument {
    /// Each on streams that get few; now and then on streams that get many
    Paced,
    /// Each: names the operation that does not end in any case, and slows streams of short kernels down
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OrderArgument {
    /// Whatever had returned before a call was entered returns before it is issued
    Capture,
    /// Only dependencies: handles, streams, events, conflicting memory, device-wide calls
    Deps,
    /// Handle lifetimes and each thread's own order only (diagnostic)
    Program,
}

impl From<OrderArgument> for OrderMode {
    fn from(order: OrderArgument) -> Self {
        match order {
            OrderArgument::Capture => OrderMode::Capture,
            OrderArgument::Deps => OrderMode::Deps,
            OrderArgument::Program => OrderMode::Program,
        }
    }
}
