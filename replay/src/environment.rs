//! Values of environment variables: taken where they are in range, refused by the variable's name where they are not.

use std::ops::RangeBounds;
use std::str::FromStr;

/// A variable with a value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value:?} cannot be used; set it to {allowed}, or unset it")]
pub struct VariableError {
    /// Its name.
    pub variable: String,
    /// What it was set to.
    pub value: String,
    /// What it may be set to.
    pub allowed: String,
}

/// What a variable is set to; `None` where it is unset or blank.
pub(crate) fn text(variable: &str) -> Option<String> {
    // What is no text is no number either, and shows as what it is nearly.
    let value = std::env::var_os(variable)?.to_string_lossy().trim().to_owned();
    (!value.is_empty()).then_some(value)
}

/// The number that a variable is set to, or `otherwise` where it is unset or blank.
///
/// # Errors
/// The variable, where it is no number, or none in `range`; `allowed` says which are.
pub(crate) fn number<T: FromStr + PartialOrd>(
    variable: &str,
    otherwise: T,
    range: impl RangeBounds<T>,
    allowed: &str,
) -> Result<T, VariableError> {
    text(variable).map_or(Ok(otherwise), |value| parsed(variable, value, range, allowed))
}

fn parsed<T: FromStr + PartialOrd>(
    variable: &str,
    value: String,
    range: impl RangeBounds<T>,
    allowed: &str,
) -> Result<T, VariableError> {
    match value.parse() {
        // A float that is no number is in no range.
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(VariableError { variable: variable.to_owned(), value, allowed: allowed.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_out_of_range_is_refused_by_name() {
        for value in ["nan", "inf", "-1", "1.5", "much", "1e999"] {
            let refused = parsed("HRR_X", value.to_owned(), 0.0..=1.0, "a fraction from 0 to 1").unwrap_err();
            let text = format!("HRR_X=\"{value}\" cannot be used; set it to a fraction from 0 to 1, or unset it");
            assert_eq!(refused.to_string(), text);
        }
        assert_eq!(parsed("HRR_X", "0.5".to_owned(), 0.0..=1.0, ""), Ok(0.5));
        assert_eq!(parsed("HRR_X", "4096".to_owned(), 1..=4096u64, ""), Ok(4096));
        assert!(parsed("HRR_X", "4097".to_owned(), 1..=4096u64, "").is_err());
    }
}
