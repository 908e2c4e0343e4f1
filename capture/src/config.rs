//! What the environment asks for: the one place that decides whether to record, where to, and whether contents are
//! recorded too.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use hrr_format::manifest::RANK_VARIABLES;
use hrr_format::stream_file::ContentsMode;

use crate::settings::{self, Doubt, HostSnapshots, Settings, Trigger};

/// Directory of the archive; unset or blank means that nothing is recorded.
const OUTPUT: &CStr = c"HIP_HRR_CAPTURE_OUTPUT";
/// `1` records contents too.
const CONTENT: &str = "HIP_HRR_CAPTURE_CONTENT";
/// What the environment asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// No recording.
    Off,
    /// Recording was asked for and is refused because the process runs with privileges that its caller lacks.
    Privileged,
    /// Recording was asked for in a way that makes no sense.
    Wrong(String),
    /// Recording.
    Record(Config),
}

/// How to record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Archive root, absolute.
    pub(crate) root: PathBuf,
    /// Whether contents are recorded.
    pub(crate) contents: ContentsMode,
    /// Whether what the host stores in memory that devices use directly is recorded with them.
    pub(crate) host_snapshots: Option<HostSnapshots>,
    /// What part of the program is recorded; `None` = all of it.
    pub(crate) window: Option<Trigger>,
    /// Most bytes of stream files, where only the last calls are kept, without contents.
    pub(crate) flight_recorder_bytes: Option<u64>,
    /// Values that mean nothing, for which something else is used.
    pub(crate) doubts: Vec<Doubt>,
}

/// Reads the environment.
pub(crate) fn request() -> Request {
    // SAFETY: `getauxval` has no preconditions.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    decide(privileged, &variable)
}

fn decide(privileged: bool, variable: &dyn Fn(&CStr) -> Option<OsString>) -> Request {
    let Some(output) = variable(OUTPUT).filter(|value| !value.as_bytes().iter().all(u8::is_ascii_whitespace)) else {
        return Request::Off;
    };
    if privileged {
        return Request::Privileged;
    }
    let text = |name: &str| {
        let name = CString::new(name).ok()?;
        variable(&name).map(|value| value.to_string_lossy().into_owned())
    };
    let Settings { window, flight_recorder_bytes, host_snapshots, mut doubts } = match Settings::read(&text) {
        Ok(settings) => settings,
        Err(reason) => return Request::Wrong(reason),
    };
    // The only reader of the variable: everything else asks the `Config` of the process.
    let contents = match settings::switch(&text, CONTENT, "no contents are recorded", &mut doubts) {
        Some(true) => ContentsMode::Contents,
        Some(false) | None => ContentsMode::MetadataOnly,
    };
    if flight_recorder_bytes.is_some() && contents == ContentsMode::Contents {
        return Request::Wrong(format!(
            "a flight recorder keeps no contents: HIP_HRR_FLIGHT_RECORDER excludes {CONTENT}=1"
        ));
    }
    if let Some(text) = rank_text(variable).filter(|text| rank_number(text).is_none()) {
        let what = format!("the rank {} is no number", text.to_string_lossy());
        doubts.push(Doubt { what, instead: "the manifest names none".to_owned() });
    }
    if let Some(what) = settings::unknown_pattern(output.as_bytes()) {
        doubts.push(Doubt {
            what: format!("HIP_HRR_CAPTURE_OUTPUT: {what}"),
            instead: "it stays in the name".to_owned(),
        });
    }
    let host_snapshots = host_snapshots.filter(|_| contents == ContentsMode::Contents);
    let root = PathBuf::from(expand(&output, variable));
    let root = std::path::absolute(&root).unwrap_or(root);
    Request::Record(Config { root, contents, host_snapshots, window, flight_recorder_bytes, doubts })
}

/// What part of the program is recorded, as the environment says; `None` where that is all of it, or says nothing sensible.
pub(crate) fn window() -> Option<Trigger> {
    settings::window(&|name| variable(&CString::new(name).ok()?).map(|value| value.to_string_lossy().into_owned()))
        .ok()
        .flatten()
}

