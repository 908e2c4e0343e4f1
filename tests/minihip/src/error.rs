//! HIP's error codes: the codes this runtime returns, and the names and texts of all of them.

use std::ffi::CStr;

/// A `hipError_t` other than `hipSuccess`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HipError(pub(crate) i32);

/// What an entry point's body returns; `Ok` is `hipSuccess`.
pub(crate) type HipResult<T = ()> = Result<T, HipError>;

macro_rules! codes {
    ($($konst:ident = $code:literal, $name:literal, $text:literal;)*) => {
        #[allow(dead_code, reason = "the table lists every code of the ABI, this runtime returns most of them")]
        impl HipError {
            $(pub(crate) const $konst: HipError = HipError($code);)*
        }
        /// Code, name and text of every `hipError_t`.
        static TABLE: &[(i32, &CStr, &CStr)] = &[
            (0, c"hipSuccess", c"no error"),
            $(($code, $name, $text),)*
        ];
    };
}

codes! {
    INVALID_VALUE = 1, c"hipErrorInvalidValue", c"invalid argument";
    OUT_OF_MEMORY = 2, c"hipErrorOutOfMemory", c"out of memory";
    NOT_INITIALIZED = 3, c"hipErrorNotInitialized", c"initialization error";
    DEINITIALIZED = 4, c"hipErrorDeinitialized", c"driver shutting down";
    PROFILER_DISABLED = 5, c"hipErrorProfilerDisabled", c"profiler disabled while using external profiling tool";
    PROFILER_NOT_INITIALIZED = 6, c"hipErrorProfilerNotInitialized", c"profiler is not initialized";
    PROFILER_STARTED = 7, c"hipErrorProfilerAlreadyStarted", c"profiler already started";
    PROFILER_STOPPED = 8, c"hipErrorProfilerAlreadyStopped", c"profiler already stopped";
    INVALID_CONFIGURATION = 9, c"hipErrorInvalidConfiguration", c"invalid configuration argument";
    INVALID_PITCH = 12, c"hipErrorInvalidPitchValue", c"invalid pitch argument";
    INVALID_SYMBOL = 13, c"hipErrorInvalidSymbol", c"invalid device symbol";
    INVALID_DEVICE_POINTER = 17, c"hipErrorInvalidDevicePointer", c"invalid device pointer";
    INVALID_DIRECTION = 21, c"hipErrorInvalidMemcpyDirection", c"invalid copy direction for memcpy";
    INSUFFICIENT_DRIVER = 35, c"hipErrorInsufficientDriver", c"driver version is insufficient for runtime version";
    MISSING_CONFIGURATION = 52, c"hipErrorMissingConfiguration", c"__global__ function call is not configured";
    PRIOR_LAUNCH_FAILURE = 53, c"hipErrorPriorLaunchFailure", c"unspecified launch failure in prior launch";
    INVALID_DEVICE_FUNCTION = 98, c"hipErrorInvalidDeviceFunction", c"invalid device function";
    NO_DEVICE = 100, c"hipErrorNoDevice", c"no ROCm-capable device is detected";
    INVALID_DEVICE = 101, c"hipErrorInvalidDevice", c"invalid device ordinal";
    INVALID_IMAGE = 200, c"hipErrorInvalidImage", c"device kernel image is invalid";
    INVALID_CONTEXT = 201, c"hipErrorInvalidContext", c"invalid device context";
    CONTEXT_ALREADY_CURRENT = 202, c"hipErrorContextAlreadyCurrent", c"context is already current context";
    MAP_FAILED = 205, c"hipErrorMapFailed", c"mapping of buffer object failed";
    UNMAP_FAILED = 206, c"hipErrorUnmapFailed", c"unmapping of buffer object failed";
    ARRAY_IS_MAPPED = 207, c"hipErrorArrayIsMapped", c"array is mapped";
    ALREADY_MAPPED = 208, c"hipErrorAlreadyMapped", c"resource already mapped";
    NO_BINARY_FOR_GPU = 209, c"hipErrorNoBinaryForGpu", c"no kernel image is available for execution on the device";
    ALREADY_ACQUIRED = 210, c"hipErrorAlreadyAcquired", c"resource already acquired";
    NOT_MAPPED = 211, c"hipErrorNotMapped", c"resource not mapped";
    NOT_MAPPED_AS_ARRAY = 212, c"hipErrorNotMappedAsArray", c"resource not mapped as array";
    NOT_MAPPED_AS_POINTER = 213, c"hipErrorNotMappedAsPointer", c"resource not mapped as pointer";
    ECC = 214, c"hipErrorECCNotCorrectable", c"uncorrectable ECC error encountered";
    UNSUPPORTED_LIMIT = 215, c"hipErrorUnsupportedLimit", c"limit is not supported on device";
    CONTEXT_IN_USE = 216, c"hipErrorContextAlreadyInUse", c"exclusive-thread device already in use by a different thread";
    PEER_UNSUPPORTED = 217, c"hipErrorPeerAccessUnsupported", c"peer access is not supported between these two devices";
    INVALID_KERNEL_FILE = 218, c"hipErrorInvalidKernelFile", c"invalid kernel file";
    INVALID_GRAPHICS = 219, c"hipErrorInvalidGraphicsContext", c"invalid OpenGL or DirectX context";
    INVALID_SOURCE = 300, c"hipErrorInvalidSource", c"device kernel image is invalid";
    FILE_NOT_FOUND = 301, c"hipErrorFileNotFound", c"file not found";
    SHARED_SYMBOL_NOT_FOUND = 302, c"hipErrorSharedObjectSymbolNotFound", c"shared object symbol not found";
    SHARED_INIT_FAILED = 303, c"hipErrorSharedObjectInitFailed", c"shared object initialization failed";
    OPERATING_SYSTEM = 304, c"hipErrorOperatingSystem", c"OS call failed or operation not supported on this OS";
    INVALID_HANDLE = 400, c"hipErrorInvalidHandle", c"invalid resource handle";
    ILLEGAL_STATE = 401, c"hipErrorIllegalState", c"the operation cannot be performed in the present state";
    NOT_FOUND = 500, c"hipErrorNotFound", c"named symbol not found";
    NOT_READY = 600, c"hipErrorNotReady", c"device not ready";
    ILLEGAL_ADDRESS = 700, c"hipErrorIllegalAddress", c"an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, c"hipErrorLaunchOutOfResources", c"too many resources requested for launch";
    LAUNCH_TIMEOUT = 702, c"hipErrorLaunchTimeOut", c"the launch timed out and was terminated";
    PEER_ALREADY_ENABLED = 704, c"hipErrorPeerAccessAlreadyEnabled", c"peer access is already enabled";
    PEER_NOT_ENABLED = 705, c"hipErrorPeerAccessNotEnabled", c"peer access has not been enabled";
    SET_ON_ACTIVE = 708, c"hipErrorSetOnActiveProcess", c"cannot set while device is active in this process";
    CONTEXT_DESTROYED = 709, c"hipErrorContextIsDestroyed", c"context is destroyed";
    ASSERT = 710, c"hipErrorAssert", c"device-side assert triggered";
    HOST_ALREADY_REGISTERED = 712, c"hipErrorHostMemoryAlreadyRegistered", c"part or all of the requested memory range is already mapped";
    HOST_NOT_REGISTERED = 713, c"hipErrorHostMemoryNotRegistered", c"pointer does not correspond to a registered memory region";
    LAUNCH_FAILURE = 719, c"hipErrorLaunchFailure", c"unspecified launch failure";
    COOPERATIVE_TOO_LARGE = 720, c"hipErrorCooperativeLaunchTooLarge", c"too many blocks in cooperative launch";
    NOT_SUPPORTED = 801, c"hipErrorNotSupported", c"operation not supported";
    CAPTURE_UNSUPPORTED = 900, c"hipErrorStreamCaptureUnsupported", c"operation not permitted when stream is capturing";
    CAPTURE_INVALIDATED = 901, c"hipErrorStreamCaptureInvalidated", c"operation failed due to a previous error during capture";
    CAPTURE_MERGE = 902, c"hipErrorStreamCaptureMerge", c"operation would result in a merge of separate capture sequences";
    CAPTURE_UNMATCHED = 903, c"hipErrorStreamCaptureUnmatched", c"capture was not ended in the same stream as it began";
    CAPTURE_UNJOINED = 904, c"hipErrorStreamCaptureUnjoined", c"capturing stream has unjoined work";
    CAPTURE_ISOLATION = 905, c"hipErrorStreamCaptureIsolation", c"dependency created on uncaptured work in another stream";
    CAPTURE_IMPLICIT = 906, c"hipErrorStreamCaptureImplicit", c"operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, c"hipErrorCapturedEvent", c"operation not permitted on an event last recorded in a capturing stream";
    CAPTURE_WRONG_THREAD = 908, c"hipErrorStreamCaptureWrongThread", c"attempt to terminate a thread-local capture sequence from another thread";
    GRAPH_UPDATE_FAILURE = 910, c"hipErrorGraphExecUpdateFailure", c"the graph update was not performed because it included changes which violated constraints specific to instantiated graph update";
    INVALID_CHANNEL = 911, c"hipErrorInvalidChannelDescriptor", c"invalid channel descriptor";
    INVALID_TEXTURE = 912, c"hipErrorInvalidTexture", c"invalid texture";
    UNKNOWN = 999, c"hipErrorUnknown", c"unknown error";
    RUNTIME_MEMORY = 1052, c"hipErrorRuntimeMemory", c"runtime memory call returned error";
    RUNTIME_OTHER = 1053, c"hipErrorRuntimeOther", c"runtime call other than memory returned error";
    TBD = 1054, c"hipErrorTbd", c"unknown error";
}

/// The `hipError...` spelling of `code`, or `None` for a number HIP does not define.
pub(crate) fn name_of(code: i32) -> Option<&'static CStr> {
    TABLE.iter().find(|row| row.0 == code).map(|row| row.1)
}

/// The description of `code`, or `None` for a number HIP does not define.
pub(crate) fn text_of(code: i32) -> Option<&'static CStr> {
    TABLE.iter().find(|row| row.0 == code).map(|row| row.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_named() {
        for (i, row) in TABLE.iter().enumerate() {
            assert!(TABLE[..i].iter().all(|other| other.0 != row.0 && other.1 != row.1), "{row:?}");
        }
        assert_eq!(name_of(600), Some(c"hipErrorNotReady"));
        assert_eq!(text_of(12345), None);
    }
}
