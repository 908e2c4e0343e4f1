//! Numbers on the command line and in the variables that stand for options, refused in plain words: by the option where the value
//! came from one, by the variable where it came from that.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, Command, Error};

/// Reads a whole number in a range.
///
/// Give the argument `allow_negative_numbers` too: else clap takes `-1` for an option before this has seen it.
pub fn whole<T: TryFrom<u64>>(range: impl RangeBounds<u64>) -> Whole<T> {
    let least = match range.start_bound() {
        Bound::Included(&least) => least,
        Bound::Excluded(&below) => below.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let most = match range.end_bound() {
        Bound::Included(&most) => most,
        Bound::Excluded(&above) => above.saturating_sub(1),
        Bound::Unbounded => u64::MAX,
    };
    Whole { least, most, number: PhantomData }
}

/// See [`whole`].
#[derive(Debug)]
pub struct Whole<T> {
    least: u64,
    most: u64,
    number: PhantomData<fn() -> T>,
}

impl<T> Clone for Whole<T> {
    fn clone(&self) -> Self {
        Whole { least: self.least, most: self.most, number: PhantomData }
    }
}

impl<T: TryFrom<u64>> Whole<T> {
    fn read(&self, text: &str) -> Option<T> {
        let number = text.trim().parse::<u64>().ok()?;
        (self.least..=self.most).contains(&number).then(|| T::try_from(number).ok()).flatten()
    }

    fn allowed(&self) -> String {
        // The largest number that a type holds is nobody's concern until it is exceeded.
        match self.most {
            u64::MAX => format!("a whole number of {} or more", self.least),
            most => format!("a whole number from {} to {most}", self.least),
        }
    }
}

impl<T: TryFrom<u64> + Clone + Send + Sync + 'static> TypedValueParser for Whole<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        self.parse_ref_(command, argument, value, ValueSource::CommandLine)
    }

    fn parse_ref_(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
        source: ValueSource,
    ) -> Result<T, Error> {
        let text = value.to_string_lossy();
        let variable = argument.and_then(Arg::get_env).filter(|_| source == ValueSource::EnvVariable);
        let default = || argument?.get_default_values().first().map(|default| default.to_string_lossy().into_owned());
        // A variable that is set to nothing counts as unset.
        let text =
            if variable.is_some() && text.trim().is_empty() { default().unwrap_or_default().into() } else { text };
        self.read(&text).ok_or_else(|| {
            let allowed = match text.trim().parse::<u64>() {
                Ok(number) if (self.least..=self.most).contains(&number) => "a smaller number".to_owned(),
                _ => self.allowed(),
            };
            let refusal = match (variable, argument.and_then(Arg::get_long)) {
                (Some(variable), _) => {
                    let variable = variable.to_string_lossy();
                    format!("{variable}={text:?} cannot be used; set it to {allowed}, or unset it")
                }
                (None, Some(option)) => format!("--{option} {text}: give {allowed}"),
                (None, None) => format!("{text:?}: give {allowed}"),
            };
            command.clone().error(ErrorKind::ValueValidation, refusal)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(arguments: &[&str]) -> String {
        let number = |name: &'static str| Arg::new(name).long(name).allow_negative_numbers(true);
        let command = Command::new("tool")
            .arg(number("repeat").value_parser(whole::<u32>(1..)))
            .arg(number("share").value_parser(whole::<u8>(0..=100)));
        match command.try_get_matches_from([&["tool"], arguments].concat()) {
            Ok(_) => String::new(),
            Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
        }
    }

    #[test]
    fn what_is_no_number_of_the_range_is_refused_in_plain_words() {
        for (arguments, wanted) in [
            (["--repeat", "-1"], "error: --repeat -1: give a whole number of 1 or more"),
            (["--repeat", "0"], "error: --repeat 0: give a whole number of 1 or more"),
            (["--repeat", "1.5"], "error: --repeat 1.5: give a whole number of 1 or more"),
            (["--repeat", ""], "error: --repeat : give a whole number of 1 or more"),
            (["--repeat", "4294967296"], "error: --repeat 4294967296: give a smaller number"),
            (["--share", "101"], "error: --share 101: give a whole number from 0 to 100"),
            (["--repeat", "7"], ""),
            (["--share", "100"], ""),
        ] {
            assert_eq!(said(&arguments), wanted);
        }
    }
}
