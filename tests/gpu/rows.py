"""The measured rows, each against a native baseline of the same run, and the triage of a kernel that never ends."""

import json
import os
import shutil
import statistics
import time

import pack

REPEATS = 3
THREADS = (1, 2, 4, 8, 16)
# Launches per thread, so that each run lasts about a second.
LAUNCHES = {1: 240_000, 2: 160_000, 4: 120_000, 8: 80_000, 16: 40_000}
# Threads of the runs whose workers are not pinned: where there is room for them, and where there is none.
NOT_PINNED = (1, 16)
COPY_MIB = 64
# Two counts of copies: the difference of their walls is the copies alone, set-up (pinning, allocation) left out.
FEW, MANY = 16, 256
# Results have their places before the clock starts, and pageable copies are slower: fewer do.
MANY_RESULTS, MANY_PAGEABLE = 112, 64
# Copies of as many different contents, in MiB and counts, within a budget in MiB that holds few of them, on this many cores.
STREAM_MIB, STREAM_FEW, STREAM_MANY, STREAM_BUDGET_MIB = 32, 32, 160, 512
STREAM_CORES = (2, 4, 8, 16)
# Steps, layers, iterations of the shortest kernel (about 10 us), threads, elements.
TRANSFORMER = (60, 50, 900, 4, 4096)
# Threads, steps, layers, MiB of weights, MiB per piece: a million launches and 30 GB, or a quarter of that.
SERVING = (20, 980, 24, 30_720, 2_048)
SERVING_QUARTER = (20, 245, 24, 7_680, 2_048)
GIB = 1 << 30
# What a run begun before the deadline may take beyond it, in seconds.
GRACE_S = 20


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def ratio(numerator, denominator):
    return round(numerator / denominator, 4) if numerator and denominator else None


