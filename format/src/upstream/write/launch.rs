//! Records of kernel launches, and the kernels of graph nodes.

use super::{LAUNCH, Placed, WriteError, Writer};
use crate::catalogue::Api;
use crate::code_object::ArgKind;
use crate::record::{Record, SectionTag};

impl<'a> Writer<'a> {
    fn kernel_bytes(&mut self, record: &Record<'a>) -> Result<(Vec<u8>, Vec<u8>), WriteError> {
        let archive = self.archive;
        let kernel = archive.kernels().of_launch(record.aux());
        let code = self.kernel_code(record.aux().saturating_sub(1))?;
        let name = kernel.map_or("", |kernel| kernel.name.as_str());
        let mut head = (name.len().min(usize::from(u16::MAX)) as u16).to_le_bytes().to_vec();
        head.extend(&name.as_bytes()[..name.len().min(usize::from(u16::MAX))]);
        head.extend(code.lo.to_le_bytes());
        head.extend(code.hi.to_le_bytes());
        let payload = record.section_tagged(SectionTag::KernelArgs).map_or(&[][..], |section| section.payload);
        let args = kernel.and_then(|kernel| kernel.args.as_deref()).unwrap_or_default();
        let mut body = (args.len() as u16).to_le_bytes().to_vec();
        for arg in args {
            let size = arg.size as usize;
            let value = payload.get(arg.offset as usize..).and_then(|rest| rest.get(..size));
            let value = value.map_or_else(|| vec![0; size], <[u8]>::to_vec);
            let pointers = if size >= 8 { self.live.pointers(&value) } else { Vec::new() };
            let kind = match arg.kind {
                ArgKind::GlobalBuffer if size == 8 => 1,
                _ if pointers.is_empty() => 0,
                _ => 3u8,
            };
            body.push(kind);
            body.extend((size.min(usize::from(u16::MAX)) as u16).to_le_bytes());
            body.extend(&value);
            if kind == 3 {
                body.extend((pointers.len() as u16).to_le_bytes());
                body.extend(pointers.iter().flat_map(|offset| offset.to_le_bytes()));
            }
        }
        Ok((head, body))
    }

    pub(super) fn node_kernel(&mut self, record: &Record<'a>) -> Result<Vec<u8>, WriteError> {
        let (mut head, body) = self.kernel_bytes(record)?;
        head.extend(body);
        Ok(head)
    }

    pub(super) fn launch(&mut self, call: &Placed<'a>, api: &'static Api) -> Result<(), WriteError> {
        let record = call.record;
        let word = |name: &str| {
            let param = api.params.iter().find(|param| param.name == name)?;
            Some((record.word(usize::from(param.word)), record.word(usize::from(param.word) + 1)))
        };
        let one = |name: &str| word(name).map(|words| words.0 as u32);
        let cube = |name: &str| word(name).map(|(xy, z)| [xy as u32, (xy >> 32) as u32, z as u32]);
        let axes = |prefix: &str| {
            Some([one(&format!("{prefix}X"))?, one(&format!("{prefix}Y"))?, one(&format!("{prefix}Z"))?])
        };
        let config = record
            .section(SectionTag::In, 0)
            .filter(|_| api.params.first().is_some_and(|param| param.name == "config"));
        let block = cube("dimBlocks")
            .or_else(|| cube("blockDimX"))
            .filter(|_| word("gridDim").is_some() || word("numBlocks").is_some());
        let block = block.or_else(|| cube("blockDim")).or_else(|| axes("blockDim")).or_else(|| axes("localWorkSize"));
        let grid = cube("numBlocks").or_else(|| cube("gridDim")).or_else(|| axes("gridDim"));
        let grid = grid.or_else(|| {
            let (global, local) = (axes("globalWorkSize")?, axes("localWorkSize")?);
            Some([0, 1, 2].map(|axis| global[axis].div_ceil(local[axis].max(1))))
        });
        let shared = one("sharedMemBytes").or_else(|| one("sharedMem"));
        let stream = api.stream_param().map(|param| record.word(usize::from(api.params[param].word)));
        let in_config = |at: usize| {
            let bytes = config.and_then(|config| config.payload.get(at..at + 4)).unwrap_or(&[0; 4]);
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        let (grid, block, shared, stream) = match config {
            // hipLaunchConfig_t and HIP_LAUNCH_CONFIG: grid, block, shared bytes, stream.
            Some(_) => (
                [in_config(0), in_config(4), in_config(8)],
                [in_config(12), in_config(16), in_config(20)],
                in_config(24),
                u64::from(in_config(32)) | u64::from(in_config(36)) << 32,
            ),
            None => (grid.unwrap_or_default(), block.unwrap_or_default(), shared.unwrap_or(0), stream.unwrap_or(0)),
        };
        let (head, arguments) = self.kernel_bytes(&record)?;
        let mut snapshots = Vec::new();
        for section in record.sections().map_while(Result::ok).filter(|section| section.tag == SectionTag::GraphHostIn)
        {
            if let Some((address, blob)) = section.host_address().zip(section.blob()) {
                snapshots.push((address, blob, self.blob(blob)?));
            }
        }
        let mut body = stream.to_le_bytes().to_vec();
        body.extend(head);
        body.extend(grid.iter().chain(&block).flat_map(|extent| extent.to_le_bytes()));
        body.extend(shared.to_le_bytes());
        body.extend(&arguments[..2]);
        body.extend((snapshots.len() as u16).to_le_bytes());
        body.extend(&arguments[2..]);
        body.extend([0; 8]);
        for (address, blob, hash) in snapshots {
            for word in [address, 0, blob.size_bytes, hash.lo, hash.hi] {
                body.extend(word.to_le_bytes());
            }
            body.push(0);
        }
        let name = match api.name {
            name if name.contains("Cooperative") || name == "hipLaunchKernel_spt" => name,
            "hipLaunchKernelExC" | "hipDrvLaunchKernelEx" => api.name,
            _ => LAUNCH,
        };
        let id = Api::by_name(name).and_then(|api| self.layouts.of_api(api)).map_or(308, |(id, _)| id);
        self.emit(call, id, &body);
        Ok(())
    }
}
