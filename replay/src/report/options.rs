//! What of a replay is measured, and at which pace it goes.

use std::str::FromStr;

/// What a replay takes down while it runs. With none of it the timed loop is one that has no room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// How long calls take and where the workers' time goes.
    pub calls: bool,
    /// How long kernels, graphs and copies take on the device, by events.
    pub timing: bool,
    /// When each call of the last repetition was issued and had returned.
    pub order: bool,
}

impl Measure {
    /// Whether anything is measured.
    pub fn any(self) -> bool {
        self.calls || self.timing || self.order
    }
}

/// What becomes of the program's own gaps between two calls of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Pace {
    /// They are left out.
    #[default]
    Asap,
    /// They are as long as recorded.
    Recorded,
    /// They are this many times shorter than recorded.
    Faster(f64),
}

impl Pace {
    /// How many times shorter gaps are; `None` where they are left out.
    pub fn factor(self) -> Option<f64> {
        match self {
            Pace::Asap => None,
            Pace::Recorded => Some(1.0),
            Pace::Faster(factor) => Some(factor),
        }
    }
}

impl std::fmt::Display for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Pace::Asap => f.write_str("asap"),
            Pace::Recorded => f.write_str("recorded"),
            Pace::Faster(factor) => write!(f, "x{factor}"),
        }
    }
}

/// A pace that means nothing.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no pace; write asap, recorded, or xF to shorten gaps F times, such as x2 or x0.5")]
pub struct PaceError(String);

impl FromStr for Pace {
    type Err = PaceError;

    fn from_str(text: &str) -> Result<Self, PaceError> {
        let factor = || text.strip_prefix('x').and_then(|factor| factor.parse::<f64>().ok());
        match text {
            "asap" => Ok(Pace::Asap),
            "recorded" => Ok(Pace::Recorded),
            _ => match factor() {
                Some(factor) if factor.is_finite() && factor > 0.0 => Ok(Pace::Faster(factor)),
                _ => Err(PaceError(text.to_owned())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_read_as_people_write_them() {
        assert_eq!("x2.5".parse::<Pace>().unwrap(), Pace::Faster(2.5));
        assert_eq!("recorded".parse::<Pace>().unwrap().factor(), Some(1.0));
        for bad in ["", "x0", "x-1", "xnan", "fast", "2"] {
            assert!(bad.parse::<Pace>().is_err(), "{bad}");
        }
    }
}
