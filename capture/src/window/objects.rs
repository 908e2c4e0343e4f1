//! What the program has made and not ended yet, and the calls that made it so.
//!
//! Outside a window the calls that create, change or end something are kept as [`Entry`]s, each a whole record. Objects are
//! told apart by instance, since handles and addresses are given out again. From time to time a sweep drops every entry
//! that nothing alive needs; what stays is bounded by what the program has alive. An object is *needed* if it is alive, or
//! if a needed entry mentions it: a graph that was destroyed, and the memory that its kernels were given, stay for as long
//! as an executable graph made from it does. An entry is needed if it made, changed or ended a needed object.

use std::collections::{BTreeMap, HashMap, HashSet};

use hrr_format::catalogue::{Api, HandleKind, Role, STRUCTS};
use hrr_format::record::{Record, SectionTag};

use super::exports::{Export, Exports};
use super::keep::{self, Setting};

/// Entries are swept when they have grown to this many times what the last sweep left.
const SWEEP_GROWTH: usize = 2;
/// Fewer bytes of entries than this are not swept.
const SWEEP_FROM_BYTES: usize = 1 << 20;

/// One object. Numbers are not used again.
pub(super) type Id = u32;

/// What names an object that is not memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A handle.
    Handle(HandleKind, u64),
    /// A kernel, by its host function symbol.
    Symbol(u64),
    /// A device variable, by its host symbol.
    Variable(u64),
    /// A stream capture under way, by HIP's number of it.
    Capture(u64),
}

#[derive(Debug)]
struct Object {
    /// It goes with this one.
    parent: Option<Id>,
    ended: bool,
    /// It is in the archive already.
    recorded: bool,
    device: i32,
    /// Whether a device reset leaves it.
    outlives_reset: bool,
    /// Number of the last entry that made something from it, which what is set later does not reach.
    last_copied: u64,
}

/// A call that is kept.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) api: &'static Api,
    /// The thread's device.
    pub(super) device: i32,
    /// The record.
    pub(super) record: Box<[u64]>,
    made: Vec<Id>,
    changed: Vec<Id>,
    ended: Vec<Id>,
    needed: Vec<Id>,
}

/// A call that has returned, and is to be kept.
pub(crate) struct Returned<'a> {
    pub(crate) api: &'static Api,
    /// The thread's device.
    pub(crate) device: i32,
    /// The record, complete.
    pub(crate) record: &'a [u64],
    /// The stream capture that it belongs to, began or ended.
    pub(crate) capture: Option<u64>,
    /// What [`Objects::ending`] gave at its entry.
    pub(crate) ending: Ending,
}

/// What a call ends, noted before it is made: afterwards another thread may be given the same handle or address.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    number: u64,
    keys: Vec<(Key, Id)>,
    memory: Vec<(u64, u64, Id)>,
    ranges: Vec<(u64, u64, Id)>,
}

impl Ending {
    fn ids(&self) -> Vec<Id> {
        let keys = self.keys.iter().map(|&(_, id)| id);
        keys.chain(self.memory.iter().chain(&self.ranges).map(|&(_, _, id)| id)).collect()
    }
}

/// The objects of a process, and the calls that are kept for them.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    objects: HashMap<Id, Object>,
    keys: HashMap<Key, Id>,
    /// Memory by its first address: length and object.
    memory: BTreeMap<u64, (u64, Id)>,
    /// Reserved address ranges.
    ranges: BTreeMap<u64, (u64, Id)>,
    /// Handles and files by which memory and events can be had again.
    exports: Exports,
    entries: BTreeMap<u64, Entry>,
    /// The entry that made each setting last.
    settings: HashMap<Setting, u64>,
    /// The entry of each device's last reset, where a window was recorded before it.
    resets: HashMap<i32, u64>,
    /// Devices that were current in a call that was kept or that did work.
    devices: Vec<i32>,
    next_object: Id,
    next_entry: u64,
    bytes: usize,
    swept_bytes: usize,
    /// A window was recorded: a handle that is not known may be one of its.
    recorded: bool,
}

