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


def graph(path, bundles, version):
    """A captured copy from host memory, two kernels and a copy back; launched twice."""
    a = Program(path, version).start(bundles)
    a.malloc(BUFFER, 4096)
    a.call("hipStreamCreateWithFlags", stream_=STREAM, flags=1)
    a.call("hipStreamCreateWithFlags", stream_=SECOND_STREAM, flags=1)
    a.call("hipEventCreateWithFlags", event_=EVENT, flags=2)
    a.call("hipStreamBeginCapture", stream=STREAM, mode=0)
    data = iota(40, 1024)
    low, high = a.blob(words(data))
    a.call("hipMemcpyAsync", dst=BUFFER, src=HOST, sizeBytes=4096, kind=H2D, stream=STREAM, S_blob_hash_lo=low, S_blob_hash_hi=high)
    a.mix(BUFFER, 3, 1, 1024, STREAM)
    # The second stream joins through an event.
    a.call("hipEventRecord", event=EVENT, stream=STREAM)
    a.call("hipStreamWaitEvent", stream=SECOND_STREAM, event=EVENT)
    a.mix(BUFFER, 5, 2, 1024, SECOND_STREAM)
    a.call("hipEventRecord", event=EVENT, stream=SECOND_STREAM)
    a.call("hipStreamWaitEvent", stream=STREAM, event=EVENT)
    a.call("hipStreamEndCapture", stream=STREAM, pGraph_=GRAPH)
    a.call("hipGraphInstantiate", pGraphExec_=EXEC, graph=GRAPH)
    once = mix(mix(data, 3, 1), 5, 2)
    for _ in range(2):
        a.call("hipGraphLaunch", graphExec=EXEC, stream=STREAM)
        a.call("hipStreamSynchronize", stream=STREAM)
        a.check(BUFFER, once)
        a.iota(BUFFER, 0, 1024)
        a.call("hipDeviceSynchronize")
    a.call("hipGraphExecDestroy", graphExec=EXEC)
    a.call("hipGraphDestroy", graph=GRAPH)
    a.write()
    return passes(2)


for known in (5, 7, 8):
    CASES["graph_v%d" % known] = lambda path, bundles, version=known: graph(path, bundles, version)


def node_params(grid, block, shared=0):
    """hipKernelNodeParams."""
    return struct.pack("<3IxxxxQQ3IxxxxQIxxxx", *block, 0, 0xDEAD, *grid, 0xBEEF, shared)


@case
def graph_nodes(path, bundles):
    a = Program(path, 7).start(bundles)
    a.malloc(BUFFER, 4096)
    a.malloc(OTHER, 4096)
    a.call("hipGraphCreate", pGraph_=GRAPH, flags=0)
    first, second, third = GRAPH + 0x100, GRAPH + 0x200, GRAPH + 0x300
    a.node("hipGraphAddKernelNode", "iota", a.code_hash, [pointer(BUFFER), u32(7), i32(1024)], pGraphNode_=first, graph=GRAPH,
           pNodeParams=1, pNodeParams__bytes=node_params((16, 1, 1), (64, 1, 1)), pNodeParams__present=1)
    a.node("hipGraphAddKernelNode", "mix", a.code_hash, [pointer(BUFFER), u32(9), u32(4), i32(1024)], pGraphNode_=second,
           graph=GRAPH, pDependencies=1, numDependencies=1, pNodeParams=1, pDependencies__bytes=struct.pack("<Q", first),
           pDependencies__present=1, pDependencies__count=1, pNodeParams__bytes=node_params((16, 1, 1), (64, 1, 1)),
           pNodeParams__present=1)
    a.call("hipGraphAddMemcpyNode1D", pGraphNode_=third, graph=GRAPH, pDependencies=1, numDependencies=1, dst=OTHER, src=BUFFER,
           count=4096, kind=D2D, pDependencies__bytes=struct.pack("<Q", second), pDependencies__present=1, pDependencies__count=1)
    a.call("hipGraphInstantiateWithFlags", pGraphExec_=EXEC, graph=GRAPH, flags=0)
    a.node("hipGraphExecKernelNodeSetParams", "mix", a.code_hash, [pointer(BUFFER), u32(11), u32(5), i32(1024)], hGraphExec=EXEC,
           node=second, pNodeParams=1, pNodeParams__bytes=node_params((16, 1, 1), (64, 1, 1)), pNodeParams__present=1)
    a.call("hipGraphLaunch", graphExec=EXEC, stream=0)
    a.check(OTHER, mix(iota(7, 1024), 11, 5))
    a.write()
    return passes(1)


