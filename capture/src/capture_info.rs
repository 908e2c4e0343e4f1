//! Nodes that a captured stream's next work comes after: handles in an array of the runtime's own, of which the program is told the
//! address. It may go on to add nodes behind them.

use hrr_format::catalogue::Role;
use hrr_format::record::{MAX_RECORD_BYTES, Presence, SectionTag};

use crate::runtime;
use crate::sections::{Drafting, Source};

/// Where a call tells of them: `(stream, status*, id*, graph*, nodes**, count*)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaptureNodes {
    status: *const i32,
    nodes: *const *const u64,
    count: *const u64,
}

impl CaptureNodes {
    /// Stores the handles, as far as there is room.
    ///
    /// # Safety
    /// The call succeeded.
    pub(crate) unsafe fn store(&self, room: &mut [u8]) {
        // SAFETY: the call stored the status, and where the stream is being captured the address of the array and its length, which
        // last until the program's next call on the stream.
        unsafe {
            if self.status.read_unaligned() != runtime::CAPTURE_ACTIVE {
                return;
            }
            let (nodes, count) = (self.nodes.read_unaligned(), self.count.read_unaligned() as usize);
            if nodes.is_null() {
                return;
            }
            for (index, place) in room.as_chunks_mut::<8>().0.iter_mut().take(count).enumerate() {
                *place = nodes.add(index).read_unaligned().to_le_bytes();
            }
        }
    }
}

impl Drafting<'_> {
    /// Room for the handles of which the call will tell: as many as there are now, since the capture is the program's own.
    pub(crate) fn capture_nodes(&mut self, stream: u64) {
        let words = self.call_words();
        let &[_, status, _, _, nodes, count, ..] = words else { return };
        let api = self.api();
        let Some(param) = api.param_with(|role| matches!(role, Role::GetArrayAt(..))) else { return };
        if [status, nodes, count].contains(&0) {
            return;
        }
        let len_bytes = runtime::capture_node_count(stream).saturating_mul(8);
        if len_bytes == 0 || len_bytes > MAX_RECORD_BYTES / 2 {
            return;
        }
        let told = CaptureNodes {
            status: status as *const i32,
            nodes: nodes as *const *const u64,
            count: count as *const u64,
        };
        self.push(SectionTag::Out, param as u8, Presence::Absent, len_bytes, Source::CaptureNodesAfterCall(told));
    }
}
