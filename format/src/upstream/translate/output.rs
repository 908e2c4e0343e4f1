//! The native archive that comes out: threads, ticks, contents.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use crate::archive_writer::ArchiveWriter;
use crate::catalogue::{Api, SizeInputs};
use crate::record::{
    BlobRef, MAX_RECORD_BYTES, NO_PARAM, Presence, Record, SectionTag, flag, marker, offset, section_bytes,
};
use crate::record_builder::RecordBuilder;
use crate::stream_file::ContentsMode;
use crate::upstream::hash::ContentHash;

/// What an argument word holds where only what it points to is known.
pub(super) const SOME_POINTER: u64 = 1;

/// A call under construction.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) api: &'static Api,
    pub(super) words: Vec<u64>,
    pub(super) ret: i32,
    pub(super) aux: u32,
    pub(super) flags: u8,
    sections: Vec<(SectionTag, u8, Presence, Vec<u8>)>,
}

impl Call {
    pub(super) fn new(api: &'static Api) -> Self {
        Call { api, words: vec![0; usize::from(api.words)], ret: 0, aux: 0, flags: 0, sections: Vec::new() }
    }

    /// The call that a native record tells of.
    pub(super) fn of_record(api: &'static Api, record: &Record<'_>) -> Self {
        let sections = record.sections().map_while(Result::ok);
        let sections = sections.map(|section| (section.tag, section.param, section.presence, section.payload.to_vec()));
        Call {
            api,
            words: record.words().collect(),
            ret: record.ret(),
            aux: record.aux(),
            flags: record.flags(),
            sections: sections.collect(),
        }
    }

    /// A call that the program did not make.
    pub(super) fn added(name: &'static str, why: &str) -> Option<Self> {
        let mut call = Call::new(Api::by_name(name)?);
        call.flags |= flag::ADDED;
        call.note(why);
        Some(call)
    }

    pub(super) fn param(&self, name: &str) -> Option<u8> {
        self.api.params.iter().position(|param| param.name == name).map(|position| position as u8)
    }

    /// The first word of a parameter.
    pub(super) fn word(&self, param: u8) -> u64 {
        self.words[usize::from(self.api.params[usize::from(param)].word)]
    }

    /// The first word of a parameter by name; zero where there is none such.
    pub(super) fn named(&self, name: &str) -> u64 {
        self.param(name).map_or(0, |param| self.word(param))
    }

    pub(super) fn set(&mut self, param: u8, value: u64) {
        self.words[usize::from(self.api.params[usize::from(param)].word)] = value;
    }

    pub(super) fn set_named(&mut self, name: &str, value: u64) {
        if let Some(param) = self.param(name) {
            self.set(param, value);
        }
    }

    pub(super) fn section(&mut self, tag: SectionTag, param: u8, presence: Presence, payload: Vec<u8>) {
        self.sections.push((tag, param, presence, payload));
    }

    pub(super) fn reference(&mut self, tag: SectionTag, param: u8, reference: BlobRef) {
        let withheld = reference.number == BlobRef::WITHHELD;
        let presence = if withheld { Presence::Withheld } else { Presence::Present };
        self.section(tag, param, presence, reference.to_bytes().to_vec());
    }

    /// Host memory to be filled before the call.
    pub(super) fn fill_before(&mut self, address: u64, reference: BlobRef) {
        let withheld = reference.number == BlobRef::WITHHELD;
        let presence = if withheld { Presence::Withheld } else { Presence::Present };
        let mut payload = address.to_le_bytes().to_vec();
        payload.extend(reference.to_bytes());
        self.section(SectionTag::GraphHostIn, NO_PARAM, presence, payload);
    }

    pub(super) fn has(&self, tag: SectionTag, param: u8) -> bool {
        self.payload(tag, param).is_some()
    }

    pub(super) fn payload(&self, tag: SectionTag, param: u8) -> Option<&[u8]> {
        self.sections.iter().find(|known| known.0 == tag && known.1 == param).map(|known| known.3.as_slice())
    }

    pub(super) fn payload_mut(&mut self, tag: SectionTag, param: u8) -> Option<&mut Vec<u8>> {
        self.sections.iter_mut().find(|known| known.0 == tag && known.1 == param).map(|known| &mut known.3)
    }

    /// The reference to the contents of host memory that the call copies.
    pub(super) fn contents_reference(&self) -> Option<BlobRef> {
        let is_contents = |tag| matches!(tag, SectionTag::BlobIn | SectionTag::BlobOut);
        BlobRef::read(&self.sections.iter().find(|known| is_contents(known.0))?.3)
    }

