//! Kernels that are launched in place of recorded ones, and launches that are left out.

use rustc_hash::FxHashMap;

use hrr_format::catalogue::{Api, HandleKind, Role};

use super::Planner;
use super::draft::Draft;
use super::error::Refusal;
use super::lower::Call;
use crate::choices::Replacement;
use crate::instruction::Chunk;

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
    /// The file that cannot be read.
    pub(crate) fn read(replacements: &[Replacement]) -> Result<Vec<Self>, String> {
        replacements
            .iter()
            .map(|replacement| {
                let image = std::fs::read(&replacement.path).map_err(|error| {
                    format!("--replace-kernel: cannot read {}: {error}", replacement.path.display())
                })?;
                Ok(Replaced { image, name: replacement.name.clone(), functions: FxHashMap::default() })
            })
            .collect()
    }
}

/// Words of a launch by host symbol: function, grid (2), block (2), arguments, shared memory, stream.
const SYMBOL_LAUNCHES: [&str; 4] =
    ["hipLaunchKernel", "hipLaunchKernel_spt", "hipLaunchCooperativeKernel", "hipLaunchCooperativeKernel_spt"];

impl Planner<'_> {
    /// The name of the kernel that a call launches, if it is a launch of one kernel.
    fn launched_kernel(&self, call: &Call<'_>) -> Option<&str> {
        let launches = call.api.param_with(|role| matches!(role, Role::KernelParams | Role::Extra)).is_some();
        let by_struct = ["hipLaunchKernelExC", "hipDrvLaunchKernelEx"].contains(&call.api.name);
        let kernel = self.archive.kernels().of_launch(call.record.aux())?;
        (launches || by_struct).then_some(kernel.name.as_str())
    }

    /// Whether a launch is left out by `--kernel-filter`.
    pub(crate) fn is_filtered(&self, call: &Call<'_>) -> bool {
        let Some(filter) = &self.choices.kernel_filter else { return false };
        call.succeeded() && self.launched_kernel(call).is_some_and(|name| !name.contains(filter.as_str()))
    }

    /// Puts a replacement's function in the place of the recorded one. Returns the entry point to call, if another. All else
    /// of the launch has been laid out by then, so that what the archive withholds is still refused.
    pub(crate) fn replace_kernel(
        &mut self,
        call: &Call<'_>,
        chunk: &mut Chunk,
        draft: &mut Draft,
    ) -> Result<Option<&'static Api>, Refusal> {
        if self.replaced.is_empty() || !call.succeeded() {
            return Ok(None);
        }
        let Some(name) = self.launched_kernel(call) else { return Ok(None) };
        let Some(position) = self.replaced.iter().position(|replaced| replaced.name == name) else { return Ok(None) };
        let function = self.replacement_function(position, call)?;
        let of_function = |role: &Role| matches!(role, Role::Use(HandleKind::Function));
        if let Some(param) = call.api.param_with(of_function) {
            let word = call.api.params[param].word;
            let target = draft.words.wrapping_add(usize::from(word));
            draft.fixups.retain(|fixup| fixup.target != target);
            draft.set(word, function);
            self.planned.replaced += 1;
            return Ok(None);
        }
        if !SYMBOL_LAUNCHES.contains(&call.api.name) {
            return Err(Refusal::Policy(
                "its kernel cannot be replaced: this launch names it by a host symbol in a struct",
            ));
        }
        // By function handle instead of by symbol; the arguments stay where they were laid out.
        let cooperative = call.api.name.contains("Cooperative");
        let name = if cooperative { "hipModuleLaunchCooperativeKernel" } else { "hipModuleLaunchKernel" };
        let api = Api::by_name(name).ok_or(Refusal::UnknownApi)?;
        // SAFETY: a launch by symbol has eight words.
        let words: [u64; 8] = std::array::from_fn(|index| unsafe { draft.words.add(index).read() });
        let [_, grid_xy, grid_z, block_xy, block_z, params, shared, stream] = words;
        let low = |word: u64| word & u64::from(u32::MAX);
        let by_function = [
            function,
            low(grid_xy),
            grid_xy >> 32,
            low(grid_z),
            low(block_xy),
            block_xy >> 32,
            low(block_z),
            shared,
            stream,
            params,
            0,
        ];
        draft.replace_words(chunk, &by_function, &[(7, 8), (5, 9)], words.len());
        self.planned.replaced += 1;
        Ok(Some(api))
    }

    fn replacement_function(&mut self, position: usize, call: &Call<'_>) -> Result<u64, Refusal> {
        let device = self.choices.devices.live(call.device);
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
