//! What a timeline is made of, whichever format it is written in.

use std::io::{self, Write};

use serde::Serialize;

use super::chrome::Chrome;
use super::perfetto::Perfetto;

/// A row of slices: a thread of a process, as the format has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lane {
    /// Group of rows.
    pub(crate) process: u32,
    /// Row in the group.
    pub(crate) thread: u32,
}

/// Colours that `chrome://tracing` knows by name. Perfetto colours by the slice's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    /// Waiting for another worker.
    Edge,
    /// Waiting for the replayer itself.
    Staging,
    /// The program's own gap.
    Gap,
    /// Waiting in the runtime.
    Blocking,
    /// As recorded.
    Good,
    /// Not as recorded.
    Bad,
}

impl Colour {
    pub(super) fn name(self) -> &'static str {
        match self {
            Colour::Edge => "thread_state_iowait",
            Colour::Staging => "terrible",
            Colour::Gap => "thread_state_sleeping",
            Colour::Blocking => "thread_state_uninterruptible",
            Colour::Good => "good",
            Colour::Bad => "terrible",
        }
    }
}

/// A value told with a slice.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Value<'a> {
    /// A number.
    Number(u64),
    /// A code of HIP's.
    Code(i32),
    /// Words.
    Text(&'a str),
}

/// Something that took time in a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice<'a> {
    pub(crate) lane: Lane,
    pub(crate) name: &'a str,
    pub(crate) category: &'a str,
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) colour: Option<Colour>,
    pub(crate) values: &'a [(&'a str, Value<'a>)],
}

/// A moment in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) lane: Lane,
    pub(crate) at_ns: u64,
}

/// The format of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Chrome's JSON.
    Chrome,
    /// Perfetto's protobuf.
    Perfetto,
}

/// Draws on an output.
pub(crate) enum Timeline<'w> {
    /// As Chrome's JSON.
    Chrome(Chrome<'w>),
    /// As Perfetto's protobuf.
    Perfetto(Perfetto<'w>),
}

impl<'w> Timeline<'w> {
    /// Begins a timeline.
    pub(crate) fn begin(out: &'w mut dyn Write, format: Format) -> io::Result<Self> {
        Ok(match format {
            Format::Chrome => Timeline::Chrome(Chrome::begin(out)?),
            Format::Perfetto => Timeline::Perfetto(Perfetto::begin(out)),
        })
    }

    /// Ends it, with what is to be known about it.
    pub(crate) fn end(self, about: &impl Serialize) -> io::Result<()> {
        match self {
            Timeline::Chrome(chrome) => chrome.end(about),
            Timeline::Perfetto(perfetto) => perfetto.end(about),
        }
    }

    /// Names a group of lanes; groups are shown by ascending number.
    pub(crate) fn name_process(&mut self, process: u32, name: &str) -> io::Result<()> {
        match self {
            Timeline::Chrome(chrome) => chrome.name_process(process, name),
            Timeline::Perfetto(perfetto) => perfetto.name_process(process, name),
        }
    }

    /// Names a lane; lanes of a group are shown by ascending number.
    pub(crate) fn name_lane(&mut self, lane: Lane, name: &str) -> io::Result<()> {
        match self {
            Timeline::Chrome(chrome) => chrome.name_lane(lane, name),
            Timeline::Perfetto(perfetto) => perfetto.name_lane(lane, name),
        }
    }

    /// A slice. Those of one lane lie beside or in each other.
    pub(crate) fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        match self {
            Timeline::Chrome(chrome) => chrome.slice(slice),
            Timeline::Perfetto(perfetto) => {
                perfetto.slice(slice);
                Ok(())
            }
        }
    }

    /// Something that happens at a moment.
    pub(crate) fn moment(
        &mut self,
        place: Place,
        named: (&str, &str),
        colour: Colour,
        values: &[(&str, Value<'_>)],
    ) -> io::Result<()> {
        match self {
            Timeline::Chrome(chrome) => chrome.moment(place, named, colour, values),
            Timeline::Perfetto(perfetto) => perfetto.moment(place, named, values),
        }
    }

    /// An arrow from a slice to another. The places lie in the slices, which have been drawn.
    pub(crate) fn arrow(&mut self, category: &str, from: Place, to: Place) -> io::Result<()> {
        match self {
            Timeline::Chrome(chrome) => chrome.arrow(category, from, to),
            Timeline::Perfetto(perfetto) => {
                perfetto.arrow(from, to);
                Ok(())
            }
        }
    }
}
