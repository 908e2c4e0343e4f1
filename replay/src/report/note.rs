//! What a measuring run knows of an instruction besides how to execute it.

/// A stream, as plan and reports tell it apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StreamLabel {
    /// The device's ordinal.
    pub(crate) device: i32,
    /// Number of the stream's object in the plan; a handle value may come back, this does not.
    pub(crate) object: u32,
}

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Direction {
    /// From host memory to the device.
    HostToDevice,
    /// From the device to host memory.
    DeviceToHost,
    /// Within or between devices.
    DeviceToDevice,
    /// A value written over and over.
    Fill,
}

impl Direction {
    /// As reports write it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Direction::HostToDevice => "H2D",
            Direction::DeviceToHost => "D2H",
            Direction::DeviceToDevice => "D2D",
            Direction::Fill => "memset",
        }
    }
}

/// Classes of size, each up to and including its limit in bytes.
const SIZE_CLASSES: [(u64, &str); 5] = [
    (4 << 10, "<= 4 KiB"),
    (64 << 10, "<= 64 KiB"),
    (1 << 20, "<= 1 MiB"),
    (16 << 20, "<= 16 MiB"),
    (u64::MAX, "> 16 MiB"),
];

/// Copies that are reported together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CopyClass {
    /// Catalogue id.
    pub(crate) api: u16,
    /// Direction.
    pub(crate) direction: Direction,
    /// Whether the call returns only when the copy is complete.
    pub(crate) blocking: bool,
    size_class: u8,
}

impl CopyClass {
    /// The class of a copy of this many bytes.
    pub(crate) fn new(api: u16, direction: Direction, blocking: bool, bytes: u64) -> Self {
        let size_class = SIZE_CLASSES.iter().position(|(limit, _)| bytes <= *limit).unwrap_or(SIZE_CLASSES.len() - 1);
        CopyClass { api, direction, blocking, size_class: size_class as u8 }
    }

    /// The class of size, as reports write it.
    pub(crate) fn size(self) -> &'static str {
        SIZE_CLASSES[usize::from(self.size_class)].1
    }
}

/// Work that a call has the device do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Work {
    /// A kernel, by its number in the archive; `u32::MAX` where that is not known.
    Kernel(u32),
    /// A graph.
    Graph,
    /// A copy.
    Copy(CopyClass),
}

/// What is known of an instruction that has the device do something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    /// Position of the instruction in its chunk.
    pub(crate) at: u32,
    /// What the device does.
    pub(crate) work: Work,
    /// Bytes copied; zero where the work is no copy.
    pub(crate) bytes: u64,
    /// The stream it does it on.
    pub(crate) stream: StreamLabel,
    /// Where the live stream stands.
    pub(crate) handle: StreamWord,
}

/// Where an instruction's stream stands among its argument words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamWord {
    /// In this argument word.
    Word(u8),
    /// Nowhere: it is this handle.
    Fixed(u64),
    /// The call does not say: no events around it.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_belongs_to_the_class_it_does_not_exceed() {
        let size = |bytes| CopyClass::new(0, Direction::HostToDevice, false, bytes).size();
        assert_eq!(size(0), "<= 4 KiB");
        assert_eq!((size(4096), size(4097)), ("<= 4 KiB", "<= 64 KiB"));
        assert_eq!((size(16 << 20), size((16 << 20) + 1), size(u64::MAX)), ("<= 16 MiB", "> 16 MiB", "> 16 MiB"));
    }
}
