//! Contents of copies: which side is host memory, where its blob is, and how it lies there.

use std::io;

use super::output::{Call, Inputs, Output, Rows, unsigned};
use super::state::{HostRead, Space, State, StreamKey};
use crate::catalogue::{Effect, Role, Size};
use crate::record::{BlobRef, SectionTag};
use crate::upstream::archive::{Stored, UpstreamArchive};
use crate::upstream::events::Event;
use crate::upstream::hash::ContentHash;
use crate::upstream::layout::{Extra, Layout};

/// `hipMemcpyKind`.
pub(super) const HOST_TO_DEVICE: u64 = 1;
pub(super) const DEVICE_TO_HOST: u64 = 2;
const DEVICE_TO_DEVICE: u64 = 3;

/// Which way contents go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From host memory.
    In,
    /// To host memory.
    Out,
}

/// What came of looking for contents.
pub(super) enum Found {
    /// They are stored under this number, or withheld.
    Blob(BlobRef),
    /// They were not recorded or cannot be used, for this reason.
    Lacking(String),
}

/// What copying needs at hand.
pub(super) struct Copies<'t> {
    pub(super) archive: &'t UpstreamArchive,
    pub(super) output: &'t mut Output,
    pub(super) state: &'t mut State,
}

/// Contents of a pitched copy, as the file holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Rows end to end.
    Packed,
    /// From the first byte through the last at the recorded pitch.
    Pitched,
    /// Either, told apart by length: packed where it has that length.
    Either,
}

