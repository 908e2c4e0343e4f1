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
    /// A constant times the value that a pointer parameter points to (`size_t*` and the like), read after the call;
    /// of an `inout` parameter the smaller of the values before and after, so that it never exceeds what the
    /// program made room for.
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
    /// The product of several terms.
    Terms(&'static [Term]),
    /// Chosen by the value of an enum parameter, where an attribute number decides how wide its value is.
    By {
        /// The parameter that decides.
        param: u8,
        /// Value of that parameter, then bytes.
        cases: &'static [(u32, u32)],
        /// Bytes for every other value.
        otherwise: u32,
    },
}

/// A factor of [`Size::Terms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// A constant.
    Constant(u32),
    /// The value of a parameter.
    Param(u8),
    /// One argument word of a by-value struct parameter: parameter, then word within it.
    Word(u8, u8),
    /// The integer that a pointer parameter points to, as in [`Size::Pointee`].
    Pointee {
        /// The pointer parameter.
        param: u8,
        /// Bytes of the pointed-to integer: 4 or 8.
        width: u8,
    },
    /// 1 where the integer that a pointer parameter points to has this value, 0 otherwise: a call that leaves its
    /// other results unwritten in some states is not believed then.
    PointeeIs {
        /// The pointer parameter.
        param: u8,
        /// Bytes of the pointed-to integer: 4 or 8.
        width: u8,
        /// The value.
        value: u32,
    },
    /// An integer in the struct that holds the field (in [`StructLayout::fields`] and [`Role::NewPitched`]).
    Field {
        /// Offset in bytes.
        offset_bytes: u16,
        /// Bytes of the integer: 4 or 8.
        width: u8,
    },
}

/// Where [`Size::value`] finds the numbers that a size is made of.
pub trait SizeInputs {
    /// Argument word `word` of parameter `param`, as recorded. `None` refuses the size; an implementation
    /// refuses negative values of signed parameters.
    fn word(&self, param: u8, word: u8) -> Option<u64>;
    /// The integer of `width` bytes that parameter `param` points to; `None` where it is null or was not recorded.
    fn pointee(&self, param: u8, width: u8) -> Option<u64>;
    /// The integer of `width` bytes at `offset_bytes` of the struct at hand; `None` outside a struct.
    fn field(&self, offset_bytes: u16, width: u8) -> Option<u64>;
}

impl Size {
    /// The size in bytes (or, in an array role, elements).
    ///
    /// `None` where it is [`Size::Unknown`], where an input is missing, or where it overflows.
    pub fn value(&self, inputs: &impl SizeInputs) -> Option<u64> {
        match *self {
            Size::Unknown => None,
            Size::Fixed(bytes) => Some(u64::from(bytes)),
            Size::Product { factor, params } => {
                params.iter().try_fold(u64::from(factor), |size, &param| size.checked_mul(inputs.word(param, 0)?))
            }
            Size::Pointee { factor, param, width } => inputs.pointee(param, width)?.checked_mul(u64::from(factor)),
            Size::Rect { width, height, pitch } => {
                let (width, height) = (inputs.word(width, 0)?, inputs.word(height, 0)?);
                if width == 0 || height == 0 {
                    return Some(0);
                }
                (height - 1).checked_mul(inputs.word(pitch, 0)?)?.checked_add(width)
            }
            Size::Terms(terms) => terms.iter().try_fold(1u64, |size, term| {
                // Nothing is read on behalf of a product that is zero already.
                if size == 0 {
                    return Some(0);
                }
                size.checked_mul(match *term {
                    Term::Constant(value) => u64::from(value),
                    Term::Param(param) => inputs.word(param, 0)?,
                    Term::Word(param, word) => inputs.word(param, word)?,
                    Term::Pointee { param, width } => inputs.pointee(param, width)?,
                    Term::PointeeIs { param, width, value } => {
                        u64::from(inputs.pointee(param, width)? == u64::from(value))
                    }
                    Term::Field { offset_bytes, width } => inputs.field(offset_bytes, width)?,
                })
            }),
            Size::By { param, cases, otherwise } => {
                let value = inputs.word(param, 0)?;
                let chosen = cases.iter().find(|(case, _)| u64::from(*case) == value);
                Some(u64::from(chosen.map_or(otherwise, |&(_, bytes)| bytes)))
            }
        }
    }
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
    /// Points to where the call writes the address of an array of handles that the runtime owns; the size counts handles.
    /// What is recorded are the handles, as for [`Role::GetArray`]; without a size nothing was written.
    GetArrayAt(HandleKind, Size),
    /// A device address; the size is the range that is read or written.
    Device(Access, Size),
    /// A host address whose memory is the program's own (pageable or pinned). With a size, the memory's contents
    /// take part in the call; with [`Size::Unknown`] only the address does.
    Host(Access, Size),
    /// A device or host address, told apart by the copy kind or by whose memory it is. Sizes as in [`Role::Host`].
    Any(Access, Size),
    /// Points to an array of device or host addresses: how many, and which parameter points to their sizes
    /// (`size_t` each). Host memory among them takes part with its contents, in the array's order; without a
    /// parameter of sizes only the addresses do.
    AnyArray(Access, Size, Option<u8>),
    /// Points to where the call writes the address of device memory it allocates.
    NewDevice(Size),
    /// Points to a `hipPitchedPtr` (32 bytes) that the call fills with the address and pitch of device memory it
    /// allocates; [`Term::Field`] of its size is in that struct.
    NewPitched(Size),
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
    /// Points to where the call writes a device address of memory that existed before (a device alias of pinned
    /// memory, a device variable); the size is that of the memory, where the call tells.
    GetDevice(Size),
    /// A reserved virtual address range: points to where the call writes its start.
    NewRange(Size),
    /// A reserved virtual address range that the call gives back.
    FreeRange,
    /// Points to bytes the call reads, recorded inline. The size is what every runtime reads at least; a replay pads
    /// with zeros to at least [`MIN_BUFFER_BYTES`].
    In(Size),
    /// Points to kernel argument bytes the call reads, recorded inline; device addresses among them are translated
    /// like those in by-value kernel arguments.
    ArgBytes(Size),
    /// Points to bytes the call writes, recorded inline. The size is what every runtime writes at least; a replay
    /// gives the call at least [`MIN_BUFFER_BYTES`] to write to.
    Out(Size),
    /// Points to bytes the call reads and then writes, recorded inline both times.
    InOut(Size),
    /// Points to structs of a known layout (index into [`STRUCTS`](super::STRUCTS)) the call reads; the size counts structs.
    /// Where the layout [is written](StructLayout::is_written) the call also stores results in them.
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
    /// A device ordinal (a device map applies to it); negative values name no device.
    Ordinal,
    /// A by-value `hipMemLocation`: where its kind is `hipMemLocationTypeDevice` (1) its id is a device ordinal.
    Location,
    /// A pointer with no meaning at replay (reserved, or host-only state): null is passed.
    Opaque,
}

