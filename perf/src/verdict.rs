//! Where a difference comes from, in one sentence.
//!
//! What is slow shows in several places: a slow kernel also makes the call longer that waits for it, a slow launch also
//! keeps the device waiting between two events. So parts are looked at in tiers, those that nothing else makes longer first,
//! and the first tier that accounts for the difference is the cause.

mod sentence;

use serde::Serialize;

use crate::change::{Basis, Change, Verdict};
use crate::line::{Line, LineKind};
use crate::report::CallKind;
use crate::stats::Interval;

/// Part of the difference from which a tier is taken for the cause. Of the runtime's own code `MOST_SHARE` is enough: nothing else
/// makes it longer, and it makes kernels and the replayer look longer. Where a launch took 20 us more on a device that had gone to
/// sleep by then, the events around it took 16 us more too, and the launches were 57 % of the difference, the kernels all of it.
const CAUSE_SHARE: f64 = 0.6;
/// The same where no tier accounts for as much.
const PART_SHARE: f64 = 0.3;
/// Part of the difference from which "most of it" is said.
const MOST_SHARE: f64 = 0.5;
/// Part of the difference from which "all of it" is said.
const ALL_SHARE: f64 = 0.8;
/// Part of what the first named line adds for sure that another one of its tier must add for sure to be named beside it.
///
/// A cause makes others longer that do nothing else than before: they wait for the same cores, caches and locks. Beside a lock in
/// hipStreamSynchronize that added 12.5 ms a repetition, copies added 3.6 ms on a machine with other users, and a typical one took
/// 9 to 30 % longer, which no test calls chance. What tells them from a second cause is how much they add for sure: 1.1 to 2.0 ms
/// in six such comparisons, of the lock's 9.7 ms for sure. Two causes of one size are both named, and the table has what is smaller.
const NAMED_SHARE: f64 = 1.0 / 3.0;
/// Least change of what a typical call takes that is spoken of: histograms hold durations to 1 %.
const SMALLEST_TYPICAL: f64 = 0.03;
/// The same in nanoseconds: clocks tell no less.
const SMALLEST_TYPICAL_NS: f64 = 25.0;
/// Part of the largest change among an API's kinds of copies from which another one is of the same cause.
const ALIKE_SHARE: f64 = 0.5;
/// Lines named.
const NAMED: usize = 3;

/// How much of the difference a cause accounts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// All of it, or nearly.
    All,
    /// Most of it.
    Most,
    /// Some of it.
    Some,
    /// There is no difference, or nothing that accounts for it.
    None,
}

/// Where the difference is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The parts that account for it, the largest first.
    pub causes: Vec<String>,
    /// How many more account for nearly as much as the first one.
    pub more: usize,
    /// What they are, in words.
    pub kind: Option<&'static str>,
    /// How much of it they account for.
    pub extent: Extent,
    /// What was not measured and would tell more.
    pub hint: Option<&'static str>,
    /// Calls, kernels or copies of which a typical one takes longer, or less, whether or not the wall time shows it.
    pub typical: Vec<Typical>,
}

/// What became of a typical call, kernel or copy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Typical {
    /// What it is called.
    pub name: String,
    /// Change of its median as a fraction of the baseline.
    pub change: f64,
    /// 95 % interval of the change.
    pub interval: Option<Interval>,
    /// What it takes on each side, in nanoseconds.
    pub medians_ns: [f64; 2],
}

/// What may be the cause, in the order in which it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    /// Calls that wait for nothing: the runtime's own code.
    Runtime,
    /// Kernels and graphs on the device.
    Kernels,
    /// Copies.
    Copies,
    /// Calls that wait for the device.
    Waits,
}

impl Tier {
    const ALL: [Tier; 4] = [Tier::Runtime, Tier::Kernels, Tier::Copies, Tier::Waits];

