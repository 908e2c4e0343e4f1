//! A timeline read back as strictly as a viewer could: each slice lies beside or in the others of its lane, each arrow leads
//! from a slice to a slice and not back in time, each lane has a name.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::{built, perfetto, schema};

/// A lane: process and thread, as the format has them.
pub type Lane = (u64, u64);

/// A slice.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Where it lies.
    pub lane: Lane,
    /// What it is called.
    pub name: String,
    /// What kind it is of.
    pub category: String,
    /// When it begins, in nanoseconds.
    pub begin_ns: u64,
    /// When it ends.
    pub end_ns: u64,
    /// What is told with it.
    pub args: Value,
}

/// An arrow.
#[derive(Clone, Debug)]
pub struct Arrow {
    /// What kind it is of.
    pub category: String,
    /// The innermost slice that it leads from, by position.
    pub from: usize,
    /// The innermost slice that it leads to.
    pub to: usize,
}

/// A timeline.
#[derive(Debug)]
pub struct Timeline {
    /// All slices, in the file's order.
    pub slices: Vec<Slice>,
    /// All arrows.
    pub arrows: Vec<Arrow>,
    /// Moments: lane and name.
    pub moments: Vec<(Lane, String)>,
    /// Names of lanes.
    pub lanes: BTreeMap<Lane, String>,
    /// What is told about the whole.
    pub about: Value,
}

