"""Archives of random programs whose results are worked out here, and of random records; what was written is told field by field.

One seed makes one archive. The model keeps what each buffer holds and which stream last worked on it: work moves to another
stream only behind a synchronisation that the program makes, so every mode of replay comes to the same results.
"""

import random
import struct

from archive import ROWS, NONE, argument, i32, pointer, u32
from cases import D2D, D2H, H2D, Program, iota, mix, node_params, parms3d, rows, words

DEVICE, PINNED, HOST = 0x7F20_0000_0000, 0x7E10_0000_0000, 0x5556_0000_0000
STREAMS, EVENTS, GRAPHS, MODULE = 0x5601_0000_0000, 0x5602_0000_0000, 0x5603_0000_0000, 0x5604_0000_0000
LAUNCHES = ("hipModuleLaunchKernel", "hipLaunchKernel_spt", "hipLaunchCooperativeKernel", "hipModuleLaunchCooperativeKernel",
            "hipLaunchKernelExC", "hipDrvLaunchKernelEx", "hipLaunchKernel", "hipLaunchByPtr", "hipExtModuleLaunchKernel")
BLOCK = 64


class Buffer:
    def __init__(self, address, count):
        self.address, self.count = address, count
        self.values = None
        # The stream whose work on it may not be over; None: nothing is under way.
        self.stream = None