    fn holds(self, line: &Line) -> bool {
        match self {
            Tier::Runtime => matches!(line.kind, LineKind::Api(CallKind::Host | CallKind::Enqueue)),
            Tier::Kernels => line.kind == LineKind::Kernel,
            Tier::Copies => line.kind == LineKind::Copy,
            Tier::Waits => matches!(line.kind, LineKind::Api(CallKind::Wait | CallKind::Copy)),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Tier::Runtime => "host time of calls",
            Tier::Kernels => "device time of kernels",
            Tier::Copies => "copies",
            Tier::Waits => "calls that wait",
        }
    }
}

/// Looks for what accounts for the change of the wall time.
pub fn find(wall: &Change, lines: &[Line], timed: bool) -> Finding {
    let mut finding =
        Finding { causes: Vec::new(), more: 0, kind: None, extent: Extent::None, hint: None, typical: Vec::new() };
    if wall.basis == Basis::Repetitions && wall.verdict != Verdict::TooFewRepetitions {
        finding.typical = typical(lines);
    }
    if !wall.is_real() {
        return finding;
    }
    let added_ns = wall.added_ns();
    let same_way = |line: &&Line| line.change.verdict == wall.verdict && line.added_ns().signum() == added_ns.signum();
    // What only looks slower because it was kept waiting by other things, or by other programs, has a typical call as before.
    // It is looked at where nothing else accounts for the change.
    let clear = |line: &&Line| line.typical.is_none() || is_typical(line, wall.verdict);
    let tiers = |wanted: &dyn Fn(&&Line) -> bool| {
        Tier::ALL.map(|tier| {
            let found: Vec<&Line> =
                lines.iter().filter(|line| tier.holds(line)).filter(same_way).filter(|line| wanted(line)).collect();
            let sum_ns: f64 = found.iter().map(|line| line.added_ns()).sum();
            (tier, found, sum_ns)
        })
    };
    let clear_tiers = tiers(&clear);
    let all_tiers = tiers(&|_| true);
    let enough = |tiers: &'_ [(Tier, Vec<&Line>, f64)], share: f64| {
        let share_of = |tier: Tier| if tier == Tier::Runtime { share.min(MOST_SHARE) } else { share };
        tiers.iter().position(|(tier, found, sum_ns)| !found.is_empty() && sum_ns / added_ns >= share_of(*tier))
    };
    let choose = |share: f64| {
        let chosen = enough(&clear_tiers, share).map(|at| &clear_tiers[at]);
        chosen.or_else(|| enough(&all_tiers, share).map(|at| &all_tiers[at]))
    };
    let chosen = choose(CAUSE_SHARE).or_else(|| choose(PART_SHARE));
    // What the device took longer for makes the calls longer that wait for it, and so does all else that holds up the run. Where
    // the difference is known no better than within a wide interval, the device's part is held against what is sure of it.
    let sure_ns = certain_ns_of(wall);
    let is_explained = |tiers: &'_ [(Tier, Vec<&Line>, f64)]| {
        tiers.iter().position(|(tier, found, sum_ns)| {
            matches!(tier, Tier::Kernels | Tier::Copies)
                && !found.is_empty()
                && sum_ns / added_ns >= PART_SHARE
                && sum_ns.abs() >= CAUSE_SHARE * sure_ns
        })
    };
    let chosen = match chosen {
        Some((Tier::Waits, ..)) => is_explained(&clear_tiers).map(|at| &clear_tiers[at]).or(chosen),
        _ => chosen,
    };
    if let Some((tier, found, sum_ns)) = chosen {
        finding.causes = named(*tier, &largest(found), lines);
        finding.more = finding.causes.len().saturating_sub(NAMED);
        finding.causes.truncate(NAMED);
        finding.kind = Some(tier.as_str());
        finding.extent = match sum_ns / added_ns {
            share if share >= ALL_SHARE => Extent::All,
            share if share >= MOST_SHARE => Extent::Most,
            _ => Extent::Some,
        };
    }
    let may_be_the_device = !matches!(finding.kind, Some("host time of calls" | "device time of kernels"));
    finding.hint =
        (!timed && may_be_the_device).then_some("with --timing the report tells the device's time from the calls'");
    finding
}