/// What a record says of objects.
#[derive(Default)]
struct Mentions {
    uses: Vec<Id>,
    scanned: Vec<Id>,
    creates: Vec<Key>,
    gets: Vec<Key>,
    new_memory: Vec<(u64, Option<u64>)>,
    gotten_memory: Vec<u64>,
    new_ranges: Vec<(u64, Option<u64>)>,
    /// Memory that the call changes beside what it works on first.
    changes: Vec<Id>,
}

impl Objects {
    /// Bytes of records that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Devices that the program has used.
    pub(super) fn devices(&self) -> &[i32] {
        &self.devices
    }

    /// Notes that the program works on a device.
    pub(crate) fn uses(&mut self, device: i32) {
        if !self.devices.contains(&device) {
            self.devices.push(device);
        }
    }

    /// The kept calls, in their order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Whether memory at an address is there: that of a module's variable goes with the module.
    pub(super) fn holds(&self, address: u64) -> bool {
        self.containing(address).is_some()
    }

    /// An object, and what it is a part of.
    fn with_wholes(&self, id: Id) -> impl Iterator<Item = &Object> {
        let object = |id: Id| self.objects.get(&id);
        std::iter::successors(object(id), move |part| part.parent.and_then(object))
    }

    fn alive(&self, id: Id) -> bool {
        let mut next = Some(id);
        while let Some(id) = next {
            match self.objects.get(&id) {
                Some(object) if !object.ended => next = object.parent,
                _ => return false,
            }
        }
        true
    }

    fn find(&self, key: Key) -> Option<Id> {
        self.keys.get(&key).copied().filter(|&id| self.alive(id))
    }

    /// What a call uses. A handle that is not known may be one that a window gave, whose end is to be seen.
    fn used(&mut self, kind: HandleKind, value: u64, device: i32) -> Option<Id> {
        /// `hipStreamLegacy` and `hipStreamPerThread`, which nothing made.
        const LAST_OF_THE_RUNTIME: u64 = 2;
        let key = Key::Handle(kind, value);
        let found = self.find(key);
        if found.is_some() || !self.recorded || value <= LAST_OF_THE_RUNTIME {
            return found;
        }
        let object =
            Object { parent: None, ended: false, recorded: true, device, outlives_reset: false, last_copied: 0 };
        let id = self.new_object(&object);
        self.keys.insert(key, id);
        Some(id)
    }

    fn containing(&self, address: u64) -> Option<Id> {
        let inside = |map: &BTreeMap<u64, (u64, Id)>| {
            let (&start, &(len_bytes, id)) = map.range(..=address).next_back()?;
            (address - start < len_bytes.max(1) && self.alive(id)).then_some(id)
        };
        if address == 0 { None } else { inside(&self.memory).or_else(|| inside(&self.ranges)) }
    }

    /// Notes what a call is about to end.
    pub(crate) fn ending(&mut self, api: &'static Api, words: &[u64]) -> Ending {
        let mut ending = Ending { number: self.next_entry, ..Ending::default() };
        for param in api.params {
            let word = words.get(usize::from(param.word)).copied().unwrap_or(0);
            match param.role {
                Role::Destroy(kind) => {
                    let key = Key::Handle(kind, word);
                    ending.keys.extend(self.keys.remove(&key).map(|id| (key, id)));
                }
                Role::FreeDevice | Role::FreeHost | Role::Unpin => {
                    ending.memory.extend(self.memory.remove(&word).map(|(len_bytes, id)| (word, len_bytes, id)));
                }
                Role::FreeRange => {
                    ending.ranges.extend(self.ranges.remove(&word).map(|(len_bytes, id)| (word, len_bytes, id)));
                }
                _ => {}
            }
        }
        if api.name == "hipMemUnmap" {
            let (start, len_bytes) = (words.first().copied().unwrap_or(0), words.get(1).copied().unwrap_or(0));
            let inside: Vec<u64> =
                self.memory.range(start..start.saturating_add(len_bytes)).map(|(&at, _)| at).collect();
            for at in inside {
                ending.memory.extend(self.memory.remove(&at).map(|(len_bytes, id)| (at, len_bytes, id)));
            }
        }
        self.next_entry += 1;
        ending
    }

