//! Functions and kernels that a program had by enumeration are found by their names: a runtime that lists them in another order
//! gives the right ones all the same.

use hrr_tests::recording::{Contents, record};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;

#[test]
fn enumerated_kernels_are_found_by_name_whatever_their_order() {
    let straight = record(&Workload::listed("enumerated"), Contents::Recorded);
    let mut workload = Workload::listed("enumerated");
    workload.environment.push(("MINIHIP_REVERSE".to_owned(), "1".to_owned()));
    let reversed = record(&workload, Contents::Recorded);
    for (recording, order) in [(&straight, "1"), (&reversed, "0")] {
        for threads in ["0", "1"] {
            let replay = Replay::of_recording(recording).args(["--threads", threads]).env("MINIHIP_REVERSE", order);
            replay.run().expect_pass();
        }
    }
}

#[test]
fn the_names_are_listed_with_the_call() {
    let recording = record(&Workload::listed("enumerated"), Contents::Withheld);
    let info = Replay::of_recording(&recording).args(["--info", "--events"]).run().run;
    for api in ["hipModuleEnumerateFunctions", "hipLibraryEnumerateKernels"] {
        let line = info.stdout.lines().find(|line| line.contains(api)).unwrap_or_else(|| panic!("{info}"));
        assert!(line.contains("named [") && line.contains("\"iota\""), "{line}");
    }
}
