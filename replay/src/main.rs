//! `hrr-playback`: replays archives and tells what is in them.

fn main() -> std::process::ExitCode {
    hrr_replay::cli::main()
}
