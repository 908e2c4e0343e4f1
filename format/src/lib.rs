//! What an HRR archive is.
//!
//! * [`catalogue`]: every HIP entry point, what its parameters mean and what replay does with it
//! * [`abi`]: the C types HIP passes by value, as argument words
//! * [`record`]: one recorded call
//! * [`stream_file`]: the calls of one captured thread
//! * [`blob_store`]: host contents and code objects, each kept once
//! * [`code_object`]: kernel signatures out of bundles and ELF images
//! * [`kernel_table`]: the kernels that launches name
//! * [`manifest`]: what a process and an archive root say of themselves
//! * [`archive`]: all of these, opened from a path
//! * [`packed`]: an archive in one file
//! * [`regions`]: what an allocator made of device memory, written by another tool
//! * [`repair`], [`verify`]: making whole what a recording left behind, and checking it
//! * [`ordered`]: the calls of all threads in order of entry
//! * [`archive_writer`], [`record_builder`]: archives made without recording a program
//! * [`upstream`]: the archives of AMD's in-tree HRR
//! * [`hip_error`]: names of return codes
//!
//! No HIP runtime is touched here, and no policy on what to record is made here.
//!
//! An archive that is made and read back:
//!
//! ```
//! use hrr_format::archive::Archive;
//! use hrr_format::archive_writer::ArchiveWriter;
//! use hrr_format::catalogue::Api;
//! use hrr_format::record_builder::RecordBuilder;
//! use hrr_format::stream_file::ContentsMode;
//!
//! # let folder = tempfile::tempdir()?;
//! # let root = folder.path().join("app.hrr");
//! // One process of one thread, which made one call: entered at tick 10, returned at tick 12.
//! let wait = Api::by_name("hipDeviceSynchronize").ok_or("no such entry point")?;
//! let mut writer = ArchiveWriter::create(&root.join("pid-7"), 7, ContentsMode::MetadataOnly)?;
//! writer.stream(0, 7, "main", &[RecordBuilder::new(wait.id, &[]).ticks(10, 12).build()])?;
//! writer.finish()?;
//!
//! let archive = Archive::open(&root)?;
//! for stream in archive.streams() {
//!     for record in stream.records() {
//!         // An id means what the archive's manifest says, whatever this build's numbering.
//!         let name = archive.api(record.api()).name;
//!         assert_eq!((name, record.begin(), record.end(), record.ret()), ("hipDeviceSynchronize", 10, 12, 0));
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[doc(hidden)]
pub mod abi;
pub mod archive;
pub mod archive_writer;
mod behind;
pub mod blob_store;
pub mod catalogue;
pub mod code_object;
mod files;
pub mod hip_error;
pub mod kernel_table;
pub mod manifest;
pub mod ordered;
pub mod packed;
pub mod record;
pub mod record_builder;
pub mod regions;
pub mod repair;
mod source;
pub mod stream_file;
pub mod upstream;
pub mod verify;
