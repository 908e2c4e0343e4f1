//! What a parameter means, what a call does, and what replay does with it: the vocabulary of
//! `catalogue/roles.tsv`.

/// The kinds of object a HIP handle can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum HandleKind {
    /// `hipStream_t`.
    Stream,
    /// `hipEvent_t`.
    Event,
    /// `hipModule_t`.
    Module,
    /// `hipFunction_t`.
    Function,
    /// `hipGraph_t`.
    Graph,
    /// `hipGraphNode_t`.
    Node,
    /// `hipGraphExec_t`.
    Exec,
    /// `hipArray_t`.
    Array,
    /// `hipMipmappedArray_t`.
    Mipmap,
    /// `hipMemPool_t`.
    Pool,
    /// `hipCtx_t`.
    Ctx,
    /// `hipLibrary_t`.
    Library,
    /// `hipKernel_t`.
    Kernel,
    /// `hipLinkState_t`.
    Link,
    /// `hipTextureObject_t`.
    Texture,
    /// `hipSurfaceObject_t`.
    Surface,
    /// `textureReference*`.
    TexRef,
    /// `hipMemGenericAllocationHandle_t`.
    MemHandle,
    /// `hipUserObject_t`.
    UserObject,
    /// The `void**` that `__hipRegisterFatBinary` returns.
    FatBinary,
    /// `hipExternalMemory_t`.
    ExternalMemory,
    /// `hipExternalSemaphore_t`.
    ExternalSemaphore,
    /// `hipGraphicsResource_t`.
    GraphicsResource,
    /// `hipExecutionCtx_t`.
    ExecutionCtx,
    /// `hipDevResourceDesc_t`.
    ResourceDesc,
}

/// Direction of a memory access, seen from the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The call, or the work it enqueues, reads the memory.
    Read,
    /// It writes the memory.
    Write,
    /// It may do both.
    ReadWrite,
}

impl Access {
    /// Whether the access reads.
    pub fn reads(self) -> bool {
        matches!(self, Access::Read | Access::ReadWrite)
    }
    /// Whether the access writes.
    pub fn writes(self) -> bool {
        matches!(self, Access::Write | Access::ReadWrite)
    }
}

/// How many bytes (or, in an array role, elements) a pointer parameter covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Not expressible in the table: an address only, or a shape that code handles by API.
    Unknown,
    /// A constant.
    Fixed(u32),
    /// A constant times the values of one or more parameters (indices into the parameter list).
    Product {
        /// Constant factor.
        factor: u32,
        /// Parameters whose values are multiplied.
        params: &'static [u8],
    },
    /// A constant times the value that a pointer parameter points to (`size_t*` and the like), read after the call.
    Pointee {
        /// Constant factor.
        factor: u32,
        /// The pointer parameter.
        param: u8,
        /// Bytes of the pointed-to integer: 4 or 8.
        width: u8,
    },
    /// A rectangle: `width` bytes in each of `height` rows, `pitch` bytes apart (parameter indices).
    Rect {
        /// Row length in bytes.
        width: u8,
        /// Number of rows.
        height: u8,
        /// Distance between row starts in bytes.
        pitch: u8,
    },
}

/// What one parameter means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// A plain value.
    Scalar,
    /// A handle the call uses.
    Use(HandleKind),
    /// A handle the call ends.
    Destroy(HandleKind),
    /// Points to where the call writes a handle it creates.
    Create(HandleKind),
    /// Points to where the call writes a handle that existed before.
    Get(HandleKind),
    /// Points to an array of handles the call reads; the size counts handles.
    UseArray(HandleKind, Size),
    /// Points to an array that the call fills with handles; the size counts handles.
    GetArray(HandleKind, Size),
    /// A device address.
    Device(Access, Size),
    /// A host address whose memory is the program's own (pageable or pinned).
    Host(Access, Size),
    /// A device or host address, told apart by the copy kind or by whose memory it is.
    Any(Access, Size),
    /// Points to where the call writes the address of device memory it allocates.
    NewDevice(Size),
    /// Points to where the call writes the address of pinned host memory it allocates.
    NewHost(Size),
    /// Points to where the call writes the address of managed memory it allocates.
    NewManaged(Size),
    /// A host range the call pins.
    Pin(Size),
    /// A pinned host range the call unpins.
    Unpin,
    /// Device memory the call frees.
    FreeDevice,
    /// Pinned host memory the call frees.
    FreeHost,
    /// Points to where the call writes a device address of memory that existed before.
    GetDevice,
    /// A reserved virtual address range: points to where the call writes its start.
    NewRange(Size),
    /// A reserved virtual address range that the call gives back.
    FreeRange,
    /// Points to bytes the call reads, recorded inline.
    In(Size),
    /// Points to bytes the call writes, recorded inline.
    Out(Size),
    /// Points to bytes the call reads and then writes, recorded inline both times.
    InOut(Size),
    /// Points to structs of a known layout (index into [`STRUCTS`](super::STRUCTS)) the call reads; the size counts structs.
    Struct(u16, Size),
    /// Points to structs of a known layout the call fills.
    OutStruct(u16, Size),
    /// A C string the call reads, recorded whole.
    CString,
    /// A host function symbol standing for a kernel.
    KernelSymbol,
    /// The address of a host variable standing for a device variable.
    VarSymbol,
    /// The `void** kernelParams` array of a launch.
    KernelParams,
    /// The `void** extra` array of a launch.
    Extra,
    /// A code object, fat binary or linker input image in host memory.
    Image,
    /// A host callback.
    Callback,
    /// The cookie a callback is given.
    UserData,
    /// A pointer with no meaning at replay (reserved, or host-only state).
    Opaque,
}

/// A struct a call takes by pointer, as far as replay must rewrite it.
#[derive(Debug)]
pub struct StructLayout {
    /// C name.
    pub name: &'static str,
    /// Size in bytes.
    pub size_bytes: u32,
    /// Fields that hold an address or handle, by ascending offset.
    pub fields: &'static [StructField],
}

/// A field of a [`StructLayout`] that holds an address or a handle.
#[derive(Debug)]
pub struct StructField {
    /// C name.
    pub name: &'static str,
    /// Offset in bytes.
    pub offset_bytes: u32,
    /// What the 8 bytes there mean.
    pub role: Role,
}

/// What a call does to streams and to its own thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Touches only host-side or per-thread state.
    Host,
    /// Enqueues work on its stream parameter (the default stream where it has none).
    Enqueue,
    /// Waits for its stream.
    BlockStream,
    /// Waits for its event.
    BlockEvent,
    /// Waits for the device, explicitly or as a side effect (`hipFree`).
    BlockDevice,
    /// Copies or fills synchronously, on the default stream.
    BlockCopy,
    /// Asks whether work is done, without waiting.
    Query,
}

/// What replay does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Reissues it.
    Replay,
    /// Issues an equivalent call, for the reason given.
    ReplayAs(&'static str),
    /// Does nothing, because it has no effect on device, memory, handles or later calls.
    Skip(&'static str),
    /// Stops the replay by name, for the reason given.
    Refuse(&'static str),
}
