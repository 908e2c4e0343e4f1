//! Where the fields of each record lie: `format/upstream/records.tsv`, parsed once, and resolved for one file.
//!
//! A field is bound to the parameter of the catalogue that it tells of, so that what a record says can be carried over by
//! position and never by name.

use std::sync::OnceLock;

use crate::catalogue::Api;

/// The table, as it lies beside the sources.
const TABLE: &str = include_str!("../../upstream/records.tsv");
/// Environment variable that names another table.
pub const TABLE_VARIABLE: &str = "HIP_HRR_UPSTREAM_RECORDS";
/// Size of the record header in bytes: fields begin there.
pub const HEADER_BYTES: usize = 32;
/// Runtime entries of the table: the compiler's entries follow them.
pub const TABLE_RUNTIME_ENTRIES: u16 = 546;
/// Format version from which on pointees are recorded inline.
pub const INLINE_VERSION: u16 = 6;

/// What a record of an entry point consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fields at fixed places.
    Fixed,
    /// Fields at fixed places, then the kernel of a graph kernel node.
    Node,
    /// A kernel launch.
    Launch,
}

/// What a field tells of its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Its value.
    Value,
    /// What it points to.
    Pointee,
    /// A member of a by-value `dim3`: 0, 1 or 2.
    Member(u8),
    /// A copy of what it points to, there where it is not null.
    Inline,
    /// A copy of what it points to.
    Bytes,
    /// Whether the copy was filled.
    Present,
    /// Elements in the copy.
    Count,
}

/// Fields that belong to no parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// The return value.
    Ret,
    /// Low lane of the hash of host contents.
    BlobLo,
    /// High lane.
    BlobHi,
    /// Low lane of the hash of a device-to-host result.
    ResultLo,
    /// High lane.
    ResultHi,
    /// Low lane of the hash of a code object.
    CodeLo,
    /// High lane.
    CodeHi,
    /// The recorder's running number of a module.
    ModuleId,
    /// Size of a fat binary in bytes.
    BlobSize,
    /// Device address of a registered variable.
    DeviceAddress,
}

/// What a field is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A parameter, by position.
    Param(u8, Meaning),
    /// Something else.
    Extra(Extra),
}

/// How a field's bytes read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Unsigned, zero-extended.
    Unsigned,
    /// Signed, sign-extended.
    Signed,
    /// An `f32`, as its bits.
    Float,
    /// Bytes.
    Bytes,
}

/// A field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// What it is about.
    pub subject: Subject,
    /// How it reads.
    pub ty: Type,
    /// Offset in the record in bytes.
    pub offset_bytes: u32,
    /// Size in bytes.
    pub size_bytes: u32,
    /// Whether it came with [`INLINE_VERSION`].
    pub inline: bool,
}

/// The record layout of an entry point, of one span of format versions.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The entry point.
    pub api: &'static Api,
    /// What its records consist of.
    pub kind: Kind,
    /// Smallest record in bytes.
    pub size_bytes: u32,
    /// Fields in file order.
    pub fields: Vec<Field>,
}

impl Layout {
    /// The field that is about this.
    pub fn field(&self, subject: Subject) -> Option<&Field> {
        self.fields.iter().find(|field| field.subject == subject)
    }

    /// The field with this meaning for a parameter.
    pub fn of_param(&self, param: u8, meaning: Meaning) -> Option<&Field> {
        self.field(Subject::Param(param, meaning))
    }
}

/// Layouts by event id of the table.
#[derive(Debug)]
pub struct Layouts {
    by_id: Vec<Layout>,
}

