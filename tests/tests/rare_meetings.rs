//! Calls of two threads that meet as they rarely do in a recording: archives written by hand, so that they always do.

use std::time::Duration;

use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::catalogue::Api;
use hrr_format::record::{Presence, SectionTag};
use hrr_format::record_builder::RecordBuilder;
use hrr_format::stream_file::ContentsMode;
use hrr_tests::recording::Scratch;
use hrr_tests::replaying::Replay;

/// A replay that takes longer waits for ever.
const WATCHDOG_MS: &str = "20000";
const LIMIT: Duration = Duration::from_secs(240);

const HELD: u64 = 0x5000_0010;
const OTHER: u64 = 0x5000_0020;
const FLAG: u64 = 0x7000_0000_0000;
const BUFFER: u64 = 0x7100_0000_0000;
/// `hipStreamNonBlocking`.
const NON_BLOCKING: u64 = 1;
/// `hipStreamWaitValueEq`, and all bits.
const EQUAL: [u64; 2] = [1, 0xffff_ffff];
/// Where the program had its variables.
const VARIABLE: u64 = 0x6000_0000;

/// A call that took a few ticks from `begin` on.
fn call(name: &str, begin: u64, words: &[u64]) -> RecordBuilder {
    let api = Api::by_name(name).expect("a name of the catalogue");
    RecordBuilder::new(api.id, words).ticks(begin, begin + 5)
}

/// The same, of a call that makes something and stores `handle` by its first argument.
fn made(name: &str, begin: u64, words: &[u64], handle: u64) -> RecordBuilder {
    call(name, begin, words).section(SectionTag::Out, 0, Presence::Present, &handle.to_le_bytes())
}

/// Replays the calls of these threads in every order that promises the same results, in these ways.
fn replay_passes(threads: [Vec<RecordBuilder>; 2], ways: &[&[&str]], environment: &[(&str, &str)]) {
    let scratch = Scratch::new("meetings");
    let archive = scratch.path().join("meetings.hrr");
    let mut writer = ArchiveWriter::create(&archive.join("pid-7"), 7, ContentsMode::Contents).unwrap();
    for (number, calls) in (0..).zip(threads) {
        let records: Vec<_> = calls.into_iter().map(RecordBuilder::build).collect();
        writer.stream(number, 7 + u64::from(number), "worker", &records).unwrap();
    }
    writer.finish().unwrap();
    for way in ways {
        for order in ["capture", "deps"] {
            let replay = Replay::of(&archive)
                .args(way.iter().copied())
                .args(["--order", order, "--sync-watchdog-ms", WATCHDOG_MS])
                .limit(LIMIT);
            let replay = environment.iter().fold(replay, |replay, (name, value)| replay.env(name, value));
            replay.run().run.expect_code(0);
        }
    }
}

/// A stream was found idle because another thread wrote, meanwhile, the value that its work waited for. Where the two threads
/// share a worker, it once asked for ever, with the write behind it.
#[test]
fn a_query_that_another_threads_later_call_answers_does_not_hold_up_its_worker() {
    let asks = vec![
        made("hipStreamCreateWithFlags", 10, &[VARIABLE, NON_BLOCKING], HELD),
        made("hipMalloc", 20, &[VARIABLE, 64], FLAG),
        // It would be behind the write where nobody waits for it.
        call("hipMemset", 30, &[FLAG, 0, 64]),
        call("hipDeviceSynchronize", 36, &[]),
        call("hipStreamWaitValue32", 42, &[HELD, FLAG, 1, EQUAL[0], EQUAL[1]]),
        call("hipStreamQuery", 100, &[HELD]).ticks(100, 200),
    ];
    let writes = vec![
        made("hipStreamCreateWithFlags", 50, &[VARIABLE, NON_BLOCKING], OTHER),
        call("hipStreamWriteValue32", 120, &[OTHER, FLAG, 1, 0]),
    ];
    replay_passes([asks, writes], &[&["--threads", "1"], &["--threads", "2"]], &[]);
}

/// Freeing memory waits for the device it is on, whichever is current: what another thread has that device wait for afterwards once
/// got in front of it, and the thread that frees came to its write never.
#[test]
fn what_follows_the_freeing_of_another_devices_memory_stays_behind_it() {
    let frees = vec![
        made("hipStreamCreateWithFlags", 10, &[VARIABLE, NON_BLOCKING], OTHER),
        made("hipHostMalloc", 20, &[VARIABLE, 64, 0], FLAG),
        call("hipStreamWriteValue32", 30, &[OTHER, FLAG, 0, 0]),
        call("hipStreamSynchronize", 40, &[OTHER]),
        call("hipSetDevice", 50, &[1]),
        made("hipMalloc", 60, &[VARIABLE, 64], BUFFER),
        call("hipSetDevice", 70, &[0]),
        // Made slow: the other thread is ahead of this one.
        call("hipDeviceSynchronize", 80, &[]),
        call("hipFree", 100, &[BUFFER]),
        call("hipStreamWriteValue32", 140, &[OTHER, FLAG, 1, 0]),
    ];
    let waits = vec![
        call("hipSetDevice", 51, &[1]),
        made("hipStreamCreateWithFlags", 61, &[VARIABLE, NON_BLOCKING], HELD),
        call("hipStreamWaitValue32", 120, &[HELD, FLAG, 1, EQUAL[0], EQUAL[1]]),
        call("hipStreamSynchronize", 130, &[HELD]).ticks(130, 200),
    ];
    let slow = [("MINIHIP_DEVICES", "2"), ("MINIHIP_SLOW", "api:hipDeviceSynchronize:300000us")];
    replay_passes([frees, waits], &[&[], &["--no-placement"]], &slow);
}
