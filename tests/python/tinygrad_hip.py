"""tinygrad's own HIP device, allocator and program, with a compiled kernel in place of its compiler's: libamdhip64 through
ctypes, as tinygrad's runtime does it. Wants ROCM_PATH/lib/libamdhip64.so.

usage: tinygrad_hip.py KERNEL_DIRECTORY
"""
import os
import sys

import numpy as np
from tinygrad.device import BufferSpec
from tinygrad.runtime.ops_hip import HIPAllocator, HIPDevice, HIPProgram

ELEMENTS = 1024


class Compiled:
    """What HIPProgram wants of tinygrad's compiled kernels."""

    name, signature = "vector_add", ()

    def __init__(self, path):
        with open(path, "rb") as file:
            self.lib = file.read()


def main():
    device = HIPDevice("HIP:0")
    allocator = HIPAllocator(device)
    program = HIPProgram(device, Compiled(os.path.join(sys.argv[1], "standard.hipfb")))
    a = np.arange(ELEMENTS, dtype=np.float32)
    b = np.full(ELEMENTS, 0.5, dtype=np.float32)
    buffers = [allocator.alloc(a.nbytes, BufferSpec()) for _ in range(3)]
    for buffer, values in zip(buffers, (a, b)):
        allocator._copyin(buffer, memoryview(values).cast("B"))
    # The last argument, a count, travels like a buffer's address: eight bytes, of which the kernel reads four.
    program(*buffers, ELEMENTS, global_size=(ELEMENTS // 128, 1, 1), local_size=(128, 1, 1), wait=True)
    device.synchronize()
    result = np.zeros(ELEMENTS, dtype=np.float32)
    allocator._copyout(memoryview(result).cast("B"), buffers[2])
    if not np.array_equal(result, a + b):
        raise RuntimeError(f"wrong result: {result[:4]}")
    print("tinygrad_hip: ok on", device.arch)


main()
