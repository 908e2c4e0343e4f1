//! Which device of this machine stands for which device of the recording.

use std::collections::BTreeSet;
use std::str::FromStr;

use hrr_format::archive::Archive;
use hrr_format::catalogue::Role;
use hrr_format::record::Record;

use crate::machine::runtime::Runtime;

/// Pairs of recorded and live ordinals; a device without a pair stands for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceMap {
    pairs: Vec<(i32, i32)>,
}

/// Why a device map cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceMapError {
    /// It is not of two numbers.
    #[error("'{pair}' is no pair of device numbers; give RECORDED:LIVE pairs, like 0:0,1:0")]
    NoPair {
        /// What stands there.
        pair: String,
    },
    /// It says twice what stands for one device.
    #[error("two devices are to stand for recorded device {recorded}; give one")]
    Twice {
        /// The recorded device.
        recorded: i32,
    },
}

impl FromStr for DeviceMap {
    type Err = DeviceMapError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut pairs: Vec<(i32, i32)> = Vec::new();
        for pair in text.split(',') {
            let numbers = pair.split_once(':').and_then(|(from, to)| {
                let number = |text: &str| text.trim().parse::<i32>().ok().filter(|number| *number >= 0);
                Some((number(from)?, number(to)?))
            });
            let (from, to) = numbers.ok_or_else(|| DeviceMapError::NoPair { pair: pair.to_owned() })?;
            if pairs.iter().any(|known| known.0 == from) {
                return Err(DeviceMapError::Twice { recorded: from });
            }
            pairs.push((from, to));
        }
        Ok(DeviceMap { pairs })
    }
}

impl DeviceMap {
    /// The live device that stands for a recorded one. Negative ordinals name no device and stay.
    pub fn live(&self, recorded: i32) -> i32 {
        self.pairs.iter().find(|pair| pair.0 == recorded).map_or(recorded, |pair| pair.1)
    }

    /// Whether every device stands for itself.
    pub fn is_identity(&self) -> bool {
        self.pairs.iter().all(|pair| pair.0 == pair.1)
    }

    /// Checks that every device an archive uses has one that stands for it.
    ///
    /// # Errors
    /// What the archive uses, what there is, and how to map one to the other.
    pub(crate) fn check(&self, archive: &Archive, runtime: &Runtime, device_count: i32) -> Result<(), String> {
        let recorded_devices = &archive.manifest().devices;
        if recorded_devices.len() <= device_count as usize && self.pairs.is_empty() {
            return Ok(());
        }
        let used = used_devices(archive);
        let there =
            |device: i32| used.contains(&device) || recorded_devices.iter().any(|recorded| recorded.ordinal == device);
        if let Some(&(unknown, _)) = self.pairs.iter().find(|&&(recorded, _)| !there(recorded)) {
            let mut known: BTreeSet<i32> = used;
            known.extend(recorded_devices.iter().map(|device| device.ordinal));
            let known: Vec<String> = known.iter().map(i32::to_string).collect();
            return Err(format!("--device-map: the archive has no device {unknown}; it has {}", known.join(", ")));
        }
        if let Some(&(_, absent)) = self.pairs.iter().find(|&&(_, live)| live >= device_count) {
            return Err(format!(
                "--device-map: the runtime has no device {absent}; it has {}",
                (0..device_count).map(|device| device.to_string()).collect::<Vec<_>>().join(", ")
            ));
        }
        let missing: Vec<i32> = used.iter().copied().filter(|&device| self.live(device) >= device_count).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let list = |devices: &mut dyn Iterator<Item = (i32, String)>| {
            devices.map(|(ordinal, name)| format!("{ordinal} ({name})")).collect::<Vec<_>>().join(", ")
        };
        let name_of = |device: i32| {
            let known = archive.manifest().devices.iter().find(|known| known.ordinal == device);
            known.map_or_else(|| "unknown".to_owned(), |known| format!("{}, {}", known.name, known.arch))
        };
        let recorded = list(&mut used.iter().map(|&device| (device, name_of(device))));
        let live = list(&mut (0..device_count).map(|device| (device, runtime.device_info(device).name)));
        let remedy: Vec<String> =
            used.iter().map(|&device| format!("{device}:{}", if device < device_count { device } else { 0 })).collect();
        Err(format!(
            "the archive uses devices {recorded}; the runtime has {live}. To replay on fewer devices, say which stand for \
             them: --device-map {}",
            remedy.join(",")
        ))
    }
}

/// The devices that calls of the archive name and that were there when it was recorded.
fn used_devices(archive: &Archive) -> BTreeSet<i32> {
    let mut used = BTreeSet::from([0]);
    for stream in archive.streams() {
        for record in stream.records() {
            let Some(api) = archive.row_of(&record) else { continue };
            if record.ret() != 0 {
                continue;
            }
            for param in api.params.iter().filter(|param| param.role == Role::Ordinal) {
                let device = word_as_ordinal(&record, usize::from(param.word));
                if device >= 0 {
                    used.insert(device);
                }
            }
        }
    }
    used
}

fn word_as_ordinal(record: &Record<'_>, word: usize) -> i32 {
    record.word(word) as u32 as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_and_others_stay() {
        let map: DeviceMap = "0:0,1:0, 3:1".parse().unwrap();
        assert_eq!([0, 1, 2, 3, -1].map(|device| map.live(device)), [0, 0, 2, 1, -1]);
        assert!(!map.is_identity());
        assert!(DeviceMap::default().is_identity());
        for bad in ["", "0", "0:", "0:-1", "a:0", "0:1,0:2", "0:1,"] {
            assert!(bad.parse::<DeviceMap>().is_err(), "{bad}");
        }
        assert_eq!("0:1,0:2".parse::<DeviceMap>(), Err(DeviceMapError::Twice { recorded: 0 }));
    }
}
