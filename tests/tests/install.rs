//! What `scripts/install` leaves: it works from wherever it is moved to, out of any other directory.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hrr_tests::built;
use hrr_tests::process::{Finished, run, with_clean_environment};
use hrr_tests::recording::Scratch;
use hrr_tests::workload::Workload;

const LIMIT: Duration = Duration::from_secs(120);

fn install(arguments: &[&str]) -> Finished {
    run(Command::new(built::repository().join("scripts/install")).args(arguments), LIMIT)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are UTF-8")
}

#[test]
fn an_installed_tree_that_was_moved_records_and_replays() {
    let scratch = Scratch::new("install");
    let prefix = scratch.path().join("first/place");
    install(&["--built", text(&built::folder()), "--prefix", text(&prefix)]).expect_code(0);
    let moved = scratch.path().join("elsewhere");
    std::fs::rename(&prefix, &moved).unwrap();
    let elsewhere = scratch.path().join("work");
    std::fs::create_dir(&elsewhere).unwrap();
    let call = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        with_clean_environment(&mut command);
        let path = format!("{}:{}", text(&moved.join("bin")), std::env::var("PATH").unwrap());
        command.args(arguments).current_dir(&elsewhere).env("PATH", path);
        run(command.env("LD_LIBRARY_PATH", built::libraries()), LIMIT)
    };

    // The first demo of the README, by the installed programs.
    let program = Workload::listed("threads8").program();
    let recorded = call("hrr-capture", &["--content", "-o", "app.hrr", "--", text(&program)]);
    recorded.expect_code(0);
    assert!(recorded.stderr.contains("9 threads in 1 process (with contents, "), "{recorded}");
    let replayed = call("hrr-playback", &["app.hrr", "--threads", "4", "--repeat", "2", "--report", "report.json"]);
    assert!(replayed.expect_code(0).stdout.contains("[HRR] PASS"), "{replayed}");
    // hrr-perf reads an archive's times by the replayer that lies beside it.
    let compared = call("hrr-perf", &["compare", "app.hrr", "report.json"]);
    assert!(compared.expect_code(0).stdout.contains("verdict"), "{compared}");

    let library = call("hrr-capture", &["--print-environment", "--", "true"]);
    assert!(library.stdout.contains(text(&moved.join("lib/libhrr_capture.so"))), "{library}");
    for (file, wanted) in [
        ("share/man/man1/hrr-playback.1", ".TH hrr-playback 1"),
        ("share/bash-completion/completions/hrr-playback", "--sync-watchdog-ms"),
        ("share/zsh/site-functions/_hrr-capture", "#compdef hrr-capture"),
        ("share/fish/vendor_completions.d/hrr-perf.fish", "complete -c hrr-perf"),
        ("share/doc/hrr/README.md", "# HRR"),
        ("share/licenses/hrr/LICENSE", "MIT"),
    ] {
        let found = std::fs::read_to_string(moved.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(found.contains(wanted), "{file} lacks {wanted:?}");
    }
    // Each page that is installed finds what it links to.
    let documents = moved.join("share/doc/hrr");
    for page in [
        "README.md",
        "PRIVACY.md",
        "docs/recording.md",
        "docs/replaying.md",
        "docs/licences.md",
        "docs/from-in-tree-hrr.md",
    ] {
        let page = documents.join(page);
        let text = std::fs::read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let is_file = target.ends_with(".md") || target.ends_with("LICENSE");
            assert!(!is_file || page.with_file_name(target).exists(), "{}: {target}", page.display());
        }
    }
    let licences = std::fs::read_dir(moved.join("share/licenses/hrr/crates")).unwrap().count();
    assert!(licences > 30, "{licences} crates");
}

#[test]
fn a_prefix_that_cannot_work_is_refused() {
    let built = built::folder();
    for (arguments, wanted) in [
        (&["--built", text(&built)][..], "no --prefix given"),
        (&["--prefix"], "--prefix needs a directory"),
        (&["--prefix", "/nowhere/a b"], "a space or a colon"),
        (&["--built", "/nowhere", "--prefix", "/nowhere/x"], "run scripts/build first"),
        // Said before anything is built.
        (&["--prefix", "/dev/null/x"], "'/dev/null/x' cannot be written to: give another --prefix"),
        (&["--built", text(&built), "--prefix", "/dev/null/x"], "'/dev/null/x' cannot be written to"),
        (&["--every", "thing"], "unknown option '--every'"),
    ] {
        let refused = install(arguments);
        refused.expect_code(2);
        assert!(refused.stderr.contains(wanted), "{wanted:?}\n{refused}");
    }
    assert!(!Path::new("/nowhere").exists());
}
