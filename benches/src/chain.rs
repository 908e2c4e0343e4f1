//! How long an archive's order alone makes its replay, whatever executes it.
//!
//! In capture order a call comes after every call that had returned when it was entered. So a replay takes at least as long as
//! the longest chain of such calls, where each takes what it takes there. Calls that were short when they were recorded hardly
//! overlapped, and are nearly one chain: replayed where they take longer, even a perfect replay has each thread wait for the
//! others.

use hrr_format::archive::Archive;
use hrr_format::record::marker;

/// Chains of calls, by what calls take there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chains {
    /// The longest chain in capture order.
    pub longest_ns: f64,
    /// The calls of the thread that has most.
    pub busiest_ns: f64,
}

impl Chains {
    /// How much longer than its busiest thread a replay in capture order takes at least.
    pub fn ratio(&self) -> f64 {
        self.longest_ns / self.busiest_ns
    }
}

/// The chains of an archive whose calls take what `cost_ns` says of their entry points, by name.
pub fn chains(archive: &Archive, cost_ns: impl Fn(&str) -> f64) -> Chains {
    let costs: Vec<f64> = (0..archive.manifest().apis.len()).map(|id| cost_ns(archive.api(id as u16).name)).collect();
    // Entries, then returns: a call that was entered at the tick of a return does not come after that.
    let mut points: Vec<(u64, bool, usize, f64)> = Vec::new();
    let mut busiest_ns = 0.0f64;
    for (thread, stream) in archive.streams().iter().enumerate() {
        let mut busy_ns = 0.0;
        for record in stream.records().filter(|record| record.api() < marker::FIRST && !record.in_flight()) {
            let cost = costs.get(usize::from(record.api())).copied().unwrap_or(0.0);
            busy_ns += cost;
            points.push((record.begin(), false, thread, cost));
            points.push((record.end(), true, thread, cost));
        }
        busiest_ns = busiest_ns.max(busy_ns);
    }
    points.sort_by_key(|&(tick, returns, ..)| (tick, returns));
    let mut thread_ns = vec![0.0f64; archive.streams().len()];
    let mut returned_ns = 0.0f64;
    for (_, returns, thread, cost) in points {
        if returns {
            returned_ns = returned_ns.max(thread_ns[thread]);
        } else {
            thread_ns[thread] = thread_ns[thread].max(returned_ns) + cost;
        }
    }
    Chains { longest_ns: thread_ns.into_iter().fold(0.0, f64::max), busiest_ns }
}

#[cfg(test)]
mod tests {
    use hrr_format::archive_writer::ArchiveWriter;
    use hrr_format::catalogue::Api;
    use hrr_format::record_builder::RecordBuilder;
    use hrr_format::stream_file::ContentsMode;

    use super::*;

    /// Chains of an archive of threads with calls at these ticks, each taking 1.
    fn of(threads: &[&[(u64, u64)]]) -> (f64, f64) {
        let folder = tempfile::tempdir().unwrap();
        let wait = Api::by_name("hipDeviceSynchronize").unwrap();
        let mut writer = ArchiveWriter::create(folder.path(), 1, ContentsMode::MetadataOnly).unwrap();
        for (number, calls) in threads.iter().enumerate() {
            let records: Vec<_> =
                calls.iter().map(|&(begin, end)| RecordBuilder::new(wait.id, &[]).ticks(begin, end).build()).collect();
            writer.stream(number as u32, 10 + number as u64, "t", &records).unwrap();
        }
        writer.finish().unwrap();
        let found = chains(&Archive::open(folder.path()).unwrap(), |_| 1.0);
        (found.longest_ns, found.busiest_ns)
    }

    #[test]
    fn calls_that_overlapped_are_no_chain_and_calls_in_turn_are_one() {
        assert_eq!(of(&[&[(10, 20), (30, 40)], &[(11, 21), (31, 41)]]), (2.0, 2.0));
        assert_eq!(of(&[&[(10, 20), (30, 40)], &[(22, 28), (42, 50)]]), (4.0, 2.0));
        // Entered at the very tick of the return: not known to come after it.
        assert_eq!(of(&[&[(10, 20)], &[(20, 30)]]), (1.0, 1.0));
        assert_eq!(of(&[&[(10, 20), (30, 70)], &[(22, 40), (45, 50), (55, 60)]]), (4.0, 3.0));
    }
}