    /// The call that was to end these failed.
    pub(crate) fn failed(&mut self, ending: Ending) {
        self.keys.extend(ending.keys);
        self.memory.extend(ending.memory.into_iter().map(|(at, len_bytes, id)| (at, (len_bytes, id))));
        self.ranges.extend(ending.ranges.into_iter().map(|(at, len_bytes, id)| (at, (len_bytes, id))));
    }

    /// Keeps a call that succeeded, as far as it matters. `len_of` tells the length of memory that HIP gave out.
    pub(crate) fn add(&mut self, call: Returned<'_>, len_of: impl Fn(u64) -> Option<u64>) {
        let Returned { api, device, record, capture, ending } = call;
        // SAFETY: words are read as bytes.
        let bytes = unsafe { std::slice::from_raw_parts(record.as_ptr().cast::<u8>(), size_of_val(record)) };
        let Ok(Some(parsed)) = Record::parse(bytes) else { return };
        self.uses(device);
        if keep::resets(api) {
            let of = keep::reset_device(api, parsed.word(0), device);
            self.reset(of);
            if self.recorded {
                self.keep_reset(api, device, of, record);
            }
            return;
        }
        if let Some(made_by) =
            Setting::taken_back(api, device, &parsed).and_then(|setting| self.settings.remove(&setting))
        {
            self.drop_entry(made_by);
            return;
        }
        let mentions = self.mentions(api, &parsed, device);
        let ended = ending.ids();
        for id in &ended {
            if let Some(object) = self.objects.get_mut(id) {
                object.ended = true;
            }
        }
        let ends_unknown = ended.is_empty() && keep::ends(api);
        if ends_unknown && !self.recorded {
            return;
        }
        // What ends something stands where its call was entered; what makes something, where it returned.
        let number = if ended.is_empty() && !ends_unknown { self.next_entry } else { ending.number };
        self.next_entry = self.next_entry.max(number + 1);
        let Mentions { mut uses, scanned, creates, gets, new_memory, gotten_memory, new_ranges, changes } = mentions;
        let (mut made, mut changed) = (Vec::new(), changes);
        let parent = uses.get(keep::whole_of_parts(api)).copied();
        let mut object = Object {
            parent: None,
            ended: false,
            recorded: false,
            device,
            outlives_reset: keep::outlives_reset(api),
            last_copied: 0,
        };
        let only_gets = creates.is_empty() && new_memory.is_empty() && new_ranges.is_empty();
        let mut new_handle = |objects: &mut Self, key: Key, parent: Option<Id>| {
            object.parent = parent;
            let id = objects.new_object(&object);
            let before = objects.keys.insert(key, id);
            objects.replaced(before);
            made.push(id);
            id
        };
        for key in creates {
            // A capture into a graph that exists gives that one.
            if let (true, Some(id)) = (capture.is_some(), self.find(key)) {
                changed.push(id);
                continue;
            }
            new_handle(self, key, parent.filter(|_| keep::goes_with_first_use(key)));
        }
        let mut asked = !gets.is_empty() || !gotten_memory.is_empty();
        // What is asked of a stream that is being captured: nodes are a part of the graph that is asked for with them.
        let mut whole = parent;
        for key in gets {
            let id = match self.find(key) {
                Some(id) => {
                    uses.push(id);
                    id
                }
                None if key != Key::Handle(HandleKind::Stream, 0) => {
                    asked = false;
                    new_handle(self, key, whole)
                }
                None => continue,
            };
            if matches!(key, Key::Handle(HandleKind::Graph, _)) {
                whole = Some(id);
            }
        }
        if let (Some(id), true) = (capture, api.name.starts_with("hipStreamBeginCapture")) {
            new_handle(self, Key::Capture(id), None);
        }
        let mut memory = |objects: &mut Self, ranges: bool, address: u64, len_bytes: u64, child: bool| {
            object.parent = parent.filter(|_| child);
            let id = objects.new_object(&object);
            let map = if ranges { &mut objects.ranges } else { &mut objects.memory };
            let before = map.insert(address, (len_bytes, id)).map(|(_, id)| id);
            objects.replaced(before);
            made.push(id);
        };
        for (address, len_bytes) in new_memory.into_iter().filter(|&(address, _)| address != 0) {
            memory(self, false, address, len_bytes.or_else(|| len_of(address)).unwrap_or(1), false);
        }
        for (address, len_bytes) in new_ranges.into_iter().filter(|&(address, _)| address != 0) {
            memory(self, true, address, len_bytes.or_else(|| len_of(address)).unwrap_or(1), false);
        }
        for address in gotten_memory {
            match self.containing(address) {
                Some(id) => uses.push(id),
                None => {
                    asked = false;
                    memory(self, false, address, len_of(address).unwrap_or(1), true);
                }
            }
        }
        if only_gets && asked && ended.is_empty() {
            // The program asked for what is known.
            return;
        }
        if let Some(export) = Export::given_out(api, &parsed) {
            if self.exports.known(&export).is_some_and(|id| self.alive(id)) {
                return;
            }
            // A handle goes with what it was made of; a file has descriptors.
            let parent = uses.first().copied().filter(|_| matches!(export, Export::Handle(_)));
            let id = self.new_object(&Object { parent, ..object });
            let before = self.exports.insert(export, id);
            self.replaced(before);
            made.push(id);
        }
        let taken = Export::taken(api, &parsed).map(|export| self.exports.find(&export)).unwrap_or_default();
        let in_capture = capture.and_then(|id| self.keys.get(&Key::Capture(id)).copied());
        let mut ended = ended;
        if let Some(id) = in_capture.filter(|_| api.name.starts_with("hipStreamEndCapture")) {
            ended.push(id);
            uses.push(id);
            if let Some(object) = self.objects.get_mut(&id) {
                object.ended = true;
            }
        } else {
            changed.extend(in_capture.filter(|id| !made.contains(id)));
        }
        // What loses a part is changed by that.
        changed.extend(ended.iter().filter_map(|id| self.objects.get(id)?.parent));
        // What a call works on comes first: it is changed where the call makes nothing, and where it makes a part of it.
        let makes_part = made.is_empty() || keep::makes_part(api);
        let changes_first = in_capture.is_none() && ended.is_empty() && makes_part;
        changed.extend(uses.first().copied().filter(|_| changes_first));
        let setting = (made.is_empty() && ended.is_empty() && in_capture.is_none())
            .then(|| Setting::of(api, device, &parsed))
            .flatten();
        uses.extend(scanned);
        uses.extend(taken);
        if !made.is_empty() {
            for id in &uses {
                if let Some(object) = self.objects.get_mut(id) {
                    object.last_copied = number;
                }
            }
        }
        let entry = Entry { api, device, record: record.into(), made, changed, ended, needed: uses };
        if let Some(setting) = setting {
            self.supersede(setting, number, &entry.changed);
        }
        self.bytes += record.len() * 8;
        self.entries.insert(number, entry);
        if self.bytes > SWEEP_FROM_BYTES.max(self.swept_bytes * SWEEP_GROWTH) {
            self.sweep();
        }
    }