/// Whether this library is in the process because the loader was asked to preload it.
pub(crate) fn is_preloaded() -> bool {
    variable(c"LD_PRELOAD").is_some_and(|list| list.to_string_lossy().contains("libhrr_capture"))
}

/// A variable of the process environment, without the standard library's lock on it, which a `fork` in another thread
/// could have left held.
pub(crate) fn variable(name: &CStr) -> Option<OsString> {
    // SAFETY: `name` is NUL-terminated. The returned string is copied at once; a program that changes its environment
    // in another thread meanwhile breaks `getenv`'s rules, as it would for HIP's own variables.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: `getenv` returned a NUL-terminated string.
    let value = unsafe { CStr::from_ptr(value) };
    Some(OsStr::from_bytes(value.to_bytes()).to_owned())
}

/// Replaces `%pid%`, `%hostname%`, `%rank%` and `%env{NAME}%`; anything else that stands between `%` stays as it is.
fn expand(pattern: &OsStr, variable: &dyn Fn(&CStr) -> Option<OsString>) -> OsString {
    let mut rest = pattern.as_bytes();
    let mut expanded = Vec::with_capacity(rest.len());
    while let Some(start) = rest.iter().position(|&byte| byte == b'%') {
        expanded.extend_from_slice(&rest[..start]);
        let body = &rest[start + 1..];
        let end = body.iter().position(|&byte| byte == b'%');
        let value = end.and_then(|end| Some((end, keyword(&body[..end], variable)?)));
        match value {
            Some((end, value)) => {
                expanded.extend_from_slice(value.as_bytes());
                rest = &body[end + 1..];
            }
            None => {
                expanded.push(b'%');
                rest = body;
            }
        }
    }
    expanded.extend_from_slice(rest);
    OsString::from_vec(expanded)
}

fn keyword(word: &[u8], variable: &dyn Fn(&CStr) -> Option<OsString>) -> Option<OsString> {
    match word {
        b"pid" => Some(std::process::id().to_string().into()),
        b"hostname" => Some(hostname()),
        b"rank" => Some(rank_text(variable).unwrap_or_else(|| "0".into())),
        _ => {
            let name = word.strip_prefix(b"env{")?.strip_suffix(b"}")?;
            let name = CString::new(name).ok()?;
            Some(variable(&name).unwrap_or_default())
        }
    }
}

/// The rank of this process in its job, where a launcher gave it one.
pub(crate) fn rank() -> Option<u64> {
    rank_number(&rank_text(&variable)?)
}

fn rank_number(text: &OsStr) -> Option<u64> {
    text.to_str()?.trim().parse().ok()
}

fn rank_text(variable: &dyn Fn(&CStr) -> Option<OsString>) -> Option<OsString> {
    RANK_VARIABLES.iter().find_map(|name| variable(name))
}

