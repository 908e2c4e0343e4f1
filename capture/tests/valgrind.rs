//! Under valgrind, which runs one thread at a time and watches every access.

mod support;

use std::process::Command;

use hrr_format::archive::Archive;
use support::{Bench, Linked, Mode, names};

#[test]
fn a_program_under_valgrind_is_recorded_without_a_complaint() {
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no valgrind");
        return;
    }
    let bench = Bench::new();
    let source = r#"
    static void* work(void* p) { for (int i = 0; i < 50; i++) { int d; hipGetDevice(&d); } return 0; }
    int main(void) {
        pthread_t t;
        char host[64] = {1};
        void* memory;
        if (hipMalloc(&memory, 64) || hipMemcpy(memory, host, 64, hipMemcpyHostToDevice)) return 2;
        if (hipMemcpy(host, memory, 64, hipMemcpyDeviceToHost) || hipFree(memory)) return 3;
        pthread_create(&t, 0, work, 0);
        pthread_join(t, 0);
        return 0;
    }"#;
    let program = bench.program("watched", source, Linked::ToTheRuntime);
    let root = bench.path().join("watched.hrr");
    // The environment of a program is valgrind's own too: what is preloaded goes into both.
    let mut command = bench.command(std::path::Path::new("valgrind"), Mode::Contents, &root);
    let output = command.args(["-q", "--error-exitcode=9"]).arg(&program).output().expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let archive = Archive::open(&root).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert!(archive.manifest().complete, "{text}");
    assert_eq!(archive.streams().len(), 2);
    assert_eq!(names(&archive, 0), ["hipMalloc", "hipMemcpy", "hipMemcpy", "OBSERVED", "hipFree"]);
}
