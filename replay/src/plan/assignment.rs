//! Which worker executes which captured threads.

use hrr_format::archive::Archive;
use hrr_format::catalogue::Api;

/// The name under which the recorder writes what stands in front of a window.
const PREAMBLE_THREAD: &str = "hrr-preamble";

/// Which worker executes which captured threads.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    /// Worker of each captured thread.
    pub(crate) worker_of: Vec<u32>,
    /// Number of workers.
    pub(crate) workers: usize,
}

impl Assignment {
    /// One worker per captured thread for `threads` = 0; otherwise at most `threads` workers, each captured thread on the
    /// one with the least recorded so far. What stands in front of windows is no thread of the program, and made before its calls
    /// in them: it gets a worker of its own where the threads do.
    pub(crate) fn new(archive: &Archive, threads: usize) -> Self {
        let lanes = archive.streams().len();
        let of_program = archive.streams().iter().filter(|stream| stream.header().name != PREAMBLE_THREAD).count();
        if threads == 0 || threads >= of_program {
            return Assignment { worker_of: (0..lanes as u32).collect(), workers: lanes };
        }
        let weight = |lane: usize| {
            let stream = &archive.streams()[lane];
            let used = stream.header().used_bytes;
            if used != 0 { used } else { stream.len_bytes() }
        };
        let mut by_weight: Vec<usize> = (0..lanes).collect();
        by_weight.sort_by_key(|&lane| std::cmp::Reverse(weight(lane)));
        let mut load = vec![0u64; threads];
        let mut worker_of = vec![0; lanes];
        for lane in by_weight {
            let lightest = (0..threads).min_by_key(|&worker| load[worker]).unwrap_or(0);
            load[lightest] += weight(lane);
            worker_of[lane] = lightest as u32;
        }
        Assignment { worker_of, workers: threads }
    }

    /// The device that each worker works on, as recorded: the first that its first captured thread chose, or else device 0,
    /// on which every thread starts.
    pub(crate) fn home_devices(&self, archive: &Archive) -> Vec<i32> {
        /// Calls of a thread among which its choice is looked for.
        const LOOKED_AT: usize = 1000;
        let set_device = Api::by_name("hipSetDevice").map(|api| api.id);
        let chosen = |lane: usize| {
            let records = archive.streams()[lane].records().take(LOOKED_AT);
            let mut choices =
                records.filter(|record| record.ret() == 0 && archive.row_of(record).map(|api| api.id) == set_device);
            choices.next().map_or(0, |record| record.word(0) as u32 as i32)
        };
        let lane_of = |worker: usize| self.worker_of.iter().position(|&of| of as usize == worker);
        (0..self.workers).map(|worker| lane_of(worker).map_or(0, chosen)).collect()
    }

    /// Whether some worker executes several captured threads.
    pub(crate) fn multiplexed(&self) -> bool {
        self.workers < self.worker_of.len()
    }
}
