//! The commands of `docs/uses.md`, run as they are written.

use std::process::Command;
use std::time::Duration;

use hrr_tests::built;
use hrr_tests::process::{run, with_clean_environment};
use hrr_tests::recording::Scratch;

#[test]
fn every_command_of_the_four_uses_does_what_the_page_says() {
    let page = std::fs::read_to_string(built::repository().join("docs/uses.md")).unwrap();
    let mut inside = false;
    let mut script = String::from("set -euo pipefail\n");
    let mut commands = 0;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            script.push_str(command);
            script.push('\n');
            commands += 1;
        }
    }
    assert!(commands > 15, "{commands} commands");
    let scratch = Scratch::new("docs");
    std::fs::create_dir(scratch.path().join("target")).unwrap();
    std::os::unix::fs::symlink(built::folder(), scratch.path().join("target/hrr")).unwrap();
    let mut command = Command::new("bash");
    with_clean_environment(&mut command);
    let finished = run(command.arg("-c").arg(&script).current_dir(scratch.path()), Duration::from_secs(300));
    let text = finished.expect_code(0).output();
    for wanted in [
        "[HRR] PASS",
        "A ran once, B 10 times: the time inside HIP calls is ",
        "[HRR] Timing cost : ",
        "thread 0 in flight: hipDeviceSynchronize()",
        "first not completed: event 46, thread 0: hipLaunchKernel[spin_until]",
        "exits with 124",
    ] {
        assert!(text.contains(wanted), "{wanted:?} is missing\n{finished}");
    }
    for file in ["replay.json.gz", "recorded.json.gz", "page.html", "diagnosis.json", "timing.json"] {
        assert!(scratch.path().join(file).exists(), "{file}");
    }
}
