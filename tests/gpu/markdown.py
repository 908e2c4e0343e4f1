"""Tables of a run's JSON as Markdown: `python3 markdown.py FILE...`"""

import json
import sys
from pathlib import Path


def cell(value):
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return "-" if value is None else str(value)


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]) + "\n"


def correctness(entries):
    rows = []
    for name, entry in entries.items():
        states = list(entry["replays"].values())
        checks = [check for key, check in entry.get("checks", {}).items() if not key.startswith("program") and check[0] is not None]
        passed = f"{int(min(c[0] for c in checks))} / {int(max(c[1] for c in checks))} / {int(max(c[2] for c in checks))}" if checks else None
        rows.append([name, entry["native"], entry["record"], f"{states.count('ok')} of {len(states)}" if states else None, passed])
    return table(["workload", "native", "recorded", "replays that pass", "D2H pass / fail / skipped"], rows)


def launches(values):
    """Launch rows, by threads."""
    rows = []
    for name, row in values.items():
        if name.startswith("launch "):
            per_s, wall, bare = row["replay_per_s"], row["replay_over_native_wall"], row["replay_over_bare"]
            rows.append([name[7:], row["bare_per_s"], row["native_per_s"], row["metadata_over_native"], row["contents_over_native"],
                         per_s["capture"], wall["capture"], wall["deps"], wall.get("capture, not pinned"), wall.get("deps, not pinned"), bare["capture"]])
    return table(["", "bare /s", "native /s", "recorded, metadata / native", "recorded, contents / native", "replay /s",
                  "replay / native (capture)", "replay / native (deps)", "capture, not pinned", "deps, not pinned", "replay / bare"], rows) if rows else ""


def copies(values):
    """Copy rows: everything staged ahead, within a small budget, and with no result compared."""
    found = [(name, row) for name, row in values.items() if "prestaged_gb_per_s" in row]
    heads = ["copies, GB/s", "bare", "native", "recorded with contents", "replay", "within 1 GiB", "nothing compared", "replay / native", "set-up, ms", "D2H pass / fail / skipped"]
    rows = []
    for name, row in found:
        native, replayed = row["native_gb_per_s"], row["prestaged_gb_per_s"]
        checks = row.get("prestaged_checks")
        rows.append([name, row["bare_gb_per_s"], native, row["recorded_gb_per_s"], replayed, row.get("streaming_1gib_gb_per_s"), row.get("unchecked_gb_per_s"),
                     replayed / native if native and replayed else None, row["prestaged_setup_ms"],
                     checks and " / ".join("-" if count is None else str(int(count)) for count in checks)])
    return table(heads, rows) if rows else ""


def serving(row):
    """The server's archive: a line for each run."""
    keys = ["wall_ms", "load_ms", "serve_ms", "setup_ms", "peak_mib", "process_s", "passed", "failed", "skipped", "placement"]
    rows = [[label] + [found.get(key) for key in keys] for label, found in row.items() if isinstance(found, dict)]
    return table([f"serving, archive of {row.get('archive_gib')} GiB", *keys], rows)


def others(values):
    parts = [copies(values)]
    for name, row in values.items():
        if "prestaged_gb_per_s" in row:
            continue
        if name == "serving":
            parts.append(serving(row))
        elif name == "transformer":
            rows = [[label, wall, row["over_native"][label]] for label, wall in row["wall_ms"].items()]
            parts.append(table(["transformer", "wall, ms", "over native"], rows))
        elif name == "ns per call":
            rows = []
            for threads, found in row.items():
                for call in found.get("native", {}):
                    rows.append([threads, call] + [found.get(kind, {}).get(call) for kind in ("native", "metadata", "contents")])
            parts.append(table(["threads", "call", "native, ns", "recorded, metadata", "recorded, contents"], rows))
        elif not name.startswith("launch "):
            parts.append(table([name, "value"], list(row.items())))
    return "\n".join(parts)


def main():
    for path in sys.argv[1:]:
        report = json.loads(Path(path).read_text())
        print(f"Machine: {', '.join(report['machine']['gpus'])}; {report['machine']['cores']} cores; {report['machine']['date']}\n")
        if "correctness" in report:
            print(correctness(report["correctness"]))
        if "rows" in report:
            print(launches(report["rows"]["values"]))
            print(others(report["rows"]["values"]))
            print("".join(f"- left out: {cut}\n" for cut in report["rows"].get("cuts", [])))
            print("".join(f"- not measured: {error}\n" for error in report["rows"]["errors"]))
            taken = report["rows"].get("seconds", {})
            print(table(["row", "s", "repeats", "runs", "runs left out"], [[name, *found.values()] for name, found in taken.items()]))
        if "triage" in report:
            keys = ["exit", "wall_s", "names_kernel", "usable_after"]
            print(table(["a kernel that never ends", *keys], [["hang"] + [str(report["triage"][key]) for key in keys]]))


if __name__ == "__main__":
    main()