@case
def graph_host_node(path, bundles):
    """A node copies from host memory, which upstream does not record: the launch is refused, not run on zeros."""
    a = Program(path, 7).start(bundles)
    a.malloc(BUFFER, 4096)
    a.call("hipGraphCreate", pGraph_=GRAPH, flags=0)
    a.call("hipGraphAddMemcpyNode1D", pGraphNode_=GRAPH + 16, graph=GRAPH, dst=BUFFER, src=HOST, count=4096, kind=H2D)
    a.call("hipGraphInstantiateWithFlags", pGraphExec_=EXEC, graph=GRAPH, flags=0)
    a.call("hipGraphLaunch", graphExec=EXEC, stream=0)
    a.write()
    return refuses("hipGraphLaunch", "reads 4096 bytes of host memory")


@case
def graph_node_made_to_read_the_host(path, bundles):
    """A node that copies between devices is told to copy from the host before the graph is instantiated."""
    a = Program(path, 7).start(bundles)
    a.malloc(BUFFER, 4096)
    a.malloc(OTHER, 4096)
    a.call("hipGraphCreate", pGraph_=GRAPH, flags=0)
    a.call("hipGraphAddMemcpyNode1D", pGraphNode_=GRAPH + 16, graph=GRAPH, dst=BUFFER, src=OTHER, count=4096, kind=D2D)
    a.call("hipGraphMemcpyNodeSetParams1D", node=GRAPH + 16, dst=BUFFER, src=HOST, count=2048, kind=H2D)
    a.call("hipGraphInstantiateWithFlags", pGraphExec_=EXEC, graph=GRAPH, flags=0)
    a.call("hipGraphLaunch", graphExec=EXEC, stream=0)
    a.write()
    return refuses("hipGraphLaunch", "reads 2048 bytes of host memory")


@case
def graph_to_symbol(path, bundles):
    """Of the nodes that copy from the host, those to symbols have their contents recorded: what they read is there at the launch."""
    a = Program(path, 7)
    fat, handle, symbol = bundles["standard"], 0x5500_0000_1000, 0x5500_0000_2000
    a.code_hash = a.code_object(bundles.amdgcn("standard"))
    low, high = a.blob(fat)
    a.call("__hipRegisterFatBinary", S_ret=handle, S_blob_hash_lo=low, S_blob_hash_hi=high, S_blob_size=len(fat))
    a.call("__hipRegisterVar", modules=handle, var=symbol, hostVar=symbol + 8, deviceVar=symbol + 8, size=16,
           deviceVar__bytes=b"step_table\0", deviceVar__present=1)
    a.malloc(BUFFER, 4096)
    a.call("hipGraphCreate", pGraph_=GRAPH, flags=0)
    low, high = a.blob(words([5, 6, 7, 8]))
    a.call("hipGraphAddMemcpyNodeToSymbol", pGraphNode_=GRAPH + 16, graph=GRAPH, symbol=symbol, src=HOST, count=16, offset=0, kind=H2D,
           S_blob_hash_lo=low, S_blob_hash_hi=high)
    a.call("hipGraphInstantiateWithFlags", pGraphExec_=EXEC, graph=GRAPH, flags=0)
    a.call("hipGraphLaunch", graphExec=EXEC, stream=0)
    a.launch("use_counter", 0, a.code_hash, (1, 1, 1), (64, 1, 1), [pointer(BUFFER), u32(1), i32(64)])
    a.check(BUFFER, [7_000_000 + 5 + position % 4 for position in range(64)])
    a.call("hipGraphExecMemcpyNodeSetParamsToSymbol", hGraphExec=EXEC, node=GRAPH + 16, symbol=symbol, src=HOST + 64, count=8, offset=4,
           kind=H2D, **dict(zip(("S_blob_hash_lo", "S_blob_hash_hi"), a.blob(words([50, 60])))))
    a.call("hipGraphLaunch", graphExec=EXEC, stream=0)
    a.launch("use_counter", 0, a.code_hash, (1, 1, 1), (64, 1, 1), [pointer(BUFFER), u32(1), i32(64)])
    a.check(BUFFER, [8_000_000 + (5, 50, 60, 8)[position % 4] for position in range(64)])
    a.write()
    return passes(2)


