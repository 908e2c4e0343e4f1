//! `kernels.jsonl`: the kernels a process launched, one JSON object a line, by number.
//!
//! ```text
//! {"kernel":0,"name":"saxpy","code_object":3,"kernarg_bytes":28,"args":[{"offset":0,"size":4,"kind":"by_value"}]}
//! ```
//!
//! Each line is appended by a single write, so that a capture that is killed loses at most the line it was writing. A
//! launch record's `aux` is the kernel's number plus one.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::code_object::{KernelArg, MAX_KERNARG_BYTES};
use crate::source::Source;

/// File name in a process archive.
pub const FILE: &str = "kernels.jsonl";

/// Longest table in bytes that a reader loads: some millions of kernels.
pub const MAX_BYTES: u64 = 1 << 30;

/// One kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Number, from zero on in order of first use.
    pub kernel: u32,
    /// Name in the code object.
    pub name: String,
    /// Number of its code object in the code object store; `None` where it is unknown or was withheld.
    #[serde(default)]
    pub code_object: Option<u64>,
    /// Size of the kernel argument segment in bytes, as the code object's metadata gives it.
    #[serde(default)]
    pub kernarg_bytes: u32,
    /// The explicit arguments in order of offset; `None` where the code object has no metadata for the kernel, so that
    /// its arguments could not be sized.
    #[serde(default)]
    pub args: Option<Vec<KernelArg>>,
    /// Whether the code object was withheld by the contents mode.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
}

impl Kernel {
    /// The line in the file, with its newline.
    pub fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("a struct of strings and integers always serialises");
        line.push('\n');
        line
    }

    /// Bytes of a `KernelArgs` payload: up to the end of the last explicit argument. `None` with an unknown signature.
    pub fn explicit_bytes(&self) -> Option<u32> {
        self.args.as_deref().map(crate::code_object::explicit_bytes)
    }

    fn check(&self) -> Result<(), String> {
        let end = |arg: &KernelArg| u64::from(arg.offset) + u64::from(arg.size);
        let furthest = self.args.iter().flatten().map(end).max().unwrap_or(0).max(u64::from(self.kernarg_bytes));
        if furthest > u64::from(MAX_KERNARG_BYTES) {
            return Err(format!("its arguments take {furthest} bytes, more than any kernel's"));
        }
        Ok(())
    }
}

/// A line that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} was ignored: {reason}")]
pub struct KernelDamage {
    /// Line number, from one on.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// Why the file cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be read: {reason}; look at its owner and mode, or copy the archive again, whole", path.display())]
pub struct KernelTableError {
    /// The file.
    pub path: PathBuf,
    /// The system's reason.
    pub reason: io::Error,
}

/// The kernels of a process, by number.
#[derive(Clone, Debug, Default)]
pub struct KernelTable {
    kernels: Vec<Kernel>,
    damage: Vec<KernelDamage>,
}

impl KernelTable {
    /// Reads the bytes of the file. A line that is malformed is left out and named in [`Self::damage`].
    pub fn parse(bytes: &[u8]) -> Self {
        let mut kernels: Vec<Kernel> = Vec::new();
        let mut damage = Vec::new();
        for (position, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            let read = serde_json::from_slice::<Kernel>(line)
                .map_err(|error| error.to_string())
                .and_then(|kernel| kernel.check().map(|()| kernel));
            match read {
                Ok(kernel) => kernels.push(kernel),
                Err(reason) => damage.push(KernelDamage { line: position + 1, reason }),
            }
        }
        // Stable, so that of two lines with one number the earlier is kept.
        kernels.sort_by_key(|kernel| kernel.kernel);
        kernels.dedup_by_key(|kernel| kernel.kernel);
        KernelTable { kernels, damage }
    }

    /// Reads the file; a missing one has no kernels.
    ///
    /// # Errors
    /// Why the file cannot be read.
    pub fn open(path: &Path) -> Result<Self, KernelTableError> {
        Self::open_from(&Source::Directory, path)
    }

    pub(crate) fn open_from(source: &Source, path: &Path) -> Result<Self, KernelTableError> {
        match source.read(path, MAX_BYTES) {
            Ok(bytes) => Ok(Self::parse(&bytes)),
            Err(reason) if reason.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(reason) => Err(KernelTableError { path: path.to_owned(), reason }),
        }
    }

    /// The kernel with a number.
    pub fn get(&self, number: u32) -> Option<&Kernel> {
        // Numbers are given out from zero on, so most kernels stand at their own number.
        if let Some(kernel) = self.kernels.get(number as usize).filter(|kernel| kernel.kernel == number) {
            return Some(kernel);
        }
        let position = self.kernels.binary_search_by_key(&number, |kernel| kernel.kernel).ok()?;
        self.kernels.get(position)
    }

    /// The kernel a launch record names in its `aux` field.
    pub fn of_launch(&self, aux: u32) -> Option<&Kernel> {
        self.get(aux.checked_sub(1)?)
    }

    /// All kernels by ascending number.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// Number of lines, damaged ones included.
    pub fn line_count(&self) -> u64 {
        (self.kernels.len() + self.damage.len()) as u64
    }

    /// Lines that could not be used.
    pub fn damage(&self) -> &[KernelDamage] {
        &self.damage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code_object::ArgKind;

    fn saxpy() -> Kernel {
        Kernel {
            kernel: 0,
            name: "saxpy".into(),
            code_object: Some(3),
            kernarg_bytes: 28,
            args: Some(vec![
                KernelArg { offset: 0, size: 4, kind: ArgKind::ByValue },
                KernelArg { offset: 8, size: 8, kind: ArgKind::GlobalBuffer },
            ]),
            withheld: false,
        }
    }

    const SAXPY: &str = concat!(
        r#"{"kernel":0,"name":"saxpy","code_object":3,"kernarg_bytes":28,"args":[{"offset":0,"size":4,"kind":"by_value"},"#,
        r#"{"offset":8,"size":8,"kind":"global_buffer"}]}"#,
        "\n"
    );

    #[test]
    fn a_line_reads_as_documented_and_back() {
        assert_eq!(saxpy().to_line(), SAXPY);
        let table = KernelTable::parse(SAXPY.as_bytes());
        assert_eq!(table.kernels(), [saxpy()]);
        assert_eq!(table.of_launch(1), Some(&saxpy()));
        assert_eq!(table.of_launch(0), None);
        assert_eq!(saxpy().explicit_bytes(), Some(16));
    }

    #[test]
    fn unknown_kinds_and_signatures_are_kept_apart() {
        let table = KernelTable::parse(
            br#"{"kernel":4,"name":"a","args":[{"offset":0,"size":8,"kind":"from_the_future"}],"withheld":true}
{"kernel":2,"name":"b","code_object":null,"args":null}
"#,
        );
        assert_eq!(table.get(4).unwrap().args.as_ref().unwrap()[0].kind, ArgKind::Other);
        assert!(table.get(4).unwrap().withheld);
        assert_eq!(table.get(2).unwrap().explicit_bytes(), None);
        assert_eq!(table.get(3), None);
    }

    #[test]
    fn a_torn_or_absurd_line_costs_only_itself() {
        let absurd = r#"{"kernel":1,"name":"x","args":[{"offset":4294967295,"size":4294967295,"kind":"by_value"}]}"#;
        let torn = &SAXPY[..20];
        let table = KernelTable::parse(format!("{SAXPY}{absurd}\n{torn}").as_bytes());
        assert_eq!(table.kernels(), [saxpy()]);
        assert_eq!(table.damage().iter().map(|damage| damage.line).collect::<Vec<_>>(), [2, 3]);
    }
}
