//! A map from handle or address to something that lives as long as the process, read without a lock.
//!
//! Open addressing over atomics. Writers take a mutex; a full table is copied into one twice its size, and the old one is
//! leaked for readers that are still in it (all old tables together are smaller than the current one).

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Slots of the first table; a power of two.
const FIRST_SLOTS: usize = 64;

#[derive(Debug)]
struct Slot<T> {
    /// The key; zero where the slot is free. Never changes once set.
    key: AtomicU64,
    value: AtomicPtr<T>,
}

#[derive(Debug)]
struct Table<T> {
    slots: Box<[Slot<T>]>,
}

/// The map. Key zero is no key.
#[derive(Debug)]
pub(crate) struct HandleTable<T: 'static> {
    table: AtomicPtr<Table<T>>,
    /// Entries; held by a writer for as long as it writes.
    len: Mutex<usize>,
}

impl<T: Sync> HandleTable<T> {
    pub(crate) const fn new() -> Self {
        HandleTable { table: AtomicPtr::new(std::ptr::null_mut()), len: Mutex::new(0) }
    }

    /// The value of a key.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<&'static T> {
        // Acquire: pairs with the release that published the table, so that its slots are seen.
        let table = self.table.load(Ordering::Acquire);
        if table.is_null() || key == 0 {
            return None;
        }
        // SAFETY: published tables are never freed.
        let slot = unsafe { &*table }.find(key)?;
        // Acquire: pairs with the release in `insert`, so that what the value points to is seen.
        let value = slot.value.load(Ordering::Acquire);
        // SAFETY: values come from `&'static T`.
        unsafe { value.as_ref() }
    }

    /// Sets the value of a key: a handle that is given out again means its new object.
    pub(crate) fn insert(&self, key: u64, value: &'static T) {
        if key == 0 {
            return;
        }
        let value = std::ptr::from_ref(value).cast_mut();
        let mut len = self.len.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: published tables are never freed.
        let mut table = unsafe { table.as_ref() };
        if let Some(slot) = table.and_then(|table| table.find(key)) {
            slot.value.store(value, Ordering::Release);
            return;
        }
        let slots = table.map_or(0, |table| table.slots.len());
        if *len * 2 >= slots {
            let grown = Box::leak(Box::new(Table::with_slots((slots * 2).max(FIRST_SLOTS))));
            for slot in table.iter().flat_map(|table| &table.slots) {
                // Relaxed: only writers change slots, and this one holds the lock.
                let key = slot.key.load(Ordering::Relaxed);
                if key != 0 {
                    grown.put(key, slot.value.load(Ordering::Relaxed));
                }
            }
            let grown: &'static Table<T> = grown;
            // Release: a reader that sees the table sees its slots.
            self.table.store(std::ptr::from_ref(grown).cast_mut(), Ordering::Release);
            table = Some(grown);
        }
        if let Some(table) = table {
            table.put(key, value);
            *len += 1;
        }
    }
}

impl<T> Table<T> {
    fn with_slots(count: usize) -> Self {
        let slot = || Slot { key: AtomicU64::new(0), value: AtomicPtr::new(std::ptr::null_mut()) };
        Table { slots: std::iter::repeat_with(slot).take(count).collect() }
    }

    /// Slot numbers in the order a key is looked for.
    fn probe(&self, key: u64) -> impl Iterator<Item = &Slot<T>> {
        // Fibonacci hashing: handles are aligned addresses, whose low bits say little.
        let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let mask = self.slots.len() - 1;
        (0..self.slots.len()).map(move |step| &self.slots[(first + step) & mask])
    }

    #[inline]
    fn find(&self, key: u64) -> Option<&Slot<T>> {
        for slot in self.probe(key) {
            // Acquire: pairs with the release in `put`; the slot's value is then there.
            match slot.key.load(Ordering::Acquire) {
                0 => return None,
                found if found == key => return Some(slot),
                _ => {}
            }
        }
        None
    }

    /// Stores a key that is not there. Called by the one writer.
    fn put(&self, key: u64, value: *mut T) {
        for slot in self.probe(key) {
            if slot.key.load(Ordering::Relaxed) == 0 {
                slot.value.store(value, Ordering::Release);
                // Release: a reader that sees the key sees the value.
                slot.key.store(key, Ordering::Release);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_through_growth_and_replacement() {
        let table: HandleTable<u64> = HandleTable::new();
        let values: &'static [u64] = Box::leak((0..10_000u64).collect());
        assert!(table.get(16).is_none());
        for (index, value) in values.iter().enumerate() {
            table.insert((index as u64 + 1) * 16, value);
        }
        for (index, value) in values.iter().enumerate() {
            assert_eq!(table.get((index as u64 + 1) * 16), Some(value));
        }
        table.insert(16, &values[77]);
        assert_eq!(table.get(16), Some(&77));
        assert!(table.get(0).is_none() && table.get(24).is_none());
    }

    #[test]
    fn readers_see_whole_entries_while_writers_write() {
        let table: HandleTable<u64> = HandleTable::new();
        let values: &'static [u64] = Box::leak((0..20_000u64).map(|index| (index + 1) * 8).collect());
        std::thread::scope(|scope| {
            for start in 0..2 {
                let table = &table;
                scope.spawn(move || values.iter().skip(start).step_by(2).for_each(|value| table.insert(*value, value)));
            }
            scope.spawn(|| {
                for key in (8..=160_000u64).step_by(8) {
                    assert!(table.get(key).is_none_or(|value| *value == key));
                }
            });
        });
        assert!(values.iter().all(|value| table.get(*value) == Some(value)));
    }
}
