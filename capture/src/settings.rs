//! What the variables that say how to record may hold, and what is wrong with anything else.
//!
//! The recorder and its launcher both read them by this file. A value that says which part of a program to record has no substitute:
//! without it nothing is recorded. For any other there is one, which the recorder uses and names; the launcher, which can still ask
//! whoever typed it, refuses both kinds before it starts the program.

use std::fmt;
use std::time::Duration;

/// Records only a window of the program.
pub(crate) const WINDOW: &str = "HIP_HRR_CAPTURE_WINDOW";
/// Keeps the last calls only.
pub(crate) const FLIGHT_RECORDER: &str = "HIP_HRR_FLIGHT_RECORDER";
/// `0` leaves out what the host stores in memory that devices use directly.
const HOST_SNAPSHOTS: &str = "HIP_HRR_HOST_SNAPSHOTS";
/// Largest allocation in MiB that is looked through for it, and all of them together.
const HOST_SNAPSHOT_MAX_MB: &str = "HIP_HRR_HOST_SNAPSHOT_MAX_MB";
const HOST_SNAPSHOT_TOTAL_MB: &str = "HIP_HRR_HOST_SNAPSHOT_TOTAL_MB";
/// `all` looks through all such memory before each launch, and not only through what the launch is given addresses in.
const HOST_SNAPSHOT_SCOPE: &str = "HIP_HRR_HOST_SNAPSHOT_SCOPE";

/// Smallest size of a flight recorder in bytes: two rings of the smallest kind.
const LEAST_FLIGHT_RECORDER_BYTES: u64 = 128 << 10;

/// The text of a variable; `None` where it is not set.
pub(crate) type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// How to record, as far as there is a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// What part of the program is recorded; `None` = all of it.
    pub(crate) window: Option<Trigger>,
    /// Most bytes of stream files, where only the last calls are kept.
    pub(crate) flight_recorder_bytes: Option<u64>,
    /// How memory that devices use directly is looked through; `None` = not at all.
    pub(crate) host_snapshots: Option<HostSnapshots>,
    /// Values that mean nothing, for which something else is used.
    pub(crate) doubts: Vec<Doubt>,
}

/// A value that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// The variable, its value and what is wrong with it.
    pub(crate) what: String,
    /// What is used instead.
    pub(crate) instead: String,
}

/// How memory that devices use directly is looked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostSnapshots {
    /// Largest allocation in bytes.
    pub(crate) max_bytes: u64,
    /// All allocations together, in bytes; as much memory is taken for copies of them.
    pub(crate) total_bytes: u64,
    /// Which memory is looked through before a launch.
    pub(crate) scope: Scope,
}

/// Which memory is looked through before a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// What the launch is given addresses in.
    Arguments,
    /// All that devices can use.
    All,
}

/// When windows are open.
///
/// | value | a window is open |
/// |---|---|
/// | `launches:A..B` | from launch A, counted from 0, up to, not including, launch B; kernels and graphs count one each |
/// | `time:A..B` | from A to B after the process's first HIP call: numbers with `ms`, `s` (or nothing) or `m` |
/// | `signal` | between an odd SIGUSR2 and the next one |
/// | `api` | between `hrr_capture_start()` and `hrr_capture_stop()` |
///
/// B may be left out: the window is then open until the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// Between two launches.
    Launches { from: u64, to: Option<u64> },
    /// Between two moments after the first call.
    Time { from: Duration, to: Option<Duration> },
    /// From one SIGUSR2 to the next.
    Signal,
    /// As the program says.
    Api,
}

impl Settings {
    /// Reads the variables.
    ///
    /// # Errors
    /// What is wrong with one that has no substitute.
    pub(crate) fn read(lookup: &Lookup<'_>) -> Result<Self, String> {
        let flight_recorder_bytes = flight_recorder(lookup)?;
        let window = window(lookup)?;
        if window.is_some() && flight_recorder_bytes.is_some() {
            return Err(format!("{WINDOW} and {FLIGHT_RECORDER} exclude each other"));
        }
        let mut doubts = Vec::new();
        let host_snapshots = host_snapshots(lookup, &mut doubts);
        Ok(Settings { window, flight_recorder_bytes, host_snapshots, doubts })
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.instead)
    }
}

