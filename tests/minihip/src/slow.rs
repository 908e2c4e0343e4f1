//! Planted slowdowns, for tests of what finds them: `MINIHIP_SLOW`, or a file `minihip-slow` beside the library, which makes
//! a copy of the library a slower build of it.
//!
//! Rules, separated by commas: `api:NAME:AMOUNT` (every call of an entry point), `copy:h2d:AMOUNT` and `copy:d2h:AMOUNT` (on the
//! device), `kernel:NAME:AMOUNT` (on the device), `lock:streamsync:AMOUNT` (under one lock in stream synchronisation) and
//! `noise:AMOUNT` (up to so much at each synchronisation, drawn once a process). An amount is `20%` of what it took, or `50us`.

use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How much longer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    Fraction(f64),
    Time(Duration),
}

impl Amount {
    fn of(self, took: Duration) -> Duration {
        match self {
            Amount::Fraction(fraction) => took.mul_f64(fraction),
            Amount::Time(time) => time,
        }
    }
}

impl FromStr for Amount {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number =
            |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0).ok_or(());
        match (text.strip_suffix('%'), text.strip_suffix("us")) {
            (Some(percent), _) => Ok(Amount::Fraction(number(percent)? / 100.0)),
            (_, Some(microseconds)) => Ok(Amount::Time(Duration::from_nanos((number(microseconds)? * 1e3) as u64))),
            _ => Err(()),
        }
    }
}

/// What is slower.
#[derive(Clone, Debug, PartialEq)]
enum What {
    Api(String),
    Kernel(String),
    HostToDevice,
    DeviceToHost,
    StreamSyncLock,
    Noise,
}

/// The rules of this process.
#[derive(Clone, Debug, Default, PartialEq)]
struct Rules(Vec<(What, Amount)>);

impl FromStr for Rules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rules = text.split(',').map(str::trim).filter(|rule| !rule.is_empty()).map(|rule| {
            let bad = || format!("minihip: MINIHIP_SLOW: {rule:?} is no rule");
            let parts: Vec<&str> = rule.split(':').collect();
            let (what, amount) = match parts.as_slice() {
                ["api", name, amount] => (What::Api((*name).to_owned()), amount),
                ["kernel", name, amount] => (What::Kernel((*name).to_owned()), amount),
                ["copy", "h2d", amount] => (What::HostToDevice, amount),
                ["copy", "d2h", amount] => (What::DeviceToHost, amount),
                ["lock", "streamsync", amount] => (What::StreamSyncLock, amount),
                ["noise", amount] => (What::Noise, amount),
                _ => return Err(bad()),
            };
            Ok((what, amount.parse().map_err(|()| bad())?))
        });
        Ok(Rules(rules.collect::<Result<_, _>>()?))
    }
}

impl Rules {
    fn amount(&self, wanted: impl Fn(&What) -> bool) -> Option<Amount> {
        self.0.iter().find(|(what, _)| wanted(what)).map(|(_, amount)| *amount)
    }
}

/// The rules; none in a process that asks for none.
fn rules() -> &'static Rules {
    static RULES: OnceLock<Rules> = OnceLock::new();
    RULES.get_or_init(|| {
        let text = std::env::var("MINIHIP_SLOW").ok().or_else(|| std::fs::read_to_string(beside_library()?).ok());
        text.unwrap_or_default().parse().unwrap_or_else(|error| {
            eprintln!("{error}");
            Rules::default()
        })
    })
}

/// The file beside the library that this code is in.
fn beside_library() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let address = beside_library as *const c_void;
    // SAFETY: dladdr only looks the address up and fills the struct, which outlives the call.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed Dl_info is valid, and dladdr filled it.
    let name = unsafe { info.assume_init() }.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: a NUL-terminated string of the loader's, which stays as long as the library does.
    let path = PathBuf::from(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
    Some(path.with_file_name("minihip-slow"))
}

/// Passes time as work would: without sleeping.
fn spin(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

fn slowed<T>(amount: Option<Amount>, work: impl FnOnce() -> T) -> T {
    let Some(amount) = amount else { return work() };
    let began = Instant::now();
    let result = work();
    spin(amount.of(began.elapsed()));
    result
}

/// Runs the body of an entry point.
#[inline]
pub(crate) fn api<T>(name: &str, body: impl FnOnce() -> T) -> T {
    let rules = rules();
    if rules.0.is_empty() {
        return body();
    }
    slowed(rules.amount(|what| matches!(what, What::Api(api) if api == name)), body)
}

/// Runs a kernel on the device.
pub(crate) fn kernel(name: &CStr, work: impl FnOnce()) {
    let rules = rules();
    if rules.0.is_empty() {
        return work();
    }
    slowed(rules.amount(|what| matches!(what, What::Kernel(kernel) if kernel.as_bytes() == name.to_bytes())), work);
}

/// Runs a copy on the device; `to_device` and `to_host` tell where it goes.
pub(crate) fn copy(to_device: impl Fn() -> bool, to_host: impl Fn() -> bool, work: impl FnOnce()) {
    let rules = rules();
    if rules.0.is_empty() {
        return work();
    }
    let amount = rules.amount(|what| match what {
        What::HostToDevice => to_device(),
        What::DeviceToHost => to_host(),
        _ => false,
    });
    slowed(amount, work);
}

/// A stream synchronises.
pub(crate) fn stream_sync() {
    static LOCK: Mutex<()> = Mutex::new(());
    static NOISE: OnceLock<Duration> = OnceLock::new();
    let rules = rules();
    if rules.0.is_empty() {
        return;
    }
    if let Some(amount) = rules.amount(|what| *what == What::StreamSyncLock) {
        let _held = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        spin(amount.of(Duration::ZERO));
    }
    if let Some(amount) = rules.amount(|what| *what == What::Noise) {
        let time = NOISE.get_or_init(|| {
            let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
            // Knuth's multiplicative hash spreads the low digits.
            amount.of(Duration::ZERO).mul_f64(f64::from(seed.wrapping_mul(2_654_435_761)) / f64::from(u32::MAX))
        });
        spin(*time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_mistakes_are_named() {
        let rules: Rules = "api:hipMalloc:20%, copy:h2d:50us,noise:3us".parse().unwrap();
        assert_eq!(
            rules.0,
            [
                (What::Api("hipMalloc".into()), Amount::Fraction(0.2)),
                (What::HostToDevice, Amount::Time(Duration::from_micros(50))),
                (What::Noise, Amount::Time(Duration::from_micros(3))),
            ]
        );
        assert_eq!("".parse::<Rules>(), Ok(Rules::default()));
        for bad in ["api:hipMalloc", "copy:up:3%", "noise:3", "noise:-3us", "lock:streamsync:x%"] {
            assert!(bad.parse::<Rules>().unwrap_err().contains(bad), "{bad}");
        }
    }

    #[test]
    fn slowed_work_takes_longer() {
        let began = Instant::now();
        slowed(Some(Amount::Time(Duration::from_millis(3))), || ());
        assert!(began.elapsed() >= Duration::from_millis(3));
    }
}
