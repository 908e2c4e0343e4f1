//! What became of every call, by entry point: a call that is neither issued nor left out for a reason fails the replay.
//!
//! What is issued is counted in the finished chunks, so that a call that planning loses on the way is missed.

use hrr_format::catalogue::{APIS, Api};

use crate::instruction::{Chunk, flag};

/// Calls of one entry point.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// In the archive.
    recorded: u64,
    /// Left out, counted under its reason elsewhere.
    left_out: u64,
}

/// The account of a replay's calls.
#[derive(Debug)]
pub(crate) struct CallAccount {
    rows: Box<[Row]>,
}

impl Default for CallAccount {
    fn default() -> Self {
        CallAccount { rows: vec![Row::default(); APIS.len()].into_boxed_slice() }
    }
}

impl CallAccount {
    /// A call was found in the archive.
    pub(crate) fn recorded(&mut self, api: &Api) {
        self.rows[usize::from(api.id)].recorded += 1;
    }

    /// A call is left out for a reason that the summary counts.
    pub(crate) fn left_out(&mut self, api: &Api) {
        self.rows[usize::from(api.id)].left_out += 1;
    }

    /// The entry points whose calls do not add up, with how many are missing (negative: too many were issued).
    pub(crate) fn lost(&self, issued: &IssuedCalls) -> Vec<(&'static str, i64)> {
        let difference = |(row, issued): (&Row, &u64)| row.recorded as i64 - *issued as i64 - row.left_out as i64;
        APIS.iter()
            .zip(self.rows.iter().zip(&issued.0).map(difference))
            .map(|(api, lost)| (api.name, lost))
            .filter(|&(_, lost)| lost != 0)
            .collect()
    }
}

/// By entry point: calls with an instruction in a finished chunk.
#[derive(Debug)]
pub(crate) struct IssuedCalls(Box<[u64]>);

impl Default for IssuedCalls {
    fn default() -> Self {
        IssuedCalls(vec![0; APIS.len()].into_boxed_slice())
    }
}

impl IssuedCalls {
    /// Counts the calls that a finished chunk issues. A chunk's calls are in order of their events, but for those that are
    /// delayed; what is issued for a call besides is auxiliary, or belongs to a call that was there before.
    pub(crate) fn count(&mut self, chunk: &Chunk) {
        let (mut next_event, mut last_delayed) = (0, None);
        for instruction in &chunk.instructions {
            let event = instruction.event;
            let is_delayed = instruction.flags & flag::DELAYED != 0;
            let is_new = event >= next_event || (is_delayed && last_delayed != Some(event));
            if instruction.flags & flag::AUXILIARY != 0 || !is_new {
                continue;
            }
            self.0[usize::from(instruction.api)] += 1;
            next_event = next_event.max(event + 1);
            if is_delayed {
                last_delayed = Some(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::lower::draft::{Draft, Issue};

    fn chunk(calls: &[(u64, &'static Api, u16)]) -> Chunk {
        unsafe fn nothing(_: *const std::ffi::c_void, _: *const u64) -> crate::thunk::Outcome {
            crate::thunk::Outcome { code: 0, raw: 0 }
        }
        let mut chunk = Chunk::default();
        for &(event, api, flags) in calls {
            let draft = Draft::new(&mut chunk, 0, []);
            let issue = Issue {
                thunk: nothing,
                function: std::ptr::null(),
                api,
                progress: 0,
                event,
                lane: 0,
                expected: 0,
                device: -1,
                flags,
            };
            draft.finish(&mut chunk, issue, &[]);
        }
        chunk
    }

    #[test]
    fn a_call_without_an_instruction_is_lost() {
        let malloc = Api::by_name("hipMalloc").unwrap();
        let free = Api::by_name("hipFree").unwrap();
        let mut account = CallAccount::default();
        let mut issued = IssuedCalls::default();
        for api in [malloc, free, free, free] {
            account.recorded(api);
        }
        account.left_out(free);
        // Event 0 is the allocation, with a fill of replay's own; event 1 one of the frees; the last instruction belongs to an
        // earlier call.
        issued.count(&chunk(&[(0, malloc, 0), (0, malloc, flag::AUXILIARY), (1, free, 0), (0, malloc, 0)]));
        assert_eq!(account.lost(&issued), [("hipFree", 1)]);
        issued.count(&chunk(&[(2, free, 0)]));
        assert_eq!(account.lost(&issued), []);
    }

    #[test]
    fn a_delayed_call_is_counted_behind_later_ones_and_once() {
        let copy = Api::by_name("hipMemcpyAsync").unwrap();
        let query = Api::by_name("hipStreamQuery").unwrap();
        let mut account = CallAccount::default();
        let mut issued = IssuedCalls::default();
        [copy, copy, query].iter().for_each(|api| account.recorded(api));
        issued.count(&chunk(&[(4, query, 0), (3, copy, flag::DELAYED), (3, copy, flag::DELAYED), (5, copy, 0)]));
        assert_eq!(account.lost(&issued), []);
    }
}
