#!/bin/bash
# Rewrites the table and the figure of README.md from a kept run of `longhaul matrix --quick`.
#
#   bench/readme.sh DIR                    # DIR/readme.csv -> README.md
#   bench/readme.sh DIR --measure LONGHAUL # five passes first: DIR/readme.csv; half an hour, as root
#   bench/readme.sh DIR --fill LONGHAUL    # adds runs to the cells that have fewer than five; minutes
#   bench/readme.sh DIR --draw LONGHAUL    # measures nothing
#
# Each cell is the median of the valid runs of interleaved passes. A run on a host from which the
# hypervisor took more than 10 % is not used. The script changes nothing, and names the cells, if a
# cell has fewer than five runs. With LONGHAUL it also draws docs/images/quick.svg from the same
# runs: the table's medians, in an archive whose other facts are those of a short run.
set -euo pipefail

dir=$1 step=${2:-} longhaul=${3:-}
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-bench-readme-XXXXXX")
trap 'rm -rf "$out"' EXIT
mkdir -p "$dir"

# Prints the CSV of an archive without the paths of this host.
rows() {
    "$longhaul" report "$1" --format csv | sed -E -e "s#$out#DIR#g" -e "s#/[^ ,\"']*longhaul-run-[A-Za-z0-9]+#RUN#g" \
        -e "s#$HOME#HOME#g" -e "s#(^|[ ,\"])[^ ,\"]*/(longhaul) #\1\2 #g"
}

if [ "$step" = --measure ]; then
    "$longhaul" matrix --quick --repeats 5 --yes --out "$out/five" >&2 || true
    rows "$out/five" > "$dir/readme.csv"
fi

# Prints a plan with the cells of DIR/readme.csv that have too few runs, or nothing.
missing() {
    "$longhaul" matrix --show-plan quick | python3 -c '
import csv, sys
sys.path.insert(0, sys.argv[1])
from readme_cells import cells_of, LEAST
plan = sys.stdin.read()
cells, rows, times, _ = cells_of(sys.argv[2])
few = [(label, rtt) for label in rows for rtt in times if len(cells.get((label, rtt), [])) < LEAST]
if few:
    print(plan)
    for label, rtt in few:
        print(f"[[only]]\ntool = \"{label}\"\npath = {{ rtt = \"{rtt:g}ms\" }}")
' "$root/bench" "$dir/readme.csv"
}

if [ "$step" = --fill ]; then
    for round in 1 2 3 4 5; do
        missing > "$out/plan.toml"
        [ -s "$out/plan.toml" ] || break
        "$longhaul" matrix "$out/plan.toml" --yes --out "$out/fill-$round" >&2 || true
        rows "$out/fill-$round" | tail -n +2 >> "$dir/readme.csv"
    done
fi
PYTHONPATH=$root/bench PYTHONDONTWRITEBYTECODE=1 python3 - "$dir/readme.csv" "$root/README.md" <<'END'
import os, statistics, sys
from readme_cells import LEAST, STOLEN, cells_of

source, readme = sys.argv[1:]
BEGIN, END = "<!-- table of bench/readme.sh -->\n", "<!-- end of table -->\n"
NAMES = {"memory": "Mem to mem", "disk": "Disk to disk"}

cells, rows, times, unused = cells_of(source)
few = [f"{label} at {rtt:g} ms: {len(cells.get((label, rtt), []))} runs"
       for label in rows for rtt in times if len(cells.get((label, rtt), [])) < LEAST]
if few or not times:
    sys.exit(f"README.md is unchanged: {LEAST} runs per cell are needed, with at most "
             f"{STOLEN:.0%} stolen ({sum(unused.values())} runs are not used):\n  " + "\n  ".join(few))

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
days = sorted({run["started_at"][:10] for runs in cells.values() for run in runs})
first = [run for runs in cells.values() for run in runs if run["started_at"][:10] == days[0]]
later = sum(len(runs) for runs in cells.values()) - len(first)
runs = os.path.relpath(source, os.path.dirname(readme))
note = f"Each cell is the median of at least {count} runs in interleaved passes, {days[0]} ([all runs]({runs}))."
if later:
    note += f" {later} of the runs replaced invalid ones on a later day."
for (label, rtt), runs in sorted(unused.items()):
    note += (f"\n{runs} of {runs + len(cells[label, rtt])} runs of `{label}` at {rtt:g} ms are not used: "
             "they were invalid, for example because the\nemulator was late. Later runs replace them.")
before, _, rest = open(readme).read().partition(BEGIN)
_, marker, after = rest.partition(END)
if not marker:
    sys.exit(f"{readme} has no lines '{BEGIN.strip()}' and '{END.strip()}'")
table = "\n".join(block)
open(readme, "w").write(f"{before}{BEGIN}\n{table}\n\n{note}\n\n{END}{after}")
print(f"{readme}: {len(lines) - 1} rows, {note}")
END

# The figure: an archive with one small run per cell gets the runs of the table.
if [ -n "$longhaul" ]; then
    "$longhaul" matrix quick --show-plan | sed -E 's/^omit_seconds = .*/omit_seconds = 1/; s/^seconds = .*/seconds = 2/' > "$out/shape.toml"
    "$longhaul" matrix "$out/shape.toml" --scale 0.002 --yes --out "$out/shape" > /dev/null || true
    PYTHONPATH=$root/bench PYTHONDONTWRITEBYTECODE=1 python3 "$root/bench/readme_figure.py" \
        "$out/shape/matrix.sqlite" "$dir/readme.csv"
    "$longhaul" report "$out/shape" > /dev/null
    cp "$out/shape/figures/rtt.svg" "$root/docs/images/quick.svg"
    echo "$root/docs/images/quick.svg"
fi
