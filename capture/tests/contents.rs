//! Contents: what is recorded with them and without, when results are taken, and that the program's own view of the runtime
//! stays what it was.

mod support;

use hrr_format::blob_store::BLOBS_DIR;
use hrr_format::record::{BlobRef, Presence, SectionTag};
use support::{Bench, Mode, blob, name, names};

const COPIES: &str = r#"
int main(void) {
    char secret[64] = "the prompt that must not be in a metadata-only archive";
    int token = 0x51ab77e1;
    void* d; char back[64]; void* pinned; char rows[4][16];
    hipMalloc(&d, 64);
    hipHostMalloc(&pinned, 64, 0);
    strcpy(pinned, "pinned secret words");
    memset(rows, '#', sizeof rows);
    for (int i = 0; i < 4; i++) memcpy(rows[i], "rowdata", 7);
    hipMemcpy(d, secret, 64, hipMemcpyHostToDevice);
    hipMemcpy(back, d, 64, hipMemcpyDeviceToHost);
    if (memcmp(back, secret, 64)) return 1;
    hipMemcpy(d, pinned, 64, hipMemcpyDefault);
    hipMemcpy(d, &token, 4, hipMemcpyHostToDevice);
    hipMemcpy2DAsync(d, 7, rows, 16, 7, 4, hipMemcpyHostToDevice, 0);
    hipDeviceSynchronize();
    hipSetupArgument(&token, 4, 0);
    if (hipMemcpy(0, secret, 64, hipMemcpyHostToDevice) != hipErrorInvalidValue) return 2;
    return 0;
}"#;

/// Every byte of every file of an archive.
fn all_bytes(root: &std::path::Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(root).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            bytes.extend(all_bytes(&entry.path()));
        } else {
            bytes.extend(std::fs::read(entry.path()).unwrap());
        }
    }
    bytes
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

const SECRETS: [&[u8]; 4] =
    [b"the prompt that must", b"pinned secret words", &0x51ab_77e1u32.to_le_bytes(), b"rowdata"];

#[test]
fn contents_are_recorded_when_they_are_asked_for() {
    let bench = Bench::new();
    let run = bench.record("copies", COPIES, Mode::Contents);
    assert!(run.stderr().contains("(contents: yes"), "{}", run.stderr());
    let archive = run.archive();
    let bytes = all_bytes(&run.root);
    for secret in SECRETS {
        assert!(contains(&bytes, secret));
    }
    let records: Vec<_> = archive.streams()[0].records().collect();
    assert_eq!(
        names(&archive, 0),
        [
            "hipMalloc",
            "hipHostMalloc",
            "hipMemcpy",
            "hipMemcpy",
            "OBSERVED",
            "hipMemcpy",
            "hipMemcpy",
            "hipMemcpy2DAsync",
            "hipDeviceSynchronize",
            "hipSetupArgument",
            "hipMemcpy"
        ]
    );
    let sent = blob(&archive, &records[2], SectionTag::BlobIn).unwrap();
    assert!(sent.starts_with(b"the prompt"));
    assert_eq!(blob(&archive, &records[3], SectionTag::BlobOut), Some(sent));
    assert_eq!(records[4].word(0), records[3].section_tagged(SectionTag::BlobOut).unwrap().blob().unwrap().number);
    assert!(blob(&archive, &records[5], SectionTag::BlobIn).unwrap().starts_with(b"pinned secret"));
    assert_eq!(blob(&archive, &records[7], SectionTag::BlobIn), Some(b"rowdatarowdatarowdatarowdata".to_vec()));
    assert_eq!(archive.blobs().stored().contents, 4, "equal contents are stored once");
    assert_eq!(records[9].section(SectionTag::In, 0).unwrap().presence, Presence::Present);
}