class Telling(Program):
    """Keeps beside each record what it says."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.told = []

    def tell(self, name, **what):
        self.told.append({"api": name, "sequence": self.sequence, "thread": self.thread, "time": self.time + self.step, **what})

    step = 1_000

    def body(self, name, values):
        fields = {}
        for field, kind in ROWS[name][3]:
            inline, field = field.startswith("+"), field.lstrip("+")
            if inline and self.version < 6:
                continue
            value = values.get(field, 0)
            if kind.startswith("b"):
                data = value if isinstance(value, bytes) else b""
                fields[field] = data.ljust(int(kind[1:]), b"\0").hex()
            elif kind == "f32":
                fields[field] = struct.unpack("<I", struct.pack("<f", value))[0]
            else:
                fields[field] = value & (1 << 8 * int(kind[1:]) // 8) - 1
        self.tell(name, fields=fields)
        return super().body(name, values)

    def launch(self, name, stream, code, grid, block, arguments, shared=0, api="hipModuleLaunchKernel", snapshots=(), **more):
        self.tell(api, launch={
            "kernel": name, "stream": stream, "code": list(code), "grid": list(grid), "block": list(block), "shared": shared,
            "arguments": [told(one) for one in arguments],
            "snapshots": [[address, offset, length, *pair, direction] for address, offset, length, pair, direction in snapshots],
        })
        super().launch(name, stream, code, grid, block, arguments, shared, api=api, snapshots=snapshots, **more)

    def node(self, api, name, code, arguments, **values):
        super().node(api, name, code, arguments, **values)
        self.told[-1]["node"] = {"kernel": name, "code": list(code), "arguments": [told(one) for one in arguments]}


def told(one):
    kind, size = struct.unpack_from("<BH", one)
    offsets = list(struct.unpack_from("<%dH" % ((len(one) - 5 - size) // 2), one, 5 + size)) if kind == 3 else []
    return [kind, one[3:3 + size].hex(), offsets]


class RandomProgram(Telling):
    def __init__(self, path, seed, bundles):
        self.random = random.Random(seed)
        version = self.random.choice((5, 6, 7, 8))
        entries = self.random.choice((544, 545, 546, 547)) if version >= 7 else 544
        packed = self.random.random() < 0.6 if version >= 7 else False
        super().__init__(path, version, entries=entries, packed=packed, pid=self.random.randrange(2, 1 << 22))
        self.threads = [self.random.randrange(100, 1 << 20) for _ in range(self.random.randrange(1, 5))]
        self.thread = self.threads[0]
        self.shuffle = self.random.random() < 0.5
        self.checks = 0
        self.buffers, self.pinned, self.streams = [], [], [0]
        self.next = {"device": DEVICE, "pinned": PINNED, "host": HOST, "stream": STREAMS, "event": EVENTS, "graph": GRAPHS}
        self.free = []
        self.load(bundles)

    def take(self, what, size=0x1000):
        at = self.next[what]
        self.next[what] += size
        return at

    def load(self, bundles):
        """A module, or a fat binary as compiled programs register; launches name the image in it."""
        if self.random.random() < 0.5:
            self.start(bundles)
            return
        fat = bundles["standard"]
        self.code_hash = self.code_object(bundles.amdgcn("standard"))
        low, high = self.blob(fat)
        self.call("__hipRegisterFatBinary", S_ret=MODULE, S_blob_hash_lo=low, S_blob_hash_hi=high, S_blob_size=len(fat))
        self.call("__hipRegisterFunction", modules=MODULE, hostFunction=MODULE + 16, deviceFunction=1, deviceName=2, threadLimit=-1)

    # Order.

    def settle(self, buffer):
        """Waits for what is under way on a buffer."""
        stream = buffer.stream
        if stream is None:
            return
        way = self.random.randrange(3)
        if way == 0:
            self.call("hipDeviceSynchronize")
            for one in self.buffers + self.pinned:
                one.stream = None
            return
        if way == 1:
            event = self.take("event")
            self.call("hipEventCreateWithFlags", event_=event, flags=2)
            self.call("hipEventRecord", event=event, stream=stream)
            self.call("hipEventSynchronize", event=event)
            self.call("hipEventDestroy", event=event)
        else:
            self.call("hipStreamSynchronize", stream=stream)
        for one in self.buffers + self.pinned:
            if one.stream == stream:
                one.stream = None

    def on(self, stream, *buffers):
        """Work on a stream that uses these buffers follows: what other streams do on them is waited for."""
        for buffer in buffers:
            if buffer.stream not in (None, stream):
                if self.random.random() < 0.3:
                    event = self.take("event")
                    self.call("hipEventCreateWithFlags", event_=event, flags=2)
                    self.call("hipEventRecord", event=event, stream=buffer.stream)
                    self.call("hipStreamWaitEvent", stream=stream, event=event, flags=0)
                else:
                    self.settle(buffer)
            buffer.stream = stream

    # What a program does.

    def allocate(self):
        count = self.random.choice((64, 192, 256, 500, 1024))
        reused = [one for one in self.free if one[1] >= count * 4]
        address = self.random.choice(reused)[0] if reused and self.random.random() < 0.7 else self.take("device", 0x10000)
        self.free = [one for one in self.free if one[0] != address]
        buffer = Buffer(address, count)
        way = self.random.randrange(3)
        if way == 0:
            self.call("hipExtMallocWithFlags", ptr_=address, sizeBytes=count * 4, flags=0)
        elif way == 1 and len(self.streams) > 1:
            stream = self.random.choice(self.streams[1:])
            self.call("hipMallocAsync", dev_ptr_=address, size=count * 4, stream=stream)
            buffer.stream = stream
        else:
            self.malloc(address, count * 4)
        self.buffers.append(buffer)
        self.fill(buffer)

    def fill(self, buffer):
        """Gives a new buffer its first contents."""
        self.random.choice((self.copy_in, self.launch_iota, self.set))(buffer)

    def release(self):
        if len(self.buffers) < 3:
            return
        buffer = self.buffers.pop(self.random.randrange(len(self.buffers)))
        self.settle(buffer)
        self.call("hipFree", ptr=buffer.address)
        self.free.append((buffer.address, buffer.count * 4))

    def stream(self):
        return self.random.choice(self.streams)

    def new_stream(self):
        handle = self.take("stream")
        if self.random.random() < 0.5:
            self.call("hipStreamCreateWithFlags", stream_=handle, flags=1)
        else:
            self.call("hipStreamCreateWithPriority", stream_=handle, flags=1, priority=0)
        self.streams.append(handle)

    def drop_stream(self):
        if len(self.streams) < 4:
            return
        stream = self.streams.pop(self.random.randrange(1, len(self.streams)))
        self.call("hipStreamSynchronize", stream=stream)
        for buffer in self.buffers + self.pinned:
            if buffer.stream == stream:
                buffer.stream = None
        self.call("hipStreamDestroy", stream=stream)

    def part(self, buffer):
        """Some of a buffer's elements: first and number."""
        first = self.random.randrange(buffer.count) if buffer.values and self.random.random() < 0.4 else 0
        return first, self.random.randrange(1, buffer.count - first + 1) if buffer.values else buffer.count

    def copy_in(self, buffer):
        first, count = self.part(buffer)
        values = [self.random.getrandbits(32) for _ in range(count)]
        low, high = self.blob(words(values))
        hashes = {"S_blob_hash_lo": low, "S_blob_hash_hi": high}
        target, source = buffer.address + first * 4, self.take("host", 0x10000)
        way, stream = self.random.randrange(5), self.stream()
        self.on(stream if way in (1, 3, 4) else 0, buffer)
        if way == 0:
            self.call("hipMemcpy", dst=target, src=source, sizeBytes=count * 4, kind=self.random.choice((H2D, 4)), **hashes)
        elif way == 1:
            self.call("hipMemcpyAsync", dst=target, src=source, sizeBytes=count * 4, kind=H2D, stream=stream, **hashes)
        elif way == 2:
            self.call("hipMemcpyHtoD", dst=target, src=source, sizeBytes=count * 4, **hashes)
        elif way == 3:
            self.call("hipMemcpyHtoDAsync", dst=target, src=source, sizeBytes=count * 4, stream=stream, **hashes)
        else:
            self.call("hipMemcpyWithStream", dst=target, src=source, sizeBytes=count * 4, kind=H2D, stream=stream, **hashes)
        self.put(buffer, first, values)

    @staticmethod
    def put(buffer, first, values):
        if buffer.values is None:
            buffer.values = [0] * buffer.count
        buffer.values[first:first + len(values)] = values

    def look(self, buffer):
        """A copy to the host, whose result is compared."""
        first, count = self.part(buffer)
        low, high = self.blob(words(buffer.values[first:first + count]))
        hashes = {"S_blob_hash_lo": low, "S_blob_hash_hi": high}
        source, target = buffer.address + first * 4, self.take("host", 0x10000)
        way, stream = self.random.randrange(5), self.stream()
        self.on(stream if way in (1, 3, 4) else 0, buffer)
        if way == 0:
            self.call("hipMemcpy", dst=target, src=source, sizeBytes=count * 4, kind=self.random.choice((D2H, 4)), **hashes)
        elif way == 1:
            self.call("hipMemcpyAsync", dst=target, src=source, sizeBytes=count * 4, kind=D2H, stream=stream, **hashes)
        elif way == 2:
            self.call("hipMemcpyDtoH", dst=target, src=source, sizeBytes=count * 4, **hashes)
        elif way == 3:
            self.call("hipMemcpyDtoHAsync", dst=target, src=source, sizeBytes=count * 4, stream=stream, **hashes)
        else:
            self.call("hipMemcpyWithStream", dst=target, src=source, sizeBytes=count * 4, kind=D2H, stream=stream, **hashes)
        self.checks += 1

    def set(self, buffer):
        first, count = self.part(buffer)
        target, stream = buffer.address + first * 4, self.stream()
        way = self.random.randrange(6)
        byte, half, word = self.random.getrandbits(8), self.random.getrandbits(16), self.random.getrandbits(31)
        self.on(stream if way % 2 else 0, buffer)
        if way == 0:
            self.call("hipMemset", dst=target, value=byte, sizeBytes=count * 4)
            value = byte * 0x01010101
        elif way == 1:
            self.call("hipMemsetAsync", dst=target, value=byte, sizeBytes=count * 4, stream=stream)
            value = byte * 0x01010101
        elif way == 2:
            self.call("hipMemsetD16", dest=target, value=half, count=count * 2)
            value = half * 0x00010001
        elif way == 3:
            self.call("hipMemsetD8Async", dest=target, value=byte, count=count * 4, stream=stream)
            value = byte * 0x01010101
        elif way == 4:
            self.call("hipMemsetD32", dest=target, value=word, count=count)
            value = word
        else:
            self.call("hipMemsetD32Async", dst=target, value=word, count=count, stream=stream)
            value = word
        self.put(buffer, first, [value] * count)

    def shape(self, count, api):
        """A grid that may be too small for a number of elements, as recorded, and how many elements it covers."""
        blocks = self.random.randrange(1, (count + BLOCK - 1) // BLOCK + 3)
        covered = min(blocks * BLOCK, count)
        # Under this name the grid is in work items, which need not fill the last block.
        grid = blocks * BLOCK - self.random.randrange(BLOCK) if api == "hipExtModuleLaunchKernel" else blocks
        return (grid, 1, 1), covered

    def launch_iota(self, buffer):
        first, value, stream = 0, self.random.getrandbits(32), self.stream()
        grid = ((buffer.count + BLOCK - 1) // BLOCK, 1, 1)
        self.on(stream, buffer)
        self.launch("iota", stream, self.code_hash, grid, (BLOCK, 1, 1), [pointer(buffer.address), u32(value), i32(buffer.count)])
        self.put(buffer, first, iota(value, buffer.count))

    def launch_one(self, buffer, stream=None):
        """A launch that changes a buffer; `stream` where it is to be captured."""
        api = self.random.choice(LAUNCHES) if stream is None else "hipModuleLaunchKernel"
        # A stream of zero means another one to these.
        on = self.stream() if stream is None else stream
        if api.endswith("_spt") and on == 0:
            api = "hipModuleLaunchKernel"
        way = self.random.randrange(4)
        first, count = self.part(buffer)
        grid, covered = self.shape(count, api)
        address = buffer.address + 4 * first
        if stream is None:
            self.on(on, buffer)
        part = buffer.values[first:first + covered]
        if way == 0 and count >= BLOCK:
            # An address in two halves.
            value = self.random.getrandbits(32)
            self.launch("fill_halves", on, self.code_hash, grid, (BLOCK, 1, 1),
                        [u32(address), u32(address >> 32), u32(value), i32(count)], api=api)
            after = lambda before: iota(value, covered)
        elif way == 1 and count >= 8:
            # struct matrix_view: rows, columns, data, pitch, factor, bias: addresses at 8 and 24.
            columns = min(4, count)
            factor, addend = self.random.getrandbits(32), self.random.getrandbits(32)
            rows_ = min(self.random.randrange(1, 5), count // columns)
            view = struct.pack("<IIQIIQ", rows_, columns, address, columns, factor, address)
            after = None
            if columns * rows_ > columns:
                # Its own first row is its bias and would change under it: the bias is of a buffer that is only read.
                bias = next((one for one in self.buffers if one is not buffer and one.values and one.stream in (None, on)), None)
                if bias is None or stream is not None:
                    return self.plain(buffer, on, first, count, grid, covered, api)
                self.on(on, bias)
                view = struct.pack("<IIQIIQ", rows_, columns, address, columns, factor, bias.address)
                blocks = (1, 1, 1)
                if api == "hipExtModuleLaunchKernel":
                    blocks = (BLOCK, 1, 1)
                self.launch("apply_view", on, self.code_hash, blocks, (BLOCK, 1, 1),
                            [argument(3, view, [8, 24]), u32(addend), argument(2, bytes(8))], api=api)
                covered = rows_ * columns
                after = lambda before: [(value * factor + addend + bias.values[at % columns]) & 0xFFFFFFFF
                                        for at, value in enumerate(before)]
                part = buffer.values[first:first + covered]
            if after is None:
                return self.plain(buffer, on, first, count, grid, covered, api)
        else:
            return self.plain(buffer, on, first, count, grid, covered, api)
        self.put(buffer, first, after(part))
        return lambda: self.put(buffer, first, after(buffer.values[first:first + covered]))

    def plain(self, buffer, stream, first, count, grid, covered, api):
        factor, addend = self.random.getrandbits(32), self.random.getrandbits(32)
        arguments = [pointer(buffer.address + 4 * first), u32(factor), u32(addend), i32(count)]
        if self.random.random() < 0.2:
            # Hidden arguments are not passed again.
            arguments.append(argument(2, bytes(8)))
        self.launch("mix", stream, self.code_hash, grid, (BLOCK, 1, 1), arguments, api=api)

        def apply():
            self.put(buffer, first, mix(buffer.values[first:first + covered], factor, addend))
        apply()
        return apply

    def between(self, buffer):
        """A copy from one buffer to another."""
        others = [one for one in self.buffers if one is not buffer]
        if not others:
            return
        source = self.random.choice(others)
        count = self.random.randrange(1, min(buffer.count, source.count) + 1)
        way, stream = self.random.randrange(4), self.stream()
        self.on(stream if way % 2 else 0, buffer, source)
        if way == 0:
            self.call("hipMemcpy", dst=buffer.address, src=source.address, sizeBytes=count * 4, kind=D2D)
        elif way == 1:
            self.call("hipMemcpyAsync", dst=buffer.address, src=source.address, sizeBytes=count * 4, kind=D2D, stream=stream)
        elif way == 2:
            self.call("hipMemcpyDtoD", dst=buffer.address, src=source.address, sizeBytes=count * 4)
        else:
            self.call("hipMemcpyDtoDAsync", dst=buffer.address, src=source.address, sizeBytes=count * 4, stream=stream)
        self.put(buffer, 0, source.values[:count])

    def rectangle(self, buffer):
        """Rows between the host and a buffer, each side with a pitch of its own; or a volume of two slices."""
        width, height = 4 * self.random.randrange(1, 9), self.random.randrange(1, 6)
        pitch, host_pitch = width + 4 * self.random.randrange(4), width + 4 * self.random.randrange(4)
        if pitch * height * 2 > buffer.count * 4:
            return
        way, host = self.random.randrange(3), self.take("host", 0x10000)
        volume = self.version >= 6 and self.random.random() < 0.4
        slices = 2 if volume else 1
        stream = self.stream()
        is_async = self.random.random() < 0.5
        at = [(slice_ * height + row) * pitch // 4 + column for slice_ in range(slices) for row in range(height)
              for column in range(width // 4)]
        to_device = way == 0
        values = [self.random.getrandbits(32) for _ in at] if to_device else [buffer.values[one] for one in at]
        self.on(stream if is_async else 0, buffer)
        if volume:
            # The host's side lies end to end.
            pair = self.blob(words(values))
            device, dense = (buffer.address, pitch, pitch, height), (host, width, width, height)
            sides = (dense, device, (width, height, slices), H2D) if to_device else (device, dense, (width, height, slices), D2H)
            api = "hipMemcpy3DAsync" if is_async else "hipMemcpy3D"
            named = {"p": 1, "p__inline": parms3d(*sides)}
        else:
            pair = self.blob(words(values) if self.packed else rows(values, width, host_pitch))
            api = "hipMemcpy2DAsync" if is_async else "hipMemcpy2D"
            device, dense = (buffer.address, pitch), (host, host_pitch)
            (dst, dpitch), (src, spitch) = (device, dense) if to_device else (dense, device)
            named = {"dst": dst, "dpitch": dpitch, "src": src, "spitch": spitch, "width": width, "height": height,
                     "kind": H2D if to_device else D2H}
        kind = "blob" if to_device else "d2h"
        named.update({"S_%s_hash_lo" % kind: pair[0], "S_%s_hash_hi" % kind: pair[1]})
        if is_async:
            named["stream"] = stream
        self.call(api, **named)
        if to_device:
            for one, value in zip(at, values):
                buffer.values[one] = value
        else:
            self.checks += slices

    def capture(self, buffer):
        """A graph captured from a stream and launched a few times."""
        if len(self.streams) < 2:
            return
        stream, graph = self.random.choice(self.streams[1:]), self.take("graph")
        self.settle(buffer)
        self.call("hipStreamBeginCapture", stream=stream, mode=2)
        steps = []
        before = list(buffer.values)
        for _ in range(self.random.randrange(1, 5)):
            if self.random.random() < 0.4:
                values = [self.random.getrandbits(32) for _ in range(self.random.randrange(1, buffer.count + 1))]
                low, high = self.blob(words(values))
                self.call("hipMemcpyAsync", dst=buffer.address, src=self.take("host", 0x10000), sizeBytes=4 * len(values), kind=H2D,
                          stream=stream, S_blob_hash_lo=low, S_blob_hash_hi=high)
                steps.append(lambda values=values: self.put(buffer, 0, values))
            else:
                first, count = self.part(buffer)
                grid, covered = self.shape(count, "hipModuleLaunchKernel")
                steps.append(self.plain(buffer, stream, first, count, grid, covered, "hipModuleLaunchKernel"))
        # Nothing has run yet.
        buffer.values = before
        self.call("hipStreamEndCapture", stream=stream, pGraph_=graph)
        self.run_graph(graph, buffer, steps)

    def run_graph(self, graph, buffer, steps):
        executable = graph + 16
        self.call(self.random.choice(("hipGraphInstantiate", "hipGraphInstantiateWithFlags")), pGraphExec_=executable, graph=graph)
        for _ in range(self.random.randrange(1, 4)):
            stream = self.stream()
            self.on(stream, buffer)
            self.call("hipGraphLaunch", graphExec=executable, stream=stream)
            for step in steps:
                step()
            if self.random.random() < 0.5:
                self.look(buffer)
        self.settle(buffer)
        self.call("hipGraphExecDestroy", graphExec=executable)
        self.call("hipGraphDestroy", graph=graph)

    def nodes(self, buffer):
        """A graph made of nodes, each behind the one before."""
        if self.version < 6:
            return
        graph = self.take("graph")
        self.call("hipGraphCreate", pGraph_=graph, flags=0)
        steps, last = [], None
        for number in range(self.random.randrange(1, 4)):
            node = graph + 0x100 + 16 * number
            after = {}
            if last is not None:
                after = {"pDependencies": 1, "numDependencies": 1, "pDependencies__bytes": struct.pack("<Q", last),
                         "pDependencies__present": 1, "pDependencies__count": 1}
            if self.random.random() < 0.3:
                value, count = self.random.getrandbits(32), self.random.randrange(1, buffer.count + 1)
                params = struct.pack("<QIxxxxQQIxxxxQ", buffer.address, 4, 1, count * 4, value, count)
                self.call("hipGraphAddMemsetNode", pGraphNode_=node, graph=graph, pMemsetParams=1, pMemsetParams__bytes=params,
                          pMemsetParams__present=1, **after)
                steps.append(lambda value=value, count=count: self.put(buffer, 0, [value] * count))
            else:
                first, count = self.part(buffer)
                grid, covered = self.shape(count, "")
                factor, addend = self.random.getrandbits(32), self.random.getrandbits(32)
                self.node("hipGraphAddKernelNode", "mix", self.code_hash,
                          [pointer(buffer.address + 4 * first), u32(factor), u32(addend), i32(count)], pGraphNode_=node, graph=graph,
                          pNodeParams=1, pNodeParams__bytes=node_params(grid, (BLOCK, 1, 1)), pNodeParams__present=1, **after)
                steps.append(lambda first=first, covered=covered, factor=factor, addend=addend:
                             self.put(buffer, first, mix(buffer.values[first:first + covered], factor, addend)))
            last = node
        self.run_graph(graph, buffer, steps)

    def snapshot(self, buffer):
        """A kernel reads pinned memory that the host wrote before the launch."""
        if self.version < 8:
            return
        if not self.pinned:
            pinned = Buffer(self.take("pinned", 0x10000), 2048)
            self.call("hipHostMalloc", ptr_=pinned.address, size=pinned.count * 4, flags=0)
            pinned.values = [0] * pinned.count
            self.pinned.append(pinned)
        pinned, stream = self.pinned[0], self.stream()
        self.on(stream, buffer, pinned)
        count = self.random.randrange(1, buffer.count + 1)
        first = self.random.randrange(0, pinned.count - count)
        values = [self.random.getrandbits(32) for _ in range(count)]
        pair, unused = self.blob(words(values)), self.blob(b"left alone")
        snapshots = [(pinned.address, 4 * first, 4 * count, pair, 0)]
        if self.random.random() < 0.5:
            snapshots.append((pinned.address, 0, 10, unused, 1))
        factor = self.random.getrandbits(32)
        grid, covered = self.shape(count, "hipModuleLaunchKernel")
        self.launch("mix_from", stream, self.code_hash, grid, (BLOCK, 1, 1),
                    [pointer(buffer.address), pointer(pinned.address + 4 * first), u32(factor), i32(count)], snapshots=snapshots)
        self.put(buffer, 0, [(value * factor + added) & 0xFFFFFFFF for value, added in zip(buffer.values[:covered], values)])

    def aside(self, _):
        """Calls that change nothing."""
        way = self.random.randrange(6)
        if way == 0:
            self.call("hipSetDevice", deviceId=0)
        elif way == 1:
            self.call("hipGetDevice", deviceId=0x1234)
        elif way == 2:
            self.call("hipGetDeviceCount", count=0x1234)
        elif way == 3:
            self.call("hipDeviceGetAttribute", pi=0x1234, attr=self.random.randrange(1, 20), deviceId=0)
        elif way == 4:
            self.call("hipGetLastError")
        else:
            self.call("hipMemGetInfo", free=0x1234, total=0x1238)

    def make(self):
        for _ in range(self.random.randrange(1, 4)):
            self.new_stream()
        for _ in range(self.random.randrange(2, 5)):
            self.allocate()
        steps = [self.copy_in, self.look, self.look, self.set, self.launch_one, self.launch_one, self.launch_one, self.between,
                 self.rectangle, self.rectangle, self.capture, self.nodes, self.snapshot, self.aside, self.aside]
        for _ in range(self.random.randrange(10, 50)):
            self.thread = self.random.choice(self.threads)
            chance = self.random.random()
            if chance < 0.05:
                self.allocate()
            elif chance < 0.09:
                self.release()
            elif chance < 0.11:
                self.new_stream()
            elif chance < 0.13:
                self.drop_stream()
            else:
                self.random.choice(steps)(self.random.choice(self.buffers))
        for buffer in self.buffers:
            self.look(buffer)
        self.finish()
        return {"exit": 0, "checks": self.checks, "skipped": 0}

    def finish(self):
        """Ends the file: as it should, cut off in the middle of a record, or with something behind the trailer."""
        ending = self.random.randrange(4)
        self.expected_complete = ending not in (1, 2)
        if ending == 1:
            self.trailer = False
        elif ending == 2:
            self.trailer = False
            cut = self.records[-1]
            self.tail = cut[:self.random.randrange(1, len(cut))]
        elif ending == 3 and self.version >= 7:
            self.tail = bytes(self.random.randrange(1, 90))
        self.write()

    def telling(self, expected):
        return {**expected, "version": self.version, "packed": self.packed, "pid": self.pid, "complete": self.expected_complete,
                "records": self.told}


class RandomRecords(Telling):
    """Records of any entry points with random fields: nothing that could be replayed, all of it to be read."""

    def __init__(self, path, seed):
        self.random = random.Random(seed)
        version = self.random.choice((5, 6, 7, 8))
        # What every file has that tells where the compiler's entries begin is a registration.
        super().__init__(path, version, entries=self.random.choice((544, 545, 546, 547)) if version >= 7 else 544,
                         pid=self.random.randrange(2, 1 << 22))

    def make(self):
        self.call("__hipRegisterFatBinary", S_ret=MODULE)
        known = [name for name, row in ROWS.items() if row[0] < 544 or (row[0] < self.entries and row[0] < 546) or row[0] >= 546]
        for _ in range(self.random.randrange(5, 80)):
            self.thread = self.random.randrange(1, 1 << 40) if self.random.random() < 0.2 else 77
            self.sequence += self.random.randrange(1, 1 << 20)
            self.one(self.random.choice(known))
        self.random.shuffle(self.records)
        self.expected_complete = True
        self.write()
        self.told.sort(key=lambda record: record["sequence"])
        return {"exit": 1}

    def value(self, kind):
        if kind.startswith("b"):
            return self.random.randbytes(int(kind[1:]))
        if kind == "f32":
            return self.random.random()
        bits = int(kind[1:])
        value = self.random.getrandbits(bits) if self.random.random() < 0.5 else self.random.randrange(4)
        return value - (1 << bits) if kind == "i32" and value >> 31 else value

    def some(self):
        pairs = [self.random.randbytes(self.random.randrange(0, 40)) for _ in range(self.random.randrange(0, 5))]
        made = []
        for data in pairs:
            kind = self.random.randrange(4)
            offsets = [self.random.randrange(len(data) - 7) for _ in range(2)] if kind == 3 and len(data) >= 8 else []
            made.append(argument(kind, data, offsets))
        return made

    def one(self, name):
        _, shape, _, fields = ROWS[name]
        extents = [self.random.getrandbits(32) for _ in range(7)]
        code = (self.random.getrandbits(64), self.random.getrandbits(64)) if self.random.random() < 0.8 else NONE
        kernel = "k%d" % self.random.randrange(3)
        values = {field.lstrip("+"): self.value(kind) for field, kind in fields}
        if shape == "launch":
            snapshots = [(self.random.getrandbits(47), 0, 8, code, self.random.randrange(2)) for _ in range(self.random.randrange(3))]
            self.launch(kernel, extents[0], code, extents[:3], extents[3:6], self.some(), extents[6], api=name,
                        snapshots=snapshots if self.version >= 8 else ())
        elif shape == "node":
            arguments = self.some()
            body = self.body(name, values) + struct.pack("<H", len(kernel)) + kernel.encode() + struct.pack("<QQ", *code)
            body += struct.pack("<H", len(arguments)) + b"".join(arguments)
            self.told[-1]["node"] = {"kernel": kernel, "code": list(code), "arguments": [told(one) for one in arguments]}
            self.raw(self.event_id(name), body)
        else:
            self.raw(self.event_id(name), self.body(name, values))

    telling = RandomProgram.telling


def make(path, seed, bundles):
    """The archive of a seed: one in four is of records that nothing could replay."""
    archive = RandomRecords(path, seed) if seed % 4 == 3 else RandomProgram(path, seed, bundles)
    return archive.telling(archive.make())
