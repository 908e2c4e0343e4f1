"""Every workload natively, recorded, and replayed in every way."""

import time
from concurrent.futures import ThreadPoolExecutor

import pack

THREADS = (1, 2, 4, 8, 16)
ORDERS = ("capture", "deps", "program")
SKIPPED = 77


def verdict(result):
    """How a replay ended, in a word."""
    if result.timed_out:
        return "timeout"
    if result.code != 0:
        return f"exit {result.code}"
    if result.values.get("failed", 1) != 0:
        return "differs"
    return "ok"


class Correctness:
    """Runs the workloads of list.tsv and keeps what happened."""

    def __init__(self, work, deadline, jobs, only=None, orders=ORDERS, threads=THREADS):
        self.work, self.deadline, self.jobs = work, deadline, jobs
        self.orders, self.threads = orders, threads
        self.rows = [row for row in pack.listed_workloads() if not only or row[0] in only]
        self.results = {}

    def is_late(self):
        return time.monotonic() > self.deadline

    def prepare(self, row):
        """Native and recorded; returns what to replay."""
        name, variables, arguments = row
        entry = {"native": "not run", "record": "not run", "replays": {}, "errors": []}
        self.results[name] = entry
        if self.is_late():
            return None
        result = pack.native(name, arguments, variables)
        entry["native"] = "ok" if result.code == 0 else f"exit {result.code}"
        entry["native_s"] = round(result.wall_s, 3)
        if result.code == SKIPPED:
            entry["native"] = "skipped"
            return None
        if result.code != 0:
            entry["errors"].append(f"native: {result.tail()}")
            return None
        archive = self.work / f"{name}.hrr"
        result = pack.record(name, archive, arguments, variables)
        entry["record"] = "ok" if result.code == 0 else f"exit {result.code}"
        entry["record_s"] = round(result.wall_s, 3)
        if result.code != 0:
            entry["errors"].append(f"record: {result.tail()}")
            return None
        return name, archive, variables

    def replay(self, task):
        (name, archive, variables), order, threads = task
        key = f"{order}/{threads}"
        entry = self.results[name]
        if self.is_late():
            entry["replays"][key] = "not run"
            return
        result = pack.replay(archive, threads, order, variables=variables)
        entry["replays"][key] = verdict(result)
        entry["replays_s"] = round(entry.get("replays_s", 0) + result.wall_s, 3)
        entry.setdefault("checks", {})[key] = [result.values.get(part) for part in ("passed", "failed", "skipped")]
        if verdict(result) != "ok":
            entry["errors"].append(f"{key}: {verdict(result)}: {result.complaint()}")

    def run(self):
        with ThreadPoolExecutor(self.jobs) as pool:
            ready = [archive for archive in pool.map(self.prepare, self.rows) if archive]
            # The longest first, so that none is left alone at the end.
            ready.sort(key=lambda archive: -self.results[archive[0]]["record_s"])
            tasks = [(archive, order, threads) for archive in ready for order in self.orders for threads in self.threads]
            list(pool.map(self.replay, tasks))
        return self.results

    def table(self):
        """Lines: workload, native, recorded, and per order how many replays passed."""
        lines = [f"{'workload':<20} {'native':<8} {'record':<8} " + " ".join(f"{order:<10}" for order in self.orders) + " D2H pass/skip"]
        for name, entry in self.results.items():
            cells = []
            for order in self.orders:
                states = [state for key, state in entry["replays"].items() if key.startswith(order + "/")]
                cells.append(f"{states.count('ok')}/{len(states)}" if states else "-")
            checks = [check for check in entry.get("checks", {}).values() if check[0] is not None]
            passed = f"{int(min(c[0] for c in checks))}/{int(max(c[2] for c in checks))}" if checks else "-"
            lines.append(f"{name:<20} {entry['native']:<8} {entry['record']:<8} " + " ".join(f"{cell:<10}" for cell in cells) + " " + passed)
            lines.extend(f"    {error[:300]}" for error in entry["errors"][:4])
        lines.append(self.summary())
        return lines

    def summary(self):
        """How much was run, how much passed, and what was left out for time."""
        states = [state for entry in self.results.values() for state in entry["replays"].values()]
        natives = [entry["native"] for entry in self.results.values()]
        late = states.count("not run") + natives.count("not run")
        seconds = sum(entry.get(key, 0) for entry in self.results.values() for key in ("native_s", "record_s", "replays_s"))
        return (
            f"correctness: {len(natives)} workloads, {natives.count('skipped')} skipped; {len(states)} replays, {states.count('ok')} pass; "
            f"{late} left out for time; {seconds:.0f} s of processes, {self.jobs} at a time"
        )