impl Copies<'_> {
    /// Stores contents of `len_bytes`.
    pub(super) fn linear(&mut self, hash: ContentHash, len_bytes: u64) -> io::Result<Found> {
        self.rows(hash, Rows { first_byte: 0, row_bytes: len_bytes, rows: 1, pitch_bytes: len_bytes }, Form::Packed)
    }

    /// Stores the rows of a blob end to end.
    pub(super) fn rows(&mut self, hash: ContentHash, rows: Rows, form: Form) -> io::Result<Found> {
        let Some(size_bytes) = rows.row_bytes.checked_mul(rows.rows) else {
            return Ok(Found::Lacking("its size is beyond any memory".to_owned()));
        };
        if hash.is_none() {
            return Ok(Found::Lacking("upstream recorded no contents for it".to_owned()));
        }
        // Packed contents are the blob itself.
        let key = (form != Form::Packed).then_some(rows);
        if let Some(number) = self.output.known_blob(hash, key) {
            return Ok(Found::Blob(BlobRef { number, size_bytes }));
        }
        let blob = match self.archive.blob(hash) {
            Stored::Found(blob) => blob,
            Stored::Withheld => return Ok(Found::Blob(BlobRef { number: BlobRef::WITHHELD, size_bytes })),
            Stored::Unusable(reason) => return Ok(Found::Lacking(reason)),
        };
        let len = blob.len() as u64;
        // Rows that overlap would be as many as a record likes.
        let apart = rows.pitch_bytes >= rows.row_bytes || rows.rows <= 1;
        let pitched = rows.rows.checked_sub(1).filter(|_| apart).and_then(|gaps| {
            gaps.checked_mul(rows.pitch_bytes)?.checked_add(rows.row_bytes)?.checked_add(rows.first_byte)
        });
        let slice = |first: u64, count: u64| {
            let first = usize::try_from(first).ok()?;
            blob.get(first..)?.get(..usize::try_from(count).ok()?)
        };
        let contents = match form {
            Form::Packed | Form::Either if len == size_bytes => Some(blob.to_vec()),
            Form::Pitched | Form::Either if pitched.is_some_and(|end| end <= len) => {
                let mut packed = Vec::with_capacity(size_bytes.min(len) as usize);
                for row in 0..rows.rows {
                    packed.extend(slice(rows.first_byte + row * rows.pitch_bytes, rows.row_bytes).unwrap_or_default());
                }
                Some(packed).filter(|packed| packed.len() as u64 == size_bytes)
            }
            _ => None,
        };
        match contents {
            Some(contents) => {
                let number = self.output.blob(hash, key, &contents)?;
                Ok(Found::Blob(BlobRef { number, size_bytes }))
            }
            None => {
                Ok(Found::Lacking(format!("its blob {hash} is {len} bytes long, which is not what the call copies")))
            }
        }
    }

    /// Where a copy's contents go, from its kind and what is live at its ends. `None`: between devices.
    fn direction(&self, kind: Option<u64>, source: Option<u64>, target: Option<u64>) -> Option<Direction> {
        let is_host = |address: Option<u64>| address.is_some_and(|address| !self.state.is_device(address));
        match kind {
            Some(HOST_TO_DEVICE) => Some(Direction::In),
            Some(DEVICE_TO_HOST) => Some(Direction::Out),
            Some(DEVICE_TO_DEVICE) => None,
            // By the addresses; host to host reads what was recorded.
            _ if is_host(source) => Some(Direction::In),
            _ if is_host(target) => Some(Direction::Out),
            _ => None,
        }
    }

    /// Gives a call the contents of its host memory. Returns the result that it leaves in host memory, if any.
    pub(super) fn contents(
        &mut self,
        event: &Event<'_>,
        layout: &Layout,
        call: &mut Call,
        stream: StreamKey,
    ) -> io::Result<Option<u64>> {
        // What graph nodes copy is copied when the graph is launched.
        if call.ret != 0 || !call.is_issued() || call.api.name.contains("Graph") {
            return Ok(None);
        }
        let recorded = super::fields::hash(event, layout, Extra::BlobLo, Extra::BlobHi);
        let result = super::fields::hash(event, layout, Extra::ResultLo, Extra::ResultHi);
        let memory = |call: &Call, reads: bool| {
            call.api.params.iter().enumerate().find_map(|(number, param)| match param.role {
                Role::Any(access, size) | Role::Host(access, size) if size != Size::Unknown => {
                    let matches = if reads { access.reads() } else { access.writes() };
                    (matches && call.words[usize::from(param.word)] != 0).then_some((number as u8, size))
                }
                _ => None,
            })
        };
        let (source, target) = (memory(call, true), memory(call, false));
        if source.is_none() && target.is_none() {
            return Ok(None);
        }
        let kind = call.param("kind").map(|kind| call.word(kind));
        let address = |side: Option<(u8, Size)>| side.map(|(number, _)| call.word(number));
        let only_host = |side: Option<(u8, Size)>| {
            side.is_some_and(|(number, _)| matches!(call.api.params[usize::from(number)].role, Role::Host(..)))
        };
        let direction = if only_host(source) {
            Some(Direction::In)
        } else if only_host(target) {
            Some(Direction::Out)
        } else {
            self.direction(kind, address(source), address(target))
        };
        let (Some(direction), Some((number, size))) =
            (direction, if direction == Some(Direction::In) { source } else { target })
        else {
            return Ok(None);
        };
        let rows = match size {
            Size::Rect { width, height, pitch } => {
                let word = |param| call.word(param);
                Rows { first_byte: 0, row_bytes: word(width), rows: word(height), pitch_bytes: word(pitch) }
            }
            _ => {
                let len = size.value(&Inputs(call)).unwrap_or(0);
                Rows { first_byte: 0, row_bytes: len, rows: 1, pitch_bytes: len }
            }
        };
        if rows.row_bytes == 0 || rows.rows == 0 {
            return Ok(None);
        }
        let hash = match (direction, result) {
            (Direction::Out, Some(result)) => result,
            _ => recorded.unwrap_or_default(),
        };
        let is_linear = !matches!(size, Size::Rect { .. });
        let form = if is_linear || self.archive.header().packed() { Form::Packed } else { Form::Pitched };
        let found = if is_linear { self.linear(hash, rows.row_bytes)? } else { self.rows(hash, rows, form)? };
        let capture = self.state.capture(stream).filter(|_| call.api.effect == Effect::Enqueue);
        match (direction, found) {
            (Direction::In, found) if capture.is_some() => {
                let contents = match found {
                    Found::Blob(reference) if is_linear => Some(reference),
                    _ => None,
                };
                let read = HostRead { address: call.word(number), len_bytes: rows.row_bytes, contents };
                self.state.captured_read(capture.unwrap_or(0), read);
                Ok(None)
            }
            // What a captured copy brings is nowhere recorded.
            (Direction::Out, _) if capture.is_some() => Ok(None),
            (Direction::In, Found::Blob(reference)) => {
                call.reference(SectionTag::BlobIn, number, reference);
                Ok(None)
            }
            (Direction::In, Found::Lacking(reason)) => {
                call.refuse(&format!("it reads host memory ({}): {reason}", call.api.params[usize::from(number)].name));
                Ok(None)
            }
            (Direction::Out, found) => self.result(call, number, found, rows.row_bytes.saturating_mul(rows.rows)),
        }
    }

    /// Gives a call a result to be compared, whose number is returned, or one that nothing is known of.
    fn result(&mut self, call: &mut Call, number: u8, found: Found, size_bytes: u64) -> io::Result<Option<u64>> {
        let is_known = matches!(found, Found::Blob(_));
        let blob = match found {
            Found::Blob(reference) if reference.number == BlobRef::WITHHELD => {
                call.reference(SectionTag::BlobOut, number, reference);
                return Ok(None);
            }
            // Each result is awaited by a number of its own.
            Found::Blob(reference) => self.output.another_number(reference.number)?,
            Found::Lacking(_) => self.output.missing_blob(),
        };
        call.reference(SectionTag::BlobOut, number, BlobRef { number: blob, size_bytes });
        Ok(is_known.then_some(blob))
    }

    /// A copy that a struct describes and whose one side is host memory, as copies of rectangles, one a slice. Empty where
    /// no side is host memory. The results that the copies leave in host memory are given with them.
    pub(super) fn struct_copies(
        &mut self,
        event: &Event<'_>,
        layout: &Layout,
        call: &mut Call,
        stream: StreamKey,
    ) -> io::Result<Vec<(Call, Option<u64>)>> {
        let Some(copy) = call.payload(SectionTag::In, 0).and_then(|bytes| Described::read(call.api.name, bytes)) else {
            return Ok(Vec::new());
        };
        if call.ret != 0 || !call.is_issued() {
            return Ok(Vec::new());
        }
        let Some(direction) = self.struct_direction(&copy) else { return Ok(Vec::new()) };
        let (host, device) = match direction {
            Direction::In => (copy.source, copy.target),
            Direction::Out => (copy.target, copy.source),
        };
        if copy.width == 0 || copy.height == 0 || copy.depth == 0 {
            call.leave_out("it copies nothing");
            return Ok(Vec::new());
        }
        if device.array != 0 || host.array != 0 {
            // The call itself, with its contents: see `array_copy`.
            return Ok(Vec::new());
        }
        if self.state.capture(stream).is_some() && call.api.effect == Effect::Enqueue {
            call.refuse("a captured copy of host memory in rows, of which upstream records the wrong moment");
            return Ok(Vec::new());
        }
        let hashes = (
            super::fields::hash(event, layout, Extra::BlobLo, Extra::BlobHi).unwrap_or_default(),
            super::fields::hash(event, layout, Extra::ResultLo, Extra::ResultHi).unwrap_or_default(),
        );
        let hash = if direction == Direction::In { hashes.0 } else { hashes.1 };
        let is_async = call.api.effect == Effect::Enqueue;
        let name = if is_async { "hipMemcpy2DAsync" } else { "hipMemcpy2D" };
        let why = format!("a slice of the {} before", call.api.name);
        let slice_bytes = copy.width.saturating_mul(copy.height);
        let mut made = Vec::new();
        for slice in 0..copy.depth {
            let found = self.slice(hash, &copy, &host, slice)?;
            let Some(mut part) = Call::added(name, &why) else { return Ok(Vec::new()) };
            let device_address = device.address_of(slice);
            let host_address = host.address_of(slice);
            let (target, source, kind) = match direction {
                Direction::In => ((device_address, device.pitch), (host_address, copy.width), HOST_TO_DEVICE),
                Direction::Out => ((host_address, copy.width), (device_address, device.pitch), DEVICE_TO_HOST),
            };
            part.words[..7].copy_from_slice(&[target.0, target.1, source.0, source.1, copy.width, copy.height, kind]);
            if is_async {
                let word = call.api.stream_param().map_or(0, |param| call.word(param as u8));
                part.words[7] =
                    if call.api.name.ends_with("_spt") && word == 0 { super::state::STREAM_PER_THREAD } else { word };
            }
            let mut result = None;
            match (direction, found) {
                (Direction::In, Found::Blob(reference)) => part.reference(SectionTag::BlobIn, 2, reference),
                (Direction::In, Found::Lacking(reason)) => {
                    call.refuse(&format!("it reads host memory: {reason}"));
                    return Ok(Vec::new());
                }
                (Direction::Out, found) => result = self.result(&mut part, 0, found, slice_bytes)?,
            }
            made.push((part, result));
            // An archive cannot ask for more calls than it has bytes of contents.
            if made.len() > 1 << 16 {
                call.refuse("it has more slices than are believed");
                return Ok(Vec::new());
            }
        }
        // Kept with the call itself, for whoever wants it whole.
        let whole = slice_bytes.saturating_mul(copy.depth);
        if copy.depth == 1
            && let Some(found) = made.first().and_then(|(part, _)| part.contents_reference())
        {
            call.reference(if direction == Direction::In { SectionTag::BlobIn } else { SectionTag::BlobOut }, 0, found);
        } else if let Found::Blob(found) = self.linear(hash, whole)? {
            call.reference(if direction == Direction::In { SectionTag::BlobIn } else { SectionTag::BlobOut }, 0, found);
        }
        call.leave_out("it is reissued as the rectangles that follow");
        Ok(made)
    }

    /// A copy that a struct describes between host memory and an array: the call itself is given its contents, which lie end
    /// to end. The result that it leaves in host memory is given.
    pub(super) fn array_copy(
        &mut self,
        event: &Event<'_>,
        layout: &Layout,
        call: &mut Call,
        stream: StreamKey,
    ) -> io::Result<Option<u64>> {
        let copy = call.payload(SectionTag::In, 0).and_then(|bytes| Described::read(call.api.name, bytes));
        let Some(copy) = copy.filter(|copy| copy.source.array != 0 || copy.target.array != 0) else { return Ok(None) };
        if call.ret != 0 || !call.is_issued() {
            return Ok(None);
        }
        let (Some(direction), array) = (self.struct_direction(&copy), copy.source.array | copy.target.array) else {
            return Ok(None);
        };
        if copy.source.array != 0 && copy.target.array != 0 {
            return Ok(None);
        }
        if self.state.capture(stream).is_some() && call.api.effect == Effect::Enqueue {
            call.refuse("a captured copy between host memory and an array, of which upstream records the wrong moment");
            return Ok(None);
        }
        // The runtime's struct counts elements, the driver's bytes.
        let unit = if copy.kind.is_some() { self.state.element_bytes(array) } else { Some(1) };
        let Some(unit) = unit else {
            call.refuse("it copies elements of an array whose format no recorded call tells");
            return Ok(None);
        };
        let len_bytes =
            [copy.width, copy.height, copy.depth].iter().try_fold(unit, |len, &extent| len.checked_mul(extent));
        let len_bytes = len_bytes.unwrap_or(u64::MAX);
        if len_bytes == 0 {
            return Ok(None);
        }
        let extras = match direction {
            Direction::In => (Extra::BlobLo, Extra::BlobHi),
            Direction::Out => (Extra::ResultLo, Extra::ResultHi),
        };
        let hash = super::fields::hash(event, layout, extras.0, extras.1).unwrap_or_default();
        match (direction, self.linear(hash, len_bytes)?) {
            (Direction::In, Found::Blob(reference)) => {
                call.reference(SectionTag::BlobIn, 0, reference);
                Ok(None)
            }
            (Direction::In, Found::Lacking(reason)) => {
                call.refuse(&format!("it reads {len_bytes} bytes of host memory for an array: {reason}"));
                Ok(None)
            }
            (Direction::Out, found) => self.result(call, 0, found, len_bytes),
        }
    }

    fn slice(&mut self, hash: ContentHash, copy: &Described, host: &Side, slice: u64) -> io::Result<Found> {
        let flat = copy.width.saturating_mul(copy.height);
        let packed = Rows {
            first_byte: slice.saturating_mul(flat),
            row_bytes: copy.width,
            rows: copy.height,
            pitch_bytes: copy.width,
        };
        if copy.depth == 1 {
            let rows = Rows { first_byte: 0, row_bytes: copy.width, rows: copy.height, pitch_bytes: host.pitch };
            let form = if self.archive.header().packed() { Form::Packed } else { Form::Either };
            return self.rows(hash, rows, form);
        }
        let whole = flat.checked_mul(copy.depth);
        let len = match self.archive.blob(hash) {
            Stored::Found(blob) => Some(blob.len() as u64),
            _ => None,
        };
        if self.archive.header().packed() || len == whole {
            // A whole volume end to end is cut at its slices.
            if len.is_some() && len != whole {
                return Ok(Found::Lacking(format!("its blob {hash} is not as long as what the call copies")));
            }
            return self.rows(hash, packed, Form::Pitched);
        }
        let rows = Rows {
            first_byte: slice.saturating_mul(host.slice_pitch),
            row_bytes: copy.width,
            rows: copy.height,
            pitch_bytes: host.pitch,
        };
        self.rows(hash, rows, Form::Pitched)
    }

    fn struct_direction(&self, copy: &Described) -> Option<Direction> {
        if let (Some(source), Some(target)) = (copy.source.is_host, copy.target.is_host) {
            return match (source, target) {
                (true, _) => Some(Direction::In),
                (false, true) => Some(Direction::Out),
                (false, false) => None,
            };
        }
        let address = |side: &Side| (side.array == 0).then_some(side.base);
        self.direction(copy.kind, address(&copy.source), address(&copy.target))
    }

    /// Host memory that a graph node reads, by the node's parameters.
    pub(super) fn node_reads(
        &mut self,
        event: &Event<'_>,
        layout: &Layout,
        call: &Call,
    ) -> io::Result<Option<HostRead>> {
        let is_host = |state: &State, address: u64| {
            address != 0 && state.find(address).is_none_or(|(space, _)| space == Space::Host)
        };
        let name = call.api.name;
        if name.contains("MemcpyNode") && (name.ends_with("1D") || name.contains("ToSymbol")) {
            let kind = call.named("kind");
            let (address, len_bytes) = (call.named("src"), call.named("count"));
            let reads = kind == HOST_TO_DEVICE
                || (kind != DEVICE_TO_DEVICE && kind != DEVICE_TO_HOST && is_host(self.state, address));
            if !reads || len_bytes == 0 || address == 0 {
                return Ok(None);
            }
            let hash = super::fields::hash(event, layout, Extra::BlobLo, Extra::BlobHi).unwrap_or_default();
            let contents = match self.linear(hash, len_bytes)? {
                Found::Blob(reference) => Some(reference),
                Found::Lacking(_) => None,
            };
            return Ok(Some(HostRead { address, len_bytes, contents }));
        }
        if name.contains("MemcpyNode") && !name.contains("Symbol") && !name.contains("Get") {
            let described = call.api.params.iter().enumerate().find_map(|(number, _)| {
                let bytes = call.payload(SectionTag::In, number as u8)?;
                match bytes.len() {
                    160 => Described::read("hipMemcpy3D", bytes),
                    184 => Described::read("hipDrvMemcpy3D", bytes),
                    _ => None,
                }
            });
            if let Some(copy) = described
                && self.struct_direction(&copy) == Some(Direction::In)
            {
                let len_bytes = copy.width.saturating_mul(copy.height).saturating_mul(copy.depth);
                return Ok(Some(HostRead { address: copy.source.base, len_bytes, contents: None }));
            }
        }
        Ok(None)
    }
}