    fn new_object(&mut self, template: &Object) -> Id {
        let id = self.next_object;
        self.next_object += 1;
        self.objects.insert(id, Object { ..*template });
        id
    }

    /// What had a handle or address that was given out again is gone, though its end was not seen.
    fn replaced(&mut self, before: Option<Id>) {
        if let Some(object) = before.and_then(|id| self.objects.get_mut(&id)) {
            object.ended = true;
        }
    }

    /// A setting that is made again takes the place of the one before, unless something was made from the object meanwhile.
    fn supersede(&mut self, setting: Setting, number: u64, of: &[Id]) {
        let Some(before) = self.settings.insert(setting, number) else { return };
        // A part is copied with what it is a part of.
        let copied = of.iter().any(|&id| self.with_wholes(id).any(|object| object.last_copied > before));
        if !copied {
            self.drop_entry(before);
        }
    }

    fn drop_entry(&mut self, number: u64) {
        if let Some(entry) = self.entries.remove(&number) {
            self.bytes -= entry.record.len() * 8;
        }
    }

    fn reset(&mut self, device: i32) {
        for object in self.objects.values_mut() {
            object.ended |= object.device == device && !object.outlives_reset;
        }
        self.entries.retain(|_, entry| entry.device != device || !keep::undone_by_reset(entry.api));
        self.sweep();
    }

