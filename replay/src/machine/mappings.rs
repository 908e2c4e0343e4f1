//! What this process has mapped where, as `/proc/self/maps` tells it.

/// A part of the address space that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Whether nobody may access it and no file is behind it: addresses that are kept, and nothing else.
    pub(crate) is_reserved: bool,
}

/// The mappings of this process by ascending address; none where the system does not tell.
pub(crate) fn own() -> Vec<Mapping> {
    parse(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

fn parse(text: &str) -> Vec<Mapping> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let access = fields.next()?;
            let device = fields.nth(1)?;
            Some(Mapping {
                start: u64::from_str_radix(start, 16).ok()?,
                end: u64::from_str_radix(end, 16).ok()?,
                is_reserved: access == "---p" && device == "00:00",
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_what_is_none_is_left_out() {
        let text = "\
55d000000000-55d000100000 r-xp 00000000 fe:00 12                         /usr/bin/hrr-playback
7f6000000000-7f6000400000 ---p 00000000 00:00 0
7f6000400000-7f6000500000 ---p 00400000 fe:00 13                         /usr/lib/libc.so.6
nonsense
";
        let mapping = |start, end, is_reserved| Mapping { start, end, is_reserved };
        assert_eq!(
            parse(text),
            [
                mapping(0x55d0_0000_0000, 0x55d0_0010_0000, false),
                mapping(0x7f60_0000_0000, 0x7f60_0040_0000, true),
                mapping(0x7f60_0040_0000, 0x7f60_0050_0000, false),
            ]
        );
        let here = &raw const text as u64;
        assert!(own().iter().any(|mapping| (mapping.start..mapping.end).contains(&here)));
    }
}
