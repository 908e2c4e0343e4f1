#!/usr/bin/env python3
"""Checks that the CPU and AMD GPU code objects of each test kernel agree on what a launch looks like.

usage: check_layout.py OUTDIR      (the folder given to scripts/build-workloads)

For every code object in OUTDIR/kernels/obj: the kernels named by the AMDGPU metadata note are those that the x86-64
object exports; each explicit argument has the same offset and size in the note and in NAME__args; pointers are
`global_buffer` and everything else `by_value`; static shared memory is of one size; the PTX has an entry for each; and
the bundle holds these very bytes. Exits 1 and names each difference.
"""

import ctypes
import pathlib
import re
import struct
import subprocess
import sys

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
# As clang-offload-bundler 22 writes the ids that scripts/build-workloads asks for.
TARGETS = {
    "hipv4-amdgcn-amd-amdhsa--gfx942": ".amdgcn",
    "hipv4-x86_64-unknown-linux-gnu-": ".x86_64",
    "hipv4-nvptx64-nvidia-cuda-unknown-sm_90": ".ptx",
}


def amdgpu_kernels(path):
    """Kernel name -> ([(offset, size, value kind)] of explicit arguments, static shared bytes), from the note."""
    notes = subprocess.run(
        ["llvm-readelf-22", "--notes", str(path)], check=True, capture_output=True, text=True
    ).stdout
    kernels = {}
    for block in re.split(r"^  - \.", notes.split("amdhsa.kernels:")[1].split("\namdhsa.")[0], flags=re.M)[1:]:
        arguments = []
        for argument in re.split(r"^      - \.", block, flags=re.M)[1:]:
            fields = dict(re.findall(r"^ *\.?(\w+): +(\S+)$", argument, flags=re.M))
            if not fields["value_kind"].startswith("hidden_"):
                arguments.append((int(fields["offset"]), int(fields["size"]), fields["value_kind"]))
        name = re.search(r"^    \.name: +(\S+)", block, flags=re.M).group(1)
        shared = int(re.search(r"\.group_segment_fixed_size: (\d+)", block).group(1))
        kernels[name] = (arguments, shared)
    return kernels


def cpu_kernel_names(path):
    symbols = subprocess.run(
        ["llvm-readelf-22", "--dyn-syms", str(path)], check=True, capture_output=True, text=True
    ).stdout
    return {name[: -len("__args")] for name in re.findall(r" (\w+__args)$", symbols, flags=re.M)}


def cpu_layout(library, name):
    """([(offset, size)], kernarg size, static shared bytes) as the CPU object exports them."""
    head = (ctypes.c_uint32 * 2).in_dll(library, f"{name}__args")
    words = (ctypes.c_uint32 * (2 + 2 * head[0])).in_dll(library, f"{name}__args")
    arguments = [(words[2 + 2 * i], words[3 + 2 * i]) for i in range(words[0])]
    try:
        shared = ctypes.c_uint32.in_dll(library, f"{name}__static_shared").value
    except ValueError:
        shared = 0
    return arguments, words[1], shared


def bundle_entries(path):
    data = path.read_bytes()
    assert data.startswith(BUNDLE_MAGIC), f"{path} is no bundle"
    (count,) = struct.unpack_from("<Q", data, len(BUNDLE_MAGIC))
    at, entries = len(BUNDLE_MAGIC) + 8, {}
    for _ in range(count):
        offset, size, id_len = struct.unpack_from("<QQQ", data, at)
        entries[data[at + 24 : at + 24 + id_len].decode()] = data[offset : offset + size]
        at += 24 + id_len
    return entries


def check(folder, stem):
    problems = []

    def expect(got, want, what):
        if got != want:
            problems.append(f"{stem}: {what}: {got}, should be {want}")

    objects = folder / "obj"
    kernels = amdgpu_kernels(objects / f"{stem}.amdgcn")
    expect(sorted(cpu_kernel_names(objects / f"{stem}.x86_64")), sorted(kernels), "kernels of the x86-64 object")
    ptx = (objects / f"{stem}.ptx").read_text()
    expect(sorted(re.findall(r"\.visible \.entry (\w+)\(", ptx)), sorted(kernels), "entries of the PTX")
    library = ctypes.CDLL(str((objects / f"{stem}.x86_64").resolve()))
    for name, (arguments, shared) in kernels.items():
        layout, kernarg_size, static_shared = cpu_layout(library, name)
        expect(layout, [argument[:2] for argument in arguments], f"arguments of {name}")
        expect(kernarg_size, sum(arguments[-1][:2]), f"kernarg size of {name}")
        # The compiler pads what stands before dynamic shared memory to 16 bytes, as the CPU runtime does.
        expect((static_shared + 15) // 16 * 16, (shared + 15) // 16 * 16, f"static shared bytes of {name}")
        expect({kind for _, _, kind in arguments} <= {"global_buffer", "by_value"}, True, f"value kinds of {name}")
    entries = bundle_entries(folder / f"{stem}.hipfb")
    for target, suffix in TARGETS.items():
        same = entries.get(target) == (objects / f"{stem}{suffix}").read_bytes()
        expect(same, True, f"bundle entry {target} equals obj/{stem}{suffix}")
    return problems, len(kernels)


# The value kinds that the note must give, by hand, for kernels that have every kind of argument.
KNOWN_KINDS = {
    "saxpy": ["by_value", "global_buffer", "global_buffer", "by_value"],
    "apply_view": ["by_value", "by_value"],
    "eight_arguments": ["by_value"] * 6 + ["global_buffer"] * 2,
    "make_table": ["global_buffer", "global_buffer", "by_value", "by_value"],
}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1]) / "kernels"
    stems = sorted(path.stem for path in (folder / "obj").glob("*.amdgcn"))
    if not stems:
        sys.exit(f"check_layout: no code objects in {folder}/obj; run scripts/build-workloads first")
    problems, kernels = [], 0
    for stem in stems:
        found, count = check(folder, stem)
        problems += found
        kernels += count
    standard = amdgpu_kernels(folder / "obj" / "standard.amdgcn")
    for name, kinds in KNOWN_KINDS.items():
        got = [kind for _, _, kind in standard[name][0]]
        if got != kinds:
            problems.append(f"standard: value kinds of {name}: {got}, should be {kinds}")
    for problem in problems:
        print(f"check_layout: {problem}")
    print(f"check_layout: {kernels} kernels in {len(stems)} code objects, {len(problems)} differences")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