    fn note(&mut self, text: &str) {
        if !self.sections.iter().any(|known| known.0 == SectionTag::Note) {
            self.section(SectionTag::Note, NO_PARAM, Presence::Present, text.as_bytes().to_vec());
        }
    }

    /// Has replay refuse the call.
    pub(super) fn refuse(&mut self, why: &str) {
        self.flags |= flag::REFUSED;
        self.note(why);
    }

    /// Has replay leave the call out.
    pub(super) fn leave_out(&mut self, why: &str) {
        self.flags |= flag::LEFT_OUT;
        self.note(why);
    }

    /// Whether replay will issue the call.
    pub(super) fn is_issued(&self) -> bool {
        self.flags & (flag::LEFT_OUT | flag::REFUSED) == 0
    }

    /// What replay is told about the call.
    pub(super) fn note_text(&self) -> &str {
        let note = self.sections.iter().find(|known| known.0 == SectionTag::Note);
        note.and_then(|note| std::str::from_utf8(&note.3).ok()).unwrap_or_default()
    }

    fn build(mut self, begin: u64, end: u64) -> Vec<u8> {
        let len: usize = self.sections.iter().map(|section| section_bytes(section.3.len())).sum();
        if len > MAX_RECORD_BYTES / 2 {
            self.sections.clear();
            self.refuse("it carries more than a record of this format holds");
        }
        let builder = RecordBuilder::new(self.api.id, &self.words)
            .ticks(begin, end)
            .ret(self.ret)
            .aux(self.aux)
            .flags(self.flags);
        self.sections
            .into_iter()
            .fold(builder, |builder, (tag, param, presence, payload)| builder.section(tag, param, presence, &payload))
            .build()
    }
}

/// Where the sizes of a call's parameters come from.
pub(super) struct Inputs<'c>(pub(super) &'c Call);

impl SizeInputs for Inputs<'_> {
    fn word(&self, param: u8, word: u8) -> Option<u64> {
        let param = self.0.api.params.get(usize::from(param))?;
        self.0.words.get(usize::from(param.word) + usize::from(word)).copied()
    }

    fn pointee(&self, param: u8, width: u8) -> Option<u64> {
        let bytes = self.0.payload(SectionTag::Out, param).or_else(|| self.0.payload(SectionTag::In, param))?;
        unsigned(bytes, 0, usize::from(width))
    }

    fn field(&self, _: u16, _: u8) -> Option<u64> {
        None
    }
}

/// An unsigned integer in bytes.
pub(in crate::upstream) fn unsigned(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..width.min(8)].copy_from_slice(bytes.get(at..)?.get(..width.min(8))?);
    Some(u64::from_le_bytes(word))
}

#[derive(Debug)]
struct Thread {
    tid: u64,
    records: Vec<Vec<u8>>,
    /// The last call ends when the next one begins.
    last_is_loose: bool,
}

/// The archive under construction.
#[derive(Debug)]
pub(super) struct Output {
    writer: ArchiveWriter,
    threads: Vec<Thread>,
    by_tid: HashMap<u64, usize>,
    last_tick: u64,
    first_time: Option<u64>,
    next_blob: u64,
    next_code_object: u64,
    blobs: HashMap<(ContentHash, Option<Rows>), u64>,
    code_objects: HashMap<ContentHash, u64>,
}

/// Rows of a blob that lies at a pitch; `None` as a key of [`Output::blob`] is the blob as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rows {
    pub(super) first_byte: u64,
    pub(super) row_bytes: u64,
    pub(super) rows: u64,
    pub(super) pitch_bytes: u64,
}

/// Times that are further ahead of the one before are not believed.
const LONGEST_PAUSE_NS: u64 = 1 << 50;

impl Output {
    pub(super) fn create(path: &Path, pid: u64) -> io::Result<Self> {
        let writer = ArchiveWriter::create(path, pid, ContentsMode::Contents)?;
        Ok(Output {
            writer,
            threads: Vec::new(),
            by_tid: HashMap::new(),
            last_tick: 0,
            first_time: None,
            next_blob: 0,
            next_code_object: 0,
            blobs: HashMap::new(),
            code_objects: HashMap::new(),
        })
    }

    pub(super) fn writer(&mut self) -> &mut ArchiveWriter {
        &mut self.writer
    }

    /// The thread with this id, in order of first appearance.
    pub(super) fn thread(&mut self, tid: u64) -> usize {
        let next = self.threads.len();
        let thread = *self.by_tid.entry(tid).or_insert(next);
        if thread == next {
            self.threads.push(Thread { tid, records: Vec::new(), last_is_loose: false });
        }
        thread
    }

    pub(super) fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// The recorded times of the first and the last call.
    pub(super) fn span_ns(&self) -> Option<(u64, u64)> {
        Some((self.first_time?, self.last_tick))
    }

