//! The commands of the pages in `docs/`, run as they are written.

use std::process::Command;
use std::time::Duration;

use hrr_tests::process::{run, with_clean_environment};
use hrr_tests::recording::Scratch;
use hrr_tests::{built, files};

/// Runs the commands of a page's `console` blocks, one after the other, in a folder that has the built outputs as a build of
/// the repository leaves them; then looks for what the page promises.
#[track_caller]
fn run_page(page: &str, at_least: usize, texts: &[&str], files: &[&str]) {
    let text = std::fs::read_to_string(built::repository().join("docs").join(page)).unwrap();
    let mut inside = false;
    let mut script = String::from("set -euo pipefail\n");
    let mut commands = 0;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            script.push_str(command);
            script.push('\n');
            commands += 1;
        }
    }
    assert!(commands >= at_least, "{page} has {commands} commands");
    let scratch = Scratch::new("docs");
    std::fs::create_dir(scratch.path().join("target")).unwrap();
    std::os::unix::fs::symlink(built::folder(), scratch.path().join("target/hrr")).unwrap();
    let mut command = Command::new("bash");
    with_clean_environment(&mut command);
    let finished = run(command.arg("-c").arg(&script).current_dir(scratch.path()), Duration::from_secs(300));
    let output = finished.expect_code(0).output();
    for wanted in texts {
        assert!(output.contains(wanted), "{page}: {wanted:?} is missing\n{finished}");
    }
    for file in files {
        assert!(scratch.path().join(file).exists(), "{page}: {file}");
    }
}

#[test]
fn every_command_of_the_four_uses_does_what_the_page_says() {
    run_page(
        "uses.md",
        15,
        &[
            "[HRR] PASS",
            "A ran once, B 10 times: the time inside HIP calls is ",
            "[HRR] Timing cost : ",
            "thread 0 in flight: hipDeviceSynchronize()",
            "first not completed: event 46, thread 0: hipLaunchKernel[spin_until]",
            "exits with 124",
        ],
        &["replay.json.gz", "recorded.json.gz", "page.html", "diagnosis.json", "timing.json"],
    );
}

#[test]
fn every_command_of_recording_does_what_the_page_says() {
    run_page(
        "recording.md",
        14,
        &[
            "HIP calls of 9 threads in 1 process (with contents, ",
            ": recorded: ",
            "Window 1 opened: ",
            "[HRR] Kernels launched: 10\n",
            "last on stream ",
            "[HRR] All processes: 2 of 2 passed",
            ": incomplete: ",
            ": repaired: ",
        ],
        &["threads.hrr/manifest.json", "job-3.hrr", "by_hand.hrr/manifest.json"],
    );
}

#[test]
fn every_command_of_replaying_does_what_the_page_says() {
    run_page(
        "replaying.md",
        8,
        &[
            "[HRR] Threads used : 4\n",
            "[HRR] Calls     : ",
            "[HRR] D2H checks : 130 pass",
            "[HRR] PASS",
            "[HRR] SHAPE",
            "ORDER KEPT (deps): ",
        ],
        &["order.log", "tables"],
    );
}

/// Who follows one page after the other in one folder would record twice into one directory, and the replay of the second page
/// refuses a directory of two processes.
#[test]
fn no_two_commands_of_the_pages_record_to_one_directory() {
    let root = built::repository();
    let mut seen = std::collections::BTreeMap::new();
    for page in ["README.md", "docs/uses.md", "docs/recording.md", "docs/replaying.md"] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        let commands = text.split("\n```").filter_map(|block| block.strip_prefix("console\n")).flat_map(str::lines);
        for command in commands.filter_map(|line| line.strip_prefix("$ ")) {
            let words: Vec<_> = command.split_whitespace().collect();
            let launched =
                words.windows(2).filter(|pair| pair[0] == "-o" && pair[1].contains(".hrr")).map(|pair| pair[1]);
            let by_hand = words.iter().filter_map(|word| word.strip_prefix("HIP_HRR_CAPTURE_OUTPUT="));
            for directory in launched.chain(by_hand) {
                let earlier = seen.insert(directory.to_owned(), page);
                assert!(earlier.is_none(), "{directory}: {page}, and {}", earlier.unwrap_or_default());
            }
        }
    }
    assert!(seen.len() > 10, "{seen:?}");
}

/// Tables have a row a line, and what a program printed stays as it was.
#[test]
fn no_line_of_prose_is_longer_than_the_pages_are_wide() {
    const COLUMNS: usize = 132;
    let root = built::repository();
    let pages = files::below(&root.join("docs"));
    let pages = pages.into_iter().chain(["README.md", "ARCHITECTURE.md", "PRIVACY.md"].map(|page| root.join(page)));
    for page in pages.filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(&page).unwrap();
        let mut inside = false;
        for (number, line) in text.lines().enumerate() {
            inside ^= line.starts_with("```");
            let is_long = line.chars().count() > COLUMNS && !inside && !line.starts_with('|');
            assert!(!is_long, "{}:{}: {line}", page.display(), number + 1);
        }
    }
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let root = built::repository();
    let mut pages: Vec<_> = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.extend(["README.md", "ARCHITECTURE.md", "PRIVACY.md", "CHANGELOG.md"].map(|page| root.join(page)));
    let mut links = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(page).unwrap();
        // Every second part lies between the fences of a block of code.
        let prose: String = text.split("\n```").step_by(2).collect();
        for (_, rest) in prose.match_indices("](").map(|(at, found)| prose.split_at(at + found.len())) {
            let target = rest.split([')', '#']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") {
                let path = page.parent().unwrap().join(target);
                assert!(path.exists(), "{}: {target} is not there", page.display());
                links += 1;
            }
        }
    }
    assert!(links > 20, "{links} links");
}

/// `a/{b,c}.rs` names two files.
fn each_of(path: &str) -> Vec<String> {
    match (path.find('{'), path.find('}')) {
        (Some(open), Some(close)) if open < close => {
            let (front, back) = (&path[..open], &path[close + 1..]);
            path[open + 1..close].split(',').map(|part| format!("{front}{part}{back}")).collect()
        }
        _ => vec![path.to_owned()],
    }
}

#[test]
fn the_map_names_files_that_are_there() {
    let root = built::repository();
    let crates = ["format", "capture", "replay", "perf", "cli", "tests", "benches", "fuzz", "scripts", "docs"];
    let files: Vec<_> = crates.iter().flat_map(|name| files::below(&root.join(name))).collect();
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let is_path = |quoted: &&str| quoted.ends_with(".rs") || (quoted.contains('/') && !quoted.contains(' '));
    let mut named = 0;
    for quoted in text.split('`').skip(1).step_by(2).filter(is_path) {
        for path in each_of(quoted.trim_end_matches('/')) {
            let inner = format!("/{path}");
            // A file, a folder of some, or a module that is either.
            let is_there = |file: &std::path::PathBuf| {
                let file = file.to_string_lossy();
                file.ends_with(&inner) || file.contains(&format!("{inner}/")) || file.ends_with(&format!("{inner}.rs"))
            };
            assert!(path.contains('*') || files.iter().any(is_there), "{path} is not there");
            named += 1;
        }
    }
    assert!(named > 60, "{named} named");
}