    /// What a window made on the device is in the archive, and so the reset has to be.
    fn keep_reset(&mut self, api: &'static Api, device: i32, of: i32, record: &[u64]) {
        let none = Vec::new;
        let entry =
            Entry { api, device, record: record.into(), made: none(), changed: none(), ended: none(), needed: none() };
        let number = self.next_entry;
        self.next_entry += 1;
        self.bytes += record.len() * 8;
        self.entries.insert(number, entry);
        if let Some(before) = self.resets.insert(of, number) {
            self.drop_entry(before);
        }
    }

    fn mentions(&mut self, api: &'static Api, record: &Record<'_>, device: i32) -> Mentions {
        let mut found = Mentions::default();
        let payload = |param: usize, tag| record.section(tag, param as u8).map_or(&[][..], |section| section.payload);
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes.as_chunks::<8>().0.iter().map(|raw| u64::from_le_bytes(*raw)).collect()
        };
        let out = |param: usize| words(payload(param, SectionTag::Out)).first().copied().unwrap_or(0);
        let registers = api.name.starts_with("__hipRegister");
        for (index, param) in api.params.iter().enumerate() {
            let word = record.word(usize::from(param.word));
            match param.role {
                Role::Use(kind) => found.uses.extend(self.used(kind, word, device)),
                Role::KernelSymbol if registers => found.creates.push(Key::Symbol(word)),
                Role::VarSymbol if registers => found.creates.push(Key::Variable(word)),
                Role::KernelSymbol => found.uses.extend(self.find(Key::Symbol(word))),
                Role::VarSymbol => found.uses.extend(self.find(Key::Variable(word))),
                Role::Device(..) | Role::Any(..) | Role::Host(..) => found.uses.extend(self.containing(word)),
                Role::Create(kind) => found.creates.push(Key::Handle(kind, out(index))),
                Role::Get(kind) => found.gets.push(Key::Handle(kind, out(index))),
                Role::GetArray(kind, _) | Role::GetArrayAt(kind, _) => {
                    found.gets.extend(
                        words(payload(index, SectionTag::Out)).into_iter().map(|value| Key::Handle(kind, value)),
                    );
                }
                Role::NewDevice(_) | Role::NewHost(_) | Role::NewManaged(_) | Role::NewPitched(_) => {
                    found.new_memory.push((out(index), None));
                }
                Role::NewRange(_) => found.new_ranges.push((out(index), None)),
                Role::Pin(_) => found.new_memory.push((word, None)),
                Role::GetDevice(_) => found.gotten_memory.push(out(index)),
                Role::Struct(layout, _) => {
                    let bytes = payload(index, SectionTag::Out);
                    for field in STRUCTS[usize::from(layout)].fields {
                        let holds = field.when.as_ref().is_none_or(|when| when.holds(bytes));
                        let value = bytes.get(field.offset_bytes as usize..).and_then(|rest| rest.first_chunk());
                        if let (Role::NewDevice(_), true, Some(raw)) = (field.role, holds, value) {
                            found.new_memory.push((u64::from_le_bytes(*raw), None));
                        }
                    }
                }
                _ => {}
            }
        }
        if api.name == "hipMemSetAccess" {
            // Several mappings may lie side by side, each of which has its own end.
            let (start, end) = (record.word(0), record.word(0).saturating_add(record.word(1)));
            found.changes.extend(self.memory.range(start..end).map(|(_, &(_, id))| id).filter(|&id| self.alive(id)));
        }
        if api.name == "hipMemMap" {
            found.new_memory.push((record.word(0), Some(record.word(1))));
        }
        let handle = |kind: HandleKind, value: u64| (value != 0).then_some(Key::Handle(kind, value));
        found.gets.retain(|key| !matches!(key, Key::Handle(_, 0)));
        if let Some(returned) = record.section_tagged(SectionTag::Return)
            && api.name == "__hipRegisterFatBinary"
        {
            found
                .creates
                .extend(words(returned.payload).first().and_then(|&value| handle(HandleKind::FatBinary, value)));
        }
        // Structs, arrays and kernel arguments are looked through for anything that is alive: mentioning too much only keeps
        // more than is needed.
        for section in record.sections().map_while(Result::ok) {
            if matches!(section.tag, SectionTag::In | SectionTag::KernelArgs) {
                for value in words(section.payload).into_iter().filter(|&value| value > u64::from(u16::MAX)) {
                    found.scanned.extend(self.containing(value));
                    found.scanned.extend(keep::KINDS.iter().filter_map(|&kind| self.find(Key::Handle(kind, value))));
                    found.scanned.extend(self.find(Key::Symbol(value)));
                }
            }
        }
        found
    }

    /// Drops what nothing alive needs.
    pub(super) fn sweep(&mut self) {
        for id in self.exports.closed() {
            if let Some(object) = self.objects.get_mut(&id) {
                object.ended = true;
            }
        }
        let mut of: HashMap<Id, Vec<u64>> = HashMap::new();
        let mut needed_entries = HashSet::new();
        let mut open = Vec::new();
        let mentions = |entry: &Entry| {
            let lists = [&entry.made, &entry.changed, &entry.ended, &entry.needed];
            lists.into_iter().flatten().copied().collect::<Vec<Id>>()
        };
        for (&number, entry) in &self.entries {
            for &id in entry.made.iter().chain(&entry.changed).chain(&entry.ended) {
                of.entry(id).or_default().push(number);
            }
            if entry.made.is_empty() && entry.changed.is_empty() && entry.ended.is_empty() {
                // A setting of the process or of a device, or the end of something that is in the archive already.
                needed_entries.insert(number);
                open.extend(mentions(entry));
            }
        }
        open.extend(self.objects.iter().filter(|(id, object)| object.recorded || self.alive(**id)).map(|(&id, _)| id));
        let mut needed = HashSet::new();
        while let Some(id) = open.pop() {
            if !needed.insert(id) {
                continue;
            }
            open.extend(self.objects.get(&id).and_then(|object| object.parent));
            for number in of.get(&id).into_iter().flatten() {
                if needed_entries.insert(*number) {
                    open.extend(self.entries.get(number).map(mentions).into_iter().flatten());
                }
            }
        }
        self.entries.retain(|number, _| needed_entries.contains(number));
        self.settings.retain(|_, number| needed_entries.contains(number));
        self.objects.retain(|id, _| needed.contains(id));
        let objects = &self.objects;
        self.keys.retain(|_, id| objects.contains_key(id));
        self.memory.retain(|_, (_, id)| objects.contains_key(id));
        self.ranges.retain(|_, (_, id)| objects.contains_key(id));
        self.exports.retain(|id| objects.contains_key(&id));
        self.bytes = self.entries.values().map(|entry| entry.record.len() * 8).sum();
        self.swept_bytes = self.bytes;
    }

    /// The kept calls are in the archive now.
    pub(super) fn recorded(&mut self) {
        self.entries.clear();
        self.settings.clear();
        self.resets.clear();
        self.objects.values_mut().for_each(|object| object.recorded = true);
        self.objects.retain(|_, object| !object.ended);
        self.recorded = true;
        self.sweep();
    }
}