#[test]
fn without_contents_nothing_of_them_is_in_the_archive() {
    let bench = Bench::new();
    let run = bench.record("withheld", COPIES, Mode::Metadata);
    let archive = run.archive();
    let bytes = all_bytes(&run.root);
    for secret in SECRETS {
        assert!(!contains(&bytes, secret), "{secret:?}");
    }
    let process = archive.path();
    assert!(!process.join(BLOBS_DIR).exists());
    let records: Vec<_> = archive.streams()[0].records().collect();
    for (record, tag) in [(&records[2], SectionTag::BlobIn), (&records[3], SectionTag::BlobOut)] {
        let section = record.section_tagged(tag).unwrap();
        assert_eq!(section.presence, Presence::Withheld);
        assert_eq!(section.blob(), Some(BlobRef { number: BlobRef::WITHHELD, size_bytes: 64 }));
    }
    let argument = records.iter().find(|record| name(&archive, record) == "hipSetupArgument").unwrap();
    let section = argument.section(SectionTag::In, 0).unwrap();
    assert_eq!((section.presence, section.payload), (Presence::Withheld, &[0; 4][..]));
    assert!(!names(&archive, 0).contains(&"OBSERVED".to_owned()));
}

#[test]
fn asynchronous_results_are_taken_at_the_programs_own_synchronisation() {
    let bench = Bench::new();
    let source = r#"
    static char a[16] = "first result....", b[16] = "second result...", c[16] = "third result....";
    int main(int argc, char** argv) {
        fake_sticky_errors(getenv("STICKY") != 0);
        char* out; void* d; hipStream_t s, t; hipEvent_t e;
        hipMalloc(&d, 16);
        hipHostMalloc((void**)&out, 64, 0);
        hipStreamCreate(&s);
        hipStreamCreate(&t);
        hipEventCreate(&e);
        hipMemcpyAsync(out, d, 16, hipMemcpyDeviceToHost, s);       /* overwritten before it is seen */
        hipMemcpyAsync(out, a, 16, hipMemcpyDeviceToHost, s);       /* seen by the query of s */
        hipMemcpyAsync(out + 16, b, 16, hipMemcpyDeviceToHost, t);  /* seen by the event of t */
        hipEventRecord(e, t);
        hipMemcpyAsync(out + 32, c, 16, hipMemcpyDeviceToHost, t);  /* never seen: freed before */
        if (hipStreamQuery(s) != hipErrorNotReady) return 1;
        hipGetLastError();
        fake_advance(s, 100);
        if (hipStreamQuery(s) != 0) return 2;
        if (hipGetLastError() != 0) return 3;
        fake_advance(t, 3);
        if (hipEventQuery(e) != 0) return 4;
        if (hipGetLastError() != 0) return 5;
        if (memcmp(out, a, 16) || memcmp(out + 16, b, 16)) return 6;
        hipHostFree(out);
        if (hipStreamSynchronize(t)) return 7;
        if (hipGetLastError() != 0) return 8;
        if (fake_calls("hipStreamSynchronize") != 1 || fake_calls("hipDeviceSynchronize") != 0) return 9;
        if (fake_calls("hipEventSynchronize") != 0) return 10;
        return 0;
    }"#;
    let program = bench.program("results", source, support::Linked::ToTheRuntime);
    for sticky in [false, true] {
        let root = bench.path().join(format!("results{sticky}.hrr"));
        let mut command = bench.command(&program, Mode::Contents, &root);
        if sticky {
            command.env("STICKY", "1");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "sticky {sticky}: {output:?}");
        let archive = hrr_format::archive::Archive::open(&root).unwrap();
        let names = names(&archive, 0);
        let seen: Vec<_> = archive.streams()[0]
            .records()
            .zip(&names)
            .filter(|(_, name)| *name == "OBSERVED")
            .map(|(record, _)| archive.blobs().get(record.word(0)).unwrap().unwrap().to_vec())
            .collect();
        assert_eq!(seen, [b"first result....".to_vec(), b"second result...".to_vec()], "sticky {sticky}");
        let after: Vec<_> =
            names.windows(2).filter(|pair| pair[1] == "OBSERVED").map(|pair| pair[0].as_str()).collect();
        assert_eq!(after, ["hipStreamQuery", "hipEventQuery"]);
        assert_eq!((archive.blobs().len(), archive.manifest().blob_count), (2, 4));
    }
}