impl Timeline {
    /// Reads a timeline, and checks all of it.
    ///
    /// # Panics
    /// It is not what a timeline has to be.
    #[track_caller]
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut text = Vec::new();
        if path.extension().is_some_and(|extension| extension == "gz") {
            flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut text).expect("it is compressed");
        } else {
            text = bytes;
        }
        if path.to_string_lossy().trim_end_matches(".gz").ends_with(".pftrace") {
            let timeline = perfetto::read(&text);
            timeline.check_nesting();
            return timeline;
        }
        let value: Value = serde_json::from_slice(&text).expect("a timeline is JSON");
        let schema = std::fs::read(built::repository().join("replay/schema/timeline.json")).expect("there is a schema");
        let schema: Value = serde_json::from_slice(&schema).expect("a schema is JSON");
        assert_eq!(schema::faults(&schema, &value), Vec::<String>::new());
        let timeline = Self::of(&value);
        timeline.check_nesting();
        timeline
    }

    fn of(value: &Value) -> Self {
        let events = value["traceEvents"].as_array().expect("events are a list");
        let mut found = Timeline {
            slices: Vec::new(),
            arrows: Vec::new(),
            moments: Vec::new(),
            lanes: BTreeMap::new(),
            about: value["otherData"].clone(),
        };
        let mut points = Vec::new();
        for event in events {
            let lane = (event["pid"].as_u64().expect("a number"), event["tid"].as_u64().expect("a number"));
            let name = event["name"].as_str().expect("a name").to_owned();
            let category = || event["cat"].as_str().expect("a category").to_owned();
            match event["ph"].as_str().expect("a phase") {
                "M" if name == "thread_name" => {
                    let told = event["args"]["name"].as_str().expect("a name").to_owned();
                    assert_eq!(found.lanes.insert(lane, told), None, "{lane:?} is named twice");
                }
                "M" => {}
                "X" => found.slices.push(Slice {
                    lane,
                    name,
                    category: category(),
                    begin_ns: nanoseconds(&event["ts"]),
                    end_ns: nanoseconds(&event["ts"]) + nanoseconds(&event["dur"]),
                    args: event["args"].clone(),
                }),
                "i" => found.moments.push((lane, name)),
                phase @ ("s" | "f") => {
                    assert!(phase == "s" || event["bp"] == "e", "bound to the slice it lies in: {event}");
                    let id = event["id"].as_u64().expect("a number");
                    points.push((id, phase == "s", lane, nanoseconds(&event["ts"]), category()));
                }
                phase => panic!("unknown phase {phase}"),
            }
        }
        for slice in &found.slices {
            assert!(found.lanes.contains_key(&slice.lane), "a lane without a name: {slice:?}");
        }
        found.join(points);
        found
    }

    /// Makes arrows of their ends.
    fn join(&mut self, points: Vec<(u64, bool, Lane, u64, String)>) {
        let mut by_lane: BTreeMap<Lane, Vec<usize>> = BTreeMap::new();
        for (number, slice) in self.slices.iter().enumerate() {
            by_lane.entry(slice.lane).or_default().push(number);
        }
        for numbers in by_lane.values_mut() {
            numbers.sort_by_key(|&number| self.slices[number].begin_ns);
        }
        let innermost = |lane: Lane, at_ns: u64| {
            let numbers = by_lane.get(&lane).map(Vec::as_slice).unwrap_or_default();
            let behind = numbers.partition_point(|&number| self.slices[number].begin_ns <= at_ns);
            // Nested ones begin at most a few slices before.
            numbers[..behind].iter().rev().take(4096).copied().find(|&number| at_ns <= self.slices[number].end_ns)
        };
        let mut begun = BTreeMap::new();
        let mut used = BTreeSet::new();
        for (id, begins, lane, at_ns, category) in points {
            let slice =
                innermost(lane, at_ns).unwrap_or_else(|| panic!("arrow {id} at {at_ns} lies in no slice of {lane:?}"));
            if begins {
                assert!(used.insert(id), "arrow {id} begins twice");
                begun.insert(id, (slice, at_ns, category));
            } else {
                let (from, from_ns, of) =
                    begun.remove(&id).unwrap_or_else(|| panic!("arrow {id} ends and did not begin"));
                assert!(from_ns <= at_ns && of == category, "arrow {id} goes back in time");
                self.arrows.push(Arrow { category, from, to: slice });
            }
        }
        assert!(begun.is_empty(), "arrows that do not end: {begun:?}");
    }

    /// Slices of a lane lie beside or in each other.
    fn check_nesting(&self) {
        let mut by_lane: BTreeMap<Lane, Vec<&Slice>> = BTreeMap::new();
        for slice in &self.slices {
            by_lane.entry(slice.lane).or_default().push(slice);
        }
        for slices in by_lane.values_mut() {
            // The sort is stable: of two that begin together, the outer one is the longer one.
            slices.sort_by_key(|slice| (slice.begin_ns, std::cmp::Reverse(slice.end_ns)));
            let mut open: Vec<&Slice> = Vec::new();
            for slice in slices {
                while open.last().is_some_and(|outer| outer.end_ns <= slice.begin_ns) {
                    open.pop();
                }
                if let Some(outer) = open.last() {
                    assert!(slice.end_ns <= outer.end_ns, "{slice:?} reaches out of {outer:?}");
                }
                open.push(slice);
            }
        }
    }

    /// Slices of a category.
    pub fn of_category(&self, category: &str) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(move |slice| slice.category == category)
    }

    /// Calls, whether they wait for the device or not.
    pub fn calls(&self) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(|slice| slice.category.starts_with("call"))
    }

    /// Per stream of each device, what it did, in order; streams in the order of their lanes.
    pub fn works(&self, device_0: u64) -> Vec<Vec<String>> {
        let mut streams: BTreeMap<Lane, Vec<&Slice>> = BTreeMap::new();
        for slice in self.of_category("work") {
            let (process, thread) = slice.lane;
            streams.entry((process - device_0, thread)).or_default().push(slice);
        }
        let names = |mut slices: Vec<&Slice>| {
            slices.sort_by_key(|slice| slice.begin_ns);
            slices.into_iter().map(|slice| slice.name.clone()).collect()
        };
        streams.into_values().map(names).collect()
    }

    /// Arrows of a category.
    pub fn arrows_of(&self, category: &str) -> impl Iterator<Item = (&Slice, &Slice)> {
        let of = category.to_owned();
        let slices = &self.slices;
        self.arrows
            .iter()
            .filter(move |arrow| arrow.category == of)
            .map(|arrow| (&slices[arrow.from], &slices[arrow.to]))
    }
}

/// Microseconds as the file has them.
fn nanoseconds(value: &Value) -> u64 {
    let microseconds = value.as_f64().unwrap_or_else(|| panic!("{value} is no time"));
    assert!(microseconds >= 0.0 && microseconds.is_finite(), "{value} is no time");
    (microseconds * 1000.0).round() as u64
}
