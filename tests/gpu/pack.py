"""The packed programs, and how one of them is run and what it said."""

import ctypes
import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent
WORKLOADS = ROOT / "workloads"
PLAYBACK = ROOT / "bin" / "hrr-playback"
RUNTIME = ROOT / "lib" / "libamdhip64.so.7"
CAPTURE = ROOT / "lib" / "libhrr_capture.so"
# minihip's backend unless a call names another.
BACKEND = "cuda"
RUNTIME_LIBRARIES = ("libhwloc.so.15",)
# Where the driver keeps kernels that it has compiled, so that it does so once, whoever's home this is; None: where it likes.
CACHE = None


@dataclass
class Result:
    """What a process left."""

    code: int
    wall_s: float
    output: str
    values: dict = field(default_factory=dict)

    @property
    def timed_out(self):
        return self.code == -signal.SIGKILL and self.values.get("timeout_s") is not None

    def complaint(self):
        """What the replay says of single calls and results, or else its last lines."""
        found = re.findall(r"^\[HRR\] (?:event \d|D2H ).*$|^\[HRR\] .*(?:refused|cannot).*$", self.output, re.MULTILINE)
        found = [line for line in found if not line.startswith("[HRR] D2H checks")]
        return " | ".join(found[:3]) or self.tail(4)

    def tail(self, lines=3):
        return " | ".join(self.output.strip().splitlines()[-lines:])


def environment(extra=None, backend=None):
    """The variables a packed program needs."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("HIP_", "MINIHIP_"))}
    paths = [str(ROOT / "lib")]
    for library in RUNTIME_LIBRARIES:
        try:
            ctypes.CDLL(library)
        except OSError:
            paths.append(str(ROOT / "fallback"))
            break
    if variables.get("LD_LIBRARY_PATH"):
        paths.append(variables["LD_LIBRARY_PATH"])
    variables["LD_LIBRARY_PATH"] = ":".join(paths)
    variables["HRR_KERNEL_DIR"] = str(ROOT / "kernels")
    variables["MINIHIP_BACKEND"] = backend or BACKEND
    if CACHE:
        variables["CUDA_CACHE_PATH"] = str(CACHE)
    variables.update(extra or {})
    return variables


def watch_memory(process, values):
    """Notes the most memory that a process has had resident, as long as it runs."""
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            return
        found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        if found:
            values["peak_mib"] = int(found.group(1)) // 1024
        time.sleep(0.02)


def run(command, variables, timeout_s, cores=None):
    """Runs a command to its end, on these cores only if given, or kills it and all it started after timeout_s seconds."""
    begin = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=cores and (lambda: os.sched_setaffinity(0, cores)),
    )
    values = {}
    threading.Thread(target=watch_memory, args=(process, values), daemon=True).start()
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        values["timeout_s"] = timeout_s
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    wall_s = time.monotonic() - begin
    return Result(process.returncode, wall_s, output.decode(errors="replace"), values)


PATTERNS = {
    "wall_ms": r"^\[HRR\] Wall time : ([\d.]+) ms",
    "kernels": r"^\[HRR\] Kernels launched: (\d+)",
    "graphs": r"^\[HRR\] Graphs launched : (\d+)",
    "passed": r"^\[HRR\] D2H checks : (\d+) pass",
    "failed": r"^\[HRR\] D2H checks : .* (\d+) fail",
    "skipped": r"^\[HRR\] D2H checks : .* (\d+) skipped",
    "setup_ms": r"^\[HRR\] Set-up  : ([\d.]+) ms",
    "placement": r"^\[HRR\] Placement : (.*)$",
}


def native(name, arguments=(), variables=None, timeout_s=60, backend=None):
    """Runs a workload by itself."""
    result = run([WORKLOADS / name, *arguments], environment(variables, backend), timeout_s)
    result.values.update(numbers(result.output))
    return result


def record(name, archive, arguments=(), variables=None, contents=True, timeout_s=60, backend=None):
    """Records a workload into an archive."""
    recording = {"LD_PRELOAD": str(CAPTURE), "HIP_HRR_CAPTURE_OUTPUT": str(archive)}
    if contents:
        recording["HIP_HRR_CAPTURE_CONTENT"] = "1"
    # Only the program is to be recorded, so its loader gets the library, not this process.
    result = run([WORKLOADS / name, *arguments], environment({**(variables or {}), **recording}, backend), timeout_s)
    result.values.update(numbers(result.output))
    return result


def replay(archive, threads=0, order="capture", options=(), variables=None, timeout_s=60, backend=None, cores=None):
    """Replays an archive and reads its summary."""
    command = [PLAYBACK, archive, "--hip-lib", RUNTIME, "--threads", threads, "--order", order, *options]
    result = run(command, environment(variables, backend), timeout_s, cores)
    for key, pattern in PATTERNS.items():
        found = re.search(pattern, result.output, re.MULTILINE)
        if found:
            text = found.group(1)
            result.values[key] = float(text) if re.fullmatch(r"[\d.]+", text) else text
    return result


def numbers(output):
    """The `key=number` pairs of a workload's own report."""
    return {key: float(value) for key, value in re.findall(r"(\w+)=(-?\d+(?:\.\d+)?)\b", output)}


def listed_workloads():
    """Name, environment and arguments of each row of list.tsv."""
    rows = []
    for line in (ROOT / "list.tsv").read_text().splitlines():
        if line and not line.startswith("#"):
            name, variables, arguments = line.split("\t")[:3]
            pairs = [] if variables == "-" else [pair.split("=", 1) for pair in variables.split()]
            rows.append((name, dict(pairs), [] if arguments == "-" else arguments.split()))
    return rows
