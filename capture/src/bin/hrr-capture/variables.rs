//! The environment variables of the recorder, all of them: for help, manual page and reference. A test looks for each name that the
//! sources read.

use hrr_cli::{Audience, Variable};

/// What the recorder and its launcher read.
pub(crate) const VARIABLES: [Variable; 14] = [
    Variable::new(
        "HIP_HRR_CAPTURE_OUTPUT",
        "DIR",
        "Directory of the archive, in which %pid%, %hostname%, %rank% and %env{NAME}% are replaced. Unset or blank: nothing is \
         recorded, and nothing happens.",
    ),
    Variable::new(
        "HIP_HRR_CAPTURE_CONTENT",
        "1",
        "Record contents too: host buffers, kernel arguments, code objects. Unset or 0: only calls, handles and sizes.",
    ),
    Variable::new(
        "HIP_HRR_CAPTURE_WINDOW",
        "launches:A..B|time:A..B|signal|api",
        "Record only a window of the program, and what it needs of what was before: by kernel and graph launches, counted from 0; \
         by time since the first HIP call, with ms, s or m; from one SIGUSR2 to the next; or from the program's call of \
         hrr_capture_start to that of hrr_capture_stop. B may be left out. Unset: everything is recorded.",
    ),
    Variable::new(
        "HIP_HRR_FLIGHT_RECORDER",
        "SIZE",
        "Keep only the last calls of each thread, without contents, in stream files of at most SIZE for the process, such as 64M (K, M \
         or G; at least 128K). Unset: every call is kept.",
    ),
    Variable::new(
        "HIP_HRR_HOST_SNAPSHOTS",
        "0",
        "With contents: leave out what the host stores in memory that devices use directly, without a copy. Unset or 1: it is \
         recorded.",
    ),
    Variable::new(
        "HIP_HRR_HOST_SNAPSHOT_MAX_MB",
        "MIB",
        "Largest allocation of such memory that is looked through before launches. What is larger is counted in the manifest, and \
         named at replay. Unset: 64.",
    ),
    Variable::new(
        "HIP_HRR_HOST_SNAPSHOT_TOTAL_MB",
        "MIB",
        "The same for all such allocations together; as much memory is taken for copies of them. Unset: 1024.",
    ),
    Variable::new(
        "HIP_HRR_HOST_SNAPSHOT_SCOPE",
        "all|arguments",
        "all: look through all such memory before each launch, not only through what its arguments point into. Unset: arguments.",
    ),
    Variable::new(
        "LD_PRELOAD",
        ".../lib/libhrr_capture.so",
        "Puts the recorder into a program that is started without hrr-capture. hrr-capture sets it, and keeps what is in it behind the \
         recorder.",
    ),
    Variable::new(
        "ROCPROFILER_REGISTER_LIBRARY",
        ".../lib/libhrr_capture.so",
        "By it a runtime with dispatch tables finds the recorder also where a program takes LD_PRELOAD away from what it starts. \
         hrr-capture sets it unless it is set.",
    ),
    Variable::new("ROCM_PATH", "DIR", "Where hrr-capture looks for the recorder last: DIR/lib. Unset: /opt/rocm."),
    Variable::new("TMPDIR", "DIR", "Where hrr-capture keeps a small file while the program runs. Unset: /tmp."),
    Variable::new(
        "SLURM_PROCID",
        "N",
        "The process's rank in its job, for %rank% and the manifest; then OMPI_COMM_WORLD_RANK, MV2_COMM_WORLD_RANK, PALS_RANKID \
         and PMI_RANK are looked at. Launchers set them.",
    ),
    Variable::new(
        "HIP_HRR_CAPTURE_JOURNAL",
        "FILE",
        "Where the recorder tells hrr-capture what became of each process.",
    )
    .only_for(Audience::Internal),
];
