#!/usr/bin/env python3
"""Lists the calls of a recorded process: a reader written from docs/archive-format.md alone.

usage: read_archive.py PROCESS_DIRECTORY [--count]
"""

import json
import os
import struct
import sys
from pathlib import Path

HEADER_BYTES = 4096
RECORD_BYTES = 32
MARKERS = 0xFF00
PAD = 0xFFFF
IN_FLIGHT = 1


class Unreadable(Exception):
    """What is wrong with the archive, in a line that names the file."""


def read_bytes(path):
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error


def read_manifest(path):
    """The names of entry points by id, and the clock's first tick and rate."""
    try:
        manifest = json.loads(read_bytes(path))
        names, clock = manifest["apis"], manifest["clock"]
        if not all(isinstance(name, str) for name in names):
            raise TypeError("its apis are no names")
        start, rate = int(clock["tick_at_start"]), int(clock["ticks_per_second"])
    except (ValueError, TypeError, KeyError) as error:
        raise Unreadable(f"{path} is no manifest of a process: {error}") from error
    # A recording whose clock counts nothing has no rate.
    return names, start, rate or 1


def records(path):
    """Yields (api, flags, begin, end, ret, aux, words, sections) of each record of a stream file."""
    data = read_bytes(path)
    if len(data) < HEADER_BYTES or data[:8] != b"HRR-EVS\n" or struct.unpack_from("<I", data, 8) != (1,):
        raise Unreadable(f"{path} is no stream file of version 1")
    if struct.unpack_from("<I", data, 72) != (0,):
        raise Unreadable(f"{path} is a flight recorder's ring, whose parts this reader does not put in order")
    at = HEADER_BYTES
    while at + RECORD_BYTES <= len(data):
        length, api, flags, count, begin, end, ret, aux = struct.unpack_from("<IHBBQQiI", data, at)
        if length == 0:
            return
        if length < RECORD_BYTES + 8 * count or length % 8 or at + length > len(data):
            raise Unreadable(f"{path}: at byte {at} is no record of {length} bytes and {count} words")
        if api != PAD:
            words = struct.unpack_from(f"<{count}Q", data, at + RECORD_BYTES)
            parts = list(sections(path, data, at + RECORD_BYTES + 8 * count, at + length))
            yield api, flags, begin, end, ret, aux, words, parts
        at += length


def sections(path, data, at, end):
    """Yields (tag, parameter, presence, payload)."""
    while at + 8 <= end:
        tag, parameter, presence, _, length = struct.unpack_from("<BBBBI", data, at)
        if at + 8 + length > end:
            raise Unreadable(f"{path}: the section at byte {at} is longer than its record")
        yield tag, parameter, presence, data[at + 8 : at + 8 + length]
        at += 8 + (length + 7) // 8 * 8


def calls_of(process):
    """All calls of a process by the tick of their entry, and its clock."""
    names, start, rate = read_manifest(process / "manifest.json")
    calls = []
    for path in sorted(process.glob("events/*.evs")):
        if not path.stem.isdecimal():
            continue
        for api, flags, begin, end, ret, aux, words, parts in records(path):
            if api < MARKERS:
                name = names[api] if api < len(names) else f"(unnamed API {api})"
                calls.append((begin, int(path.stem), name, flags, end, ret, words, parts))
    calls.sort(key=lambda call: call[:2])
    return calls, start, rate


def main(arguments):
    paths = [argument for argument in arguments if argument != "--count"]
    if len(paths) != 1 or paths[0].startswith("-"):
        sys.exit("usage: read_archive.py PROCESS_DIRECTORY [--count]")
    process = Path(paths[0])
    if not (process / "events").exists() and list(process.glob("pid-*")):
        sys.exit(f"read_archive.py: {process} is an archive's root; give one of the pid-* directories in it")
    try:
        calls, start, rate = calls_of(process)
    except Unreadable as error:
        sys.exit(f"read_archive.py: {error}")
    if "--count" in arguments:
        print(len(calls))
        return
    for begin, thread, name, flags, end, ret, words, parts in calls:
        start_us = (begin - start) * 1e6 / rate
        took = "in flight" if flags & IN_FLIGHT else f"{(end - begin) * 1e6 / rate:.1f} us = {ret}"
        held = "".join(f" [{tag}:{parameter} {len(payload)} B]" for tag, parameter, _, payload in parts)
        print(f"{start_us:12.1f} us  thread {thread:<3} {name}({', '.join(map(hex, words))}) {took}{held}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # A reader that has seen enough is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
