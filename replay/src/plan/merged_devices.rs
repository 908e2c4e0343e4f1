//! Calls about two devices where one stands for both.

use hrr_format::catalogue::Role;

use super::Planner;
use super::lower::Call;

/// Calls that a runtime refuses for a device and itself. Those with one ordinal mean the current device and that one.
const BETWEEN_TWO: [&str; 4] = [
    "hipDeviceDisablePeerAccess",
    "hipDeviceEnablePeerAccess",
    "hipDeviceGetP2PAttribute",
    "hipExtGetLinkTypeAndHopCount",
];

impl Planner<'_> {
    /// Whether a call is about the access of one device to another, and the device map has one stand for both: memory is
    /// within reach then without it.
    pub(super) fn is_between_merged_devices(&self, call: &Call<'_>) -> bool {
        if self.choices.devices.is_identity() || !BETWEEN_TWO.contains(&call.api.name) {
            return false;
        }
        let mut ordinals = call
            .api
            .params
            .iter()
            .filter(|param| matches!(param.role, Role::Ordinal))
            .map(|param| call.record.word(usize::from(param.word)) as u32 as i32);
        let Some(first) = ordinals.next() else { return false };
        let second = ordinals.next().unwrap_or(call.device);
        let live = |device| self.choices.devices.live(device);
        first != second && live(first) == live(second)
    }
}