/// What in the name of an archive looks like a pattern and is none, and stays in it as it is: an unknown word between two `%`, or
/// a known one that is not closed. A `%` of any other kind is a part of the name.
pub(crate) fn unknown_pattern(output: &[u8]) -> Option<String> {
    let mut rest = output;
    while let Some(start) = rest.iter().position(|&byte| byte == b'%') {
        let body = &rest[start + 1..];
        let end = body.iter().position(|&byte| byte == b'%');
        let word = &body[..end.unwrap_or(body.len())];
        let is_variable = word.strip_prefix(b"env{").and_then(|word| word.strip_suffix(b"}"));
        let is_known =
            matches!(word, b"pid" | b"hostname" | b"rank") || is_variable.is_some_and(|name| !name.is_empty());
        if let (Some(end), true) = (end, is_known) {
            rest = &body[end + 1..];
            continue;
        }
        let shown = || String::from_utf8_lossy(word);
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_{}".contains(byte);
        let is_unclosed = word.starts_with(b"env{") || matches!(word, b"pid" | b"hostname" | b"rank");
        match end {
            None if is_unclosed => return Some(format!("%{} is not closed by a %", shown())),
            Some(_) if word.first().is_some_and(u8::is_ascii_alphabetic) && word.iter().all(is_word) => {
                return Some(format!("%{}% is no pattern", shown()));
            }
            Some(_) if word.starts_with(b"env{") => return Some(format!("%{}% names no variable", shown())),
            _ => {}
        }
        rest = body;
    }
    None
}

