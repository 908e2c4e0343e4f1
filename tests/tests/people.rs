//! What people see of the programs besides their results: the progress line, help, manual pages and completions.

use std::process::{Command, Stdio};
use std::time::Duration;

use hrr_tests::built;
use hrr_tests::process::{End, Finished, run, with_clean_environment};
use hrr_tests::recording::{Contents, record};
use hrr_tests::replaying::Replay;
use hrr_tests::terminal::run_on_terminal;
use hrr_tests::workload::Workload;

const LIMIT: Duration = Duration::from_secs(120);
const PROGRAMS: [&str; 3] = ["hrr-capture", "hrr-playback", "hrr-perf"];

fn program(name: &str, arguments: &[&str]) -> Finished {
    let mut command = Command::new(built::output(&format!("bin/{name}")));
    with_clean_environment(&mut command);
    run(command.args(arguments), LIMIT)
}

#[test]
fn a_terminal_shows_how_far_a_replay_has_come_and_a_pipe_does_not() {
    let recording = record(&Workload::listed("threads8"), Contents::Recorded);
    let replay = || Replay::of_recording(&recording).args(["--repeat", "3"]);
    let (end, text) = run_on_terminal(&mut replay().into_command(), LIMIT);
    assert_eq!(end, End::Code(0), "{text}");
    assert!(text.contains("[HRR] planning and staging"), "{text:?}");
    let line = text.split(['\r', '\n']).find(|line| line.contains(" calls  "));
    let line = line.unwrap_or_else(|| panic!("no progress line in {text:?}"));
    assert!(line.contains(" % ") && line.contains("/s") && line.contains(" left"), "{line:?}");
    // No colours, and nothing is left of it.
    assert!(!text.contains("\x1b[3") && !text.trim_end().ends_with("left"), "{text:?}");
    let piped = replay().run();
    piped.expect_pass();
    assert!(!piped.run.stderr.contains("calls  "), "{}", piped.run);
}

#[test]
fn help_is_grouped_and_has_examples() {
    for (name, wanted) in [
        ("hrr-playback", &["Replay:", "Timing runs:", "Triage:", "Inspection:", "Archives:"][..]),
        ("hrr-capture", &["Commands:", "Options:"]),
        ("hrr-perf", &["Commands:"]),
    ] {
        let help = program(name, &["--help"]);
        help.expect_code(0);
        for heading in wanted.iter().chain(&["Examples:"]) {
            assert!(help.stdout.contains(heading), "{name} lacks {heading}\n{help}");
        }
        // Each on a line of its own, which nothing breaks where a terminal is as wide as it is when there is none.
        let examples = help.stdout.lines().skip_while(|line| !line.starts_with("Examples:")).skip(1);
        for line in examples.take_while(|line| !line.is_empty()) {
            let starts = ["  hrr-", "  srun ", "  mpirun ", "  docker "];
            assert!(starts.iter().any(|start| line.starts_with(start)), "{line}\n{help}");
        }
    }
}

#[test]
fn each_program_writes_its_manual_page_and_completions() {
    for name in PROGRAMS {
        let man = program(name, &["--generate", "man"]);
        let text = &man.expect_code(0).stdout;
        assert!(text.contains(&format!(".TH {name} 1")) && text.contains(".SH OPTIONS"), "{man}");
        for shell in ["bash", "zsh", "fish"] {
            let completions = program(name, &["--generate", shell]);
            assert!(completions.expect_code(0).stdout.contains(name), "{completions}");
            if shell == "bash" {
                let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
                std::io::Write::write_all(&mut bash.stdin.take().unwrap(), completions.stdout.as_bytes()).unwrap();
                assert!(bash.wait().unwrap().success(), "{completions}");
            }
        }
        let options = program(name, &["--help"]).stdout;
        assert!(!options.contains("--generate"), "{name}");
    }
    // What a person would look for.
    let man = program("hrr-playback", &["--generate", "man"]).stdout;
    assert!(man.contains("sync\\-watchdog\\-ms") && man.contains("Examples"), "{man}");
    assert!(program("hrr-perf", &["--generate", "man"]).stdout.contains("fail\\-above"));
}
