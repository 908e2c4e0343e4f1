//! Kernels that are launched in place of recorded ones, and launches that are left out: by themselves, in several at once,
//! and as nodes of graphs.

use rustc_hash::FxHashMap;

use hrr_format::catalogue::{Api, Effect, HandleKind, Role, STRUCTS, StructField, StructLayout};
use hrr_format::code_object;
use hrr_format::kernel_table::Kernel;
use hrr_format::record::SectionTag;

use super::draft::Draft;
use super::special::Special;
use super::{Call, word_at};
use crate::choices::Replacement;
use crate::instruction::Chunk;
use crate::plan::Planner;
use crate::plan::error::Refusal;

/// A replacement, and its function on each device it was launched on.
#[derive(Debug)]
pub(crate) struct Replaced {
    image: Vec<u8>,
    name: String,
    functions: FxHashMap<i32, u64>,
}

impl Replaced {
    /// Reads the files of all replacements.
    ///
    /// # Errors
    /// The file that cannot be read, or is no code object.
    pub(crate) fn read(replacements: &[Replacement]) -> Result<Vec<Self>, String> {
        replacements
            .iter()
            .map(|replacement| {
                let image = std::fs::read(&replacement.path).map_err(|error| {
                    format!("--replace-kernel: cannot read {}: {error}", replacement.path.display())
                })?;
                // A runtime may trust what it is told to load to be a code object.
                code_object::visit_targets(&image, |_| Ok(()))
                    .map_err(|error| format!("--replace-kernel: {}: {error}", replacement.path.display()))?;
                Ok(Replaced { image, name: replacement.name.clone(), functions: FxHashMap::default() })
            })
            .collect()
    }
}

/// Launches by host symbol whose first words are function, grid (2), block (2), arguments, shared memory, stream, and the
/// launch by function that does the same.
const SYMBOL_LAUNCHES: [(&str, &str); 5] = [
    ("hipLaunchKernel", "hipModuleLaunchKernel"),
    ("hipLaunchKernel_spt", "hipModuleLaunchKernel"),
    ("hipLaunchCooperativeKernel", "hipModuleLaunchCooperativeKernel"),
    ("hipLaunchCooperativeKernel_spt", "hipModuleLaunchCooperativeKernel"),
    ("hipExtLaunchKernel", "hipExtModuleLaunchKernel"),
];

/// Calls on nodes of any kind, of which some can be on a kernel's.
const NODE_CALLS: [&str; 4] =
    ["hipGraphNodeSetParams", "hipGraphExecNodeSetParams", "hipGraphNodeSetEnabled", "hipGraphNodeGetEnabled"];

/// Why a launch's kernel cannot be replaced.
const BY_SYMBOL: Refusal =
    Refusal::Policy("its kernel cannot be replaced: this launch takes a host symbol, and the replacement has none");

fn names_kernel(role: &Role) -> bool {
    matches!(role, Role::KernelSymbol | Role::Use(HandleKind::Function | HandleKind::Kernel))
}

/// The field of these structs, if they hold a kernel's arguments, that names the kernel.
fn kernel_field(layout: &StructLayout, element: &[u8]) -> Option<&'static StructField> {
    let holds = |wanted: &dyn Fn(&Role) -> bool| {
        layout.fields.iter().find(|field| wanted(&field.role) && field.when.is_none_or(|when| when.holds(element)))
    };
    holds(&|role| *role == Role::KernelParams).and_then(|_| holds(&names_kernel))
}