    /// The tick of the next call: its recorded time, moved so that ticks rise with the sequence.
    fn tick(&mut self, time_ns: u64) -> u64 {
        let first = *self.first_time.get_or_insert(time_ns.min(u64::MAX >> 2));
        self.last_tick = self.last_tick.max(first);
        let believed = time_ns <= self.last_tick.saturating_add(LONGEST_PAUSE_NS);
        let tick = (self.last_tick + 1).max(if believed { time_ns } else { 0 });
        self.last_tick = tick + 1;
        tick
    }

    /// Appends a call. A loose one ends when its thread's next call begins.
    pub(super) fn emit(&mut self, thread: usize, time_ns: u64, call: Call, is_loose: Loose) {
        let tick = self.tick(time_ns);
        let thread = &mut self.threads[thread];
        if std::mem::take(&mut thread.last_is_loose)
            && let Some(last) = thread.records.last_mut()
        {
            last[offset::END..][..8].copy_from_slice(&(tick - 1).to_le_bytes());
        }
        thread.last_is_loose = is_loose == Loose::Yes;
        thread.records.push(call.build(tick, tick + 1));
    }

    /// Appends a call of an entry point that this build does not know.
    pub(super) fn emit_unknown(&mut self, thread: usize, time_ns: u64, event_id: u16) {
        let names = &mut self.writer.manifest_mut().apis;
        let name = format!("(event {event_id})");
        let id = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        let tick = self.tick(time_ns);
        // Ids of the file are u16 and markers begin at 0xff00; more kinds of unknown records than fit share the last name.
        let id = (id as u64).min(u64::from(marker::FIRST - 1)) as u16;
        self.threads[thread].last_is_loose = false;
        self.threads[thread].records.push(RecordBuilder::new(id, &[]).ticks(tick, tick + 1).build());
    }

    /// Marks a result as visible after the thread's last call.
    pub(super) fn observed(&mut self, thread: usize, blob: u64) {
        let tick = self.last_tick;
        self.threads[thread].last_is_loose = false;
        self.threads[thread].records.push(RecordBuilder::new(marker::OBSERVED, &[blob]).ticks(tick, tick).build());
    }

    /// A number for contents that were not recorded.
    pub(super) fn missing_blob(&mut self) -> u64 {
        self.next_blob += 1;
        self.next_blob - 1
    }

    /// Stores contents, or finds the number they have.
    pub(super) fn blob(&mut self, hash: ContentHash, rows: Option<Rows>, contents: &[u8]) -> io::Result<u64> {
        if let Some(&number) = self.blobs.get(&(hash, rows)) {
            return Ok(number);
        }
        let number = self.missing_blob();
        self.writer.blob(number, contents)?;
        self.blobs.insert((hash, rows), number);
        Ok(number)
    }

    /// The number that contents were stored under, if they were.
    pub(super) fn known_blob(&self, hash: ContentHash, rows: Option<Rows>) -> Option<u64> {
        self.blobs.get(&(hash, rows)).copied()
    }

    /// Another number for contents that have one.
    pub(super) fn another_number(&mut self, number: u64) -> io::Result<u64> {
        let another = self.missing_blob();
        self.writer.same_blob(another, number)?;
        Ok(another)
    }

    pub(super) fn code_object(&mut self, hash: ContentHash, image: &[u8]) -> io::Result<u64> {
        if let Some(&number) = self.code_objects.get(&hash) {
            return Ok(number);
        }
        let number = self.next_code_object;
        self.next_code_object += 1;
        self.writer.code_object(number, image)?;
        self.code_objects.insert(hash, number);
        Ok(number)
    }

    /// Writes the streams and the rest.
    pub(super) fn finish(mut self, seen_to_its_end: bool) -> io::Result<()> {
        let first = self.first_time.unwrap_or(0);
        self.writer.manifest_mut().clock.tick_at_start = first;
        self.writer.manifest_mut().blob_count = self.next_blob;
        for (number, thread) in self.threads.iter().enumerate() {
            self.writer.stream(number as u32, thread.tid, "", &thread.records)?;
        }
        let calls = self.threads.iter().flat_map(|thread| &thread.records);
        let calls =
            calls.filter(|record| u16::from_le_bytes([record[offset::API], record[offset::API + 1]]) < marker::FIRST);
        self.writer.manifest_mut().event_count = calls.count() as u64;
        if seen_to_its_end { self.writer.finish() } else { self.writer.abandon() }
    }
}

/// Whether a call may be under way while other threads make theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loose {
    /// It may.
    Yes,
    /// It keeps its place in the sequence.
    No,
}
