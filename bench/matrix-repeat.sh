#!/bin/bash
# Runs the same plan twice. Prints the number of cells in which the median of each matrix lies in the
# 95 % interval of the other, and in which the interval of the differences per pass contains zero.
#
#   bench/matrix-repeat.sh [LONGHAUL] [PLAN] [PASSES]
#
# As root, on an idle machine. By default the plan below with 8 passes: 12 cells, about 25 minutes
# in all. The passes of the two matrices alternate, as passes within a matrix do: what drifts over
# the hour falls on both. Every figure is printed; the archives stay.
set -euo pipefail

longhaul=$(realpath "${1:-target/release/longhaul}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-bench-repeat-XXXXXX")
plan=${2:-$dir/plan.toml}
passes=${3:-8}
cat > "$dir/plan.toml" <<'END'
name = "repeat"
about = "a plan that is run twice"
[conditions]
rtt = ["0ms", "15ms", "90ms"]
rate = ["2G"]
[memory]
seconds = 4
omit_seconds = 2
[disk]
size = "256MiB"
[[entries]]
tool = "longhaul test"
workload = "memory"
[[entries]]
tool = "iperf3"
workload = "memory"
[[entries]]
tool = "longhaul cp"
workload = "disk"
[[entries]]
tool = "globus-url-copy"
options = ["-p", "8", "-fast"]
label = "globus-url-copy -p 8"
workload = "disk"
END
echo "# $("$longhaul" --version), $(nproc) cores, $(date --utc +%FT%TZ), archives in $dir"
for pass in $(seq "$passes"); do
    for which in a b; do
        "$longhaul" matrix "$plan" --repeats 1 --yes --out "$dir/$which-$pass" \
            > "$dir/$which-$pass.txt" 2>&1 || true
    done
done
python3 - "$dir" "$passes" <<'END'
import glob, sqlite3, sys
from math import comb
from statistics import median
directory, passes = sys.argv[1], int(sys.argv[2])
figures = {}
for which in "ab":
    for number in range(1, passes + 1):
        database = sqlite3.connect(f"{directory}/{which}-{number}/matrix.sqlite")
        for label, path, bps in database.execute(
                "SELECT label, path, throughput_bps FROM run WHERE status = 'ok'"):
            figures.setdefault((label, path), {}).setdefault(which, {})[number] = bps
def interval(values):
    """Of the median, by order statistics, at 95 % at least; None below six values."""
    values, n = sorted(values), len(values)
    rank = 0
    while rank + 1 <= n // 2 and 2 * sum(comb(n, k) for k in range(rank + 1)) / 2**n <= 0.05:
        rank += 1
    return (values[rank - 1], values[n - rank]) if rank else None
agree = of = 0
for (label, path), found in sorted(figures.items()):
    a, b = found.get("a", {}), found.get("b", {})
    both = sorted(set(a) & set(b))
    spans = interval(list(a.values())), interval(list(b.values()))
    ratios = interval([b[n] / a[n] for n in both])
    if not (all(spans) and ratios):
        print(f"{label} at {path}: too few runs: {len(a)} and {len(b)}")
        continue
    middle = median(a.values()), median(b.values())
    within = ratios[0] <= 1 <= ratios[1]
    crossed = spans[1][0] <= middle[0] <= spans[1][1] and spans[0][0] <= middle[1] <= spans[0][1]
    of, agree = of + 1, agree + within
    print(f"{label} at {path}: {middle[0]/1e9:.3f} and {middle[1]/1e9:.3f} Gb/s, paired ratio "
          f"{median(b[n]/a[n] for n in both):.3f} ({ratios[0]:.3f} to {ratios[1]:.3f}): "
          f"{'agree' if within else 'DIFFER'}{'' if crossed else ', medians outside each other'}")
    print("   a:", *(f"{a[n]/1e9:.3f}" for n in sorted(a)), " b:", *(f"{b[n]/1e9:.3f}" for n in sorted(b)))
print(f"{agree} of {of} cells agree")
END
