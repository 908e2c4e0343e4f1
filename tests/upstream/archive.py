"""Writes archives as AMD's in-tree HRR does, from the table of records alone: no code is shared with the reader."""

import functools
import json
import os
import struct

TABLE = os.path.join(os.path.dirname(__file__), "..", "..", "format", "upstream", "records.tsv")
HEADER = struct.Struct("<HQQQI2x")
SHORT_HEADER = struct.Struct("<HQQQH4x")
WIDTHS = {"u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q", "i32": "<i", "f32": "<f"}
WORD = (1 << 64) - 1
WITHHELD = (WORD, WORD)
NONE = (0, 0)


def load_table():
    rows = {}
    with open(TABLE, encoding="ascii") as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            number, name, kind, size, fields = line.rstrip("\n").split("\t")
            rows[name] = (int(number), kind, int(size), [field.split(":") for field in fields.split()])
    return rows


ROWS = load_table()


# The test kernels are in nearly every archive.
@functools.lru_cache(maxsize=64)
def content_hash(data):
    """Two 64-bit lanes, each with its own start and multiplier, crosswise."""
    low, high = 0xCBF29CE484222325, 0x100000001B3
    for byte in data:
        low = (low ^ byte) * 0x100000001B3 & WORD
        high = (high ^ byte) * 0xCBF29CE484222325 & WORD
    return low, high


def hash_text(pair):
    return "%016x%016x" % pair


def argument(kind, data, pointers=()):
    """An argument of a launch: 0 value, 1 pointer, 2 hidden, 3 struct with pointers at offsets."""
    out = struct.pack("<BH", kind, len(data)) + data
    if kind == 3:
        out += struct.pack("<H", len(pointers)) + b"".join(struct.pack("<H", offset) for offset in pointers)
    return out


def pointer(address):
    return argument(1, struct.pack("<Q", address))


def u32(value):
    return argument(0, struct.pack("<I", value & 0xFFFFFFFF))


def i32(value):
    return argument(0, struct.pack("<i", value))


def f32(value):
    return argument(0, struct.pack("<f", value))


class Archive:
    """One process. Records are kept in order of sequence and may be written in another."""

    def __init__(self, path, version=7, entries=None, packed=None, pid=4242):
        self.path = os.path.join(path, "pid-%d" % pid) if path else None
        self.version, self.pid = version, pid
        self.entries = entries if entries is not None else (546 if version == 7 else 544)
        self.packed = version >= 7 if packed is None else packed
        self.records = []
        self.sequence = 0
        self.time = 5_000_000_000
        self.contents = {}
        self.code = {}
        self.thread = 100
        self.metadata = {}
        self.trailer = True
        self.tail = b""
        self.shuffle = False

    # Stores.

    def blob(self, data):
        pair = content_hash(data)
        self.contents[pair] = data
        return pair

    def code_object(self, data):
        pair = content_hash(data)
        self.code[pair] = data
        return pair

    # Records.

    def event_id(self, name):
        number = ROWS[name][0]
        return number if number < 546 else self.entries + number - 546

    def raw(self, number, body):
        self.time += 1_000
        header = SHORT_HEADER if self.version <= 3 else HEADER
        length = 32 + len(body)
        self.records.append(header.pack(number, self.sequence, self.time, self.thread, length) + body)
        self.sequence += 1

    def body(self, name, values):
        values = dict(values)
        out = b""
        for field, kind in ROWS[name][3]:
            inline = field.startswith("+")
            field = field.lstrip("+")
            if inline and self.version < 6:
                values.pop(field, None)
                continue
            value = values.pop(field, 0)
            if kind.startswith("b"):
                data = value if isinstance(value, bytes) else b""
                size = int(kind[1:])
                assert len(data) <= size, (name, field)
                out += data.ljust(size, b"\0")
            else:
                if kind in ("u64", "u32") and value < 0:
                    value &= WORD if kind == "u64" else 0xFFFFFFFF
                out += struct.pack(WIDTHS[kind], value)
        assert not values, (name, values)
        return out

    def call(self, name, **values):
        """A record of a fixed layout. Fields by the table's names: `ptr_` for `ptr*`, `p__bytes` for `p.bytes`, `S_` for `$`."""
        named = {}
        for field, value in values.items():
            if field.startswith("S_"):
                field = "$" + field[2:]
            elif field.endswith("_") and field + "x" not in values:
                field = field[:-1] + "*" if any(known.lstrip("+") == field[:-1] + "*" for known, _ in ROWS[name][3]) else field
            else:
                field = field.replace("__", ".") if not field.startswith("__") else field
            named[field] = value
        self.raw(self.event_id(name), self.body(name, named))

    def launch(self, name, stream, code, grid, block, arguments, shared=0, api="hipModuleLaunchKernel", attributes=None,
               stride=0, snapshots=()):
        body = struct.pack("<QH", stream, len(name)) + name.encode() + struct.pack("<QQ", *code)
        body += struct.pack("<7I", *grid, *block, shared)
        body += struct.pack("<HH", len(arguments), len(snapshots)) + b"".join(arguments)
        if self.version >= 6 or attributes or snapshots:
            attributes = attributes or []
            body += struct.pack("<II", len(attributes), stride if attributes else 0) + b"".join(attributes)
        for address, offset, length, pair, direction in snapshots:
            body += struct.pack("<QQQQQB", address, offset, length, *pair, direction)
        self.raw(self.event_id(api), body)

    def node(self, api, name, code, arguments, **values):
        named = {}
        for field, value in values.items():
            field = "$" + field[2:] if field.startswith("S_") else field.replace("__", ".")
            named[field[:-1] + "*" if field.endswith("_") else field] = value
        body = self.body(api, named)
        body += struct.pack("<H", len(name)) + name.encode() + struct.pack("<QQ", *code)
        body += struct.pack("<H", len(arguments)) + b"".join(arguments)
        self.raw(self.event_id(api), body)

    # The archive.

    def events(self):
        out = struct.pack("<IHH", 0x52524845, self.version, 1 if self.packed else 0)
        records = self.records
        if self.shuffle:
            records = records[1::2] + records[::2]
        out += b"".join(records)
        if self.trailer:
            count = len(records) if self.trailer is True else self.trailer
            out += HEADER.pack(0xFFFF, self.sequence, 0, 0, 44) + struct.pack("<QI", count, 0x464F4548)
        return out + self.tail

    def write(self):
        os.makedirs(self.path)
        put(os.path.join(self.path, "events.bin"), self.events())
        for pair, data in self.contents.items():
            name = hash_text(pair)
            put(os.path.join(self.path, "blobs", name[:2], name + ".blob"), data)
        for pair, data in self.code.items():
            put(os.path.join(self.path, "code_objects", hash_text(pair) + ".hsaco"), data)
        manifest = {"pid": self.pid, "parent_pid": 1, "complete": bool(self.trailer), "event_count": len(self.records),
                    "blob_count": len(self.contents) + len(self.code), **self.metadata}
        put(os.path.join(self.path, "manifest.json"), json.dumps(manifest, indent=2).encode())


def put(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(data)


def images(bundle):
    """The images of an offload bundle by entry id."""
    assert bundle[:24] == b"__CLANG_OFFLOAD_BUNDLE__"
    (count,) = struct.unpack_from("<Q", bundle, 24)
    at, found = 32, {}
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", bundle, at)
        found[bundle[at + 24:at + 24 + length].decode()] = bundle[offset:offset + size]
        at += 24 + length
    return found
