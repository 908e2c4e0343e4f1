"""The cases: programs as upstream records them, with the results that the device must produce."""

import os
import struct

from archive import Archive, NONE, WITHHELD, argument, f32, i32, images, pointer, put, u32

BUFFER, OTHER, PINNED = 0x7F10_0000_0000, 0x7F10_0010_0000, 0x7E00_0000_0000
HOST = 0x5555_0000_0000
STREAM, SECOND_STREAM, EVENT, MODULE = 0x5600_0000_1000, 0x5600_0000_2000, 0x5600_0000_3000, 0x5600_0000_4000
GRAPH, EXEC = 0x5600_0000_5000, 0x5600_0000_6000
H2D, D2H, D2D = 1, 2, 3
CASES = {}


class Bundles:
    """The test kernels: whole bundles, and the AMD GPU image in each."""

    def __init__(self, folder):
        self.folder = folder

    def __getitem__(self, name):
        with open(os.path.join(self.folder, name + ".hipfb"), "rb") as bundle:
            return bundle.read()

    def amdgcn(self, name):
        return next(image for entry, image in images(self[name]).items() if "amdgcn" in entry)


def case(function):
    CASES[function.__name__] = function
    return function


def words(values):
    return struct.pack("<%dI" % len(values), *[value & 0xFFFFFFFF for value in values])


def iota(first, count):
    return [(first + position) & 0xFFFFFFFF for position in range(count)]


def mix(values, factor, addend):
    return [(value * factor + addend) & 0xFFFFFFFF for value in values]


def passes(checks, **more):
    return {"exit": 0, "checks": checks, **more}


def refuses(*texts, **more):
    return {"exit": 1, "texts": list(texts), **more}


