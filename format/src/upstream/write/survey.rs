//! What the in-tree format would lose: counted and named before anything is written.

use std::collections::HashSet;

use super::{Placed, RUNTIME_ENTRIES, VERSION, Writer, has, is_launch, layout_of};
use crate::catalogue::{Api, Effect, Policy, Returns, Role};
use crate::record::{Presence, Record, Section, SectionTag, flag, marker};
use crate::upstream::layout::{Extra, Layout, Meaning, TABLE_RUNTIME_ENTRIES};

impl<'a> Writer<'a> {
    /// Names what would be lost, and finds what graphs read.
    pub(super) fn survey(&mut self, calls: &[Placed<'a>]) {
        if self.archive.manifest().flight_recorder_bytes.is_some() {
            self.lose("note that only the last calls of each thread were kept, by a flight recorder");
        }
        let mut captured = HashSet::new();
        for call in calls {
            let record = call.record;
            if let Some(api) = self.archive.row_of(&record) {
                let copies_in = api.effect == Effect::Enqueue
                    && record.section_tagged(SectionTag::BlobIn).is_none()
                    && api.params.iter().any(|param| param.name == "kind" && record.word(usize::from(param.word)) == 1);
                if copies_in && let Some(param) = api.params.iter().find(|param| param.name == "src") {
                    captured.insert(record.word(usize::from(param.word)));
                }
                if api.name == "__hipRegisterFatBinary" {
                    self.fat_binaries.extend(
                        record
                            .section_tagged(SectionTag::Code)
                            .and_then(|section| section.blob())
                            .map(|blob| blob.number),
                    );
                }
            }
        }
        for call in calls {
            self.survey_call(call, &captured);
        }
    }

    /// A record that is none of a call: the in-tree format has nothing like those.
    pub(super) fn survey_marker(&mut self, record: &Record<'a>) {
        let holds_bytes =
            record.section_tagged(SectionTag::HostRanges).is_some_and(|ranges| !ranges.payload.is_empty());
        match record.api() {
            marker::HOST_WROTE if record.word(2) & marker::host_wrote::NOT_RECORDED != 0 => {
                self.lose("notes that what the host stored in memory that devices use was not recorded");
            }
            marker::HOST_WROTE if holds_bytes => self.lose("what the host stored in memory that devices use"),
            marker::HOST_SAW if holds_bytes => {
                self.lose("what devices left in host memory, by which replays are checked")
            }
            // Of padding, of memory that was all zeros, and of when a result could first be seen nothing is missed.
            _ => {}
        }
    }

    fn survey_call(&mut self, call: &Placed<'a>, captured: &HashSet<u64>) {
        let record = call.record;
        if record.flags() & flag::PREAMBLE != 0 {
            self.lose("marks of calls that only bring about what there was when a window was opened");
        }
        let Some(api) = self.archive.row_of(&record) else {
            let name = self.archive.api(record.api()).name.to_owned();
            return self.lose(format!("calls of {name}, which this build does not know"));
        };
        if api.ret == Returns::Error && record.ret() != 0 {
            return self.lose(format!("calls of {} that did not succeed", api.name));
        }
        let is_kept_only = record.flags() & (flag::LEFT_OUT | flag::REFUSED) != 0;
        if record.flags() & flag::TRUNCATED != 0 {
            self.lose(format!("marks of calls of {} whose records had no room for all that they read", api.name));
        }
        if is_launch(api) {
            self.survey_launch(api, &record);
        }
        let layout = layout_of(self.layouts, api);
        if !is_launch(api) {
            match layout {
                None => return self.lose(format!("calls of {}, of which the in-tree format has no record", api.name)),
                // The two entry points behind the oldest table have no number in it.
                Some((id, _)) if (RUNTIME_ENTRIES..TABLE_RUNTIME_ENTRIES).contains(&id) => {
                    return self.lose(format!("calls of {}, which format version {VERSION} does not number", api.name));
                }
                _ => {}
            }
        }
        for section in record.sections().map_while(Result::ok) {
            if section.presence == Presence::Withheld {
                self.lose(format!("withheld contents of {}", api.name));
                continue;
            }
            if section.presence == Presence::Absent || is_kept_only {
                continue;
            }
            match section.tag {
                SectionTag::GraphHostIn => self.survey_read(api, &section, captured),
                SectionTag::GraphHostOut => self.lose("results that graphs leave in host memory"),
                SectionTag::File => self.lose("which exported memory an imported file descriptor stands for"),
                SectionTag::Names => self.lose(format!("names of what {} gives", api.name)),
                SectionTag::GraphHostRows => self.lose("gaps between the rows of host memory that graphs copy"),
                SectionTag::In | SectionTag::Text if !is_launch(api) => {
                    self.survey_inline(api, layout, &record, &section)
                }
                SectionTag::Out if !is_launch(api) => self.survey_out(api, layout, &record, &section),
                SectionTag::BlobIn if !has(layout, Extra::BlobLo) => {
                    self.lose(format!("contents of the host memory that {} reads", api.name));
                }
                SectionTag::BlobOut if !has(layout, Extra::BlobLo) && !has(layout, Extra::ResultLo) => {
                    self.lose(format!("results that {} leaves in host memory", api.name));
                }
                SectionTag::Code if !has(layout, Extra::CodeLo) && !has(layout, Extra::BlobLo) => {
                    self.lose(format!("code objects of {}", api.name));
                }
                _ => {}
            }
        }
    }

    fn survey_read(&mut self, api: &Api, section: &Section<'_>, captured: &HashSet<u64>) {
        let Some((address, blob)) = section.host_address().zip(section.blob()) else { return };
        if is_launch(api) || api.name == "hipRuntimeGetVersion" {
            return;
        }
        let known = *self.graph_reads.entry(address).or_insert(blob);
        let same = self.archive.blobs().hash(known.number) == self.archive.blobs().hash(blob.number);
        if !same || known.size_bytes != blob.size_bytes {
            self.lose("host memory that a graph reads, where it changed between launches");
        } else if !captured.contains(&address) {
            self.lose("host memory that graph nodes read, unless they were captured");
        }
    }

    fn survey_inline(&mut self, api: &Api, layout: Option<(u16, &Layout)>, record: &Record<'_>, section: &Section<'_>) {
        if matches!(api.policy, Policy::Skip(_)) || names_itself(api.name) {
            return;
        }
        let Some(param) = api.params.get(usize::from(section.param)) else { return };
        let field = layout.and_then(|(_, layout)| {
            let of = |meaning| layout.of_param(section.param, meaning);
            of(Meaning::Bytes).or_else(|| of(Meaning::Inline))
        });
        let room = field.map_or(0, |field| field.size_bytes as usize);
        let needs = section.payload.len() + usize::from(section.tag == SectionTag::Text);
        let told_twice = api.name == "__hipRegisterVar" && param.name == "hostVar";
        if needs > room && needs > 0 && !told_twice && record.word(usize::from(param.word)) != 0 {
            let more = if room > 0 { " beyond what fits" } else { "" };
            self.lose(format!("what {} of {} points to{more}", param.name, api.name));
        }
    }

    /// Handles and addresses that a call returned, by which later calls are understood.
    fn survey_out(
        &mut self,
        api: &'static Api,
        layout: Option<(u16, &Layout)>,
        record: &Record<'_>,
        section: &Section<'_>,
    ) {
        let Some(param) = api.params.get(usize::from(section.param)) else { return };
        if matches!(api.policy, Policy::Skip(_)) {
            return;
        }
        if param.name == "pitch" {
            let told = crate::upstream::translate::unsigned(section.payload, 0, 8);
            if told != crate::upstream::translate::assumed_pitch_bytes(api, record) {
                self.lose(format!("the pitch that {} returned", api.name));
            }
            return;
        }
        let is_told = layout.is_some_and(|(_, layout)| {
            let told = [Meaning::Pointee, Meaning::Bytes, Meaning::Inline];
            told.into_iter().any(|meaning| layout.of_param(section.param, meaning).is_some())
        });
        if param.role.makes() && !is_told {
            self.lose(format!("what {} returned in {}", api.name, param.name));
        }
    }

    fn survey_launch(&mut self, api: &Api, record: &Record<'_>) {
        if api.params.iter().all(|param| !matches!(param.role, Role::KernelParams)) {
            return self.lose(format!("launches by {}", api.name));
        }
        let kernel = self.archive.kernels().of_launch(record.aux());
        let Some(kernel) = kernel else { return self.lose("launches of kernels without a name") };
        if kernel.args.is_none() {
            self.lose(format!("arguments of {}, which has no metadata", kernel.name));
        }
        for name in ["startEvent", "stopEvent", "flags"] {
            let set = api.params.iter().any(|param| param.name == name && record.word(usize::from(param.word)) != 0);
            if set {
                self.lose(format!("{name} of {}", api.name));
            }
        }
        // attrs and numAttrs of hipLaunchConfig_t and HIP_LAUNCH_CONFIG.
        let config =
            record.section(SectionTag::In, 0).filter(|_| api.params.first().is_some_and(|p| p.name == "config"));
        if config.is_some_and(|config| config.payload.get(48..52).is_some_and(|count| count != [0; 4])) {
            self.lose(format!("launch attributes of {}", api.name));
        }
    }
}

/// Calls whose names launches repeat, or whose options replay does not use.
fn names_itself(name: &str) -> bool {
    name.starts_with("hipModuleLoad")
        || matches!(
            name,
            "hipModuleGetFunction" | "__hipRegisterFunction" | "__hipRegisterSurface" | "__hipRegisterTexture"
        )
}
