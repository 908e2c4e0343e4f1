//! How far a result may be from the recorded one, and the variables that say so.

use crate::environment::{self, VariableError};

/// Environment variable with the absolute tolerance.
pub const ATOL_VARIABLE: &str = "HIP_HRR_D2H_ATOL";
/// Environment variable with the relative tolerance.
pub const RTOL_VARIABLE: &str = "HIP_HRR_D2H_RTOL";
/// Environment variable that, when set to anything, asks for equal bytes.
pub const EXACT_VARIABLE: &str = "HIP_HRR_D2H_EXACT";

/// Tolerance when a variable is not set, absolute and relative alike: about one step of fp16 (2^-10) at 1.0.
pub const DEFAULT_TOLERANCE: f64 = 1e-3;

/// How far a live value may be from the expected one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Allowed difference, whatever the value.
    pub atol: f64,
    /// Allowed difference as a fraction of the expected value.
    pub rtol: f64,
    /// Only equal bytes pass.
    pub exact_only: bool,
}

impl Default for Tolerance {
    fn default() -> Self {
        Tolerance { atol: DEFAULT_TOLERANCE, rtol: DEFAULT_TOLERANCE, exact_only: false }
    }
}

impl Tolerance {
    /// Takes the tolerances from the process's environment.
    ///
    /// # Errors
    /// Names the variable whose value is not a finite number of zero or more.
    pub fn from_env() -> Result<Self, VariableError> {
        let number = |variable| {
            environment::number(variable, DEFAULT_TOLERANCE, 0.0..=f64::MAX, "a number of 0 or more, such as 1e-3")
        };
        Ok(Tolerance {
            atol: number(ATOL_VARIABLE)?,
            rtol: number(RTOL_VARIABLE)?,
            exact_only: std::env::var_os(EXACT_VARIABLE).is_some(),
        })
    }
}
