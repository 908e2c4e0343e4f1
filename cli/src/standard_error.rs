//! Printing to a standard error that may be closed.
//!
//! The standard library's macros panic where nobody reads any more what a program says, as behind `2>&1 | head`. A program whose
//! work it is to end with a certain code, or to tell of a hang, goes on without. The programs take these two in place of those:
//! `#[macro_use(eprint, eprintln)] extern crate hrr_cli`.

/// Prints to standard error; where it is closed, nothing.
#[macro_export]
macro_rules! eprint {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr().lock(), $($argument)*);
    }};
}

/// Prints a line to standard error; where it is closed, nothing.
#[macro_export]
macro_rules! eprintln {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr().lock(), $($argument)*);
    }};
}
