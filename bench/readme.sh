#!/bin/bash
# Rewrites the table of README.md from a kept run of `longhaul matrix --quick`.
#
#   bench/readme.sh DIR                    # DIR/readme.csv -> README.md
#   bench/readme.sh DIR --measure LONGHAUL # five passes first: DIR/readme.csv; half an hour, as root
#
# Each cell is the median of the valid runs of interleaved passes. A run on a host from which the
# hypervisor took more than 10 % is not used. The script changes nothing, and names the cells, if a
# cell has fewer than five runs.
set -euo pipefail

dir=$1
root=$(cd "$(dirname "$0")/.." && pwd)
if [ "${2:-}" = --measure ]; then
    out=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-bench-readme-XXXXXX")
    trap 'rm -rf "$out"' EXIT
    mkdir -p "$dir"
    "$3" matrix --quick --repeats 5 --yes --out "$out" >&2 || true
    "$3" report "$out" --format csv > "$dir/readme.csv"
fi
python3 - "$dir/readme.csv" "$root/README.md" <<'END'
import csv, statistics, sys

source, readme = sys.argv[1:]
LEAST, STOLEN = 5, 0.10
BEGIN, END = "<!-- table of bench/readme.sh -->\n", "<!-- end of table -->\n"
NAMES = {"memory": "Mem to mem", "disk": "Disk to disk"}

cells, rows, skipped = {}, {}, 0
for run in csv.DictReader(open(source, newline="")):
    row = rows.setdefault(run["label"], run)
    if run["status"] != "ok":
        continue
    if float(run["steal_share"] or 0) > STOLEN:
        skipped += 1
        continue
    cells.setdefault((run["label"], float(run["rtt_ms"])), []).append(run)
times = sorted({rtt for _, rtt in cells})
few = [f"{label} at {rtt:g} ms: {len(cells.get((label, rtt), []))} runs"
       for label in rows for rtt in times if len(cells.get((label, rtt), [])) < LEAST]
if few or not times:
    sys.exit(f"README.md is unchanged: {LEAST} runs per cell are needed, with at most "
             f"{STOLEN:.0%} stolen ({skipped} runs have more):\n  " + "\n  ".join(few))

def figure(gbps):
    digits = 0 if gbps >= 99.95 else 1 if gbps >= 9.995 else 2 if gbps >= 0.0995 else 3
    return f"{gbps:.{digits}f}"

def median(runs, of):
    return statistics.median(of(run) for run in runs)

order = {label: place for place, label in enumerate(
    ["longhaul test", "iperf3", "nuttcp", "longhaul cp", "longhaul cp --cleartext", "scp", "rsync"])}
largest = max(int(run["bytes"]) for runs in cells.values() for run in runs
              if run["workload"] == "disk")
lines, smaller = [["Tool", "Type", *(f"{rtt:g} ms" for rtt in times), "E V S", "Sync"]], None
for label in sorted(rows, key=lambda label: order.get(label, len(order))):
    row, mine = rows[label], [cells[label, rtt] for rtt in times]
    everything = [run for runs in mine for run in runs]
    is_copy = row["workload"] == "disk"
    name = label
    if is_copy and int(everything[0]["bytes"]) < largest:
        smaller, name = int(everything[0]["bytes"]), name + "[1]"
    marks = " ".join(letter if row[column] == "1" else "-"
                     for letter, column in (("E", "encrypted"), ("V", "verified"), ("S", "synced")))
    waits = [float(run["durable_seconds"]) - float(run["seconds"])
             for run in everything if run["durable_seconds"]]
    sync = f"+{max(0, statistics.median(waits)):.1f} s" if is_copy and waits else ""
    lines.append([name, NAMES[row["workload"]],
                  *(figure(median(runs, lambda run: int(run["throughput_bps"]) / 1e9))
                    for runs in mine), marks if is_copy else "", sync])
widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
last = len(widths) - 1
def text(line):
    left = lambda column: column < 2 or column == last - 1
    return "    " + "  ".join(word.ljust(width) if left(column) else word.rjust(width)
                              for column, (word, width) in enumerate(zip(line, widths))).rstrip()
block = [text(lines[0]), "    " + "-" * (sum(widths) + 2 * last), *map(text, lines[1:])]
if smaller:
    block.append(f"    [1] copied {smaller >> 20} MiB instead of {largest / 2**30:.2f} GiB")
count = min(len(runs) for runs in cells.values())
note = f"Each cell is the median of at least {count} runs in interleaved passes."
before, _, rest = open(readme).read().partition(BEGIN)
_, marker, after = rest.partition(END)
if not marker:
    sys.exit(f"{readme} has no lines '{BEGIN.strip()}' and '{END.strip()}'")
table = "\n".join(block)
open(readme, "w").write(f"{before}{BEGIN}\n{table}\n\n{note}\n\n{END}{after}")
print(f"{readme}: {len(lines) - 1} rows, {note} {skipped} runs with much steal were not used.")
END