def rows(values, width, pitch):
    """Rows of bytes at a pitch, up to the last byte copied."""
    data = words(values)
    out = bytearray()
    for at in range(0, len(data), width):
        out += data[at:at + width].ljust(pitch, b"\xee")
    return bytes(out[:len(out) - (pitch - width)])


def parms3d(source, target, extent, kind, positions=((0, 0, 0), (0, 0, 0))):
    """hipMemcpy3DParms: each side is pointer, pitch, xsize, ysize."""
    out = struct.pack("<Q3Q4Q", 0, *positions[0], *source) + struct.pack("<Q3Q4Q", 0, *positions[1], *target)
    return out + struct.pack("<3QIxxxx", *extent, kind)


def drv2d(source, target, width, height):
    """hip_Memcpy2D: x, y, type, host, device, array, pitch of each side. Type 1 is host memory, 2 device memory."""
    def side(x, y, host, address, pitch):
        return struct.pack("<QQIxxxxQQQQ", x, y, 1 if host else 2, address if host else 0, 0 if host else address, 0, pitch)
    return side(*source) + side(*target) + struct.pack("<QQ", width, height)


def drv3d(source, target, extent):
    """HIP_MEMCPY3D."""
    def side(position, host, address, pitch, height):
        return struct.pack("<4QIxxxxQQQQQ", *position, 0, 1 if host else 2, address if host else 0, 0 if host else address, 0,
                           pitch, height)
    return side(*source) + side(*target) + struct.pack("<3Q", *extent)


