//! Numbers as people read them.

/// A number of bytes in the unit that suits it: `12 bytes`, `1.5 KiB`.
pub fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_for_people() {
        assert_eq!(size_text(12), "12 bytes");
        assert_eq!(size_text(1536), "1.5 KiB");
        assert_eq!(size_text(5 << 40), "5.0 TiB");
        assert_eq!(size_text(u64::MAX), "16384.0 PiB");
    }
}
