//! The environment variables of the player, all of them: for help, manual page and reference. A test looks for each name that the
//! sources read.

use hrr_cli::{Audience, Variable};

use crate::choices::NOT_SUPPORTED;

/// All of them, those of the in-tree player that are refused included.
pub(crate) fn all() -> Vec<Variable> {
    let refused =
        NOT_SUPPORTED.iter().map(|&(name, instead)| Variable::new(name, "", instead).only_for(Audience::Refused));
    VARIABLES.into_iter().chain(refused).collect()
}

/// What the player reads.
const VARIABLES: [Variable; 24] = [
    Variable::new(
        "HIP_HRR_D2H_ATOL",
        "NUMBER",
        "How far a device-to-host result that looks like floating-point numbers may be from the recorded one, whatever its size. Unset: \
         0.001.",
    ),
    Variable::new("HIP_HRR_D2H_RTOL", "NUMBER", "The same as a fraction of the recorded number. Unset: 0.001."),
    Variable::new("HIP_HRR_D2H_EXACT", "1", "Only equal bytes pass. Set to anything, an empty text included."),
    Variable::new(
        "HIP_HRR_REPLAY_DIVERGENCE_ABORT",
        "FRACTION",
        "Stop, with exit code 2, when more than this fraction of the results differ; 0: never. Unset: 0.25.",
    ),
    Variable::new("HIP_HRR_REPLAY_DIVERGENCE_MIN_SAMPLES", "N", "Compare at least N results before that. Unset: 64."),
    Variable::new(
        "HIP_HRR_REPLAY_SYNC_WATCHDOG_MS",
        "MS",
        "As --sync-watchdog-ms, which goes before it.",
    ),
    Variable::new("HIP_HRR_REPLAY_PROGRESS_KERNELS", "N", "As --progress-kernels, which goes before it."),
    Variable::new("HIP_HRR_REPLAY_PROGRESS_SECONDS", "S", "As --progress-seconds, which goes before it."),
    Variable::new("HIP_HRR_REPLAY_TRACE_KERNELS", "1", "As --trace-kernels; anything but 0 turns it on."),
    Variable::new("HIP_HRR_REPLAY_TRACE_SYNC", "1", "As --trace-sync; anything but 0 turns it on."),
    Variable::new(
        "HIP_HRR_REPLAY_ALLOC_PAD_FACTOR",
        "N",
        "Make allocations N times as large, 1 to 4096; placement is off then. Unset: 1.",
    ),
    Variable::new(
        "HIP_HRR_REPLAY_ALLOC_PAD_MAX",
        "BYTES",
        "But no larger than this for it, unless they were. Unset: 1073741824.",
    ),
    Variable::new(
        "HIP_HRR_REPLAY_ZERO_INIT",
        "1",
        "Fill new device memory, by calls that the program did not make. 0 or unset: new memory is as it comes.",
    ),
    Variable::new(
        "HIP_HRR_REPLAY_FILL_BYTE",
        "N",
        "The byte it is filled with, 0 to 255, and with which memory is that is made real for a region sidecar. Unset: 0.",
    ),
    Variable::new(
        "HIP_HRR_UPSTREAM_RECORDS",
        "FILE",
        "Read archives of AMD's in-tree HRR by the layouts in FILE, a table like format/upstream/records.tsv, for versions that this \
         build does not know.",
    ),
    Variable::new(
        "ROCM_PATH",
        "DIR",
        "Where the HIP runtime is looked for when the loader finds none: DIR/lib/libamdhip64.so. Unset: /opt/rocm.",
    ),
    Variable::new(
        "TMPDIR",
        "DIR",
        "Where a packed archive of long streams is unpacked to, and an archive of AMD's in-tree HRR translated to, while it is read. \
         Unset: /tmp.",
    ),
    Variable::new(
        "RUST_LOG",
        "FILTER",
        "What is said on standard error besides errors: error, warn, info or debug. Unset: warn.",
    ),
    Variable::new(
        "SLURM_PROCID",
        "N",
        "The rank that --rank own means; then OMPI_COMM_WORLD_RANK, MV2_COMM_WORLD_RANK, PALS_RANKID and PMI_RANK are looked at. \
         Launchers set them.",
    ),
    Variable::new(
        "HRR_REPLAY_MUTATE",
        "NAME",
        "Makes the replay wrong on purpose, to see that checks find it: drop-edges, ignore-device, name-only-kernel, stale-handle, \
         self-wait, no-host-restore or drop:API.",
    )
    .only_for(Audience::Tests),
    Variable::new(
        "HRR_REPLAY_CHAOS",
        "SEED",
        "Delays calls at random, from this seed: a replay whose order is right stays right.",
    )
    .only_for(Audience::Tests),
    Variable::new("HRR_REPLAY_PROCESS_DIRECTORY", "NAME", "Which process of an archive a child of --all-processes replays.")
        .only_for(Audience::Internal),
    Variable::new(
        "HRR_REPLAY_ADDRESS_TRIES",
        "N",
        "How often a replay has started itself again because recorded addresses lay where the process had its own.",
    )
    .only_for(Audience::Internal),
    Variable::new("HRR_REPLAY_START_SOCKET", "N", "The socket at which it waits for the others.")
        .only_for(Audience::Internal),
];
