"""Triton's own HIP driver, which it compiles from backends/amd/driver.c, with a compiled kernel in place of its compiler's: it loads
libamdhip64 itself, and asks hipGetProcAddress for what it calls. Wants ROCM_PATH/lib/libamdhip64.so, a C compiler and Python's headers.

usage: triton_hip.py KERNEL_DIRECTORY
"""
import ctypes
import os
import sys
import tempfile

cache = tempfile.TemporaryDirectory()
library = os.path.join(os.environ["ROCM_PATH"], "lib", "libamdhip64.so")
# Before Triton is imported: it reads them then.
os.environ.update(TRITON_CACHE_DIR=cache.name, TRITON_LIBHIP_PATH=library)

import numpy as np
from triton.backends.amd import driver

ELEMENTS = 1024
BLOCK = 128
TO_DEVICE, TO_HOST = 1, 2


def main():
    utils = driver.HIPUtils()
    properties = utils.get_device_properties(0)
    warp_size = properties["warpSize"]
    with open(os.path.join(sys.argv[1], "standard.hipfb"), "rb") as file:
        image = file.read()
    module, function, _, _, _ = utils.load_binary("vector_add", image, 0, 0)
    # Memory comes from PyTorch otherwise.
    hip = ctypes.CDLL(library)

    def check(status):
        if status != 0:
            raise RuntimeError(f"HIP error {status}")

    def allocate(size):
        place = ctypes.c_void_p()
        check(hip.hipMalloc(ctypes.byref(place), ctypes.c_size_t(size)))
        return place

    def copy(to, origin, size, kind):
        check(hip.hipMemcpy(ctypes.c_void_p(to), ctypes.c_void_p(origin), ctypes.c_size_t(size), kind))

    a = np.arange(ELEMENTS, dtype=np.float32)
    b = np.full(ELEMENTS, 0.5, dtype=np.float32)
    result = np.zeros(ELEMENTS, dtype=np.float32)
    places = [allocate(a.nbytes) for _ in range(3)]
    for place, values in zip(places, (a, b)):
        copy(place.value, values.ctypes.data, a.nbytes, TO_DEVICE)
    signature = utils.build_signature_metadata(["*fp32", "*fp32", "*fp32", "i32"])
    annotations = driver.annotate_arguments(["*fp32", "*fp32", "*fp32", "i32"])
    arguments = (*(place.value for place in places), ELEMENTS)
    # As Triton's HIPLauncher calls it: no cooperation, the grid, stream, function, no scratch memory, (warps, CTAs, shared bytes), no hooks.
    shape = (BLOCK // warp_size, 1, 0)
    utils.launch(False, ELEMENTS // BLOCK, 1, 1, 0, function, None, None, shape, None, None, None, warp_size, annotations, signature,
                 arguments)
    copy(result.ctypes.data, places[2].value, a.nbytes, TO_HOST)
    if not np.array_equal(result, a + b):
        raise RuntimeError(f"wrong result: {result[:4]}")
    for place in places:
        check(hip.hipFree(place))
    utils.unload_module(module)
    print("triton_hip: ok on", properties["arch"])


main()