/// One side of a copy that a struct describes.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    base: u64,
    /// `None` where only the copy's kind tells.
    is_host: Option<bool>,
    array: u64,
    pitch: u64,
    slice_pitch: u64,
    offset: u64,
}

impl Side {
    fn address_of(&self, slice: u64) -> u64 {
        self.base.wrapping_add(self.offset).wrapping_add(slice.wrapping_mul(self.slice_pitch))
    }
}

/// A copy that a struct describes.
#[derive(Clone, Copy, Debug, Default)]
struct Described {
    source: Side,
    target: Side,
    width: u64,
    height: u64,
    depth: u64,
    kind: Option<u64>,
}

impl Described {
    /// Reads the struct that an entry point takes.
    fn read(api: &str, bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| unsigned(bytes, at, 8);
        if api.starts_with("hipMemcpy3D") && !api.contains("Peer") && !api.contains("Batch") {
            // hipMemcpy3DParms.
            let side = |array: usize, position: usize, pointer: usize| -> Option<Side> {
                let (pitch, height) = (word(pointer + 8)?, word(pointer + 24)?);
                let slice_pitch = pitch.wrapping_mul(height);
                let (x, y, z) = (word(position)?, word(position + 8)?, word(position + 16)?);
                let offset = x.wrapping_add(y.wrapping_mul(pitch)).wrapping_add(z.wrapping_mul(slice_pitch));
                Some(Side { base: word(pointer)?, is_host: None, array: word(array)?, pitch, slice_pitch, offset })
            };
            return Some(Described {
                source: side(0, 8, 32)?,
                target: side(64, 72, 96)?,
                width: word(128)?,
                height: word(136)?,
                depth: word(144)?,
                kind: unsigned(bytes, 152, 4),
            });
        }
        let is_2d = matches!(api, "hipMemcpyParam2D" | "hipMemcpyParam2DAsync" | "hipDrvMemcpy2DUnaligned");
        if !is_2d && !api.starts_with("hipDrvMemcpy3D") {
            return None;
        }
        // hip_Memcpy2D and HIP_MEMCPY3D: position, memory type, addresses, pitch.
        let side = |at: usize| -> Option<Side> {
            let (x, y) = (word(at)?, word(at + 8)?);
            let z = if is_2d { 0 } else { word(at + 16)? };
            let types = at + if is_2d { 16 } else { 32 };
            let kind = unsigned(bytes, types, 4)?;
            let pitch = word(types + 32)?;
            let height = if is_2d { 0 } else { word(types + 40)? };
            let slice_pitch = pitch.wrapping_mul(height);
            let is_host = kind == 1;
            let base = if is_host { word(types + 8)? } else { word(types + 16)? };
            let array = if kind == 10 { word(types + 24)? } else { 0 };
            let offset = x.wrapping_add(y.wrapping_mul(pitch)).wrapping_add(z.wrapping_mul(slice_pitch));
            Some(Side { base, is_host: Some(is_host), array, pitch, slice_pitch, offset })
        };
        let (second, extent) = if is_2d { (56, 112) } else { (80, 160) };
        Some(Described {
            source: side(0)?,
            target: side(second)?,
            width: word(extent)?,
            height: word(extent + 8)?,
            depth: if is_2d { 1 } else { word(extent + 16)? },
            kind: None,
        })
    }
}