impl Layouts {
    /// The layouts of a format version.
    pub fn of_version(version: u16) -> &'static Layouts {
        static INLINE: OnceLock<Layouts> = OnceLock::new();
        static PLAIN: OnceLock<Layouts> = OnceLock::new();
        if version >= INLINE_VERSION {
            INLINE.get_or_init(|| Layouts::parse(TABLE, true).expect("the table is checked by a test"))
        } else {
            PLAIN.get_or_init(|| Layouts::parse(TABLE, false).expect("the table is checked by a test"))
        }
    }

    /// The layouts to read a format version by: those of the file that [`TABLE_VARIABLE`] names, if it names one, so that
    /// archives of versions this build does not know can be read all the same.
    ///
    /// # Errors
    /// Why that file is no table.
    pub fn to_read(version: u16) -> Result<&'static Layouts, String> {
        static GIVEN: OnceLock<Result<[Layouts; 2], String>> = OnceLock::new();
        let Some(path) = std::env::var_os(TABLE_VARIABLE).filter(|path| !path.is_empty()) else {
            return Ok(Self::of_version(version));
        };
        let given = GIVEN.get_or_init(|| {
            let told = |reason: String| format!("{TABLE_VARIABLE}={}: {reason}", std::path::Path::new(&path).display());
            let text = std::fs::read_to_string(&path).map_err(|error| told(error.to_string()))?;
            Ok([Layouts::parse(&text, false).map_err(told)?, Layouts::parse(&text, true).map_err(told)?])
        });
        let [plain, inline] = given.as_ref().map_err(Clone::clone)?;
        Ok(if version >= INLINE_VERSION { inline } else { plain })
    }

    /// The layout at an id of the table.
    pub fn get(&self, id: u16) -> Option<&Layout> {
        self.by_id.get(usize::from(id))
    }

    /// All layouts by id.
    pub fn all(&self) -> &[Layout] {
        &self.by_id
    }

    /// The layout of an entry point.
    pub fn of_api(&self, api: &Api) -> Option<(u16, &Layout)> {
        let position = self.by_id.iter().position(|layout| layout.api.id == api.id)?;
        Some((position as u16, &self.by_id[position]))
    }

    /// Parses a table. `with_inline` keeps the fields that came with [`INLINE_VERSION`].
    pub(super) fn parse(text: &str, with_inline: bool) -> Result<Layouts, String> {
        let mut by_id = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let layout = parse_row(line, by_id.len(), with_inline).map_err(|reason| format!("{line}: {reason}"))?;
            by_id.push(layout);
        }
        if by_id.is_empty() {
            return Err("it has no row".to_owned());
        }
        Ok(Layouts { by_id })
    }
}

fn parse_row(line: &str, expected_id: usize, with_inline: bool) -> Result<Layout, &'static str> {
    let mut columns = line.split('\t');
    let mut next = || columns.next().ok_or("a column is missing");
    let (id, name, kind, size, fields) = (next()?, next()?, next()?, next()?, next()?);
    if id.parse() != Ok(expected_id) {
        return Err("ids do not follow each other");
    }
    let api = Api::by_name(name).ok_or("no such entry point")?;
    let kind = match kind {
        "fixed" => Kind::Fixed,
        "node" => Kind::Node,
        "launch" => Kind::Launch,
        _ => return Err("no such kind"),
    };
    let mut offset_bytes = HEADER_BYTES as u32;
    let mut whole = HEADER_BYTES as u32;
    let mut parsed = Vec::new();
    for field in fields.split(' ').filter(|field| !field.is_empty()) {
        let (text, inline) = field.strip_prefix('+').map_or((field, false), |rest| (rest, true));
        let (subject, ty) = text.split_once(':').ok_or("a field has no type")?;
        let (ty, size_bytes) = type_of(ty).ok_or("no such type")?;
        whole += size_bytes;
        if inline && !with_inline {
            continue;
        }
        let subject = subject_of(api, subject).ok_or("a field is about nothing known")?;
        parsed.push(Field { subject, ty, offset_bytes, size_bytes, inline });
        offset_bytes += size_bytes;
    }
    let size_bytes: u32 = size.parse().map_err(|_| "the size is no number")?;
    if kind != Kind::Launch && whole != size_bytes {
        return Err("the fields do not add up to the size");
    }
    let size_bytes = if kind == Kind::Launch { size_bytes } else { offset_bytes };
    Ok(Layout { api, kind, size_bytes, fields: parsed })
}

fn type_of(text: &str) -> Option<(Type, u32)> {
    Some(match text {
        "u8" => (Type::Unsigned, 1),
        "u16" => (Type::Unsigned, 2),
        "u32" => (Type::Unsigned, 4),
        "u64" => (Type::Unsigned, 8),
        "i32" => (Type::Signed, 4),
        "f32" => (Type::Float, 4),
        _ => (Type::Bytes, text.strip_prefix('b')?.parse().ok()?),
    })
}