class Program(Archive):
    """What the cases have in common."""

    def start(self, bundles, name="standard"):
        self.code_hash = self.code_object(bundles[name])
        self.call("hipModuleLoad", module_=MODULE, S_co_hash_lo=self.code_hash[0], S_co_hash_hi=self.code_hash[1], S_module_id=0)
        return self

    def malloc(self, address, size):
        self.call("hipMalloc", ptr_=address, size=size)

    def upload(self, address, values, host=HOST):
        data = words(values)
        low, high = self.blob(data)
        self.call("hipMemcpy", dst=address, src=host, sizeBytes=len(data), kind=H2D, S_blob_hash_lo=low, S_blob_hash_hi=high)

    def check(self, address, values, host=HOST):
        data = words(values)
        low, high = self.blob(data)
        self.call("hipMemcpy", dst=host, src=address, sizeBytes=len(data), kind=D2H, S_blob_hash_lo=low, S_blob_hash_hi=high)

    def mix(self, address, factor, addend, count, stream=0, **more):
        self.launch("mix", stream, more.pop("code", self.code_hash), ((count + 63) // 64, 1, 1), (64, 1, 1),
                    [pointer(address), u32(factor), u32(addend), i32(count)], **more)

    def iota(self, address, first, count, stream=0, **more):
        self.launch("iota", stream, more.pop("code", self.code_hash), ((count + 63) // 64, 1, 1), (64, 1, 1),
                    [pointer(address), u32(first), i32(count)], **more)


def linear(path, bundles, version):
    a = Program(path, version).start(bundles)
    a.malloc(BUFFER, 4096)
    a.malloc(OTHER, 4096)
    a.call("hipStreamCreateWithFlags", stream_=STREAM, flags=1)
    data = iota(5, 1024)
    a.upload(BUFFER, data)
    a.mix(BUFFER, 3, 7, 1024)
    a.check(BUFFER, mix(data, 3, 7))
    # An address inside an allocation, and one end of a copy between devices.
    a.mix(BUFFER + 2048, 5, 1, 512)
    values = mix(data, 3, 7)
    values[512:] = mix(values[512:], 5, 1)
    a.call("hipMemcpy", dst=OTHER, src=BUFFER, sizeBytes=4096, kind=D2D)
    a.check(OTHER, values)
    a.call("hipMemsetAsync", dst=OTHER, value=-1, sizeBytes=1024, stream=STREAM)
    low, high = a.blob(words([0xFFFFFFFF] * 256 + values[256:]))
    a.call("hipMemcpyAsync", dst=HOST, src=OTHER, sizeBytes=4096, kind=D2H, stream=STREAM, S_blob_hash_lo=low, S_blob_hash_hi=high)
    a.call("hipStreamSynchronize", stream=STREAM)
    # A result that the program never waited for: the recorder did.
    a.iota(OTHER, 9, 1024, STREAM)
    low, high = a.blob(words(iota(9, 1024)))
    a.call("hipMemcpyDtoHAsync", dst=HOST, src=OTHER, sizeBytes=4096, stream=STREAM, S_blob_hash_lo=low, S_blob_hash_hi=high)
    a.call("hipFree", ptr=BUFFER)
    a.write()
    return passes(4, info=["format %d" % version])


for known in (5, 6, 7, 8):
    CASES["linear_v%d" % known] = lambda path, bundles, version=known: linear(path, bundles, version)


def fat_binary(path, bundles, entries, version=7):
    a = Program(path, version, entries=entries)
    fat = bundles["standard"]
    a.code_hash = a.code_object(bundles.amdgcn("standard"))
    handle, symbol = 0x5500_0000_1000, 0x5500_0000_2000
    low, high = a.blob(fat)
    a.call("__hipRegisterFatBinary", S_ret=handle, S_blob_hash_lo=low, S_blob_hash_hi=high, S_blob_size=len(fat))
    a.call("__hipRegisterFunction", modules=handle, hostFunction=symbol, deviceFunction=1, deviceName=2, threadLimit=-1)
    a.malloc(BUFFER, 4096)
    a.call("__hipPushCallConfiguration", gridDim__x=16, gridDim__y=1, gridDim__z=1, blockDim__x=64, blockDim__y=1, blockDim__z=1)
    a.call("__hipPopCallConfiguration", gridDim=1, blockDim=2, sharedMem=3, stream_=4)
    a.iota(BUFFER, 100, 1024)
    a.mix(BUFFER, 7, 3, 1024)
    a.check(BUFFER, mix(iota(100, 1024), 7, 3))
    a.call("__hipUnregisterFatBinary", modules=handle)
    a.write()
    return passes(1, info=["__hipRegisterFatBinary is event %d" % (entries + 2)])


for known in (544, 545, 546, 547):
    CASES["fat_binary_%d" % known] = lambda path, bundles, entries=known: fat_binary(path, bundles, entries)


@case
def threads(path, bundles):
    """Four threads work on one buffer in turn, each on a stream of its own: any other order gives other numbers."""
    a = Program(path, 7).start(bundles)
    a.shuffle = True
    a.malloc(BUFFER, 4096)
    values = iota(1, 1024)
    a.upload(BUFFER, values)
    for thread in range(4):
        a.thread = 101 + thread
        a.call("hipSetDevice", deviceId=0)
        a.call("hipStreamCreateWithFlags", stream_=STREAM + thread * 64, flags=1)
    checks = 0
    for step in range(24):
        thread = step * 7 % 4
        a.thread = 101 + thread
        factor, addend = 3 + 2 * step, 11 * step + 1
        values = mix(values, factor, addend)
        a.mix(BUFFER, factor, addend, 1024, STREAM + thread * 64)
        if step % 5 == 4:
            data = words(values)
            low, high = a.blob(data)
            a.call("hipMemcpyAsync", dst=HOST, src=BUFFER, sizeBytes=len(data), kind=D2H, stream=STREAM + thread * 64,
                   S_blob_hash_lo=low, S_blob_hash_hi=high)
            checks += 1
        a.call("hipGetDevice", deviceId=77)
        a.call("hipStreamSynchronize", stream=STREAM + thread * 64)
    a.thread = 100
    a.check(BUFFER, values)
    a.write()
    return passes(checks + 1)


@case
def torn(path, bundles):
    """Killed in the middle of a record: what came before is replayed."""
    a = Program(path, 7).start(bundles)
    a.malloc(BUFFER, 4096)
    a.iota(BUFFER, 3, 1024)
    a.check(BUFFER, iota(3, 1024))
    a.trailer, a.tail = False, b"\xd7\0" + bytes(40)
    a.write()
    put(os.path.join(a.path, "writer_state.json"),
        b'{"next_seq": 5, "event_count": 4, "blob_count": 2, "events_file_size": 999}')
    return passes(1, info=["cut off at byte", "no trailer", "left its state behind"])
