//! `hrr-playback`: replays archives and tells what is in them.

#[global_allocator]
static MEMORY: hrr_replay::memory::large_pages::LargePages = hrr_replay::memory::large_pages::LargePages;

fn main() -> std::process::ExitCode {
    hrr_replay::cli::main()
}