class Rows:
    """Runs measurements one at a time, each only if there is time left, and keeps their values and what was left out."""

    def __init__(self, work, deadline, is_full=False):
        self.work, self.deadline, self.is_full = work, deadline, is_full
        # Runs of which a value is the median, in the row at hand.
        self.repeats = REPEATS
        self.values, self.errors, self.cuts, self.seconds = {}, [], [], {}
        self.runs = self.late_runs = 0

    def is_late(self):
        """Asked before a run: whether none may begin any more. Both are counted."""
        late = time.monotonic() > self.deadline
        self.late_runs += late
        self.runs += not late
        return late

    def limit(self, most_s):
        """Seconds that a run may take: a run begun just in time ends soon after."""
        return min(most_s, max(10, self.deadline + GRACE_S - time.monotonic()))

    def value(self, result, key, what):
        """A value of a run that ended well, else None with the reason kept."""
        if result is None:
            self.cut(f"{what}: not run, no time was left")
            return None
        if result.code != 0 or key not in result.values:
            self.errors.append(f"{what}: exit {result.code}: {result.tail()}")
            return None
        return result.values[key]

    def cut(self, text):
        """Notes what was left out, once."""
        if text not in self.cuts:
            self.cuts.append(text)

    def native(self, name, arguments, **options):
        return None if self.is_late() else pack.native(name, list(map(str, arguments)), timeout_s=self.limit(60), **options)

    def record(self, name, archive, arguments, **options):
        return None if self.is_late() else pack.record(name, archive, list(map(str, arguments)), timeout_s=self.limit(120), **options)

    def replay(self, archive, **options):
        return None if self.is_late() else pack.replay(archive, timeout_s=self.limit(120), **options)

    def bare(self, *arguments):
        if self.is_late():
            return None
        result = pack.run([pack.ROOT / "bin" / "bare-driver", *arguments], pack.environment(), 60)
        result.values.update(pack.numbers(result.output))
        return result

    def launch_rates(self, devices=1):
        """Launches per second: bare, native, recorded, replayed."""
        for threads in THREADS:
            launches = LAUNCHES[threads]
            total = launches * threads
            arguments = (launches, threads, devices)
            label = f"launch T={threads}" + (f" on {devices} devices" if devices > 1 else "")
            archive = self.work / f"launch-{threads}-{devices}.hrr"
            bare = [] if devices > 1 else [self.value(self.bare("launch", pack.ROOT / "kernels" / "standard.ptx", launches, threads), "launches_per_s", label + " bare") for _ in range(self.repeats)]
            natives, walls = [], []
            contents = self.value(self.record("launch_rate", archive, arguments), "launches_per_s", label + " recorded")
            metadata = self.value(self.record("launch_rate", self.work / "metadata.hrr", arguments, contents=False), "launches_per_s", label + " metadata")
            replays = {"capture": [], "deps": []}
            if threads in NOT_PINNED or self.is_full:
                replays.update({"capture, not pinned": [], "deps, not pinned": []})
            else:
                self.cut(f"{label}: workers that are not pinned only with {' and '.join(map(str, NOT_PINNED))} threads (--full: all)")
            for _ in range(self.repeats):
                result = self.native("launch_rate", arguments)
                natives.append(self.value(result, "launches_per_s", label + " native"))
                walls.append(self.value(result, "wall_ms", label + " native"))
                for way, found in replays.items():
                    order, *pinning = way.split(", ")
                    replayed = self.replay(archive, order=order, options=("--pin", "none") if pinning else ())
                    found.append(self.value(replayed, "wall_ms", f"{label} replay {way}"))
            native_wall = median(walls)
            self.values[label] = {
                "bare_per_s": median(bare),
                "native_per_s": median(natives),
                "metadata_per_s": metadata,
                "contents_per_s": contents,
                "replay_per_s": {order: median(found) and round(total / median(found) * 1e3) for order, found in replays.items()},
                "replay_over_native_wall": {order: ratio(native_wall, median(found)) for order, found in replays.items()},
                "replay_over_bare": {order: median(found) and ratio(total / median(found) * 1e3, median(bare)) for order, found in replays.items()},
                "metadata_over_native": ratio(metadata, median(natives)),
                "contents_over_native": ratio(contents, median(natives)),
            }

    def difference(self, few, many, copies, mib=None):
        """GB/s of the copies in which two runs differ."""
        if few is None or many is None or many <= few:
            return None
        return round(copies * ((mib or COPY_MIB) << 20) / (many - few) / 1e6, 2)

    def transfers(self, name, direction, devices=1, pageable=False):
        """Copy bandwidth: bare, native, replayed with everything prestaged, streamed within a small budget (to the device),
        and with no result compared (to the host)."""
        archives = {}
        native = None
        most = MANY_PAGEABLE if pageable else MANY_RESULTS if direction == 1 else MANY
        for count in (FEW, most):
            arguments = (direction, COPY_MIB, count, 8, int(pageable), devices)
            archives[count] = self.work / f"copy-{direction}-{devices}-{int(pageable)}-{count}.hrr"
            if count == most:
                natives = [self.value(self.native("transfer_rate", arguments), "gb_per_s", name + " native") for _ in range(self.repeats)]
                native = median(natives)
            recorded = self.value(self.record("transfer_rate", archives[count], arguments), "gb_per_s", name + " recorded")
        bare = None
        if direction < 2 and devices == 1:
            kind = ("h2d" if direction == 0 else "d2h", COPY_MIB, most) + (("pageable",) if pageable else ())
            bare = self.value(self.bare(*kind), "gb_per_s", name + " bare")
        row = {"bare_gb_per_s": bare, "native_gb_per_s": native, "recorded_gb_per_s": recorded}
        ways = {"prestaged": ()}
        if direction == 0 and not pageable:
            ways["streaming_1gib"] = ("--memory-budget", 1024)
        if direction == 1:
            # Every kernel's name has an "i"; a replay of chosen kernels compares nothing.
            ways["unchecked"] = ("--kernel-filter", "i")
        for label, options in ways.items():
            walls, setups = {}, {}
            for count, archive in archives.items():
                results = [self.replay(archive, options=options) for _ in range(self.repeats)]
                walls[count] = median([self.value(result, "wall_ms", f"{name} {label}") for result in results])
                setups[count] = median([self.value(result, "setup_ms", f"{name} {label}") for result in results])
                row[f"{label}_checks"] = [results[-1].values.get(key) for key in ("passed", "failed", "skipped")] if results[-1] else None
            row[f"{label}_gb_per_s"] = self.difference(walls[FEW], walls[most], (most - FEW) * devices)
            row[f"{label}_wall_ms"] = walls[most]
            row[f"{label}_setup_ms"] = setups[most]
        for archive in archives.values():
            shutil.rmtree(archive, ignore_errors=True)
        self.values[name] = row

    def streaming(self):
        """Copies of different contents, read from the page cache and staged while the replay runs, by the cores it may use.
        One of them issues the copies."""
        name, archives, row = "h2d of different contents", {}, {}
        for count in (STREAM_FEW, STREAM_MANY):
            arguments = (0, STREAM_MIB, count, 8, 0, 1, 1)
            archives[count] = self.work / f"stream-{count}.hrr"
            recorded = self.record("transfer_rate", archives[count], arguments)
            row["recorded_gb_per_s"] = self.value(recorded, "gb_per_s", name + " recorded")
        available = sorted(os.sched_getaffinity(0))
        for cores in [count for count in STREAM_CORES if count <= len(available)]:
            walls = {}
            for count, archive in archives.items():
                results = [self.replay(archive, threads=1, options=("--memory-budget", STREAM_BUDGET_MIB), cores=available[:cores]) for _ in range(min(self.repeats, 2))]
                walls[count] = median([self.value(result, "wall_ms", f"{name}, {cores} cores") for result in results])
            rate = self.difference(walls[STREAM_FEW], walls[STREAM_MANY], STREAM_MANY - STREAM_FEW, STREAM_MIB)
            row[f"{cores} cores, GB/s"] = rate
            row[f"{cores} cores, GB/s per staging core"] = rate and round(rate / (cores - 1), 2)
        result = self.replay(archives[STREAM_MANY], threads=1)
        row["staged ahead, set-up, ms"] = self.value(result, "setup_ms", name + " staged ahead")
        row["staged ahead, wall, ms"] = self.value(result, "wall_ms", name + " staged ahead")
        for archive in archives.values():
            shutil.rmtree(archive, ignore_errors=True)
        self.values[name] = row

    def transformer(self):
        """A mixed workload: native against recorded and replayed walls."""
        archive = self.work / "transformer.hrr"
        walls = {}

        def add(label, result):
            walls.setdefault(label, []).append(self.value(result, "wall_ms", "transformer " + label))

        add("recorded, contents", self.record("transformer", archive, TRANSFORMER))
        for number in range(self.repeats):
            add("native", self.native("transformer", TRANSFORMER))
            add("recorded, metadata", self.record("transformer", self.work / "metadata.hrr", TRANSFORMER, contents=False))
            if number > 0:
                add("recorded, contents", self.record("transformer", self.work / "contents.hrr", TRANSFORMER))
            add("replay", self.replay(archive))
            add("replay, watchdog", self.replay(archive, options=("--sync-watchdog-ms", 10_000)))
            add("replay, deps", self.replay(archive, order="deps"))
            if number == 0 or self.is_full:
                add("replay, not placed", self.replay(archive, options=("--no-placement",)))
                add("replay, not pinned", self.replay(archive, options=("--pin", "none")))
            else:
                self.cut("transformer: one run each with memory not placed and with workers not pinned (--full: all)")
        for threads in (1, 2, 4):
            add(f"replay, {threads} workers", self.replay(archive, threads=threads))
        medians = {label: median(found) for label, found in walls.items()}
        spread = {label: [value for value in found] for label, found in walls.items()}
        self.values["transformer"] = {
            "wall_ms": medians,
            "over_native": {label: ratio(wall, medians["native"]) for label, wall in medians.items()},
            "walls_ms": spread,
        }

    def serving(self):
        """A server's archive: weights in large pieces, many threads, block tables with device pointers, updated graphs."""
        archive = self.work / "serving.hrr"
        row = {}

        def add(label, result, keys):
            if result is None:
                self.cut(f"serving, {label}: not run, no time was left")
                return
            found = {key: result.values.get(key) for key in keys}
            row[label] = {**found, "exit": result.code, "peak_mib": result.values.get("peak_mib"), "process_s": round(result.wall_s, 1)}
            if result.code != 0:
                self.errors.append(f"serving, {label}: exit {result.code}: {result.tail()}")

        own, replayed = ("wall_ms", "load_ms", "serve_ms", "launches"), ("wall_ms", "setup_ms", "kernels", "graphs", "passed", "failed", "skipped", "placement")
        if not self.is_full:
            self.cut("serving: a quarter of the weights and of the steps (--full: all)")
        arguments = list(map(str, SERVING if self.is_full else SERVING_QUARTER))
        add("native", self.native("serving", arguments), own)
        add("recorded, metadata", self.record("serving", self.work / "metadata.hrr", arguments, contents=False), own)
        add("recorded, contents", self.record("serving", archive, arguments), own)
        row["archive_gib"] = round(sum(file.stat().st_size for file in archive.rglob("*") if file.is_file()) / GIB, 2) if archive.exists() else None
        add("replay", self.replay(archive), replayed)
        add("replay, deps", self.replay(archive, order="deps"), replayed)
        add("replay, 4 workers, 8 GiB budget", self.replay(archive, threads=4, options=("--memory-budget", 8192)), replayed)
        shutil.rmtree(archive, ignore_errors=True)
        self.values["serving"] = row

    def calls(self):
        """Time per call, alone and recorded."""
        import re

        row = {}
        for threads in (1, 8):
            found = {}
            for label, run in (
                ("native", lambda: self.native("api_rate", (20_000, threads))),
                ("metadata", lambda: self.record("api_rate", self.work / "calls.hrr", (20_000, threads), contents=False)),
                ("contents", lambda: self.record("api_rate", self.work / "calls.hrr", (20_000, threads))),
            ):
                result = run()
                if result is not None and result.code == 0:
                    found[label] = {call: float(ns) for call, ns in re.findall(r"api_rate: (\w+) threads.*ns_per_call=([\d.]+)", result.output)}
            row[f"T={threads}"] = found
        self.values["ns per call"] = row

    def lines(self):
        """The rows as text."""
        lines = []
        for name, row in self.values.items():
            lines.append(name)
            lines.extend(f"    {key:<26} {value}" for key, value in row.items())
        lines.extend(f"cut: {cut}" for cut in self.cuts)
        return lines + [f"error: {error[:400]}" for error in self.errors]


