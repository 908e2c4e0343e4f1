//! Which kernels an archive launches, by name.

use hrr_format::archive::Archive;
use hrr_format::record::{Record, SectionTag};

use crate::choices::Replacement;

/// Refuses replacements of kernels that the archive never launches: a name that was mistyped would change nothing.
///
/// # Errors
/// The first such name, and the kernels that are launched.
pub(crate) fn refuse_unknown_replacements(archive: &Archive, replacements: &[Replacement]) -> Result<(), String> {
    let mut launched: Vec<&str> = archive.kernels().kernels().iter().map(|kernel| kernel.name.as_str()).collect();
    if replacements.iter().all(|replacement| launched.contains(&replacement.name.as_str())) {
        return Ok(());
    }
    launched.extend(launched_by_symbol(archive));
    launched.sort_unstable();
    launched.dedup();
    match replacements.iter().find(|replacement| !launched.contains(&replacement.name.as_str())) {
        Some(Replacement { name, .. }) => {
            Err(format!("--replace-kernel: no kernel {name:?} is launched; launched: {}", launched.join(", ")))
        }
        None => Ok(()),
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