fn hostname() -> OsString {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is writable for the length passed, less one, so that a NUL always ends it.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) } != 0;
    let len = name.iter().position(|&byte| byte == 0).unwrap_or(0);
    if failed || len == 0 { "localhost".into() } else { OsStr::from_bytes(&name[..len]).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Scope;

    fn with(pairs: &'static [(&'static str, &'static str)]) -> impl Fn(&CStr) -> Option<OsString> {
        move |name| {
            pairs.iter().find(|(key, _)| key.as_bytes() == name.to_bytes()).map(|(_, value)| OsString::from(value))
        }
    }

    #[test]
    fn unset_and_blank_output_is_off() {
        assert_eq!(decide(false, &with(&[])), Request::Off);
        assert_eq!(decide(false, &with(&[("HIP_HRR_CAPTURE_OUTPUT", " \t")])), Request::Off);
        assert_eq!(decide(true, &with(&[("HIP_HRR_CAPTURE_OUTPUT", "")])), Request::Off);
    }

    #[test]
    fn a_privileged_process_is_refused() {
        assert_eq!(decide(true, &with(&[("HIP_HRR_CAPTURE_OUTPUT", "/x")])), Request::Privileged);
    }

    #[test]
    fn contents_need_the_second_variable_to_be_one() {
        let mode = |variable: &dyn Fn(&CStr) -> Option<OsString>| match decide(false, variable) {
            Request::Record(config) => config.contents,
            other => panic!("{other:?}"),
        };
        assert_eq!(mode(&with(&[("HIP_HRR_CAPTURE_OUTPUT", "/x")])), ContentsMode::MetadataOnly);
        for (value, expected) in [("1", ContentsMode::Contents), ("0", ContentsMode::MetadataOnly)] {
            let variable = |name: &CStr| match name {
                name if name.to_bytes() == CONTENT.as_bytes() => Some(OsString::from(value)),
                name if name == OUTPUT => Some(OsString::from("/x")),
                _ => None,
            };
            assert_eq!(mode(&variable), expected);
        }
        assert_eq!(
            mode(&with(&[("HIP_HRR_CAPTURE_OUTPUT", "/x"), ("HIP_HRR_CAPTURE_CONTENT", "yes")])),
            ContentsMode::MetadataOnly
        );
    }

    #[test]
    fn memory_that_devices_use_is_looked_through_in_contents_mode_only() {
        let settings = |pairs: &'static [(&'static str, &'static str)]| match decide(false, &with(pairs)) {
            Request::Record(config) => config.host_snapshots,
            other => panic!("{other:?}"),
        };
        assert_eq!(settings(&[("HIP_HRR_CAPTURE_OUTPUT", "/x")]), None);
        let on = HostSnapshots { max_bytes: 64 << 20, total_bytes: 1 << 30, scope: Scope::Arguments };
        assert_eq!(settings(&[("HIP_HRR_CAPTURE_OUTPUT", "/x"), ("HIP_HRR_CAPTURE_CONTENT", "1")]), Some(on));
        let all = HostSnapshots { max_bytes: 2 << 20, scope: Scope::All, ..on };
        assert_eq!(
            settings(&[
                ("HIP_HRR_CAPTURE_OUTPUT", "/x"),
                ("HIP_HRR_CAPTURE_CONTENT", "1"),
                ("HIP_HRR_HOST_SNAPSHOT_MAX_MB", "2"),
                ("HIP_HRR_HOST_SNAPSHOT_SCOPE", "all"),
            ]),
            Some(all)
        );
        assert_eq!(
            settings(&[
                ("HIP_HRR_CAPTURE_OUTPUT", "/x"),
                ("HIP_HRR_CAPTURE_CONTENT", "1"),
                ("HIP_HRR_HOST_SNAPSHOTS", "0"),
            ]),
            None
        );
    }

    /// Formerly such a name was used in silence.
    #[test]
    fn a_pattern_that_is_none_stays_in_the_name_and_is_told() {
        let Request::Record(config) = decide(false, &with(&[("HIP_HRR_CAPTURE_OUTPUT", "/x/%foo%-%rank%")])) else {
            panic!("it is recorded")
        };
        assert_eq!(config.root, PathBuf::from("/x/%foo%-0"));
        let told: Vec<String> = config.doubts.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["HIP_HRR_CAPTURE_OUTPUT: %foo% is no pattern: it stays in the name"]);
    }

    #[test]
    fn output_patterns_are_expanded() {
        let variable = with(&[("SLURM_PROCID", "3"), ("JOB", "j7")]);
        let expand = |text: &str| expand(OsStr::new(text), &variable).into_string().unwrap();
        assert_eq!(expand("/a/%rank%-%env{JOB}%"), "/a/3-j7");
        assert_eq!(expand("/a/%pid%"), format!("/a/{}", std::process::id()));
        assert_eq!(expand("100%/%nothing%/%"), "100%/%nothing%/%");
        assert_eq!(expand("%env{MISSING}%x"), "x");
    }
}