# The rows, the most important one first: seconds of what is done once, seconds for each repetition, and how. The seconds are
# guesses from runs on an H200 machine; what the first rows took says how far off they are on another one.
ONE_DEVICE = {
    "transformer": (18, 15, Rows.transformer),
    "launch": (30, 40, Rows.launch_rates),
    "stream": (14, 18, Rows.streaming),
    "pageable": (14, 24, lambda rows: [rows.transfers("h2d, pageable", 0, pageable=True), rows.transfers("d2h, pageable", 1, pageable=True)]),
    "h2d": (8, 11, lambda rows: rows.transfers("h2d", 0)),
    "d2h": (8, 16, lambda rows: rows.transfers("d2h", 1)),
    "calls": (16, 0, Rows.calls),
    "serving": (40, 0, Rows.serving),
}
TWO_DEVICES = {
    "launch": (30, 40, lambda rows: rows.launch_rates(2)),
    "h2d": (8, 14, lambda rows: rows.transfers("h2d on both", 0, 2)),
    "d2h": (8, 20, lambda rows: rows.transfers("d2h on both", 1, 2)),
    "peer": (6, 8, lambda rows: rows.transfers("peer", 2)),
}
FULL_SERVING_S = 110


def repeats_within(rows, left_s, pace):
    """How many repetitions of every row there is time for, at the pace of the rows so far: all, or fewer, and at least one."""
    for repeats in range(REPEATS, 1, -1):
        if pace * sum(once + repeats * each for once, each in rows) <= left_s:
            return repeats
    return 1


