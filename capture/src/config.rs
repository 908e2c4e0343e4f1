//! What the environment asks for: the one place that decides whether to record, where to, and whether contents are
//! recorded too.

use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use hrr_format::stream_file::ContentsMode;

/// Directory of the archive; unset or blank means that nothing is recorded.
const OUTPUT: &CStr = c"HIP_HRR_CAPTURE_OUTPUT";
/// `1` records contents too.
const CONTENT: &CStr = c"HIP_HRR_CAPTURE_CONTENT";
/// Where launchers put a process's rank, in order of preference.
const RANKS: [&CStr; 5] =
    [c"SLURM_PROCID", c"OMPI_COMM_WORLD_RANK", c"MV2_COMM_WORLD_RANK", c"PALS_RANKID", c"PMI_RANK"];

/// What the environment asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// No recording.
    Off,
    /// Recording was asked for and is refused because the process runs with privileges that its caller lacks.
    Privileged,
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
    // The only reader of the variable: everything else asks the `Config` of the process.
    let contents = match variable(CONTENT) {
        Some(value) if value.as_bytes().trim_ascii() == b"1" => ContentsMode::Contents,
        _ => ContentsMode::MetadataOnly,
    };
    let root = PathBuf::from(expand(&output, variable));
    let root = std::path::absolute(&root).unwrap_or(root);
    Request::Record(Config { root, contents })
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
            let name = std::ffi::CString::new(name).ok()?;
            Some(variable(&name).unwrap_or_default())
        }
    }
}

/// The rank of this process in its job, where a launcher gave it one.
pub(crate) fn rank() -> Option<u64> {
    rank_text(&variable)?.to_str()?.trim().parse().ok()
}

fn rank_text(variable: &dyn Fn(&CStr) -> Option<OsString>) -> Option<OsString> {
    RANKS.iter().find_map(|name| variable(name))
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
            let variable = |name: &CStr| Some(OsString::from(if name == CONTENT { value } else { "/x" }));
            assert_eq!(mode(&variable), expected);
        }
        assert_eq!(
            mode(&with(&[("HIP_HRR_CAPTURE_OUTPUT", "/x"), ("HIP_HRR_CAPTURE_CONTENT", "yes")])),
            ContentsMode::MetadataOnly
        );
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
