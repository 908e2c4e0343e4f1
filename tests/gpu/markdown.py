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
    rows = []
    for name, row in values.items():
        if name.startswith("launch "):
            per_s, wall, bare = row["replay_per_s"], row["replay_over_native_wall"], row["replay_over_bare"]
            rows.append([name[7:], row["bare_per_s"], row["native_per_s"], row["metadata_over_native"], row["contents_over_native"],
                         per_s["capture"], wall["capture"], wall["deps"], bare["capture"]])
    return table(["", "bare /s", "native /s", "recorded, metadata / native", "recorded, contents / native", "replay /s",
                  "replay / native (capture)", "replay / native (deps)", "replay / bare"], rows)


def others(values):
    parts = []
    for name, row in values.items():
        if name == "transformer":
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


if __name__ == "__main__":
    main()
