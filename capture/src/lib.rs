//! `libhrr_capture.so`: records every HIP call of any program it is preloaded into.
//!
//! | idea | modules |
//! |---|---|
//! | getting between a program and HIP | [`interception::shims`], [`interception::real`], [`interception::tables`], [`runtime`], [`interception::dlsym`], [`interception::elf`] |
//! | whether and where to record, and saying so | [`config`], [`settings`], [`guest::notice`], [`journal`] |
//! | one process's recording, from first call to exit | [`process`], [`inherited`], [`process_end`], [`manifest`], [`description`], [`guest::alive`] |
//! | one call | [`recorder`], [`polling`], [`plan`], [`sections`], [`capture_info`], [`hooks`], [`clock`] |
//! | kernels and their arguments | [`kernels`], [`handle_table`], [`enumeration`], [`launch`] |
//! | contents, and what tells whose they are | [`contents`] |
//! | recording only a part | [`window`], [`ring`] |
//! | memory when there is none | [`guest::reserve`] |
//! | one thread's stream file | [`writer`], [`files`], [`guest::threads`], [`guest::small_stack`] |

mod assembled_launch;
mod capture_info;
mod clock;
mod config;
mod contents;
mod description;
mod enumeration;
mod files;
pub(crate) mod guest;
mod handle_table;
mod hooks;
mod inherited;
pub(crate) mod interception;
mod journal;
mod kernels;
mod launch;
mod manifest;
mod os_handle;
mod plan;
mod polling;
mod process;
mod process_end;
mod recorder;
mod ring;
mod runtime;
mod sections;
mod settings;
mod window;
mod writer;

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = {
    extern "C" fn on_load() {
        // A panic must not cross into the loader; recording then begins, or not, at the first call.
        let _ = std::panic::catch_unwind(|| {
            process::look_early();
            process_end::arrange();
        });
    }
    on_load
};

/// Runs when the process ends by `exit` or by returning from `main`, or when the library is unloaded.
#[used]
#[unsafe(link_section = ".fini_array")]
static ON_EXIT: extern "C" fn() = {
    extern "C" fn on_exit() {
        // The archive stays as a killed process would leave it.
        let _ = std::panic::catch_unwind(process_end::destructors_run);
    }
    on_exit
};
