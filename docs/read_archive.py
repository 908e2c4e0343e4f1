#!/usr/bin/env python3
"""Lists the calls of a recorded process: a reader written from docs/archive-format.md alone.

usage: read_archive.py PROCESS_DIRECTORY [--count]
"""

import json
import struct
import sys
from pathlib import Path

HEADER_BYTES = 4096
MARKERS = 0xFF00
PAD, OBSERVED = 0xFFFF, 0xFFFE
IN_FLIGHT = 1


def records(path):
    """Yields (api, flags, begin, end, ret, aux, words, sections) of each record of a stream file."""
    data = path.read_bytes()
    if data[:8] != b"HRR-EVS\n" or struct.unpack_from("<I", data, 8) != (1,):
        raise ValueError(f"{path} is no stream file of version 1")
    at = HEADER_BYTES
    while at + 32 <= len(data):
        length, api, flags, count, begin, end, ret, aux = struct.unpack_from("<IHBBQQiI", data, at)
        if length == 0:
            return
        if length < 32 or length % 8 or at + length > len(data):
            raise ValueError(f"{path}: a record of {length} bytes at offset {at}")
        if api != PAD:
            words = struct.unpack_from(f"<{count}Q", data, at + 32)
            yield api, flags, begin, end, ret, aux, words, list(sections(data, at + 32 + 8 * count, at + length))
        at += length


def sections(data, at, end):
    """Yields (tag, parameter, presence, payload)."""
    while at + 8 <= end:
        tag, parameter, presence, _, length = struct.unpack_from("<BBBBI", data, at)
        yield tag, parameter, presence, data[at + 8 : at + 8 + length]
        at += 8 + (length + 7) // 8 * 8


def main():
    process = Path(sys.argv[1])
    manifest = json.loads((process / "manifest.json").read_text())
    names, clock = manifest["apis"], manifest["clock"]
    calls = []
    for path in process.glob("events/*.evs"):
        thread = int(path.stem)
        for api, flags, begin, end, ret, aux, words, parts in records(path):
            if api < MARKERS:
                calls.append((begin, thread, names[api], flags, end, ret, words, parts))
    calls.sort(key=lambda call: call[:2])
    if "--count" in sys.argv[2:]:
        print(len(calls))
        return
    for begin, thread, name, flags, end, ret, words, parts in calls:
        start_us = (begin - clock["tick_at_start"]) * 1e6 / clock["ticks_per_second"]
        took = "in flight" if flags & IN_FLIGHT else f"{(end - begin) * 1e6 / clock['ticks_per_second']:.1f} us = {ret}"
        held = "".join(f" [{tag}:{parameter} {len(payload)} B]" for tag, parameter, _, payload in parts)
        print(f"{start_us:12.1f} us  thread {thread:<3} {name}({', '.join(map(hex, words))}) {took}{held}")


if __name__ == "__main__":
    main()
