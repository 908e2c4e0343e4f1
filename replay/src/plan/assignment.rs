//! Which worker executes which captured threads.

use hrr_format::archive::Archive;

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
    /// one with the least recorded so far.
    pub(crate) fn new(archive: &Archive, threads: usize) -> Self {
        let lanes = archive.streams().len();
        if threads == 0 || threads >= lanes {
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

    /// Whether some worker executes several captured threads.
    pub(crate) fn multiplexed(&self) -> bool {
        self.workers < self.worker_of.len()
    }
}
