//! Threads that come and go, forks, exits of every kind, and a process that is killed.

mod support;

use std::os::unix::process::ExitStatusExt;

use hrr_format::archive::Archive;
use support::{Bench, Linked, Mode, names, open_damaged};

#[test]
fn each_thread_has_its_own_stream_in_its_own_order() {
    let bench = Bench::new();
    let source = r#"
    static void* work(void* n) {
        for (long i = 0; i < 40000; i++) { int d; hipGetDevice(&d); hipSetDevice((int)(long)n); }
        return 0;
    }
    int main(void) {
        pthread_t t[8];
        for (long i = 0; i < 8; i++) pthread_create(&t[i], 0, work, (void*)i);
        for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
        return 0;
    }"#;
    let run = bench.record("threads", source, Mode::Metadata);
    let archive = run.archive();
    assert_eq!(archive.streams().len(), 8);
    assert_eq!(archive.manifest().event_count, 8 * 80_000);
    for stream in archive.streams() {
        let mut count = 0;
        let mut last = 0;
        let mut device = None;
        for (position, record) in stream.records().enumerate() {
            assert!(last < record.begin() && record.begin() < record.end());
            last = record.end();
            if position % 2 == 1 {
                assert_eq!(*device.get_or_insert(record.word(0)), record.word(0));
            }
            count += 1;
        }
        assert_eq!(count, 80_000);
        assert_eq!(stream.header().used_bytes, std::fs::metadata(stream.path()).unwrap().len());
    }
}

#[test]
fn calls_before_main_after_main_and_from_thread_exit_destructors_are_recorded() {
    let bench = Bench::new();
    let source = r#"
    static pthread_key_t key;
    static int d;
    __attribute__((constructor)) static void before(void) { hipSetDevice(1); }
    __attribute__((destructor)) static void after(void) { hipSetDevice(4); }
    static void at_exit(void) { hipSetDevice(3); }
    static void thread_end(void* p) {
        hipSetDevice(2);
        if ((long)p < 3) pthread_setspecific(key, (void*)((long)p + 1));
    }
    static void* work(void* p) { hipGetDevice(&d); pthread_setspecific(key, (void*)1); return 0; }
    int main(void) {
        atexit(at_exit);
        pthread_key_create(&key, thread_end);
        pthread_t t;
        pthread_create(&t, 0, work, 0);
        pthread_join(t, 0);
        return 0;
    }"#;
    let run = bench.record("ends", source, Mode::Metadata);
    let archive = run.archive();
    let mut devices: Vec<u64> = archive
        .streams()
        .iter()
        .flat_map(|stream| stream.records().filter(|record| record.ret() != 0 || record.word(0) < 10))
        .map(|record| record.word(0))
        .collect();
    devices.sort_unstable();
    assert_eq!(devices, [1, 2, 2, 2, 3, 4]);
    assert!(archive.manifest().complete);
    assert_eq!(archive.manifest().event_count, 7);
}

