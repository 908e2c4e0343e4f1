//! User objects: reference counts the program keeps with its graphs, and a destructor called at zero.

use crate::abi::HostFn;
use crate::error::{HipError, HipResult};
use crate::registry::{Registry, lock};
use std::sync::{Arc, Mutex};

#[derive(Debug)]
struct UserObject {
    object: usize,
    destroy: HostFn,
    count: Mutex<u32>,
}

static OBJECTS: Registry<UserObject> = Registry::new();

/// Makes an object with `count` references.
pub(crate) fn create(object: usize, destroy: HostFn, count: u32) -> HipResult<usize> {
    OBJECTS.insert(|_| Arc::new(UserObject { object, destroy, count: Mutex::new(count) }))
}

/// Whether the handle is an object's. Fails with `hipErrorInvalidValue`.
pub(crate) fn check(handle: usize) -> HipResult {
    OBJECTS.get(handle).map(drop).ok_or(HipError::INVALID_VALUE)
}

/// Adds references.
pub(crate) fn retain(handle: usize, count: u32) -> HipResult {
    let object = OBJECTS.get(handle).ok_or(HipError::INVALID_VALUE)?;
    let mut held = lock(&object.count);
    *held = held.checked_add(count).filter(|_| count > 0).ok_or(HipError::INVALID_VALUE)?;
    Ok(())
}

/// Drops references; the last one calls the destructor.
pub(crate) fn release(handle: usize, count: u32) -> HipResult {
    let object = OBJECTS.get(handle).ok_or(HipError::INVALID_VALUE)?;
    let mut held = lock(&object.count);
    *held = held.checked_sub(count).filter(|_| count > 0).ok_or(HipError::INVALID_VALUE)?;
    let is_last = *held == 0;
    drop(held);
    if is_last {
        OBJECTS.remove(handle);
        (object.destroy)(object.object);
    }
    Ok(())
}
