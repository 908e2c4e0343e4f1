//! What a queue can do.

use crate::abi::HostFn;
use crate::copy::Copy;
use crate::event::EventMark;
use crate::fiber::FiberPool;
use crate::fill::Fill;
use crate::graph_exec::GraphRun;
use crate::kernel::Launch;
use crate::queue::Chaos;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// `hipStreamCallback_t`.
pub(crate) type StreamCallback = extern "C" fn(usize, i32, usize);

/// One operation.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Nothing, in order: a point in the stream.
    Nothing,
    Kernel(Arc<Launch>),
    Copy(Copy),
    Fill(Fill),
    /// Reach an event's mark.
    Mark(Arc<EventMark>),
    /// Wait for an event's mark.
    WaitMark(Arc<EventMark>),
    /// `hipLaunchHostFunc`.
    HostFunction {
        function: HostFn,
        user_data: usize,
    },
    /// `hipStreamAddCallback`.
    Callback {
        function: StreamCallback,
        stream: usize,
        user_data: usize,
    },
    WaitValue(WaitValue),
    WriteValue(WriteValue),
    Graph(Arc<GraphRun>),
}

/// `hipStreamWaitValue32/64`: the stream stands still until memory holds a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitValue {
    pub(crate) address: usize,
    pub(crate) width: ValueWidth,
    pub(crate) value: u64,
    pub(crate) mask: u64,
    pub(crate) condition: WaitCondition,
}

/// `hipStreamWriteValue32/64`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteValue {
    pub(crate) address: usize,
    pub(crate) width: ValueWidth,
    pub(crate) value: u64,
}

/// Size of a stream memory operation's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueWidth {
    Bits32,
    Bits64,
}

impl ValueWidth {
    pub(crate) fn len_bytes(self) -> usize {
        match self {
            ValueWidth::Bits32 => 4,
            ValueWidth::Bits64 => 8,
        }
    }
}

/// `hipStreamWaitValue*` flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitCondition {
    GreaterOrEqual,
    Equal,
    And,
    Nor,
}

impl WaitCondition {
    /// The condition a flags argument asks for.
    pub(crate) fn from_flags(flags: u32) -> Option<Self> {
        [Self::GreaterOrEqual, Self::Equal, Self::And, Self::Nor].get(flags as usize).copied()
    }

    fn holds(self, memory: u64, value: u64, width: ValueWidth) -> bool {
        match (self, width) {
            // As the hardware: a signed difference, so that counters may wrap.
            (Self::GreaterOrEqual, ValueWidth::Bits32) => (memory as u32).wrapping_sub(value as u32) as i32 >= 0,
            (Self::GreaterOrEqual, ValueWidth::Bits64) => memory.wrapping_sub(value) as i64 >= 0,
            (Self::Equal, _) => memory == value,
            (Self::And, _) => memory & value != 0,
            (Self::Nor, ValueWidth::Bits32) => (memory | value) as u32 != u32::MAX,
            (Self::Nor, ValueWidth::Bits64) => memory | value != u64::MAX,
        }
    }
}

impl WaitValue {
    fn execute(&self) {
        let mut polls = 0_u32;
        while !self.condition.holds(load(self.address, self.width) & self.mask, self.value & self.mask, self.width) {
            polls = polls.saturating_add(1);
            match polls {
                0..=64 => std::hint::spin_loop(),
                65..=256 => thread::yield_now(),
                _ => thread::sleep(Duration::from_micros(20)),
            }
        }
    }
}

fn load(address: usize, width: ValueWidth) -> u64 {
    // SAFETY: the call checked that the address is aligned and inside a live allocation, and freeing one waits for
    // this item; host and kernels access the word too, hence atomically. Acquire: what the writer wrote before the
    // value is visible to the stream's later work.
    unsafe {
        match width {
            ValueWidth::Bits32 => u64::from(AtomicU32::from_ptr(address as *mut u32).load(Ordering::Acquire)),
            ValueWidth::Bits64 => AtomicU64::from_ptr(address as *mut u64).load(Ordering::Acquire),
        }
    }
}

fn store(address: usize, width: ValueWidth, value: u64) {
    // SAFETY: as in `load`. Release: the stream's earlier work is visible to whoever sees the value.
    unsafe {
        match width {
            ValueWidth::Bits32 => AtomicU32::from_ptr(address as *mut u32).store(value as u32, Ordering::Release),
            ValueWidth::Bits64 => AtomicU64::from_ptr(address as *mut u64).store(value, Ordering::Release),
        }
    }
}

/// What a queue thread keeps between items.
#[derive(Debug, Default)]
pub(crate) struct Executor {
    pub(crate) fibers: FiberPool,
}

/// Runs `op` on the calling queue thread.
pub(crate) fn run(op: &Op, executor: &mut Executor, chaos: Option<&mut Chaos>) {
    match op {
        Op::Nothing => {}
        Op::Kernel(launch) => {
            crate::slow::kernel(&launch.kernel.name, || launch.execute(&mut executor.fibers));
        }
        Op::Copy(copy) => crate::slow::copy(|| copy.reaches_device(), || copy.reaches_host(), || copy.execute()),
        Op::Fill(fill) => fill.execute(),
        Op::Mark(mark) => mark.reach(),
        Op::WaitMark(mark) => mark.wait(),
        Op::HostFunction { function, user_data } => function(*user_data),
        Op::Callback { function, stream, user_data } => function(*stream, 0, *user_data),
        Op::WaitValue(wait) => wait.execute(),
        Op::WriteValue(write) => store(write.address, write.width, write.value),
        Op::Graph(graph) => graph.execute(executor, chaos),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_conditions() {
        use ValueWidth::{Bits32, Bits64};
        assert!(WaitCondition::GreaterOrEqual.holds(5, 5, Bits32));
        assert!(!WaitCondition::GreaterOrEqual.holds(4, 5, Bits64));
        assert!(WaitCondition::GreaterOrEqual.holds(1, 0xFFFF_FFFF, Bits32), "a wrapped counter is ahead");
        assert!(WaitCondition::And.holds(6, 2, Bits64) && !WaitCondition::And.holds(4, 2, Bits64));
        assert!(
            !WaitCondition::Nor.holds(0xFFFF_FFF0, 0xF, Bits32) && WaitCondition::Nor.holds(0xFFFF_FFF0, 0x7, Bits32)
        );
        assert_eq!(WaitCondition::from_flags(4), None);
    }
}