#[test]
fn a_forked_child_records_into_its_own_directory() {
    let bench = Bench::new();
    let source = r#"
    #include <sys/wait.h>
    static volatile int go = 1;
    // With pauses, or it would fill a disk on a machine that takes long over the rest.
    static void* busy(void* p) {
        while (go) { int d; for (int k = 0; k < 200; k++) hipGetDevice(&d); usleep(100); }
        return 0;
    }
    int main(void) {
        pthread_t t;
        int d;
        hipGetDevice(&d);
        pthread_create(&t, 0, busy, 0);
        for (int i = 0; i < 20; i++) {
            pid_t child = fork();
            if (child == 0) {
                if (i % 2) for (int k = 0; k < 5000; k++) hipSetDevice(7);
                if (i % 3 == 0) _exit(0);
                exit(0);
            }
            int status;
            waitpid(child, &status, 0);
            if (status) return 1;
            hipSetDevice(5);
        }
        go = 0;
        pthread_join(t, 0);
        return 0;
    }"#;
    let run = bench.record("forks", source, Mode::Metadata);
    let pids: Vec<_> =
        std::fs::read_dir(&run.root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    assert_eq!(pids.len(), 11, "the parent and the ten children that made calls");
    assert_eq!(run.stderr().lines().count(), 1, "{}", run.stderr());
    let mut parents = 0;
    for path in pids {
        let archive = open_damaged(&path);
        let calls: usize = archive.streams().iter().map(|stream| stream.records().count()).sum();
        if archive.streams().len() == 2 {
            parents += 1;
            let main = names(&archive, 0);
            assert_eq!(main.len(), 21);
        } else {
            assert_eq!((archive.streams().len(), calls), (1, 5000));
        }
    }
    assert_eq!(parents, 1);
}

#[test]
fn whatever_ends_a_process_the_archive_opens() {
    let bench = Bench::new();
    let source = r#"
    #include <signal.h>
    static void* forever(void* p) { for (;;) { int d; hipGetDevice(&d); } return 0; }
    int main(int argc, char** argv) {
        pthread_t t;
        pthread_create(&t, 0, forever, 0);
        for (int i = 0; i < 20000; i++) hipSetDevice(3);
        if (!strcmp(argv[1], "return")) return 0;
        if (!strcmp(argv[1], "exit")) exit(0);
        if (!strcmp(argv[1], "_exit")) _exit(0);
        if (!strcmp(argv[1], "pthread_exit")) { exit(0); }
        if (!strcmp(argv[1], "abort")) abort();
        kill(getpid(), SIGKILL);
    }"#;
    let program = bench.program("ending", source, Linked::ToTheRuntime);
    for (how, signal) in [
        ("return", None),
        ("exit", None),
        ("_exit", None),
        ("abort", Some(libc::SIGABRT)),
        ("kill", Some(libc::SIGKILL)),
    ] {
        for _ in 0..5 {
            let root = bench.path().join(format!("{how}.hrr"));
            let _ = std::fs::remove_dir_all(&root);
            let output = bench.command(&program, Mode::Metadata, &root).arg(how).output().unwrap();
            assert_eq!(output.status.signal(), signal, "{how}: {output:?}");
            let archive = Archive::open(&root).unwrap_or_else(|error| panic!("{how}: {error}"));
            let main = archive
                .streams()
                .iter()
                .find(|stream| stream.records().next().is_some_and(|record| record.ret() == 101))
                .unwrap();
            assert_eq!(main.records().count(), 20_000, "{how}");
            assert_eq!(archive.manifest().complete, matches!(how, "return" | "exit"), "{how}");
        }
    }
}

#[test]
fn a_disk_that_is_full_ends_the_capture_and_not_the_program() {
    let bench = Bench::new();
    let source = r#"
    #include <sys/resource.h>
    int main(void) {
        struct rlimit limit = {400 << 10, 400 << 10};
        setrlimit(RLIMIT_FSIZE, &limit);
        for (int i = 0; i < 100000; i++) { int d; if (hipGetDevice(&d)) return 1; }
        puts("done");
        return 0;
    }"#;
    let run = bench.record("full", source, Mode::Metadata);
    assert_eq!(run.output.stdout, b"done\n");
    let stderr = run.stderr();
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    assert!(stderr.lines().last().unwrap().starts_with("[HRR capture] Capture stopped: "), "{stderr}");
    let archive = run.archive();
    assert!(!archive.manifest().complete);
    assert!(archive.streams()[0].records().count() > 4000);
}

#[test]
fn an_output_directory_that_cannot_be_used_disables_the_capture() {
    let bench = Bench::new();
    let program = bench.program("plain", "int main(void) { int d; return hipGetDevice(&d); }", Linked::ToTheRuntime);
    let file = bench.path().join("file");
    std::fs::write(&file, "").unwrap();
    let link = bench.path().join("link");
    std::os::unix::fs::symlink(bench.path(), &link).unwrap();
    for bad in [&file, &link] {
        let output = bench.command(&program, Mode::Metadata, bad).output().unwrap();
        assert!(output.status.success());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.starts_with("[HRR capture] Capture disabled: ") && stderr.lines().count() == 1, "{stderr}");
    }
}
