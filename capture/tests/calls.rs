//! Records of ordinary calls: what a program's calls look like in the archive, and that the program sees no difference.

mod support;

use hrr_format::record::{Presence, SectionTag};
use support::{Bench, Linked, Mode, names, open_damaged};

const CALLS: &str = r#"
int main(void) {
    int device = -1;
    void* p = 0;
    errno = 77;
    if (hipGetDevice(&device) || device != 0) return 1;
    if (errno != 77) return 2;
    if (hipSetDevice(9) != 101) return 3;
    if (hipMalloc(&p, 1ul << 41) != 2) return 4;
    if (hipMalloc(&p, 64) || !p) return 5;
    if (strcmp(hipGetErrorName(0), "hipSuccess")) return 6;
    if (hipFree(p)) return 7;
    printf("%p\n", p);
    return 0;
}"#;

#[test]
fn calls_are_recorded_with_arguments_results_and_errors() {
    let bench = Bench::new();
    let run = bench.record("calls", CALLS, Mode::Metadata);
    let stderr = run.stderr();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stderr.starts_with("[HRR capture] Recording HIP calls of pid ") && stderr.contains("(contents: no"),
        "{stderr}"
    );
    let archive = run.archive();
    assert!(archive.warnings().is_empty(), "{:?}", archive.warnings());
    assert!(archive.manifest().complete);
    assert_eq!(archive.manifest().event_count, 6);
    assert_eq!(
        names(&archive, 0),
        ["hipGetDevice", "hipSetDevice", "hipMalloc", "hipMalloc", "hipGetErrorName", "hipFree"]
    );
    let records: Vec<_> = archive.streams()[0].records().collect();
    let out = records[0].section(SectionTag::Out, 0).unwrap();
    assert_eq!((out.presence, out.payload), (Presence::Present, &[0, 0, 0, 0][..]));
    assert_eq!((records[1].ret(), records[1].word(0)), (101, 9));
    let failed = records[2].section(SectionTag::Out, 0).unwrap();
    assert_eq!((records[2].ret(), failed.presence), (2, Presence::Absent));
    let address = records[3].section(SectionTag::Out, 0).unwrap().payload;
    assert_eq!(records[5].word(0).to_le_bytes(), address);
    assert!(records[4].section_tagged(SectionTag::Return).is_some_and(|section| section.payload != [0; 8]));
    for pair in records.windows(2) {
        assert!(pair[0].begin() < pair[0].end() && pair[0].end() < pair[1].begin());
    }
    assert!(records.iter().all(|record| !record.in_flight()));
}

#[test]
fn nothing_is_written_where_nothing_is_asked_for() {
    let bench = Bench::new();
    let run = bench.record("off", CALLS, Mode::Off);
    assert_eq!(run.stderr(), "");
    assert!(!run.root.exists());
    let program = bench.path().join("off");
    let blank = bench.command(&program, Mode::Off, &run.root).env("HIP_HRR_CAPTURE_OUTPUT", " ").output().unwrap();
    assert!(blank.status.success() && blank.stderr.is_empty());
}

#[test]
fn lookups_by_name_are_recorded_too() {
    let bench = Bench::new();
    // The program never links the runtime: it loads it privately, as script language bindings do.
    let source = r#"
    typedef hipError_t (*get_device)(int*);
    int main(void) {
        void* lib = dlopen("libamdhip64.so.7", RTLD_NOW | RTLD_LOCAL);
        if (!lib) return 1;
        int device = -1;
        if (((get_device)dlsym(lib, "hipGetDevice"))(&device)) return 2;
        hipError_t (*by_name)(const char*, void**, int, uint64_t, void*) = dlsym(lib, "hipGetProcAddress");
        void* found = 0;
        if (by_name("hipGetDevice", &found, 700, 0, 0) || !found) return 3;
        if (((get_device)found)(&device)) return 4;
        if (dlsym(lib, "hipNoSuchCall") || !dlerror()) return 5;
        if (dlsym(lib, "fake_calls") == 0) return 6;
        if (dlvsym(lib, "hipGetDevice", "hip_9.9")) return 7;
        return 0;
    }"#;
    let program = bench.program("lookups", source, Linked::ToNothing);
    let root = bench.path().join("lookups.hrr");
    let output = bench.command(&program, Mode::Metadata, &root).output().unwrap();
    assert!(output.status.success(), "{:?}", output);
    let archive = open_damaged(&root);
    assert_eq!(names(&archive, 0), ["hipGetDevice", "hipGetProcAddress", "hipGetDevice"]);
}

#[test]
fn a_missing_entry_point_fails_with_a_line() {
    let bench = Bench::new();
    let source = r#"
    hipError_t hipGetDevicePropertiesR0600(void*, int);
    int main(void) { char p[4096]; return hipGetDevicePropertiesR0600(p, 0) == hipErrorNotSupported ? 0 : 1; }"#;
    // Linked to the recorder, which has every entry point; the runtime lacks this one.
    let program = bench.path().join("missing");
    let file = bench.path().join("missing.c");
    std::fs::write(&file, source.replace("hipError_t", "int").replace("hipErrorNotSupported", "801")).unwrap();
    let status = std::process::Command::new("gcc")
        .arg("-o")
        .args([&program, &file, &support::capture_library(), &bench.path().join("libamdhip64.so.7")])
        .status()
        .unwrap();
    assert!(status.success());
    let output = bench.command(&program, Mode::Off, bench.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("has no hipGetDevicePropertiesR0600"));
}