impl<'a> Planner<'a> {
    /// The kernel whose arguments one of a call's structs holds. The record names the first one's kernel; the others are
    /// known by the names of their functions.
    pub(crate) fn kernel_of_struct(
        &self,
        call: &Call<'_>,
        layout: &StructLayout,
        element: &[u8],
    ) -> Result<Option<&'a Kernel>, Refusal> {
        let first = self.archive.kernels().of_launch(call.record.aux());
        let value = kernel_field(layout, element).map_or(0, |field| word_at(element, field.offset_bytes as usize));
        let object = match self.objects.handle(HandleKind::Function, value) {
            Some(handle) => Some(handle.object),
            None => self.objects.symbols.get(&value).map(|symbol| symbol.object),
        };
        let name = object.and_then(|object| self.kernel_rooms.name_of(object));
        let Some(name) = name.filter(|&name| first.is_none_or(|first| first.name.as_bytes() != name)) else {
            return Ok(first);
        };
        let mut named = self.archive.kernels().kernels().iter().filter(|kernel| kernel.name.as_bytes() == name);
        let found = named.next();
        match found.zip(named.next()) {
            Some((found, other)) if found.args != other.args || named.any(|other| found.args != other.args) => Err(
                Refusal::Shape("one call launches several kernels, and kernels of one's name have different arguments"),
            ),
            _ => Ok(found),
        }
    }

    /// The names of the kernels that a call launches, or gives to a node of a graph.
    fn kernel_names(&self, call: &Call<'_>) -> Result<Vec<&str>, Refusal> {
        if self.specials[usize::from(call.api.id)] == Special::LaunchByPtr {
            let object = self.objects.symbols.get(&call.record.word(0)).map(|symbol| symbol.object);
            let name = object.and_then(|object| self.kernel_rooms.name_of(object));
            return Ok(name.and_then(|name| std::str::from_utf8(name).ok()).into_iter().collect());
        }
        if call.api.param_with(|role| matches!(role, Role::KernelParams | Role::Extra)).is_some() {
            let kernel = self.archive.kernels().of_launch(call.record.aux());
            return Ok(kernel.map(|kernel| kernel.name.as_str()).into_iter().collect());
        }
        let mut names = Vec::new();
        for (number, param) in call.api.params.iter().enumerate() {
            let Role::Struct(layout, _) = param.role else { continue };
            let layout = &STRUCTS[usize::from(layout)];
            let Some(section) = call.record.section(SectionTag::In, number as u8) else { continue };
            for element in section.payload.chunks_exact(layout.size_bytes as usize) {
                if kernel_field(layout, element).is_some() {
                    names.extend(self.kernel_of_struct(call, layout, element)?.map(|kernel| kernel.name.as_str()));
                }
            }
        }
        Ok(names)
    }

    /// Whether `--kernel-filter` makes an empty node of this one.
    pub(crate) fn is_filtered_node(&self, call: &Call<'_>) -> Result<bool, Refusal> {
        let adds = matches!(call.api.name, "hipGraphAddKernelNode" | "hipGraphAddNode");
        let Some(filter) = self.choices.kernel_filter.as_deref().filter(|_| adds && call.succeeded()) else {
            return Ok(false);
        };
        Ok(self.kernel_names(call)?.iter().any(|name| !name.contains(filter)))
    }

    /// Whether a call is left out by `--kernel-filter`: it launches such kernels, or is about a node that was to, or about
    /// an event that only such a launch recorded.
    pub(crate) fn is_filtered(&mut self, call: &Call<'_>) -> Result<bool, Refusal> {
        let filtered = self.looks_filtered(call)?;
        if self.choices.kernel_filter.is_some() {
            let recorded: Vec<u32> = self.used(call, HandleKind::Event).collect();
            let objects = &mut self.planned.shape.objects;
            if filtered && call.api.effect == Effect::Enqueue {
                objects.extend(recorded.iter().copied());
            }
            match self.specials[usize::from(call.api.id)] {
                Special::EventRecord => recorded.iter().for_each(|event| {
                    objects.remove(event);
                }),
                Special::BeginCapture => self.captures += u32::from(call.succeeded()),
                Special::EndCapture => self.captures = self.captures.saturating_sub(u32::from(call.succeeded())),
                _ => {}
            }
        }
        Ok(filtered)
    }

    pub(crate) fn looks_filtered(&self, call: &Call<'_>) -> Result<bool, Refusal> {
        let Some(filter) = self.choices.kernel_filter.as_deref().filter(|_| call.succeeded()) else {
            return Ok(false);
        };
        if self.is_about_lost(call) {
            return Ok(true);
        }
        if call.api.effect != Effect::Enqueue && !self.is_node_call(call) {
            return Ok(false);
        }
        let names = self.kernel_names(call)?;
        let left_out = names.iter().filter(|name| !name.contains(filter)).count();
        if call.api.effect == Effect::Enqueue {
            return match left_out {
                0 => Ok(false),
                some if some == names.len() => Ok(true),
                _ => Err(Refusal::Policy(
                    "it launches several kernels at once, and --kernel-filter lets only some through",
                )),
            };
        }
        if self.is_about_listed(call) {
            // Only the runtime knows which of the two the node is.
            return Ok(false);
        }
        let is_empty = self.used(call, HandleKind::Node).any(|object| self.planned.shape.objects.contains(&object));
        match (is_empty, names.len() - left_out, left_out) {
            (true, 0, _) => Ok(true),
            (false, _, 0) => Ok(false),
            _ => Err(Refusal::Policy(
                "it gives a node another kernel, and --kernel-filter lets only one of the two through",
            )),
        }
    }

    /// Whether a call is about a node that is, or can be, a kernel's.
    pub(crate) fn is_node_call(&self, call: &Call<'_>) -> bool {
        call.api.name.contains("KernelNode") || NODE_CALLS.contains(&call.api.name)
    }

    /// Whether a call gives a node a kernel that `--kernel-filter` leaves out.
    pub(crate) fn gives_left_out_kernel(&self, call: &Call<'_>) -> Result<bool, Refusal> {
        let Some(filter) = self.choices.kernel_filter.as_deref() else { return Ok(false) };
        Ok(self.kernel_names(call)?.iter().any(|name| !name.contains(filter)))
    }

    /// Puts a replacement's function in the place of the recorded one. Returns the entry point to call, if another. All else
    /// of the launch has been laid out by then, so that what the archive withholds is still refused.
    pub(crate) fn replace_kernel(
        &mut self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        draft: &mut Draft,
    ) -> Result<Option<&'static Api>, Refusal> {
        let names_by_parameter = call.api.param_with(names_kernel).is_some() && call.api.effect == Effect::Enqueue;
        if self.replaced.is_empty() || !call.succeeded() || !names_by_parameter || self.looks_filtered(call)? {
            return Ok(None);
        }
        let names = self.kernel_names(call)?;
        let Some(position) = self.replaced.iter().position(|replaced| names.contains(&replaced.name.as_str())) else {
            return Ok(None);
        };
        let function = self.replacement_function(position, call.device)?;
        let of_function = |role: &Role| matches!(role, Role::Use(HandleKind::Function));
        if let Some(param) = call.api.param_with(of_function) {
            let word = call.api.params[param].word;
            let target = draft.words.wrapping_add(usize::from(word));
            draft.fixups.retain(|fixup| fixup.target != target);
            draft.set(word, function);
            self.planned.replaced += 1;
            return Ok(None);
        }
        if call.api.name == "hipLaunchKernelExC" {
            // hipLaunchConfig_t and HIP_LAUNCH_CONFIG lie alike: shared memory is below 4 GiB.
            let api = Api::by_name("hipDrvLaunchKernelEx").ok_or(Refusal::UnknownApi)?;
            let words = [draft.word(0), function, draft.word(2), 0];
            draft.replace_words(chunk, &words, &[(0, 0), (2, 2)], call.record.word_count());
            self.planned.replaced += 1;
            return Ok(Some(api));
        }
        let Some((_, name)) = SYMBOL_LAUNCHES.iter().find(|(by_symbol, _)| *by_symbol == call.api.name) else {
            return Err(BY_SYMBOL);
        };
        // By function handle instead of by symbol; the arguments stay where they were laid out.
        let api = Api::by_name(name).ok_or(Refusal::UnknownApi)?;
        let [grid_xy, grid_z, block_xy, block_z, params, shared, stream] =
            std::array::from_fn(|index| draft.word(1 + index as u8));
        let low = |word: u64| word & u64::from(u32::MAX);
        let block = [low(block_xy), block_xy >> 32, low(block_z)];
        let mut grid = [low(grid_xy), grid_xy >> 32, low(grid_z)];
        if call.api.name == "hipExtLaunchKernel" {
            // By function it takes work items where it takes blocks by symbol, and events and flags after `extra`.
            for (items, threads) in grid.iter_mut().zip(block) {
                *items = u32::try_from(*items * threads).map(u64::from).map_err(|_| {
                    Refusal::Policy(
                        "its kernel cannot be replaced: this launch has too many work items to be made by function",
                    )
                })?;
            }
            let events = [draft.word(8), draft.word(9), draft.word(10)];
            let words = [&[function][..], &grid, &block, &[shared, stream, params, 0], &events].concat();
            draft.replace_words(chunk, &words, &[(7, 8), (5, 9), (8, 11), (9, 12)], call.record.word_count());
        } else {
            let words = [&[function][..], &grid, &block, &[shared, stream, params, 0]].concat();
            draft.replace_words(chunk, &words, &[(7, 8), (5, 9)], call.record.word_count());
        }
        self.planned.replaced += 1;
        Ok(Some(api))
    }

    /// The replacement's function for a kernel that a struct names, if it has one: a node of a graph takes a function where
    /// it takes a host symbol, other launches do not.
    pub(crate) fn replacement_in_struct(
        &mut self,
        call: &Call<'_>,
        layout: &StructLayout,
        field: &StructField,
        element: &[u8],
    ) -> Result<Option<u64>, Refusal> {
        if self.replaced.is_empty() || !call.succeeded() || !names_kernel(&field.role) {
            return Ok(None);
        }
        let Some(kernel) = self.kernel_of_struct(call, layout, element)? else { return Ok(None) };
        let Some(position) = self.replaced.iter().position(|replaced| replaced.name == kernel.name) else {
            return Ok(None);
        };
        if call.api.effect == Effect::Enqueue && field.role == Role::KernelSymbol {
            return Err(BY_SYMBOL);
        }
        let stream = layout.fields.iter().find(|field| field.role == Role::Use(HandleKind::Stream));
        let stream = stream.map_or(0, |field| word_at(element, field.offset_bytes as usize));
        let of_stream = self.objects.handle(HandleKind::Stream, stream).and_then(|handle| handle.stream);
        let function = self.replacement_function(position, of_stream.map_or(call.device, |stream| stream.device))?;
        self.planned.replaced += 1;
        Ok(Some(function))
    }

    fn replacement_function(&mut self, position: usize, device: i32) -> Result<u64, Refusal> {
        let device = self.choices.devices.live(device);
        let replaced = &mut self.replaced[position];
        if let Some(&function) = replaced.functions.get(&device) {
            return Ok(function);
        }
        let function = self
            .runtime
            .load_function(device, &replaced.image, &replaced.name)
            .map_err(|error| Refusal::Replacement { kernel: replaced.name.clone(), reason: error.to_string() })?;
        replaced.functions.insert(device, function);
        Ok(function)
    }
}
