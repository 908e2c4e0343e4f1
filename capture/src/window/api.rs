//! `hrr_capture_start` and `hrr_capture_stop`: windows as the program itself says, with `HIP_HRR_CAPTURE_WINDOW=api`.
//!
//! A program finds both with `dlsym(RTLD_DEFAULT, ...)`, and so needs neither header nor library of ours: where it is not
//! recorded they are not there.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::trigger::{self, Wanted};
use crate::guest::unnoticed::Unnoticed;
use crate::settings::Trigger;
use crate::{config, process, recorder};

/// The window is open, or closed, as was asked for.
const DONE: c_int = 0;
/// It will be at the next call that can: a stream is being captured now, or the call came from inside a HIP call.
const LATER: c_int = 1;
/// Nothing was done: the process is not recorded, or its windows are not the program's to open.
const REFUSED: c_int = -1;

/// Opens a window: what follows on every thread is recorded. Returns 0 once it is open, 1 where it opens at a later call,
/// and -1 where nothing is done.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(dead_code, reason = "only programs call it, by name"))]
pub(crate) extern "C" fn hrr_capture_start() -> c_int {
    ask(Wanted::Open)
}

/// Closes the window. Returns as [`hrr_capture_start`].
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(dead_code, reason = "only programs call it, by name"))]
pub(crate) extern "C" fn hrr_capture_stop() -> c_int {
    ask(Wanted::Closed)
}

fn ask(wanted: Wanted) -> c_int {
    let _unnoticed = Unnoticed::new();
    // A panic must not cross into the program.
    catch_unwind(AssertUnwindSafe(|| {
        if process::passes() || config::window() != Some(Trigger::Api) {
            return REFUSED;
        }
        trigger::ask(wanted);
        recorder::look_at_window();
        let there = super::is_open() == (wanted == Wanted::Open);
        if there { DONE } else { LATER }
    }))
    .unwrap_or(REFUSED)
}
