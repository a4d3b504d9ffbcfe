#!/usr/bin/env bash
# Compares the results of `longhaul path` with the configuration of emulated links.
#
# One measurement per line: the options of the link; round trip, MTU there and back, lost, duplicated and
# out of order of how many, difference of the delays, capacity there and back with its certainty, and
# how long it took. Runs as root; needs python3.
#
#   bench/path.sh [RUNS]      default: 3
#   LONGHAUL=PATH             measures with that build
#   RAW=DIRECTORY             keeps the document of every run there
set -euo pipefail

runs=${1:-3}
source "$(dirname "$0")/build.sh"
export LONGHAUL=$longhaul RAW=${RAW:-}

work=$(mktemp -d)
export XDG_CONFIG_HOME=$work
trap 'rm -rf "$work"' EXIT

python3 - "$runs" <<'PYTHON'
import json, os, subprocess, sys

LH, RAW = os.environ["LONGHAUL"], os.environ["RAW"]
CASES = [
    "--rtt 20ms --rate 1M --mtu 1500",
    "--rtt 20ms --rate 100M --mtu 1500",
    "--rtt 20ms --rate 1G --mtu 1500",
    "--rtt 20ms --rate 1G --mtu 9000",
    "--rtt 20ms --rate 5G --mtu 9000",
    "--rtt 20ms --mtu 9000",
    "--up-delay 15ms --down-delay 5ms --rate 50M --mtu 1437 --loss 1e-2 --duplicate 1e-2",
    "--rtt 90ms --rate 1G --mtu 9000 --up-loss 1e-3 --down-reorder 2e-2",
    "--rtt 180ms --rate 100M --mtu 1400",
]
WAIT = "until (exec 3<>/dev/tcp/far/5210) 2>/dev/null; do sleep 0.05; done"

def measure(link, name):
    near = f"{WAIT}; exec {LH} path far --quiet --json -t 5"
    command = [LH, "wan", "run", *link.split(), "--far", f"exec {LH} serve", "--", "bash", "-c", near]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    if RAW:
        os.makedirs(RAW, exist_ok=True)
        with open(f"{RAW}/{name}.json", "w") as out:
            out.write(done.stdout)
    return json.loads(done.stdout)

def ratio(found):
    return f"{found['count']}/{found['of']}"

def capacity(way):
    found = way["capacity"]
    rate = found["estimate_bps"]
    return f"{found['certainty']} {rate / 1e6:.4g} Mb/s" if rate else found["certainty"]

print("| link | run | RTT ms | MTU | lost | duplicated | reordered | there - back ms | capacity there | back | s |")
print("|---|---|---|---|---|---|---|---|---|---|---|")
for number, link in enumerate(CASES):
    for run in range(1, int(sys.argv[1]) + 1):
        d = measure(link, f"path-{number}-{run}")
        ways = [d["forward"], d["reverse"]]
        mtu = " ".join(str(max(p["bytes"] or 0 for p in way["mtu"])) for way in ways)
        counts = [" ".join(ratio(way["probes"][of]) for way in ways)
                  for of in ("lost", "duplicated", "reordered")]
        rtt = d["rtt"]["small"]["min_ms"]
        print(f"| `{link}` | {run} | {rtt:.2f} | {mtu} | {' | '.join(counts)} "
              f"| {d['asymmetry']['difference_ms']:.2f} | {capacity(ways[0])} | {capacity(ways[1])} "
              f"| {d['seconds']:.1f} |", flush=True)
PYTHON