def pitched(path, bundles, version, packed):
    """Rows of 96 bytes at pitches of 128 on the host and 256 on the device."""
    a = Program(path, version, packed=packed).start(bundles)
    width, height, host_pitch, pitch = 96, 16, 128, 256
    count = width // 4 * height
    a.malloc(BUFFER, pitch * height * 4)
    data = iota(1000, count)

    def host(values):
        return a.blob(words(values) if packed else rows(values, width, host_pitch))

    low, high = host(data)
    a.call("hipMemcpy2D", dst=BUFFER, dpitch=pitch, src=HOST, spitch=host_pitch, width=width, height=height, kind=H2D,
           S_blob_hash_lo=low, S_blob_hash_hi=high)
    a.mix(BUFFER, 3, 1, pitch // 4 * height)
    values = mix(data, 3, 1)
    low, high = host(values)
    a.call("hipMemcpy2D", dst=HOST, dpitch=host_pitch, src=BUFFER, spitch=pitch, width=width, height=height, kind=D2H,
           S_d2h_hash_lo=low, S_d2h_hash_hi=high)
    a.call("hipMemcpy2DAsync", dst=HOST, dpitch=host_pitch, src=BUFFER, spitch=pitch, width=width, height=height, kind=D2H,
           stream=0, S_d2h_hash_lo=low, S_d2h_hash_hi=high)
    a.call("hipDeviceSynchronize")
    # A driver copy of the rows, into the second half of the buffer and back.
    second = BUFFER + pitch * height
    data = iota(5000, count)
    low, high = host(data)
    a.call("hipMemcpyParam2D", pCopy=1, pCopy__inline=drv2d((0, 0, True, HOST, host_pitch), (0, 0, False, second, pitch), width, height),
           S_blob_hash_lo=low, S_blob_hash_hi=high)
    flat = a.blob(words(data))
    a.call("hipDrvMemcpy2DUnaligned", pCopy=1, S_d2h_hash_lo=flat[0], S_d2h_hash_hi=flat[1],
           pCopy__inline=drv2d((0, 0, False, second, pitch), (0, 0, True, HOST, width if packed else host_pitch), width, height))
    # Volumes: two slices of 8 rows, placed one row and 32 bytes in.
    data = iota(9000, count)
    low, high = a.blob(words(data))
    third = BUFFER + 2 * pitch * height
    device = (third, pitch, pitch, 10)
    a.call("hipMemcpy3D", p=1, S_blob_hash_lo=low, S_blob_hash_hi=high,
           p__inline=parms3d((HOST, width, width, 8), device, (width, 8, 2), H2D, ((0, 0, 0), (32, 1, 0))))
    a.call("hipMemcpy3DAsync", p=1, stream=0, S_d2h_hash_lo=low, S_d2h_hash_hi=high,
           p__inline=parms3d(device, (HOST, width, width, 8), (width, 8, 2), D2H, ((32, 1, 0), (0, 0, 0))))
    a.call("hipStreamSynchronize", stream=0)
    a.call("hipDrvMemcpy3D", pCopy=1, S_d2h_hash_lo=low, S_d2h_hash_hi=high,
           pCopy__inline=drv3d(((32, 1, 0), False, third, pitch, 10), ((0, 0, 0), True, HOST, width, 8), (width, 8, 2)))
    # The first slice begins one row and 32 bytes in: the rows as they lie on the device say so.
    a.call("hipMemcpy2D", dst=HOST, dpitch=width, src=third + pitch + 32, spitch=pitch, width=width, height=8, kind=D2H,
           **dict(zip(("S_d2h_hash_lo", "S_d2h_hash_hi"), a.blob(words(data[:count // 2])))))
    a.write()
    return passes(8)


CASES["pitched_v6"] = lambda path, bundles: pitched(path, bundles, 6, False)
CASES["pitched_v7"] = lambda path, bundles: pitched(path, bundles, 7, True)
CASES["pitched_v7_unpacked"] = lambda path, bundles: pitched(path, bundles, 7, False)


@case
def snapshots(path, bundles):
    """Kernels read pinned host memory that the program wrote between launches."""
    a = Program(path, 8).start(bundles)
    a.malloc(BUFFER, 4096)
    a.call("hipHostMalloc", ptr_=PINNED, size=8192, flags=0)
    a.call("hipStreamCreateWithFlags", stream_=STREAM, flags=1)
    a.iota(BUFFER, 0, 1024, STREAM)
    expected = iota(0, 1024)
    for step in range(3):
        data = iota(100 * step + 1, 1024)
        pair = a.blob(words(data))
        unused = a.blob(b"never looked at")
        a.launch("mix_from", STREAM, a.code_hash, (16, 1, 1), (64, 1, 1), [pointer(BUFFER), pointer(PINNED + 4096), u32(3), i32(1024)],
                 snapshots=[(PINNED, 4096, 4096, pair, 0), (PINNED, 0, 4096, unused, 1)])
        expected = [(value * 3 + added) & 0xFFFFFFFF for value, added in zip(expected, data)]
    low, high = a.blob(words(expected))
    a.call("hipMemcpyAsync", dst=HOST, src=BUFFER, sizeBytes=4096, kind=D2H, stream=STREAM, S_blob_hash_lo=low, S_blob_hash_hi=high)
    a.call("hipStreamSynchronize", stream=STREAM)
    a.metadata = {"host_snapshots": True, "host_snapshot_chunks": 3, "host_snapshots_unordered": 0}
    a.write()
    return passes(1, info=["3 snapshots"])


@case
def host_register(path, bundles):
    a = Program(path, 7).start(bundles)
    a.malloc(BUFFER, 4096)
    a.iota(BUFFER, 0, 1024)
    data = iota(77, 1024)
    low, high = a.blob(words(data))
    host = 0x7E00_0000_1000
    a.call("hipHostRegister", hostPtr=host, sizeBytes=4096, flags=0, S_blob_hash_lo=low, S_blob_hash_hi=high)
    a.call("hipHostGetDevicePointer", devPtr_=host + 0x10_0000_0000, hstPtr=host, flags=0)
    a.launch("mix_from", 0, a.code_hash, (16, 1, 1), (64, 1, 1),
             [pointer(BUFFER), pointer(host + 0x10_0000_0000), u32(3), i32(1024)])
    a.check(BUFFER, [position * 3 + added for position, added in enumerate(data)])
    a.call("hipHostUnregister", hostPtr=host)
    a.write()
    return passes(1)


@case
def launch_ids(path, bundles):
    """Every id that carries a launch. Kernels may change all of a buffer: what each leaves alone tells how large its grid was."""
    a = Program(path, 7).start(bundles)
    a.malloc(BUFFER, 16384)
    a.iota(BUFFER, 1, 4096)
    values = iota(1, 4096)

    def mixed(factor, addend, elements, grid, **more):
        a.launch("mix", 0, a.code_hash, (grid, 1, 1), (64, 1, 1), [pointer(BUFFER), u32(factor), u32(addend), i32(4096)], **more)
        return mix(values[:elements], factor, addend) + values[elements:]

    step = 0
    for api in ("hipModuleLaunchKernel", "hipLaunchKernel_spt", "hipLaunchCooperativeKernel", "hipLaunchCooperativeKernel_spt",
                "hipModuleLaunchCooperativeKernel", "hipLaunchKernelExC", "hipDrvLaunchKernelEx", "hipLaunchKernel", "hipLaunchByPtr"):
        step += 2
        values = mixed(step + 1, step, 1024 + 64 * step, 16 + step, api=api)
        a.call("hipDeviceSynchronize")
    # Under 388 the grid is in work items: 17 blocks of 64 for 1024 + 1 of them.
    values = mixed(3, 1, 1088, 1025, api="hipExtModuleLaunchKernel")
    attribute = struct.pack("<IxxxxI", 2, 1).ljust(72, b"\0")
    values = mixed(7, 7, 1024, 16, api="hipLaunchKernelExC", attributes=[attribute], stride=72)
    a.check(BUFFER, values)
    a.write()
    return passes(1)


@case
def launch_attributes(path, bundles):
    """Attributes of a launch are passed on, those with addresses in them left out; of a size that is not known, refused."""
    a = Program(path, 8).start(bundles)
    a.malloc(BUFFER, 4096)
    a.iota(BUFFER, 1, 1024)
    priority = struct.pack("<IxxxxI", 8, 1).ljust(72, b"\0")
    window = struct.pack("<IxxxxQQ", 1, BUFFER, 4096).ljust(72, b"\0")
    for api in ("hipLaunchKernelExC", "hipDrvLaunchKernelEx"):
        a.mix(BUFFER, 5, 9, 1024, api=api, attributes=[window, priority], stride=72)
    a.check(BUFFER, mix(mix(iota(1, 1024), 5, 9), 5, 9))
    a.write()
    return passes(1, info=["hipDrvLaunchKernelEx"])


@case
def launch_attributes_of_another_size(path, bundles):
    a = Program(path, 8).start(bundles)
    a.malloc(BUFFER, 4096)
    a.mix(BUFFER, 5, 9, 1024, api="hipLaunchKernelExC", attributes=[struct.pack("<IxxxxI", 8, 1).ljust(64, b"\0")], stride=64)
    a.write()
    return refuses("launch attribute 8 is 64 bytes long where 72 are known")


def array_copies(path, bundles, whole):
    """Between host memory and an array of two 32-bit channels, by both structs: elements in one, bytes in the other."""
    a = Program(path, 8).start(bundles)
    array, width, height = 0x7FA0_0000_1000, 8, 4
    a.call("hipArrayCreate", pHandle_=array, pAllocateArray=1,
           pAllocateArray__inline=struct.pack("<QQII", width, height, 0x03, 2))
    data = words(iota(100, width * height * 2))
    low, high = a.blob(data if whole else data[:width * height])
    parms = bytearray(parms3d((HOST, width * 8, width, height), (0, 0, 0, 0), (width, height, 1), H2D))
    struct.pack_into("<Q", parms, 64, array)
    a.call("hipMemcpy3D", p=1, p__inline=bytes(parms), S_blob_hash_lo=low, S_blob_hash_hi=high)
    low, high = a.blob(data)
    back = bytearray(parms3d((0, 0, 0, 0), (HOST, width * 8, width, height), (width, height, 1), D2H))
    struct.pack_into("<Q", back, 0, array)
    a.call("hipMemcpy3D", p=1, p__inline=bytes(back), S_d2h_hash_lo=low, S_d2h_hash_hi=high)
    drv = bytearray(drv3d(((0, 0, 0), False, 0, 0, 0), ((0, 0, 0), True, HOST, width * 8, height), (width * 8, height, 1)))
    struct.pack_into("<I", drv, 32, 10)
    struct.pack_into("<Q", drv, 32 + 24, array)
    a.call("hipDrvMemcpy3D", pCopy=1, pCopy__inline=bytes(drv), S_d2h_hash_lo=low, S_d2h_hash_hi=high)
    a.call("hipArrayDestroy", array=array)
    a.write()
    return passes(2) if whole else refuses("it reads 256 bytes of host memory for an array", "hipMemcpy3D")


@case
def array_of_unknown_elements(path, bundles):
    """Arrays made by these have their format recorded by its address alone: they, and what uses them, are refused by name."""
    a = Program(path, 8).start(bundles)
    array = 0x7FA0_0000_1000
    a.call("hipMallocArray", array_=array, desc=0x1234, width=8, height=4, flags=0)
    low, high = a.blob(words(iota(100, 64)))
    parms = bytearray(parms3d((HOST, 64, 8, 4), (0, 0, 0, 0), (8, 4, 1), H2D))
    struct.pack_into("<Q", parms, 64, array)
    a.call("hipMemcpy3D", p=1, p__inline=bytes(parms), S_blob_hash_lo=low, S_blob_hash_hi=high)
    a.write()
    return refuses("hipMallocArray", "upstream records only the address of desc",
                   info=["hipMallocArray: upstream records only the address of desc",
                         "hipMemcpy3D: it copies elements of an array whose format no recorded call tells"])


@case
def failed_creation(path, bundles):
    """What creates arrays and pools is recorded whether or not it succeeded: it has to fail in the same way."""
    a = Program(path, 7).start(bundles)
    a.call("hipArrayCreate", S_ret=1, pHandle_=0, pAllocateArray=1, pAllocateArray__inline=struct.pack("<QQII", 0, 0, 0x03, 2))
    a.malloc(BUFFER, 4096)
    a.iota(BUFFER, 8, 1024)
    a.check(BUFFER, iota(8, 1024))
    a.write()
    return passes(1)


CASES["array_copies"] = lambda path, bundles: array_copies(path, bundles, True)
CASES["array_copies_cut_short"] = lambda path, bundles: array_copies(path, bundles, False)


@case
def arguments(path, bundles):
    """Structs with pointers inside, hidden arguments, and an address in two halves."""
    a = Program(path, 7).start(bundles)
    a.malloc(BUFFER, 4096)
    a.malloc(OTHER, 4096)
    a.iota(BUFFER, 10, 512)
    a.iota(OTHER, 3, 32)
    # struct matrix_view: rows, columns, data, pitch, factor, bias.
    view = struct.pack("<IIQIIQ", 8, 32, BUFFER + 64, 64, 5, OTHER)
    a.launch("apply_view", 0, a.code_hash, (4, 1, 1), (64, 1, 1), [argument(3, view, [8, 24]), u32(6), argument(2, bytes(8))])
    values = iota(10, 512)
    for row in range(8):
        for column in range(32):
            at = 16 + row * 64 + column
            values[at] = values[at] * 5 + 6 + 3 + column
    a.check(BUFFER, values)
    target = OTHER + 128
    a.launch("fill_halves", 0, a.code_hash, (1, 1, 1), (64, 1, 1), [u32(target), u32(target >> 32), u32(500), i32(64)])
    a.check(OTHER, iota(3, 32) + iota(500, 64))
    # A low half that could be any small number.
    target = BUFFER + 128
    a.launch("fill_halves", 0, a.code_hash, (1, 1, 1), (64, 1, 1), [u32(target), u32(target >> 32), u32(900), i32(64)])
    a.check(BUFFER, values[:32] + iota(900, 64) + values[96:])
    a.write()
    return passes(3)


@case
def names(path, bundles):
    """One kernel name in two code objects, told apart by their hashes alone."""
    a = Program(path, 7)
    add = a.code_object(bundles["same_name_add"])
    multiply = a.code_object(bundles["same_name_multiply"])
    a.call("hipModuleLoadData", module_=MODULE, image=1, S_co_hash_lo=add[0], S_co_hash_hi=add[1])
    a.call("hipModuleLoadData", module_=MODULE + 64, image=1, S_co_hash_lo=multiply[0], S_co_hash_hi=multiply[1])
    a.malloc(BUFFER, 4096)
    a.upload(BUFFER, iota(1, 64))
    for code in (add, multiply, add):
        a.launch("transform", 0, code, (1, 1, 1), (64, 1, 1), [pointer(BUFFER), u32(3), i32(64)])
    # Each code object has an operand of its own: 3 is added, 5 multiplied by.
    a.check(BUFFER, [(value + 3 + 3) * 3 * 5 + 3 + 3 for value in iota(1, 64)])
    a.write()
    return passes(1)


@case
def ambiguous_name(path, bundles):
    a = Program(path, 7)
    for number, bundle in enumerate(("same_name_add", "same_name_multiply")):
        low, high = a.code_object(bundles[bundle])
        a.call("hipModuleLoadData", module_=MODULE + 64 * number, image=1, S_co_hash_lo=low, S_co_hash_hi=high)
    a.malloc(BUFFER, 4096)
    a.launch("transform", 0, NONE, (1, 1, 1), (64, 1, 1), [pointer(BUFFER), u32(3), i32(64)])
    a.write()
    return refuses("hipModuleLaunchKernel", "2 code objects have a kernel")


@case
def unknown_code(path, bundles):
    """Launches that give no hash: the name decides where only one code object has it."""
    a = Program(path, 7).start(bundles)
    a.malloc(BUFFER, 4096)
    a.iota(BUFFER, 8, 1024, code=NONE)
    a.check(BUFFER, iota(8, 1024))
    a.write()
    return passes(1)


@case
def nothing_loads(path, bundles):
    """The code object was loaded before recording began."""
    a = Program(path, 7)
    a.code_hash = a.code_object(bundles["standard"])
    a.malloc(BUFFER, 4096)
    a.iota(BUFFER, 8, 1024)
    a.check(BUFFER, iota(8, 1024))
    a.write()
    return passes(1, info=["hipModuleLoadData"])


@case
def widths(path, bundles):
    """Types spelled with enum, and small integers, take 8 bytes: what follows them must not move."""
    a = Program(path, 7).start(bundles)
    a.malloc(BUFFER, 4096)
    a.call("hipDeviceSetLimit", limit=2, value=8 << 20)
    a.call("hipMemsetD8", dest=BUFFER, value=0x41, count=1024)
    a.call("hipMemsetD16", dest=BUFFER + 1024, value=0x4243, count=512)
    a.call("hipMemsetD32", dest=BUFFER + 2048, value=-2, count=512)
    data = bytes([0x41]) * 1024 + b"\x43\x42" * 512 + b"\xfe\xff\xff\xff" * 512
    low, high = a.blob(data)
    a.call("hipMemcpyDtoH", dst=HOST, src=BUFFER, sizeBytes=4096, S_blob_hash_lo=low, S_blob_hash_hi=high)
    a.write()
    return passes(1)


@case
def pools(path, bundles):
    """Structs inline: pool properties, access descriptors; memory in order of streams; virtual memory."""
    a = Program(path, 7).start(bundles)
    pool = 0x5600_0000_9000
    props = struct.pack("<IIII", 1, 0, 1, 0).ljust(88, b"\0")
    a.call("hipMemPoolCreate", mem_pool_=pool, pool_props=1, pool_props__inline=props)
    a.call("hipMemPoolSetAttribute", mem_pool=pool, attr=4, value=1, value__inline=(1 << 30))
    a.call("hipStreamCreate", stream_=STREAM)
    a.call("hipMallocFromPoolAsync", dev_ptr_=BUFFER, size=4096, mem_pool=pool, stream=STREAM)
    a.iota(BUFFER, 21, 1024, STREAM)
    low, high = a.blob(words(iota(21, 1024)))
    a.call("hipMemcpyWithStream", dst=HOST, src=BUFFER, sizeBytes=4096, kind=D2H, stream=STREAM, S_blob_hash_lo=low, S_blob_hash_hi=high)
    a.call("hipFreeAsync", dev_ptr=BUFFER, stream=STREAM)
    a.call("hipStreamSynchronize", stream=STREAM)
    a.call("hipMemPoolDestroy", mem_pool=pool)
    a.write()
    return passes(1)


@case
def named_only(path, bundles):
    """Handles that upstream records without their names are left out, and launches do not need them."""
    a = Program(path, 7).start(bundles)
    function = 0x5600_0000_8000
    a.call("hipModuleGetFunction", function_=function, module=MODULE, kname=0x1234)
    a.call("hipFuncSetAttribute", func=function, attr=8, value=65536)
    a.malloc(BUFFER, 4096)
    a.iota(BUFFER, 8, 1024)
    a.check(BUFFER, iota(8, 1024))
    a.call("hipModuleUnload", module=MODULE)
    a.write()
    return passes(1, info=["hipModuleGetFunction"])


# What cannot be replayed says so.


def small(path, bundles, version=7, **more):
    a = Program(path, version, **more).start(bundles)
    a.malloc(BUFFER, 4096)
    a.iota(BUFFER, 3, 1024)
    a.check(BUFFER, iota(3, 1024))
    return a


@case
def malformed_launch(path, bundles):
    a = small(path, bundles)
    a.mix(BUFFER, 3, 1, 1024)
    a.records[-1] = a.records[-1][:26] + struct.pack("<I", len(a.records[-1]) - 4) + a.records[-1][30:-4]
    a.write()
    return refuses("hipModuleLaunchKernel", "malformed", info=["malformed"])


@case
def short_record(path, bundles):
    a = small(path, bundles)
    a.raw(a.event_id("hipMemset"), struct.pack("<iQ", 0, BUFFER))
    a.write()
    return refuses("hipMemset", "44 bytes long where 56 are known")


@case
def bad_id(path, bundles):
    a = small(path, bundles)
    a.raw(999, bytes(20))
    a.write()
    return refuses("(event 999)", info=["999"])


@case
def trailer_id_with_another_length(path, bundles):
    a = small(path, bundles)
    a.raw(0xFFFF, bytes(4))
    a.check(BUFFER, iota(3, 1024))
    a.write()
    return refuses("(event 65535)")


def withheld(path, bundles, version):
    a = small(path, bundles, version)
    a.call("hipMemcpy", dst=BUFFER, src=HOST, sizeBytes=64, kind=H2D, S_blob_hash_lo=WITHHELD[0], S_blob_hash_hi=WITHHELD[1])
    a.write()
    return refuses("hipMemcpy", "withholds")


for known in (7, 9):
    CASES["withheld_v%d" % known] = lambda path, bundles, version=known: withheld(path, bundles, version)


@case
def damaged_blob(path, bundles):
    a = small(path, bundles)
    a.upload(BUFFER, iota(1, 64))
    a.contents[list(a.contents)[-1]] = words(iota(2, 64))
    a.write()
    return refuses("hipMemcpy", "is damaged: the hash of its contents")


@case
def empty_blob(path, bundles):
    a = small(path, bundles)
    a.upload(BUFFER, iota(1, 64))
    a.contents[list(a.contents)[-1]] = b""
    a.write()
    return refuses("hipMemcpy", ".blob is empty")


@case
def missing_source(path, bundles):
    a = small(path, bundles)
    a.call("hipMemcpy_spt", dst=BUFFER, src=HOST, sizeBytes=64, kind=H2D)
    a.write()
    return refuses("hipMemcpy_spt", "upstream recorded no contents")


@case
def missing_result(path, bundles):
    """A result without contents is a check that was skipped, not one that passed."""
    a = small(path, bundles)
    a.call("hipMemcpy", dst=HOST, src=BUFFER, sizeBytes=64, kind=D2H)
    a.write()
    return passes(1, skipped=1)


@case
def wrong_result(path, bundles):
    a = small(path, bundles)
    a.check(BUFFER, iota(5, 1024))
    a.write()
    return {"exit": 1, "texts": ["1 pass", "1 fail"]}


@case
def version_9(path, bundles):
    small(path, bundles, 9, entries=547).write()
    return passes(1, info=["format 9"])


@case
def version_9_that_differs(path, bundles):
    a = small(path, bundles, 9, entries=547)
    a.raw(a.event_id("hipMemset"), bytes(40))
    a.write()
    return refuses("format version 9", "hipMemset", "72 bytes long where 56 are known")


def too_old(path, bundles, version):
    a = small(path, bundles, version)
    a.write()
    return refuses("format version %d" % version, "another order", info=["format version %d" % version, "events"])


for known in (3, 4):
    CASES["version_%d" % known] = lambda path, bundles, version=known: too_old(path, bundles, version)


@case
def several_processes(path, bundles):
    for pid in (10, 20):
        small(path, bundles, 7, pid=pid).write()
    put(os.path.join(path, "manifest.json"), b'{\n  "version": 1,\n  "capture_mode": "in-tree",\n  "owner_pid": 10,\n  "processes": [\n'
        b'    {"pid": 10, "parent_pid": 1, "complete": true, "event_count": 4, "blob_count": 2},\n'
        b'    {"pid": 20, "parent_pid": 10, "complete": true, "event_count": 4, "blob_count": 2}\n  ]\n}\n')
    return refuses("holds 2 processes", info=["in-tree", "pid-20"])


@case
def regions(path, bundles):
    a = small(path, bundles)
    a.write()
    batch = struct.pack("<HQQQI2x", 0xFFFD, 0, 5, 0, 40 + 64) + struct.pack("<II", 2, 0)
    batch += struct.pack("<BBBBIQQq", 0, 1, 0, 0, 1, BUFFER, 4096, 0) + struct.pack("<BBBBIQQq", 0, 0, 0, 0, 2, BUFFER, 512, 7)
    put(os.path.join(a.path, "regions", "torch.hrrr"), struct.pack("<IHH", 0x52524248, 1, 0) + batch + b"\xfd\xff")
    return passes(1, info=["2 entries (1 blocks, 1 segments)", "torch.hrrr"])
