"""Runs the packed workloads on this machine's GPUs and prints one table. `python3 run.py --help` lists the options."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pack
import rows
from correctness import ORDERS, THREADS, Correctness


def machine():
    """What this machine is, as far as it says."""
    facts = {"date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count()}
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        facts["gpus"] = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.strip().splitlines()
        query[1] = "--query-gpu=persistence_mode"
        facts["persistence"] = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.split()
    except (OSError, subprocess.TimeoutExpired) as error:
        facts["gpus"] = [f"nvidia-smi: {error}"]
    return facts


def hold_devices():
    """Keeps the driver's devices open, so that the driver does not start each GPU anew for every process."""
    held = []
    for node in sorted(Path("/dev").glob("nvidia[0-9]*")):
        try:
            held.append(os.open(node, os.O_RDWR | os.O_CLOEXEC))
        except OSError:
            pass
    return held


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write everything there")
    parser.add_argument("--sections", default="correctness,rows,triage", help="which of correctness, rows, triage (default: all)")
    parser.add_argument("--workloads", help="only these, by name, separated by commas")
    parser.add_argument("--orders", default=",".join(ORDERS))
    parser.add_argument("--threads", default=",".join(map(str, THREADS)), help="of correctness and of the launch rates")
    parser.add_argument("--budget-s", type=float, default=450, help="what is not started by then is not run; the whole ends at most 20 s later (default: 450)")
    parser.add_argument("--full", action="store_true", help="rows: leave nothing out for time, and serve the 30 GB archive")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="processes at a time for correctness")
    parser.add_argument("--backend", default="cuda", choices=("cuda", "cpu"), help="cpu tries the script itself, with no GPU")
    parser.add_argument("--devices", type=int, default=1, choices=(1, 2), help="rows of one GPU (default) or of two")
    parser.add_argument("--rows", help="only these rows: transformer, launch, h2d, d2h, pageable, stream, calls, serving, peer")
    parser.add_argument("--repeats", type=int, help="runs of which a row is the median (default: 3, fewer where time is short)")
    parser.add_argument("--work", help="directory for the archives (default: a temporary one, removed at the end)")
    return parser.parse_args()


def main():
    options = parse()
    pack.BACKEND = options.backend
    begin = time.monotonic()
    deadline = begin + options.budget_s
    work = Path(options.work) if options.work else Path(tempfile.mkdtemp(prefix="hrr-gpu-"))
    work.mkdir(parents=True, exist_ok=True)
    sections = options.sections.split(",")
    report = {"machine": machine(), "devices held open": len(hold_devices())}
    pack.CACHE = work / "kernel-cache"
    print("machine:", json.dumps(report["machine"]), flush=True)
    try:
        if "correctness" in sections:
            only = options.workloads.split(",") if options.workloads else None
            threads = [int(count) for count in options.threads.split(",")]
            run = Correctness(work, deadline, options.jobs, only, options.orders.split(","), threads)
            report["correctness"] = run.run()
            print("\n".join(run.table()), flush=True)
            print(f"correctness: {time.monotonic() - begin:.0f} s", flush=True)
        if "rows" in sections or "triage" in sections:
            rows.THREADS = [int(count) for count in options.threads.split(",")]
            if options.repeats:
                rows.REPEATS = options.repeats
            # Before the rows, which take what time there is.
            if "triage" in sections:
                report["triage"] = rows.triage(work / "triage")
                print(f"triage: {time.monotonic() - begin:.0f} s", flush=True)
            if "rows" in sections:
                (work / "rows").mkdir(exist_ok=True)
                only = options.rows and options.rows.split(",")
                report["rows"] = rows.run(work / "rows", deadline, options.devices, only, options.full)
    finally:
        if options.json:
            report["total_s"] = round(time.monotonic() - begin, 1)
            Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
        if not options.work:
            shutil.rmtree(work, ignore_errors=True)
    print(f"total: {time.monotonic() - begin:.0f} s")
    failed = [name for name, entry in report.get("correctness", {}).items() if entry["errors"]]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
