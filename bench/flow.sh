#!/usr/bin/env bash
# Memory to memory over loopback: `longhaul test` beside iperf3, interleaved.
#
# Prints, for each number of streams, the median goodput and the median CPU time of both ends for
# each gigabyte (10^9 bytes) moved. The second figure is the steadier one: it hardly minds what
# else the machine does. Needs iperf3 and python3.
#
#   bench/flow.sh [RUNS] [SECONDS] [STREAMS...]      defaults: 5 3 1 4
#   LONGHAUL=PATH bench/flow.sh ...                  measures that build
set -euo pipefail

runs=${1:-5}
seconds=${2:-3}
streams=("${@:3}")
[ ${#streams[@]} -gt 0 ] || streams=(1 4)

cd "$(dirname "$0")/.."
longhaul=${LONGHAUL:-}
if [ -z "$longhaul" ]; then
    cargo build --release -p longhaul
    longhaul=${CARGO_TARGET_DIR:-target}/release/longhaul
fi

work=$(mktemp -d)
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
export XDG_CONFIG_HOME=$work
"$longhaul" serve --bind 127.0.0.1 --port 5310 2>/dev/null &
servers+=($!)
iperf3 -s -B 127.0.0.1 -p 5311 >/dev/null 2>&1 &
servers+=($!)
sleep 1

echo "$(uname -sr), $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
iperf3 --version | head -1
uptime
python3 - "$longhaul" "$runs" "$seconds" "${streams[@]}" <<'PYTHON'
import json, statistics, subprocess, sys

longhaul, runs, seconds, streams = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]

def output(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

def ours(count):
    found = output([longhaul, "test", "127.0.0.1", "-p", "5310", "-t", seconds, "-P", count,
                    "--json"])
    summary = found["summary"]
    cpu = sum(end["cpu_percent"] / 100 * end["seconds"]
              for end in (summary["sender"], summary["receiver"]))
    return summary["throughput_bps"], cpu / summary["receiver"]["bytes"]

def iperf3(*extra):
    def run(count):
        end = output(["iperf3", "-c", "127.0.0.1", "-p", "5311", "-t", seconds, "-P", count,
                      "-J", *extra])["end"]
        percent = end["cpu_utilization_percent"]
        took = end["sum_received"]
        cpu = (percent["host_total"] + percent["remote_total"]) / 100 * took["seconds"]
        return took["bits_per_second"], cpu / took["bytes"]
    return run

tools = {"longhaul test": ours, "iperf3": iperf3(), "iperf3 -l 1M": iperf3("-l", "1M")}
print(f"{'streams':>7}  {'tool':<14} {'median Gb/s':>11} {'best':>6} {'CPU s/GB':>9} {'best':>6}")
for count in streams:
    figures = {name: [] for name in tools}
    for _ in range(runs):
        for name, tool in tools.items():
            figures[name].append(tool(count))
    for name, found in figures.items():
        rates, costs = zip(*found)
        print(f"{count:>7}  {name:<14} {statistics.median(rates) / 1e9:>11.1f} "
              f"{max(rates) / 1e9:>6.1f} {statistics.median(costs) * 1e9:>9.3f} "
              f"{min(costs) * 1e9:>6.3f}", flush=True)
PYTHON
uptime
