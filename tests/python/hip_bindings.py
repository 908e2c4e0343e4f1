"""ROCm's own Python bindings of HIP (rocm-bindings-hip): threads with a stream each, modules from memory and from files,
kernels with both ways of passing arguments, numpy arrays as host memory, events, and memory sets.

usage: hip_bindings.py KERNEL_DIRECTORY
"""
import ctypes
import os
import sys
import threading

import numpy as np
from rocm.bindings import hip

ELEMENTS = 1000
ROUNDS = 4
THREADS = 3


def checked(result):
    """Results come as a tuple of the code and what the call returns."""
    code, *values = result if isinstance(result, tuple) else (result,)
    if code != hip.hipError_t.hipSuccess:
        raise RuntimeError(str(code))
    return values[0] if len(values) == 1 else tuple(values)


def work(number, directory, failures):
    try:
        checked(hip.hipSetDevice(0))
        stream = checked(hip.hipStreamCreate())
        begin, end = checked(hip.hipEventCreate()), checked(hip.hipEventCreate())
        if number % 2:
            module = checked(hip.hipModuleLoad(os.path.join(directory, "standard.hipfb").encode()))
        else:
            with open(os.path.join(directory, "standard.hipfb"), "rb") as file:
                module = checked(hip.hipModuleLoadData(file.read()))
        mix = checked(hip.hipModuleGetFunction(module, b"mix"))
        host = np.arange(number, number + ELEMENTS, dtype=np.uint32)
        expected, got = host.copy(), np.zeros_like(host)
        data = checked(hip.hipMallocAsync(host.nbytes, stream)) if number else checked(hip.hipMalloc(host.nbytes))
        checked(hip.hipMemcpyAsync(data, host, host.nbytes, hip.hipMemcpyKind.hipMemcpyHostToDevice, stream))
        checked(hip.hipEventRecord(begin, stream))
        for turn in range(ROUNDS):
            factor, addend = 3 + 2 * turn + number, 100 * number + turn
            block, grid = hip.dim3(x=128), hip.dim3(x=(ELEMENTS + 127) // 128)
            checked(
                hip.hipModuleLaunchKernel(
                    mix,
                    *(grid.x, 1, 1, block.x, 1, 1),
                    sharedMemBytes=0,
                    stream=stream,
                    kernelParams=None,
                    extra=(data, ctypes.c_uint32(factor), ctypes.c_uint32(addend), ctypes.c_int(ELEMENTS)),
                )
            )
            expected = expected * np.uint32(factor) + np.uint32(addend)
            checked(hip.hipMemcpyAsync(got, data, got.nbytes, hip.hipMemcpyKind.hipMemcpyDeviceToHost, stream))
            checked(hip.hipStreamSynchronize(stream))
            if not np.array_equal(got, expected):
                raise RuntimeError(f"thread {number}, round {turn}: wrong result")
        checked(hip.hipEventRecord(end, stream))
        checked(hip.hipEventSynchronize(end))
        checked(hip.hipEventElapsedTime(begin, end))
        checked(hip.hipMemset(data, 0x5A, host.nbytes))
        checked(hip.hipMemcpy(got, data, got.nbytes, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
        if not (got == 0x5A5A5A5A).all():
            raise RuntimeError(f"thread {number}: memory was not set")
        checked(hip.hipFreeAsync(data, stream) if number else hip.hipFree(data))
        checked(hip.hipStreamSynchronize(stream))
        checked(hip.hipModuleUnload(module))
        checked(hip.hipStreamDestroy(stream))
    except Exception as error:  # the main thread tells of it
        failures.append(error)


def main():
    properties = checked(hip.hipGetDeviceProperties(0))
    failures = []
    threads = [threading.Thread(target=work, args=(number, sys.argv[1], failures)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    print(f"hip_bindings: ok, {THREADS} threads on {properties.gcnArchName}")


main()