/// A variable that is set to more than blanks.
fn text_of(lookup: &Lookup<'_>, name: &str) -> Option<String> {
    lookup(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// What part of the program is recorded.
///
/// # Errors
/// What is wrong with the value.
pub(crate) fn window(lookup: &Lookup<'_>) -> Result<Option<Trigger>, String> {
    let Some(text) = text_of(lookup, WINDOW) else { return Ok(None) };
    let wrong = || format!("{WINDOW}={text} is none of launches:A..B, time:A..B, signal and api, with A less than B");
    Trigger::parse(&text).map(Some).ok_or_else(wrong)
}

fn flight_recorder(lookup: &Lookup<'_>) -> Result<Option<u64>, String> {
    let Some(text) = text_of(lookup, FLIGHT_RECORDER) else { return Ok(None) };
    let wrong = || {
        let least = LEAST_FLIGHT_RECORDER_BYTES >> 10;
        format!("{FLIGHT_RECORDER}={text} is no size of at least {least}K, as 64M is one")
    };
    size(&text).filter(|&bytes| bytes >= LEAST_FLIGHT_RECORDER_BYTES).map(Some).ok_or_else(wrong)
}

fn host_snapshots(lookup: &Lookup<'_>, doubts: &mut Vec<Doubt>) -> Option<HostSnapshots> {
    let wanted = switch(lookup, HOST_SNAPSHOTS, "they are recorded", doubts).unwrap_or(true);
    let mut bytes = |name: &str, default_mib: u64| {
        let mib = text_of(lookup, name).and_then(|text| {
            let mib = text.parse::<u64>().ok();
            if mib.is_none() {
                let what = format!("{name}={text} is no whole number of MiB");
                doubts.push(Doubt { what, instead: format!("{default_mib} is used") });
            }
            mib
        });
        mib.unwrap_or(default_mib).saturating_mul(1 << 20)
    };
    let (max_bytes, total_bytes) = (bytes(HOST_SNAPSHOT_MAX_MB, 64), bytes(HOST_SNAPSHOT_TOTAL_MB, 1024));
    let scope = match text_of(lookup, HOST_SNAPSHOT_SCOPE).as_deref() {
        Some("all") => Scope::All,
        Some("arguments") | None => Scope::Arguments,
        Some(other) => {
            let what = format!("{HOST_SNAPSHOT_SCOPE}={other} is neither all nor arguments");
            doubts.push(Doubt { what, instead: "arguments is used".to_owned() });
            Scope::Arguments
        }
    };
    wanted.then_some(HostSnapshots { max_bytes, total_bytes, scope })
}

/// A variable that is 0 or 1, and what anything else comes to.
pub(crate) fn switch(lookup: &Lookup<'_>, name: &str, otherwise: &str, doubts: &mut Vec<Doubt>) -> Option<bool> {
    match text_of(lookup, name).as_deref() {
        None => None,
        Some("0") => Some(false),
        Some("1") => Some(true),
        Some(other) => {
            let what = format!("{name}={other} is neither 0 nor 1");
            doubts.push(Doubt { what, instead: otherwise.to_owned() });
            None
        }
    }
}

/// Reads a size: a number, and `K`, `M` or `G`.
fn size(text: &str) -> Option<u64> {
    let trimmed = text.trim_end_matches(['B', 'b']).trim_end_matches(['i']);
    let digits = trimmed.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match trimmed[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl Trigger {
    fn parse(text: &str) -> Option<Self> {
        let (word, range) = text.split_once(':').unwrap_or((text, ""));
        match (word, range.split_once("..")) {
            ("signal", None) if text == word => Some(Trigger::Signal),
            ("api", None) if text == word => Some(Trigger::Api),
            ("launches", Some((from, to))) => {
                let number = |text: &str| text.trim().parse::<u64>().ok();
                ends(from, to, number).map(|(from, to)| Trigger::Launches { from, to })
            }
            ("time", Some((from, to))) => ends(from, to, duration).map(|(from, to)| Trigger::Time { from, to }),
            _ => None,
        }
    }
}

fn ends<T: PartialOrd + Copy>(from: &str, to: &str, parse: impl Fn(&str) -> Option<T>) -> Option<(T, Option<T>)> {
    let from = parse(from)?;
    let to = if to.trim().is_empty() { None } else { Some(parse(to)?) };
    to.is_none_or(|to| from < to).then_some((from, to))
}

fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(digits.parse::<f64>().ok()? * seconds).ok()
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trigger::Launches { from, to } => {
                write!(f, "launches:{from}..")?;
                to.map_or(Ok(()), |to| write!(f, "{to}"))
            }
            Trigger::Time { from, to } => {
                write!(f, "time:{}ms..", from.as_millis())?;
                to.map_or(Ok(()), |to| write!(f, "{}ms", to.as_millis()))
            }
            Trigger::Signal => f.write_str("signal"),
            Trigger::Api => f.write_str("api"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::read(&|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn triggers_are_read_and_written_alike() {
        let time = |from, to| Trigger::Time { from: Duration::from_millis(from), to: Some(Duration::from_millis(to)) };
        for (text, expected, written) in [
            ("launches:100..200", Trigger::Launches { from: 100, to: Some(200) }, "launches:100..200"),
            ("launches:5..", Trigger::Launches { from: 5, to: None }, "launches:5.."),
            ("time:1.5s..2m", time(1500, 120_000), "time:1500ms..120000ms"),
            ("time:20ms..1", time(20, 1000), "time:20ms..1000ms"),
            (" signal ", Trigger::Signal, "signal"),
            ("api", Trigger::Api, "api"),
        ] {
            let trigger = read(&[(WINDOW, text)]).unwrap().window.unwrap();
            assert_eq!((trigger, trigger.to_string().as_str()), (expected, written));
            assert_eq!(read(&[(WINDOW, written)]).unwrap().window, Some(trigger));
        }
        for text in [
            "launches",
            "launches:2..1",
            "launches:1..1",
            "launches:..5",
            "time:1h..",
            "signal:1..2",
            "signal:",
            "time:-1..2",
        ] {
            let wrong = read(&[(WINDOW, text)]).unwrap_err();
            assert!(wrong.starts_with(&format!("{WINDOW}={text} is none of launches:A..B")), "{wrong}");
        }
        assert_eq!(read(&[(WINDOW, " ")]).unwrap().window, None);
    }

    #[test]
    fn patterns_that_are_none_are_named() {
        for (output, wanted) in [
            ("/a/%foo%/b", "%foo% is no pattern"),
            ("run-%PID%", "%PID% is no pattern"),
            ("run-%env{X", "%env{X is not closed by a %"),
            ("run-%env{X}", "%env{X} is not closed by a %"),
            ("run-%env{X%", "%env{X% is no pattern"),
            ("run-%env{}%", "%env{}% is no pattern"),
            ("%pid%-%rank", "%rank is not closed by a %"),
            ("%env{A/B%", "%env{A/B% names no variable"),
        ] {
            assert_eq!(unknown_pattern(output.as_bytes()).as_deref(), Some(wanted), "{output}");
        }
        for output in
            ["a", "%pid%%hostname%-%rank%-%env{X}%", "100%", "50%/a%b", "a%20b%20c", "%env{A-B}%", "%%", "50%load"]
        {
            assert_eq!(unknown_pattern(output.as_bytes()), None, "{output}");
        }
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [("64M", 64 << 20), (" 1g ", 1 << 30), ("200000", 200_000), ("128KiB", 128 << 10)] {
            assert_eq!(read(&[(FLIGHT_RECORDER, text)]).unwrap().flight_recorder_bytes, Some(bytes));
        }
        for text in ["M", "-1M", "1T", "100K", "99999999999999G"] {
            let wrong = read(&[(FLIGHT_RECORDER, text)]).unwrap_err();
            assert_eq!(wrong, format!("{FLIGHT_RECORDER}={text} is no size of at least 128K, as 64M is one"));
        }
        let both = read(&[(FLIGHT_RECORDER, "1M"), (WINDOW, "api")]).unwrap_err();
        assert_eq!(both, "HIP_HRR_CAPTURE_WINDOW and HIP_HRR_FLIGHT_RECORDER exclude each other");
    }

    #[test]
    fn what_means_nothing_is_named_with_what_is_used_instead() {
        let usual = read(&[]).unwrap();
        let defaults = HostSnapshots { max_bytes: 64 << 20, total_bytes: 1 << 30, scope: Scope::Arguments };
        assert_eq!((usual.host_snapshots, usual.doubts.len()), (Some(defaults), 0));
        for (name, value, said) in [
            (HOST_SNAPSHOT_MAX_MB, "abc", "HIP_HRR_HOST_SNAPSHOT_MAX_MB=abc is no whole number of MiB: 64 is used"),
            (HOST_SNAPSHOT_MAX_MB, "-1", "HIP_HRR_HOST_SNAPSHOT_MAX_MB=-1 is no whole number of MiB: 64 is used"),
            (HOST_SNAPSHOT_TOTAL_MB, "2G", "HIP_HRR_HOST_SNAPSHOT_TOTAL_MB=2G is no whole number of MiB: 1024 is used"),
            (
                HOST_SNAPSHOT_SCOPE,
                "both",
                "HIP_HRR_HOST_SNAPSHOT_SCOPE=both is neither all nor arguments: arguments is used",
            ),
            (HOST_SNAPSHOTS, "no", "HIP_HRR_HOST_SNAPSHOTS=no is neither 0 nor 1: they are recorded"),
        ] {
            let settings = read(&[(name, value)]).unwrap();
            assert_eq!(settings.host_snapshots, Some(defaults));
            assert_eq!(settings.doubts.iter().map(Doubt::to_string).collect::<Vec<_>>(), [said]);
        }
        for (name, value) in [
            (HOST_SNAPSHOT_MAX_MB, " 64 "),
            (HOST_SNAPSHOT_TOTAL_MB, ""),
            (HOST_SNAPSHOT_SCOPE, "arguments"),
            (HOST_SNAPSHOTS, "1"),
        ] {
            assert_eq!(read(&[(name, value)]).unwrap(), usual);
        }
        assert_eq!(read(&[(HOST_SNAPSHOTS, "0")]).unwrap().host_snapshots, None);
    }
}
