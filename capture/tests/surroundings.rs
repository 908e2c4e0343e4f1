//! Where a recording is to go and from whom: directories that are missing, read-only or taken, programs that fork before their
//! first call, replace themselves, unload what they loaded, or have more rights than their user.

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use hrr_format::archive::Archive;
use support::{Bench, Linked, Mode, names};

const ONE_CALL: &str = "int main(void) { int d; return hipGetDevice(&d); }";

fn processes(root: &Path) -> Vec<String> {
    let mut found: Vec<String> = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("pid-"))
        .collect();
    found.sort();
    found
}

#[test]
fn a_directory_that_is_missing_is_made_for_its_owner_alone() {
    let bench = Bench::new();
    let program = bench.program("plain", ONE_CALL, Linked::ToTheRuntime);
    let root = bench.path().join("not/there/yet.hrr");
    let output = bench.command(&program, Mode::Metadata, &root).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    if root.exists() {
        assert_eq!(names(&Archive::open(&root).unwrap(), 0), ["hipGetDevice"]);
        for dir in [root.clone(), root.join(&processes(&root)[0])] {
            assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700, "{}", dir.display());
        }
    } else {
        // Only the last part is made: what lies above it is the user's to make, and said to be missing.
        assert!(stderr.contains("[HRR capture] Capture disabled: ") && stderr.lines().count() == 1, "{stderr}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_to_disables_the_recording() {
    let bench = Bench::new();
    let program = bench.program("plain", ONE_CALL, Linked::ToTheRuntime);
    // A file system on which nobody makes directories.
    let output = bench.command(&program, Mode::Metadata, Path::new("/sys/kernel/capture.hrr")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.starts_with("[HRR capture] Capture disabled: ") && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains("/sys/kernel/capture.hrr"), "{stderr}");
}

#[test]
fn a_process_whose_directory_is_taken_gets_another() {
    let bench = Bench::new();
    let program = bench.program("plain", ONE_CALL, Linked::ToTheRuntime);
    let root = bench.path().join("taken.hrr");
    let command = bench.command(&program, Mode::Metadata, &root);
    // The shell has its process id, and keeps it.
    let mut shell = Command::new("sh");
    let script = r#"mkdir -p "$1/pid-$$" && echo other > "$1/pid-$$/note" && LD_PRELOAD="$2" exec "$3""#;
    shell.args(["-c", script, "sh"]).arg(&root).arg(support::capture_library()).arg(&program);
    for (name, value) in command.get_envs().filter(|(name, _)| *name != "LD_PRELOAD") {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let found = processes(&root);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[1], format!("{}.1", found[0]));
    assert_eq!(std::fs::read_to_string(root.join(&found[0]).join("note")).unwrap(), "other\n");
    assert!(!root.join(&found[0]).join("events").exists());
    assert_eq!(names(&Archive::open(&root.join(&found[1])).unwrap(), 0), ["hipGetDevice"]);
}

#[test]
fn a_process_that_forks_before_its_first_call_and_one_that_replaces_itself_are_recorded_each() {
    let bench = Bench::new();
    let source = r#"
    #include <sys/wait.h>
    int main(int argc, char** argv) {
        int d, status;
        if (argc > 1) { hipSetDevice(9); return 0; }
        pid_t child = fork();
        if (child == 0) {
            hipGetDevice(&d);
            execl(argv[0], argv[0], "again", (char*)0);
            _exit(1);
        }
        waitpid(child, &status, 0);
        if (status) return 1;
        hipGetDevice(&d);
        return 0;
    }"#;
    let run = bench.record("forks_early", source, Mode::Metadata);
    let found = processes(&run.root);
    assert_eq!(found.len(), 3, "the parent, its child, and what the child became: {found:?}");
    let mut calls: Vec<Vec<String>> = Vec::new();
    for process in &found {
        let archive = support::open_damaged(&run.root.join(process));
        calls.push(names(&archive, 0));
    }
    calls.sort();
    assert_eq!(calls, [vec!["hipGetDevice"], vec!["hipGetDevice"], vec!["hipSetDevice"]]);
}

#[test]
fn a_library_that_is_unloaded_and_a_runtime_that_is_closed_leave_what_they_did() {
    let bench = Bench::new();
    let plugin = bench.path().join("plugin.so");
    let source = bench.path().join("plugin.c");
    std::fs::write(&source, "extern int hipSetDevice(int); int act(int d) { return hipSetDevice(d) && 0; }").unwrap();
    let built = Command::new("gcc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&plugin)
        .arg(&source)
        .arg(bench.path().join("libamdhip64.so.7"))
        .status();
    assert!(built.unwrap().success());
    let source = format!(
        r#"
        int main(void) {{
            for (int i = 0; i < 20; i++) {{
                void* plugin = dlopen("{0}", RTLD_NOW);
                int (*act)(int) = dlsym(plugin, "act");
                act(i);
                if (dlclose(plugin)) return 1;
            }}
            return 0;
        }}"#,
        plugin.display()
    );
    let program = bench.program("loads", &source, Linked::ToNothing);
    let root = bench.path().join("loads.hrr");
    let output = bench.command(&program, Mode::Metadata, &root).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let archive = Archive::open(&root).unwrap();
    let devices: Vec<u64> = archive.streams()[0].records().map(|record| record.word(0)).collect();
    assert_eq!(devices, (0..20).collect::<Vec<u64>>());
    assert!(archive.manifest().complete);
}

#[test]
fn contents_that_a_full_disk_has_no_room_for_end_the_recording_and_not_the_program() {
    let bench = Bench::new();
    let source = r#"
    #include <sys/resource.h>
    int main(void) {
        struct rlimit limit = {1 << 20, 1 << 20};
        setrlimit(RLIMIT_FSIZE, &limit);
        void* d;
        hipMalloc(&d, 1 << 16);
        char* source = malloc(1 << 16);
        for (int i = 0; i < 64; i++) {
            memset(source, i, 1 << 16);
            source[i] = 1;
            if (hipMemcpy(d, source, 1 << 16, hipMemcpyHostToDevice)) return 1;
        }
        puts("done");
        return 0;
    }"#;
    let run = bench.record("full_of_contents", source, Mode::Contents);
    assert_eq!(run.output.stdout, b"done\n");
    let stderr = run.stderr();
    assert_eq!(stderr.lines().filter(|line| line.contains("Capture stopped: ")).count(), 1, "{stderr}");
    // What there was room for is whole.
    let archive = support::open_damaged(&run.root);
    assert!(!archive.manifest().complete);
    let whole = archive.blobs().index().entries().iter();
    let read = whole.filter(|entry| archive.blobs().get(entry.number).is_ok_and(|bytes| bytes.is_some()));
    let read = read.count();
    assert!(read >= 15, "{read} of 16 contents that a mebibyte has room for: {stderr}");
}

#[test]
fn a_length_that_is_far_from_the_truth_takes_no_room() {
    let bench = Bench::new();
    let source = r#"
    #include <sys/mman.h>
    int main(void) {
        void* d;
        hipMalloc(&d, 1 << 16);
        char* source = mmap(0, 1 << 21, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(source + (1 << 20), 1 << 20);
        memset(source, 7, 1 << 20);
        hipMemcpy(d, source, 1ull << 40, hipMemcpyHostToDevice);
        hipMemcpy(d, source, 1 << 16, hipMemcpyHostToDevice);
        puts("done");
        return 0;
    }"#;
    let run = bench.record("far_from_the_truth", source, Mode::Contents);
    assert_eq!(
        run.output.stdout,
        b"done
"
    );
    let archive = run.archive();
    let known = archive.blobs().index().entries();
    assert_eq!(known.iter().map(|entry| entry.len_bytes).collect::<Vec<_>>(), [1 << 16]);
    let blobs = walk(&run.root).into_iter().filter_map(|path| std::fs::metadata(path).ok());
    // In units of 512 bytes.
    let taken: u64 = blobs.map(|file| file.blocks() * 512).sum();
    assert!(taken < 16 << 20, "{taken} bytes of the disk");
}

/// All files below a directory.
fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn a_program_with_more_rights_than_its_user_is_not_recorded_and_says_so() {
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can make such a program here");
        return;
    }
    let bench = Bench::new();
    let program = bench.program("plain", ONE_CALL, Linked::ToTheRuntime);
    // The loader does not preload for such programs; one that is linked to the recorder meets it all the same.
    let library = support::capture_library();
    let privileged = bench.path().join("privileged");
    let built = Command::new("gcc")
        .args(["-w", "-pthread", "-o"])
        .arg(&privileged)
        .arg(bench.path().join("plain.c"))
        .arg(format!("-I{}/tests/c", env!("CARGO_MANIFEST_DIR")))
        .arg("-Wl,--no-as-needed")
        .arg(&library)
        .arg(bench.path().join("libamdhip64.so.7"))
        .arg(format!("-Wl,-rpath,{}:{}", library.parent().unwrap().display(), bench.path().display()))
        .status();
    assert!(built.unwrap().success());
    std::os::unix::fs::chown(&privileged, Some(65534), Some(65534)).unwrap();
    std::fs::set_permissions(&privileged, PermissionsExt::from_mode(0o4755)).unwrap();
    // The other user must reach the files.
    std::fs::set_permissions(bench.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let root = bench.path().join("privileged.hrr");
    let mut command = bench.command(&privileged, Mode::Metadata, &root);
    let output = command.env_remove("LD_PRELOAD").output().unwrap();
    if output.status.code() == Some(127) {
        eprintln!("skipped: user 65534 cannot read {}", library.display());
        return;
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    assert!(!root.exists(), "a program with more rights was recorded");
    assert!(stderr.starts_with("[HRR capture] ") && stderr.lines().count() == 1, "{stderr}");
    // The same program without them is recorded.
    assert!(bench.command(&program, Mode::Metadata, &root).status().unwrap().success());
    assert!(root.exists());
}