fn subject_of(api: &Api, text: &str) -> Option<Subject> {
    if let Some(extra) = text.strip_prefix('$') {
        return Some(Subject::Extra(match extra {
            "ret" => Extra::Ret,
            "blob_hash_lo" => Extra::BlobLo,
            "blob_hash_hi" => Extra::BlobHi,
            "d2h_hash_lo" => Extra::ResultLo,
            "d2h_hash_hi" => Extra::ResultHi,
            "co_hash_lo" => Extra::CodeLo,
            "co_hash_hi" => Extra::CodeHi,
            "module_id" => Extra::ModuleId,
            "blob_size" => Extra::BlobSize,
            "dev_addr" => Extra::DeviceAddress,
            _ => return None,
        }));
    }
    let (name, meaning) = match text.strip_suffix('*') {
        Some(name) => (name, Meaning::Pointee),
        None => match text.split_once('.') {
            None => (text, Meaning::Value),
            Some((name, "x")) => (name, Meaning::Member(0)),
            Some((name, "y")) => (name, Meaning::Member(1)),
            Some((name, "z")) => (name, Meaning::Member(2)),
            Some((name, "inline")) => (name, Meaning::Inline),
            Some((name, "bytes")) => (name, Meaning::Bytes),
            Some((name, "present")) => (name, Meaning::Present),
            Some((name, "count")) => (name, Meaning::Count),
            Some(_) => return None,
        },
    };
    let param = api.params.iter().position(|param| param.name == name)?;
    Some(Subject::Param(param as u8, meaning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::APIS;

    #[test]
    fn the_table_covers_every_entry_point_once_in_the_catalogue_s_order() {
        let layouts = Layouts::parse(TABLE, true).unwrap();
        Layouts::parse(TABLE, false).unwrap();
        assert_eq!(layouts.all().len(), APIS.len());
        for (layout, api) in layouts.all().iter().zip(&APIS) {
            assert_eq!(layout.api.name, api.name);
        }
    }

    #[test]
    fn every_parameter_of_a_fixed_record_has_a_value_somewhere() {
        for layout in Layouts::of_version(8).all().iter().filter(|layout| layout.kind != Kind::Launch) {
            for param in 0..layout.api.params.len() as u8 {
                let told = [Meaning::Value, Meaning::Pointee, Meaning::Member(0)];
                let found = told.iter().any(|&meaning| layout.of_param(param, meaning).is_some());
                // The fat binary's address is not recorded: its contents are.
                assert!(found || layout.api.name == "__hipRegisterFatBinary", "{} {param}", layout.api.name);
            }
        }
    }

    #[test]
    fn enum_spelled_types_are_eight_bytes_wide_and_plain_ones_four() {
        let width = |api: &str, param: &str| {
            let layout = Layouts::of_version(7).all().iter().find(|layout| layout.api.name == api).unwrap();
            let param = layout.api.params.iter().position(|known| known.name == param).unwrap();
            layout.of_param(param as u8, Meaning::Value).unwrap().size_bytes
        };
        assert_eq!(width("hipDeviceSetLimit", "limit"), 8);
        assert_eq!(width("hipTexRefSetAddressMode", "am"), 8);
        assert_eq!(width("hipTexRefSetFilterMode", "fm"), 8);
        assert_eq!(width("hipDeviceFlushGPUDirectRDMAWrites", "target"), 8);
        assert_eq!(width("hipMemGetAllocationGranularity", "option"), 8);
        assert_eq!(width("hipMemsetD8", "value"), 8);
        assert_eq!(width("hipMemsetD16", "value"), 8);
        assert_eq!(width("hipMemcpy", "kind"), 4);
    }

    #[test]
    fn sizes_of_the_compiler_s_records_are_those_they_are_told_apart_by() {
        let sizes: Vec<u32> = Layouts::of_version(7).all()[546..].iter().map(|layout| layout.size_bytes).collect();
        assert_eq!(sizes, [68, 76, 64, 108, 76, 72, 76, 349, 40]);
        let plain: Vec<u32> = Layouts::of_version(5).all()[546..].iter().map(|layout| layout.size_bytes).collect();
        assert_eq!(plain[..7], sizes[..7]);
        assert_eq!(plain[7], 92);
    }
}