/// Whether a typical one of what a line is about changed in this way for sure.
fn is_typical(line: &Line, verdict: Verdict) -> bool {
    let large = |change: &Change| {
        change.change.is_some_and(|change| change.abs() >= SMALLEST_TYPICAL)
            && change.added_ns().abs() >= SMALLEST_TYPICAL_NS
    };
    line.typical.as_ref().is_some_and(|typical| typical.verdict == verdict && large(typical))
}

/// The least change that is sure, as a fraction of the baseline.
fn near_end(change: &Change) -> f64 {
    match change.interval {
        Some(interval) if interval.low > 0.0 => interval.low,
        Some(interval) if interval.high < 0.0 => -interval.high,
        Some(_) => 0.0,
        None => change.change.map_or(f64::INFINITY, f64::abs),
    }
}

/// Nanoseconds that something differs by for sure.
fn certain_ns_of(change: &Change) -> f64 {
    // Of what was not there before, all is new: infinity times zero is no number, and `min` takes the other one.
    (near_end(change) * change.baseline.median).min(change.added_ns().abs())
}

/// Nanoseconds per repetition that a line differs by for sure: the near end of the interval, and of that only what a typical call
/// explains. Calls of one API are of several kinds, so each of them may have become longer by as much, or by as large a part.
fn certain_ns(line: &Line) -> f64 {
    let sum_ns = certain_ns_of(&line.change);
    let Some(typical) = line.typical.as_ref().filter(|typical| typical.is_real() && typical.baseline.median > 0.0)
    else {
        return sum_ns;
    };
    let [before, after] = line.count;
    let by_count = near_end(typical) * typical.baseline.median * before.max(after);
    let by_part = near_end(typical) * line.change.baseline.median;
    by_count.max(by_part).min(line.added_ns().abs())
}

/// The line that adds most for sure, and those that add nearly as much, the largest first.
fn largest<'l>(found: &[&'l Line]) -> Vec<&'l Line> {
    let mut sorted: Vec<(f64, &Line)> = found.iter().map(|line| (certain_ns(line), *line)).collect();
    sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
    let first_ns = sorted.first().map_or(0.0, |first| first.0);
    sorted
        .into_iter()
        .take_while(|(certain_ns, _)| *certain_ns >= NAMED_SHARE * first_ns)
        .map(|(_, line)| line)
        .collect()
}

/// The first tier in which something typical changed for sure and that is at least half of what any tier adds up to, the largest
/// changes first.
fn typical(lines: &[Line]) -> Vec<Typical> {
    let changed = |line: &&Line| is_typical(line, Verdict::Slower) || is_typical(line, Verdict::Faster);
    let added_ns = |line: &Line| {
        let [before, after] = line.count;
        line.typical.as_ref().map_or(0.0, |typical| typical.added_ns().abs() * before.max(after))
    };
    let tiers = Tier::ALL.map(|tier| {
        let found: Vec<&Line> = lines.iter().filter(|line| tier.holds(line)).filter(changed).collect();
        let sum_ns: f64 = found.iter().map(|line| added_ns(line)).sum();
        (found, sum_ns)
    });
    // What is only a little slower beside something that is much slower was kept waiting by that.
    let largest_ns = tiers.iter().fold(0.0, |largest: f64, (_, sum_ns)| largest.max(*sum_ns));
    let chosen = tiers.into_iter().find(|(found, sum_ns)| !found.is_empty() && *sum_ns >= MOST_SHARE * largest_ns);
    let Some((mut found, _)) = chosen else { return Vec::new() };
    let most_ns = found.iter().fold(0.0, |most: f64, line| most.max(added_ns(line)));
    found.retain(|line| added_ns(line) >= NAMED_SHARE * most_ns);
    let mut named: Vec<Typical> = found
        .into_iter()
        .filter_map(|line| line.typical.as_ref().map(|typical| (line, typical)))
        .map(|(line, typical)| Typical {
            name: if line.kind == LineKind::Kernel { format!("kernel {}", line.name) } else { line.name.clone() },
            change: typical.change.unwrap_or(0.0),
            interval: typical.interval,
            medians_ns: [typical.baseline.median, typical.candidate.median],
        })
        .collect();
    named.sort_by(|a, b| b.change.abs().total_cmp(&a.change.abs()));
    named.truncate(NAMED);
    named
}

