//! minihip: a HIP runtime for machines without an AMD GPU.
//!
//! It stands in for the *device* in tests and measurements: linked to a shared object with HIP's symbol
//! names and versions, it runs the same programs. What a recorder or a replayer could get wrong is real
//! here: one queue thread per stream, legacy and per-thread default stream rules, pinned against pageable
//! memory, handle and address reuse, stream capture and graphs, kernels as compiled code.
//!
//! | idea | modules |
//! |---|---|
//! | the C ABI: entry points, out-parameters, errors, versions | [`api`], [`abi`], [`error`], [`exports`], [`dispatch`] |
//! | per-process and per-thread state | [`config`], [`device`], [`thread_state`], [`registry`] |
//! | asynchrony | [`progress`], [`stream`], [`queue`], [`op`], [`event`] |
//! | memory | [`heap`], [`memory`], [`alias`], [`copy`], [`fill`], [`pool`], [`vmm`] |
//! | code | [`bundle`], [`module`], [`fat_binary`], [`kernel`], [`fiber`], [`launch`] |
//! | NVIDIA GPUs instead of the CPU | [`cuda`] |
//! | images | [`mod@array`], [`mipmap`], [`texture`], [`texture_reference`] |
//! | graphs | [`graph`], [`graph_exec`], [`capture`], [`user_object`] |

mod abi;
mod alias;
mod api;
mod array;
mod bundle;
mod capture;
mod config;
mod copy;
mod cuda;
mod device;
mod dispatch;
mod error;
mod event;
mod execution_context;
mod exports;
mod external;
mod fat_binary;
mod fiber;
mod fill;
mod graph;
mod graph_exec;
mod heap;
mod kernel;
mod launch;
mod link;
mod memory;
mod mipmap;
mod module;
mod op;
mod pool;
mod progress;
mod properties;
mod queue;
mod refusal;
mod registry;
mod slow;
mod stream;
mod texture;
mod texture_reference;
mod thread_state;
mod user_object;
mod vmm;
