#!/bin/bash
# Measures the overhead of a matrix: seconds per run beyond the tool, the share of a core that the
# runner uses while a tool runs, and the duration of `matrix --quick`.
#
#   bench/matrix.sh [LONGHAUL] [quick]
#
# As root, on an idle machine. One minute; with `quick` five more. Prints what it measured; the
# archives stay in the directory that it names.
set -euo pipefail

longhaul=$(realpath "${1:-target/release/longhaul}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-bench-matrix-XXXXXX")
echo "# $("$longhaul" --version), $(nproc) cores, $(date --utc +%FT%TZ), archives in $dir"

# A run that takes no time by itself: iperf3 for one second, and a file of 1 MiB.
cat > "$dir/overhead.toml" <<'END'
name = "overhead"
about = "runs that take no time by themselves"
repeats = 4
[conditions]
rtt = ["0ms"]
[memory]
seconds = 1
omit_seconds = 0
[disk]
size = "1MiB"
[[entries]]
tool = "iperf3"
workload = "memory"
[[entries]]
tool = "longhaul test"
workload = "memory"
[[entries]]
tool = "longhaul cp"
workload = "disk"
[[entries]]
tool = "scp"
workload = "disk"
[[entries]]
tool = "globus-url-copy"
workload = "disk"
END
begun=$(date +%s.%N)
"$longhaul" matrix "$dir/overhead.toml" --out "$dir/overhead" > "$dir/overhead.txt"
ended=$(date +%s.%N)
sqlite() { python3 -c 'import sqlite3,sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]): print(*row)' "$@"; }
read -r runs inside < <(sqlite "$dir/overhead/matrix.sqlite" \
    "SELECT count(*), sum(coalesce(seconds, 0)) FROM run")
python3 - "$begun" "$ended" "$runs" "$inside" <<'END'
import sys
begun, ended, runs, inside = map(float, sys.argv[1:])
print(f"overhead: {runs:.0f} runs in {ended - begun:.1f} s, the tools' own time {inside:.1f} s: "
      f"{(ended - begun - inside) / runs:.2f} s a run, report included")
END

# The runner's processor time while a tool runs: that of all its threads but those of the emulator
# and of the sites, which belong to the path. It is read twice, ten seconds apart, in a long run.
cat > "$dir/cpu.toml" <<'END'
name = "cpu"
about = "one long run"
[conditions]
rtt = ["15ms"]
[memory]
seconds = 15
omit_seconds = 0
[[entries]]
tool = "iperf3"
workload = "memory"
END
"$longhaul" matrix "$dir/cpu.toml" --out "$dir/cpu" > "$dir/cpu.txt" 2>&1 &
pid=$!
sleep 4
python3 - "$pid" <<'END'
import os, sys, time
pid, hz = sys.argv[1], os.sysconf("SC_CLK_TCK")
def threads():
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        base = f"/proc/{pid}/task/{task}"
        try:
            name = open(f"{base}/comm").read().strip()
            fields = open(f"{base}/stat").read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        found[task] = (name, (int(fields[11]) + int(fields[12])) / hz)
    return found
before, begun = threads(), time.monotonic()
time.sleep(10)
after, took = threads(), time.monotonic() - begun
own = 0.0
for task, (name, seconds) in after.items():
    used = seconds - before.get(task, (name, 0.0))[1]
    path = name.startswith(("link", "site", "page-toucher"))
    own += 0 if path else used
    print(f"  thread {name}: {100 * used / took:.2f} % of a core{' (the path)' if path else ''}")
print(f"runner: {100 * own / took:.2f} % of a core during a run")
END
wait "$pid"

if [ "${2:-}" = quick ]; then
    begun=$(date +%s)
    "$longhaul" matrix --quick --out "$dir/quick" > "$dir/quick.txt" || echo "quick: exit code $?"
    echo "quick: $(($(date +%s) - begun)) s"
    sqlite "$dir/quick/matrix.sqlite" "SELECT status, count(*) FROM run GROUP BY status"
    cat "$dir/quick.txt"
fi
