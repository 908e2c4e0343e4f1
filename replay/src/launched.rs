//! Which kernels an archive launches, by name.

use hrr_format::archive::Archive;
use hrr_format::record::{Record, SectionTag};

use crate::choices::Replacement;

/// Refuses replacements of kernels that the archive never launches: a name that was mistyped would change nothing.
///
/// # Errors
/// The first such name, and the kernels that are launched.
pub(crate) fn refuse_unknown_replacements(archive: &Archive, replacements: &[Replacement]) -> Result<(), String> {
    if replacements.is_empty() {
        return Ok(());
    }
    let launched = launched(archive);
    match replacements.iter().find(|replacement| !launched.contains(&replacement.name.as_str())) {
        Some(Replacement { name, .. }) => {
            Err(format!("--replace-kernel: no kernel {name:?} is launched; {}", told(&launched)))
        }
        None => Ok(()),
    }
}

/// The filter that no kernel passes: no name has it.
const NONE: &str = "-";

/// Refuses a filter that no kernel passes, unless it says so: a name that was mistyped would leave everything out.
///
/// # Errors
/// The filter, and the kernels that are launched.
pub(crate) fn refuse_filter_of_nothing(archive: &Archive, filter: Option<&str>) -> Result<(), String> {
    let Some(filter) = filter.filter(|filter| *filter != NONE) else { return Ok(()) };
    let launched = launched(archive);
    match launched.iter().any(|name| name.contains(filter)) {
        true => Ok(()),
        false => {
            Err(format!("--kernel-filter: no kernel whose name contains {filter:?} is launched; {}", told(&launched)))
        }
    }
}

/// Names of all kernels that are launched, in order.
fn launched(archive: &Archive) -> Vec<&str> {
    let mut names: Vec<&str> = archive.kernels().kernels().iter().map(|kernel| kernel.name.as_str()).collect();
    names.extend(launched_by_symbol(archive));
    names.sort_unstable();
    names.dedup();
    names
}

/// Names of kernels, as many as fit on a line.
fn told(names: &[&str]) -> String {
    const TOLD: usize = 20;
    const LETTERS: usize = 80;
    let short = |name: &&str| match name.char_indices().nth(LETTERS) {
        Some((at, _)) => format!("{}...", &name[..at]),
        None => (*name).to_owned(),
    };
    let first = names.iter().take(TOLD).map(short).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "none is".to_owned(),
        count if count > TOLD => format!("launched: {first} and {} more", count - TOLD),
        _ => format!("launched: {first}"),
    }
}

/// Names of kernels that `hipLaunchByPtr` launches: such a launch tells a host symbol and nothing else.
fn launched_by_symbol(archive: &Archive) -> Vec<&str> {
    let records = || archive.streams().iter().flat_map(|stream| stream.records());
    let name = |record: &Record<'_>| archive.api(record.api()).name;
    let symbols: Vec<u64> = records().filter(|r| name(r) == "hipLaunchByPtr").map(|r| r.word(0)).collect();
    /// Words of `__hipRegisterFunction(modules, hostFunction, deviceFunction, ...)`.
    const HOST: usize = 1;
    const DEVICE: u8 = 2;
    records()
        .filter(|r| name(r) == "__hipRegisterFunction" && symbols.contains(&r.word(HOST)))
        .filter_map(|r| std::str::from_utf8(r.section(SectionTag::Text, DEVICE)?.payload).ok())
        .map(|name| name.trim_end_matches('\0'))
        .collect()
}