impl Role {
    /// Whether what stands there after the call is a handle or an address that the call made or looked up: what later calls
    /// name by it is nothing without this one.
    pub fn makes(self) -> bool {
        matches!(
            self,
            Role::Create(_)
                | Role::Get(_)
                | Role::GetArray(..)
                | Role::GetArrayAt(..)
                | Role::NewDevice(_)
                | Role::NewPitched(_)
                | Role::NewHost(_)
                | Role::NewManaged(_)
                | Role::NewRange(_)
                | Role::GetDevice(_)
        )
    }
}

/// Smallest buffer in bytes that a replay hands to a call for a [`Role::In`], [`Role::Out`] or like parameter: a runtime
/// newer than the recorded one may touch more than the member that is asked for (`hipLaunchAttributeValue` of HIP 7
/// is 64 bytes; it was 32 in HIP 5).
pub const MIN_BUFFER_BYTES: usize = 64;

/// A struct a call takes by pointer, as far as replay must rewrite it.
#[derive(Debug)]
pub struct StructLayout {
    /// C name.
    pub name: &'static str,
    /// Size in bytes.
    pub size_bytes: u32,
    /// Fields that hold an address, handle or device ordinal, by ascending offset; members of a union share one.
    pub fields: &'static [StructField],
}

impl StructLayout {
    /// Whether a call that takes the struct as [`Role::Struct`] also writes fields of it.
    pub fn is_written(&self) -> bool {
        self.fields.iter().any(|field| {
            matches!(
                field.role,
                Role::Create(_) | Role::Get(_) | Role::NewDevice(_) | Role::GetDevice(_) | Role::Out(_)
            )
        })
    }
}

/// A field of a [`StructLayout`] that holds an address, a handle or a device ordinal.
#[derive(Debug)]
pub struct StructField {
    /// C name.
    pub name: &'static str,
    /// Offset in bytes.
    pub offset_bytes: u32,
    /// What the 8 bytes there (4 of an [`Role::Ordinal`]) mean. A result (create, get, new, out) is stored in the
    /// field itself; a nested [`Role::Struct`], array or `In` is pointed to by it.
    pub role: Role,
    /// The field means this only where the struct's discriminant says so.
    pub when: Option<When>,
}

/// A discriminant of a [`StructLayout`]: the `u32` at an offset has one of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// Offset of the `u32` in bytes.
    pub offset_bytes: u32,
    /// Values for which the condition holds.
    pub values: &'static [u32],
}

impl When {
    /// Whether the condition holds in the struct that `bytes` begins with; false where it is cut off.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        let at = self.offset_bytes as usize;
        bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk::<4>())
            .is_some_and(|raw| self.values.contains(&u32::from_le_bytes(*raw)))
    }
}

/// What a call does to streams and to its own thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Touches only host-side or per-thread state.
    Host,
    /// Enqueues work on its stream parameter (the default stream where it has none), or on the streams that its
    /// struct parameters hold.
    Enqueue,
    /// Waits for its stream.
    BlockStream,
    /// Waits for its event.
    BlockEvent,
    /// Waits for the device, explicitly or as a side effect (`hipFree`).
    BlockDevice,
    /// Copies or fills synchronously, on its stream parameter or, where it has none, on the default stream.
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