#[test]
fn a_copy_from_memory_that_a_result_is_still_written_to_is_recorded_with_the_result() {
    let bench = Bench::new();
    let source = r#"
    int main(void) {
        void *a, *b, *pinned;
        char pageable[64] = "the device's own words", back[64] = {0};
        hipStream_t s;
        hipMalloc(&a, 64);
        hipMalloc(&b, 64);
        hipHostMalloc(&pinned, 64, 0);
        memset(pinned, 'x', 64);
        hipStreamCreate(&s);
        hipMemcpy(a, pageable, 64, hipMemcpyHostToDevice);
        hipMemcpyAsync(pinned, a, 64, hipMemcpyDeviceToHost, s);
        hipMemcpyAsync(b, pinned, 64, hipMemcpyHostToDevice, s);
        fake_advance(s, 100);
        hipStreamSynchronize(s);
        hipMemcpyAsync(b, pinned, 64, hipMemcpyHostToDevice, s);
        hipMemcpy(back, b, 64, hipMemcpyDeviceToHost);
        return strcmp(back, pageable);
    }"#;
    let run = bench.record("round_trip", source, Mode::Contents);
    let archive = run.archive();
    let records: Vec<_> =
        archive.streams()[0].records().filter(|record| name(&archive, record) == "hipMemcpyAsync").collect();
    let result = blob(&archive, &records[0], SectionTag::BlobOut).unwrap();
    assert!(result.starts_with(b"the device's own words"));
    assert_eq!(blob(&archive, &records[1], SectionTag::BlobIn).as_ref(), Some(&result));
    assert_eq!(blob(&archive, &records[2], SectionTag::BlobIn), Some(result));
}

#[test]
fn an_error_the_program_has_not_asked_for_yet_survives_the_recording() {
    let bench = Bench::new();
    let source = r#"
    int main(void) {
        fake_sticky_errors(1);
        char* out; void* d; hipStream_t s, t;
        hipMalloc(&d, 16);
        hipHostMalloc((void**)&out, 64, 0);
        hipStreamCreate(&s);
        hipStreamCreate(&t);
        hipMemcpyAsync(out, d, 16, hipMemcpyDeviceToHost, s);
        hipMemcpyAsync(out + 16, d, 16, hipMemcpyDeviceToHost, t);
        if (hipMalloc(&d, 1ul << 50) != 2) return 1;
        if (hipStreamSynchronize(s)) return 2;       /* the copy on t is still under way */
        if (hipGetLastError() != 2) return 3;
        if (hipDeviceSynchronize()) return 4;
        if (hipGetLastError() != 0) return 5;
        return 0;
    }"#;
    let run = bench.record("pending_error", source, Mode::Contents);
    let names = names(&run.archive(), 0);
    let after: Vec<_> = names.windows(2).filter(|pair| pair[1] == "OBSERVED").map(|pair| pair[0].as_str()).collect();
    assert_eq!(after, ["hipStreamSynchronize", "hipDeviceSynchronize"]);
}