/// The names of the causes. Copies of every kind that an API makes are named by the API.
fn named(tier: Tier, found: &[&Line], lines: &[Line]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for line in found {
        let siblings: Vec<&Line> = lines
            .iter()
            .filter(|other| other.kind == line.kind && other.api == line.api && line.api.is_some())
            .collect();
        // What became a little longer beside what became much longer was kept waiting by it.
        let change = |line: &Line| line.change.change.unwrap_or(f64::INFINITY).abs();
        let largest = siblings.iter().fold(0.0, |largest: f64, other| largest.max(change(other)));
        let is_alike = |other: &&Line| found.contains(other) && change(other) >= ALIKE_SHARE * largest;
        let all_of_them = tier == Tier::Copies && siblings.len() > 1 && siblings.iter().all(is_alike);
        let name = match &line.api {
            Some(api) if all_of_them => format!("{api} of every kind"),
            _ => line.name.clone(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noisy(base: f64) -> Vec<f64> {
        (0..8).map(|i| base * (1.0 + f64::from(i) * 0.001)).collect()
    }

    fn line(kind: LineKind, name: &str, api: Option<&str>, before: f64, after: f64) -> Line {
        Line {
            kind,
            name: name.to_owned(),
            api: api.map(str::to_owned),
            count: [1.0; 2],
            p50_ns: [0; 2],
            change: Change::new(noisy(before), noisy(after)),
            typical: None,
        }
    }

    fn sentence(lines: &[Line]) -> String {
        let wall = Change::new(noisy(1000.0), noisy(1100.0));
        find(&wall, lines, true).sentence(&wall)
    }

    const WAIT: LineKind = LineKind::Api(CallKind::Wait);

    #[test]
    fn a_slow_kernel_is_the_cause_and_the_wait_for_it_is_not() {
        let lines = [
            line(WAIT, "hipStreamSynchronize", Some("hipStreamSynchronize"), 500.0, 600.0),
            line(LineKind::Kernel, "gemm", None, 400.0, 498.0),
            line(LineKind::Kernel, "iota", None, 100.0, 100.0),
        ];
        let text = sentence(&lines);
        assert!(
            text.starts_with("B is 10.0 % slower (95 % CI ") && text.ends_with(", all of it in kernel gemm"),
            "{text}"
        );
    }

    #[test]
    fn a_slow_launch_is_the_cause_though_kernels_look_longer() {
        let lines = [
            line(LineKind::Kernel, "gemm", None, 400.0, 500.0),
            line(LineKind::Api(CallKind::Enqueue), "hipLaunchKernel", Some("hipLaunchKernel"), 100.0, 190.0),
        ];
        assert!(sentence(&lines).ends_with("all of it in hipLaunchKernel"));
        // The events around the kernels became longer as well: the launches are only most of the difference.
        let lines = [
            line(LineKind::Kernel, "gemm", None, 400.0, 500.0),
            line(LineKind::Api(CallKind::Enqueue), "hipLaunchKernel", Some("hipLaunchKernel"), 100.0, 157.0),
        ];
        assert!(sentence(&lines).ends_with("most of it in hipLaunchKernel"));
    }

    #[test]
    fn one_class_of_copies_is_told_from_all_of_an_api() {
        let api = Some("hipMemcpyAsync");
        let mut lines = [
            line(LineKind::Copy, "hipMemcpyAsync H2D > 16 MiB", api, 300.0, 400.0),
            line(LineKind::Copy, "hipMemcpyAsync D2H > 16 MiB", api, 300.0, 300.0),
        ];
        assert!(sentence(&lines).ends_with("all of it in hipMemcpyAsync H2D > 16 MiB"));
        lines[0] = line(LineKind::Copy, "hipMemcpyAsync H2D > 16 MiB", api, 300.0, 350.0);
        lines[1] = line(LineKind::Copy, "hipMemcpyAsync D2H > 16 MiB", api, 300.0, 350.0);
        assert!(sentence(&lines).ends_with("all of it in hipMemcpyAsync of every kind"));
        // One that became a little longer is not all of them.
        lines[0] = line(LineKind::Copy, "hipMemcpyAsync H2D > 16 MiB", api, 300.0, 380.0);
        lines[1] = line(LineKind::Copy, "hipMemcpyAsync D2H > 16 MiB", api, 300.0, 320.0);
        assert!(sentence(&lines).contains("in hipMemcpyAsync H2D > 16 MiB"));
        assert!(!sentence(&lines).contains("of every kind"));
    }

    #[test]
    fn a_wait_that_nothing_on_the_device_explains_is_itself_the_cause() {
        let lines = [
            line(WAIT, "hipStreamSynchronize", Some("hipStreamSynchronize"), 500.0, 600.0),
            line(LineKind::Kernel, "gemm", None, 400.0, 400.0),
        ];
        assert!(sentence(&lines).ends_with("all of it in hipStreamSynchronize"));
    }

    #[test]
    fn a_tier_that_accounts_for_little_gives_way_to_one_that_accounts_for_it_all() {
        let lines = [
            line(LineKind::Kernel, "gemm", None, 400.0, 445.0),
            line(WAIT, "hipStreamSynchronize", Some("hipStreamSynchronize"), 500.0, 600.0),
        ];
        assert!(sentence(&lines).ends_with("all of it in hipStreamSynchronize"));
        assert!(sentence(&lines[..1]).ends_with("some of it in kernel gemm"));
    }

    #[test]
    fn what_a_typical_call_takes_tells_where_the_wall_time_is_noise() {
        let same = Change::new(noisy(1000.0), noisy(1000.0));
        let slower = |mut line: Line| {
            line.typical = Some(Change::new(noisy(1000.0), noisy(1200.0)));
            line
        };
        let api = Some("hipLaunchKernel");
        let lines = [
            slower(line(WAIT, "hipStreamSynchronize", Some("hipStreamSynchronize"), 500.0, 500.0)),
            slower(line(LineKind::Api(CallKind::Enqueue), "hipLaunchKernel", api, 100.0, 100.0)),
        ];
        let text = find(&same, &lines, true).sentence(&same);
        assert!(text.contains("; but a typical hipLaunchKernel takes +20.0 % (95 % CI "), "{text}");
        assert!(!text.contains("hipStreamSynchronize"), "{text}");
    }

    #[test]
    fn what_took_next_to_nothing_before_is_told_in_times() {
        let same = Change::new(noisy(1000.0), noisy(1000.0));
        let mut lines = [line(WAIT, "hipStreamSynchronize", Some("hipStreamSynchronize"), 500.0, 500.0)];
        lines[0].typical = Some(Change::new(noisy(50.0), noisy(50_000.0)));
        let text = find(&same, &lines, true).sentence(&same);
        assert!(text.ends_with("; but a typical hipStreamSynchronize takes 50.17 us where it took 50 ns"), "{text}");
    }

    #[test]
    fn of_typical_calls_those_that_add_most_are_named() {
        let same = Change::new(noisy(1000.0), noisy(1000.0));
        let mut lines = [
            line(LineKind::Kernel, "gemm", None, 400.0, 400.0),
            line(WAIT, "hipStreamSynchronize", Some("hipStreamSynchronize"), 500.0, 500.0),
        ];
        lines[0].typical = Some(Change::new(noisy(1000.0), noisy(1200.0)));
        lines[1].typical = Some(Change::new(noisy(10_000.0), noisy(12_000.0)));
        let text = find(&same, &lines, true).sentence(&same);
        assert!(text.contains("; but a typical hipStreamSynchronize takes") && !text.contains("gemm"), "{text}");
        lines[0].count = [10.0; 2];
        let text = find(&same, &lines, true).sentence(&same);
        assert!(text.contains("; but a typical kernel gemm takes") && !text.contains("hipStream"), "{text}");
    }

    #[test]
    fn of_what_waits_that_with_a_slower_typical_call_is_the_cause() {
        let mut lines = [
            line(WAIT, "hipStreamSynchronize", Some("hipStreamSynchronize"), 500.0, 570.0),
            line(LineKind::Api(CallKind::Copy), "hipMemcpyAsync", Some("hipMemcpyAsync"), 500.0, 530.0),
        ];
        assert!(sentence(&lines).ends_with("all of it in hipStreamSynchronize and hipMemcpyAsync"));
        lines[0].typical = Some(Change::new(noisy(1000.0), noisy(1200.0)));
        lines[1].typical = Some(Change::new(noisy(1000.0), noisy(1000.0)));
        assert!(sentence(&lines).ends_with("most of it in hipStreamSynchronize"));
    }

    /// A line as a report has it: times per repetition and of a typical call, in microseconds.
    fn measured(kind: LineKind, name: &str, calls: f64, sums: [&[f64]; 2], typical: [&[f64]; 2]) -> Line {
        let nanoseconds = |values: &[f64]| values.iter().map(|us| us * 1e3).collect::<Vec<f64>>();
        let [sums, typical] = [sums, typical].map(|sides| sides.map(nanoseconds));
        let [before, after] = sums;
        let mut line = line(kind, name, Some(name), 0.0, 0.0);
        line.count = [calls; 2];
        line.change = Change::among(before, after, 15);
        let [before, after] = typical;
        line.typical = Some(Change::among_medians(before, after, 15));
        line
    }

    /// A comparison of a build with a lock of 50 us in stream synchronisation, on a machine with other users.
    fn lock_and_victim() -> (Change, [Line; 2]) {
        let wall = Change::new(
            [24348, 18345, 18321, 19459, 18807, 19176, 18121, 23247, 19223, 18632, 26666, 22713]
                .map(|us| f64::from(us) * 1e3)
                .to_vec(),
            [31465, 28889, 28185, 28225, 29345, 29295, 29343, 28534, 31443, 28625, 28869, 28340]
                .map(|us| f64::from(us) * 1e3)
                .to_vec(),
        );
        let lock = measured(
            WAIT,
            "hipStreamSynchronize",
            193.0,
            [
                &[9027., 8221., 7797., 8330., 8282., 8189., 8328., 8223., 8512., 8434., 13382., 8573.],
                &[21324., 20863., 20650., 20891., 21113., 20808., 20742., 20661., 21116., 20735., 21097., 20885.],
            ],
            [&[0.06, 0.05, 0.05, 0.05, 0.06, 0.06, 0.05, 0.06, 0.06, 0.06, 0.06, 0.06], &[50.2; 12]],
        );
        let victim = measured(
            LineKind::Api(CallKind::Copy),
            "hipMemcpyAsync",
            224.0,
            [
                &[14533., 14290., 12691., 13406., 13141., 13011., 13183., 13237., 13627., 13557., 19700., 15716.],
                &[17596., 16866., 17109., 16758., 17731., 17108., 16985., 16931., 17228., 17080., 16471., 17230.],
            ],
            [
                &[27.9, 31.1, 25.6, 26.9, 26.6, 26.5, 28.2, 30.5, 27.5, 27.5, 27.4, 27.1],
                &[32.0, 28.0, 31.1, 35.1, 33.3, 34.0, 35.8, 31.4, 35.3, 36.1, 32.4, 36.1],
            ],
        );
        (wall, [lock, victim])
    }

    #[test]
    fn what_became_longer_beside_the_cause_is_not_a_second_one() {
        let (wall, mut lines) = lock_and_victim();
        // Its change is no chance, neither of the sum nor of a typical call, and a fifth of what the tier adds.
        assert!(lines[1].change.is_real() && is_typical(&lines[1], Verdict::Slower));
        assert!(lines[1].added_ns() / (lines[0].added_ns() + lines[1].added_ns()) > 0.2);
        let text = find(&wall, &lines, true).sentence(&wall);
        assert!(text.ends_with(", all of it in hipStreamSynchronize"), "{text}");
        // The same where the wall time shows nothing.
        let same = Change::new(noisy(1000.0), noisy(1000.0));
        let text = find(&same, &lines, true).sentence(&same);
        assert!(text.ends_with("; but a typical hipStreamSynchronize takes 50.20 us where it took 60 ns"), "{text}");
        // A second cause of some size is named: copies that each take half as long again.
        let slower = |values: &[f64], times: f64| values.iter().map(|value| value * times).collect::<Vec<f64>>();
        let [sums, typical] = [&lines[1].change, lines[1].typical.as_ref().unwrap()].map(|change| {
            let before = &change.baseline.values;
            (before.clone(), slower(before, 1.5))
        });
        lines[1].change = Change::among(sums.0, sums.1, 15);
        lines[1].typical = Some(Change::among_medians(typical.0, typical.1, 15));
        let text = find(&wall, &lines, true).sentence(&wall);
        assert!(text.ends_with(", all of it in hipStreamSynchronize and hipMemcpyAsync"), "{text}");
    }

    #[test]
    fn a_wait_beside_copies_that_explain_what_is_sure_of_a_noisy_difference_is_not_the_cause() {
        let spread = |base: f64, spread: f64| (0..12).map(|i| base + spread * f64::from(i)).collect::<Vec<f64>>();
        // Slower by 9 % or so, in which other programs have a part: 3 % is sure.
        let wall = Change::new(spread(1000.0, 2.0), spread(1020.0, 18.0));
        let sure = near_end(&wall);
        assert!(wall.is_real() && sure < 0.06 && wall.added_ns() > 70.0, "{wall:?}");
        let copies = line(LineKind::Copy, "hipMemcpyAsync H2D <= 1 MiB", Some("hipMemcpyAsync"), 300.0, 345.0);
        let wait = line(WAIT, "hipStreamSynchronize", Some("hipStreamSynchronize"), 500.0, 600.0);
        let text = find(&wall, &[copies.clone(), wait.clone()], true).sentence(&wall);
        assert!(text.ends_with("in hipMemcpyAsync H2D <= 1 MiB"), "{text}");
        // Of a difference that is sure they are too small a part.
        let wall = Change::new(noisy(1000.0), noisy(1100.0));
        let text = find(&wall, &[copies, wait], true).sentence(&wall);
        assert!(text.ends_with("all of it in hipStreamSynchronize"), "{text}");
    }

    #[test]
    fn of_many_small_causes_the_largest_are_named() {
        let lines: Vec<Line> = (0..10)
            .map(|number| line(LineKind::Kernel, &format!("k{number}"), None, 100.0, 110.0 + f64::from(number) * 0.1))
            .collect();
        assert!(
            sentence(&lines).ends_with(", all of it in kernel k9 and k8 and k7 and 7 more"),
            "{}",
            sentence(&lines)
        );
    }

    #[test]
    fn noise_and_unexplained_differences_are_called_that() {
        let same = Change::new(noisy(1000.0), noisy(1000.0));
        let finding = find(&same, &[], true);
        assert!(finding.sentence(&same).starts_with("no difference"));
        assert!(sentence(&[]).ends_with("no single call, kernel or copy accounts for it"));
        let faster = Change::new(noisy(1100.0), noisy(1000.0));
        assert!(find(&faster, &[], true).sentence(&faster).starts_with("B is 9.1 % faster (95 % CI "));
    }
}
