//! What is said about a call that did not do what it did at capture: the call with its arguments, both codes, and what
//! such a code usually means in a replay.

use hrr_format::archive::Archive;
use hrr_format::catalogue::APIS;
use hrr_format::hip_error::HipError;

use crate::info;
use crate::plan::timeline::Timeline;
use crate::run::{Failure, FailureKind};
use crate::survey::Survey;
use crate::triage::event_index::EventIndex;

/// What a code usually means where a call had succeeded at capture, by ascending code. Codes are those of `hipError_t`.
const MEANINGS: [(i32, &str); 33] = [
    (1, "this runtime or device does not take an argument that the recorded one took, such as a size above its limits"),
    (2, "less memory is free than at capture: other programs use the device, or it is a smaller one"),
    (9, "the launch is larger than this device allows"),
    (98, "the code objects are for another GPU architecture than this device's"),
    (100, "there is no device for this process: look at HIP_VISIBLE_DEVICES and at the driver"),
    (101, "there are fewer devices than at capture; --device-map says which one is to stand for another"),
    (200, "the code object is damaged, or of a kind that this runtime does not read"),
    (201, "the context was destroyed, or its device was reset"),
    (205, "the memory cannot be mapped there: other memory of this process lies at the recorded address"),
    (209, "the code objects are for another GPU architecture than this device's; record again on one like it"),
    (217, "these devices cannot reach each other's memory, as those of the recording could"),
    (218, "the code object is damaged, or of a kind that this runtime does not read"),
    (302, "a library that the runtime loads on demand is missing here"),
    (303, "a library that the runtime loads on demand cannot be initialised here"),
    (304, "the operating system refused something to the runtime, such as locked memory (ulimit -l) or threads"),
    (400, "what the handle stands for was not made, or exists no more: an earlier call did less here than at capture"),
    (500, "the code object has no such kernel or variable, or this runtime no such name"),
    (600, "work is still under way that had ended at capture"),
    (700, "a kernel touched memory that it may not touch; later calls tell of it. --sync-after-launch finds which"),
    (701, "the kernel needs more registers or shared memory than this device has"),
    (702, "the driver ended a kernel that ran for too long"),
    (704, "peer access is enabled already; one device may stand for several"),
    (705, "peer access was not enabled; an earlier call did less here than at capture"),
    (710, "an assertion in a kernel failed; --sync-after-launch finds in which"),
    (712, "the runtime takes this host memory for registered already"),
    (713, "the runtime does not take this host memory for registered"),
    (719, "a kernel ended with an error; later calls tell of it. --sync-after-launch finds which"),
    (720, "this device has room for fewer blocks at once than the recorded one"),
    (801, "this runtime or device does not offer the call"),
    (900, "a stream that is being captured does not take this call here, as it did at capture"),
    (901, "the capture was invalidated by an earlier call, which is told above"),
    (906, "a call on the legacy stream met a capture that was not under way at capture; --order capture keeps that"),
    (910, "the graph differs from the one that was instantiated, more than this runtime can update"),
];

/// What a code usually means in a replay, if more is known than its name says.
fn meaning(code: i32) -> Option<&'static str> {
    MEANINGS.binary_search_by_key(&code, |&(known, _)| known).ok().map(|position| MEANINGS[position].1)
}

/// Describes failures of a replay of `archive`, in their order.
pub(crate) fn describe(archive: &Archive, failures: &[Failure]) -> Vec<String> {
    // Nothing was kept for this during the run: the archive is gone over once more, up to the last event that failed.
    let index = EventIndex::new(archive.streams().len());
    if !failures.is_empty() {
        index.reached(&Timeline::new(archive.streams(), Survey::of(archive).delayed(archive).into()));
    }
    let records = index.find(failures.iter().map(|failure| failure.event));
    let describe = |failure: &Failure| {
        let thread = archive.streams().get(failure.lane as usize).map_or(failure.lane, |lane| lane.header().thread);
        let issued = APIS.get(usize::from(failure.api)).map_or("?", |api| api.name);
        let call = match records.get(&failure.event) {
            Some((_, record)) if archive.api(record.api()).name == issued => info::call_text(archive, record),
            // A call of replay's own, for the sake of a recorded one.
            Some((_, record)) => format!("{issued} (for {})", info::call_text(archive, record)),
            None => issued.to_owned(),
        };
        let what = match failure.kind {
            FailureKind::Code { got, expected } if tells_of_others(issued) => {
                format!("tells of {}; at capture it told of {}", code_and_name(got), code_and_name(expected))
            }
            ref kind => what_happened(kind),
        };
        format!("event {} (thread {thread}), {call}: {what}", failure.event)
    };
    failures.iter().map(describe).collect()
}

/// Whether a call returns what an earlier one left.
fn tells_of_others(api: &str) -> bool {
    matches!(api, "hipGetLastError" | "hipPeekAtLastError" | "hipExtGetLastError")
}

fn code_and_name(code: i32) -> String {
    format!("{code} ({})", HipError(code))
}

fn what_happened(kind: &FailureKind) -> String {
    let told = code_and_name;
    let usually = |code: i32| meaning(code).map_or_else(String::new, |meaning| format!(". Usually {meaning}"));
    match *kind {
        FailureKind::Code { got, expected: 0 } => {
            format!("failed with {}; it had succeeded (0) at capture{}", told(got), usually(got))
        }
        FailureKind::Code { got: 0, expected } => format!(
            "succeeded (0); at capture it had failed with {}. Usually this runtime or device allows what the recorded one did not",
            told(expected)
        ),
        FailureKind::Code { got, expected } => {
            format!("failed with {}; at capture it had failed with {}{}", told(got), told(expected), usually(got))
        }
        FailureKind::NotMade => "uses what a call that failed in this replay should have made; not issued".to_owned(),
        FailureKind::Device { device, got } => {
            format!("its device {device} cannot be made current: {}; not issued{}", told(got), usually(got))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_so_that_the_search_finds_each() {
        for pair in MEANINGS.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{pair:?}");
        }
        for (code, _) in MEANINGS {
            assert!(hrr_format::hip_error::name(code).is_some(), "{code}");
            assert!(meaning(code).is_some(), "{code}");
        }
        assert_eq!(meaning(0), None);
    }

    #[test]
    fn each_kind_of_failure_is_told_apart() {
        let code = |got, expected| what_happened(&FailureKind::Code { got, expected });
        assert_eq!(
            code(2, 0),
            "failed with 2 (hipErrorOutOfMemory); it had succeeded (0) at capture. Usually less memory is free than at \
             capture: other programs use the device, or it is a smaller one"
        );
        assert_eq!(
            code(0, 101),
            "succeeded (0); at capture it had failed with 101 (hipErrorInvalidDevice). Usually this runtime or device \
             allows what the recorded one did not"
        );
        assert_eq!(
            code(999, 1),
            "failed with 999 (hipErrorUnknown); at capture it had failed with 1 (hipErrorInvalidValue)"
        );
        assert_eq!(code(12345, 0), "failed with 12345 (hipError_t(12345)); it had succeeded (0) at capture");
    }
}