#[test]
fn copies_in_graphs_read_and_write_host_memory_at_each_launch() {
    let bench = Bench::new();
    let source = r#"
    int main(void) {
        char *in, *out; void* d; hipStream_t s; hipGraph_t g, h; hipGraphExec_t x, y; hipGraphNode_t n;
        hipMalloc(&d, 8);
        hipHostMalloc((void**)&in, 8, 0);
        hipHostMalloc((void**)&out, 8, 0);
        hipStreamCreate(&s);
        hipStreamBeginCapture(s, 0);
        hipMemcpyAsync(d, in, 8, hipMemcpyHostToDevice, s);
        hipMemcpyAsync(out, d, 8, hipMemcpyDeviceToHost, s);
        hipStreamEndCapture(s, &g);
        hipGraphInstantiate(&x, g, 0, 0, 0);
        unsigned long before = fake_calls("hipEventRecord");
        memcpy(in, "launch-1", 8);
        hipGraphLaunch(x, s);
        hipStreamSynchronize(s);
        memcpy(in, "launch-2", 8);
        hipGraphLaunch(x, s);
        hipStreamSynchronize(s);
        if (memcmp(out, "launch-2", 8)) return 1;
        hipGraphCreate(&h, 0);
        hipGraphAddMemcpyNode1D(&n, h, 0, 0, d, in, 8, hipMemcpyHostToDevice);
        hipGraphInstantiate(&y, h, 0, 0, 0);
        memcpy(in, "explicit", 8);
        hipGraphLaunch(y, s);
        hipStreamSynchronize(s);
        return 0;
    }"#;
    let run = bench.record("graphs", source, Mode::Contents);
    let archive = run.archive();
    let records: Vec<_> = archive.streams()[0].records().collect();
    let names = names(&archive, 0);
    let of = |wanted: &str| -> Vec<_> {
        records.iter().zip(&names).filter(|(_, name)| *name == wanted).map(|(record, _)| record).collect()
    };
    for copy in of("hipMemcpyAsync").iter().chain(&of("hipGraphAddMemcpyNode1D")) {
        assert!(
            copy.section_tagged(SectionTag::BlobIn).is_none() && copy.section_tagged(SectionTag::BlobOut).is_none()
        );
    }
    let launches = of("hipGraphLaunch");
    let host = of("hipHostMalloc")[0].section(SectionTag::Out, 0).unwrap().payload;
    for (launch, text) in launches.iter().zip([b"launch-1", b"launch-2", b"explicit"]) {
        let section = launch.section_tagged(SectionTag::GraphHostIn).unwrap();
        assert_eq!(section.host_address().unwrap().to_le_bytes(), host);
        assert_eq!(blob(&archive, launch, SectionTag::GraphHostIn), Some(text.to_vec()));
    }
    for (launch, text) in launches.iter().take(2).zip([b"launch-1", b"launch-2"]) {
        assert_eq!(blob(&archive, launch, SectionTag::GraphHostOut), Some(text.to_vec()));
    }
    assert!(launches[2].section_tagged(SectionTag::GraphHostOut).is_none());
    assert_eq!(of("OBSERVED").len(), 2);
}

#[test]
fn a_wrong_pointer_is_for_the_runtime_to_refuse() {
    let bench = Bench::new();
    let source = r#"
    int main(void) {
        void* d;
        hipMalloc(&d, 64);
        char small[16];
        /* The runtime of this test queues the copy and never runs it; a recorder that read the source would die here. */
        hipMemcpyAsync(d, small, 1ul << 40, hipMemcpyHostToDevice, 0);
        hipMemcpyAsync(d, (void*)0x10, 65, hipMemcpyDefault, 0);
        _exit(0);
    }"#;
    let run = bench.record("wrong", source, Mode::Contents);
    let archive = run.archive();
    for record in archive.streams()[0].records().skip(1) {
        assert_eq!(record.section_tagged(SectionTag::BlobIn).unwrap().presence, Presence::Absent);
    }
}

#[test]
fn a_killed_recording_keeps_the_contents_that_were_written() {
    let bench = Bench::new();
    let source = r#"
    #include <signal.h>
    int main(void) {
        void* d; char big[4096];
        hipMalloc(&d, sizeof big);
        for (int i = 0; i < 200; i++) {
            memset(big, i, sizeof big);
            hipMemcpy(d, big, sizeof big, hipMemcpyHostToDevice);
        }
        /* Time enough for the writer on a machine with much else to do. */
        usleep(2000000);
        raise(SIGKILL);
    }"#;
    let program = bench.program("killed", source, support::Linked::ToTheRuntime);
    let root = bench.path().join("killed.hrr");
    bench.command(&program, Mode::Contents, &root).output().unwrap();
    let archive = hrr_format::archive::Archive::open(&root).unwrap();
    assert!(!archive.manifest().complete);
    let records: Vec<_> = archive.streams()[0].records().skip(1).collect();
    assert_eq!(records.len(), 200);
    for (index, record) in records.iter().enumerate() {
        assert_eq!(blob(&archive, record, SectionTag::BlobIn), Some(vec![index as u8; 4096]));
    }
}