def run(work, deadline, devices=1, only=None, is_full=False):
    """Measures the rows, or those named, and prints them. With `is_full` nothing is cut for time."""
    rows = Rows(work, float("inf") if is_full else deadline, is_full)
    table = TWO_DEVICES if devices > 1 else ONE_DEVICE
    names = [name for name in table if not only or name in only]
    cost = {name: table[name][:2] for name in names}
    if is_full and "serving" in cost:
        cost["serving"] = (FULL_SERVING_S, 0)
    guessed_s = taken_s = 0
    for number, name in enumerate(names):
        begin, runs, late = time.monotonic(), rows.runs, rows.late_runs
        # One row says little of the others.
        pace = min(2.0, max(0.5, taken_s / guessed_s)) if number > 1 else 1.0
        rows.repeats = repeats_within([cost[other] for other in names[number:]], rows.deadline - begin, pace)
        once, each = cost[name]
        if rows.repeats < REPEATS and each:
            rows.cut(f"{name}: {rows.repeats} of {REPEATS} repetitions, for time")
        table[name][2](rows)
        took_s = time.monotonic() - begin
        guessed_s, taken_s = guessed_s + once + rows.repeats * each, taken_s + took_s
        rows.seconds[name] = {"s": round(took_s, 1), "repeats": rows.repeats, "runs": rows.runs - runs, "runs left out": rows.late_runs - late}
        print(f"rows: {name}: {json.dumps(rows.seconds[name])}", flush=True)
    print("\n".join(rows.lines()), flush=True)
    return {"values": rows.values, "errors": rows.errors, "cuts": rows.cuts, "seconds": rows.seconds}


WATCHDOG_EXIT = 124


def triage(work):
    """Records a program whose kernel never ends, kills it, replays it under the watchdog, and uses the GPU again."""
    archive = work / "hang.hrr"
    pack.record("hang", archive, timeout_s=8)
    result = pack.replay(archive, options=("--sync-watchdog-ms", 2000), timeout_s=60)
    after = pack.native("saxpy_reduce")
    report = {
        "exit": result.code,
        "wall_s": round(result.wall_s, 1),
        "names_kernel": "spin_until" in result.output,
        "usable_after": after.code == 0,
        "output": result.output[-3000:],
    }
    ok = result.code == WATCHDOG_EXIT and report["names_kernel"] and report["usable_after"]
    print(f"triage: {'ok' if ok else 'NOT AS EXPECTED'}: exit {result.code}, {report['wall_s']} s, usable after: {report['usable_after']}")
    print("\n".join("    " + line for line in result.output.splitlines()[-25:]))
    return report
