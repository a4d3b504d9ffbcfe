#!/usr/bin/env bash
# Compares the speed of two builds of longhaul.
#
#   bench/compare.sh BEFORE AFTER [ROUNDS]        default: 5 rounds
#
# BEFORE and AFTER are two longhaul programs. In every round both run each case once, and the order
# alternates, so that drift of the host affects both alike. Prints the medians of wall time and of
# CPU seconds, their ratios AFTER / BEFORE, and the share of the processors that the hypervisor
# took. Cases:
#
#   sealed-0, cleartext-90   one file of 8 GiB (MIB) from disk to disk, encrypted at an RTT of 0 ms
#                            and in cleartext at 90 ms
#   small-0, small-90        10,000 files of 64 KiB, encrypted, at 0 and 90 ms
#   clients                  500 clients of one server, half of them hostile: the slowest honest one
#
# CASES picks among them. DIR is the directory for files, on the disk to measure. Runs as root.
set -euo pipefail

before=$(realpath "$1") after=$(realpath "$2") rounds=${3:-5}
cd "$(dirname "$0")/.."
read -ra cases <<<"${CASES:-sealed-0 cleartext-90 small-0 small-90 clients}"
mib=${MIB:-8192}
work=$(mktemp -d "${DIR:-$PWD}/bench-compare.XXXXXX")
trap 'rm -rf "$work"' EXIT
export DIR=$work COMPARE=no
if [[ " ${cases[*]} " =~ " "(sealed|cleartext)- ]]; then
    head -c "${mib}M" /dev/urandom >"$work/data"
    export DATA=$work/data
fi

# Jiffies of all processors: total, and those that the hypervisor took.
jiffies() { awk '/^cpu / { print $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9, $9 }' /proc/stat; }

one() { # CASE BUILD
    case $1 in
        sealed-* | cleartext-*)
            LONGHAUL=$2 TOOLS=${1%-*} bench/cp.sh 1 "$mib" "${1#*-}"
            ;;
        small-*) LONGHAUL=$2 TOOLS=sealed bench/cp-small.sh 1 10000 64 "${1#*-}" ;;
        clients) LONGHAUL=$2 bench/clients.sh 500 1 ;;
    esac
}

for ((round = 1; round <= rounds; round++)); do
    builds=(before after)
    ((round % 2)) || builds=(after before)
    for case in "${cases[@]}"; do
        for build in "${builds[@]}"; do
            start=($(jiffies))
            one "$case" "${!build}" >"$work/out"
            end=($(jiffies))
            steal=$((100 * (end[1] - start[1]) / (end[0] - start[0])))
            sed "s/^/$round $case $build $steal | /" "$work/out" | tee -a "$work/all" |
                grep -E '(sealed|cleartext) +[0-9]+ ms.* s |[0-9]+ of [0-9]+ ' || true
        done
    done
done

python3 - "$work/all" <<'PYTHON'
import re, statistics, sys

runs = {}
for line in open(sys.argv[1]):
    head, _, body = line.partition(" | ")
    _, case, build, steal = head.split()
    if case == "clients":
        found = re.match(r" *\d+ +(\d+) of (\d+) +([\d.]+) s", body)
        if not found:
            continue
        if found[1] != found[2]:
            print(f"{build}: only {found[1]} of {found[2]} honest clients were answered")
        figures = (float(found[3]), float("nan"))
    else:
        found = re.match(r"\S+ +\d+ ms +([\d.]+) s .*cpu +([\d.]+) +([\d.]+) s", body)
        if not found:
            continue
        figures = (float(found[1]), float(found[2]) + float(found[3]))
    runs.setdefault(case, {}).setdefault(build, []).append((*figures, int(steal)))

print(f"\n{'case':14} {'n':>2} {'before':>9} {'after':>9} {'ratio':>6}   "
      f"{'CPU before':>10} {'after':>7} {'ratio':>6}  steal")
for case, builds in runs.items():
    before, after = builds["before"], builds["after"]
    median = lambda rows, column: statistics.median(row[column] for row in rows)
    wall = median(before, 0), median(after, 0)
    cpu = median(before, 1), median(after, 1)
    steal = max(row[2] for row in before + after)
    print(f"{case:14} {len(after):>2} {wall[0]:>7.2f} s {wall[1]:>7.2f} s {wall[1] / wall[0]:>6.3f}   "
          f"{cpu[0]:>10.2f} {cpu[1]:>7.2f} {cpu[1] / cpu[0]:>6.3f}  up to {steal} %")
PYTHON
