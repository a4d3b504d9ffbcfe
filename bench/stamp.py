#!/usr/bin/env python3
"""Compares `longhaul path --stamp` with the counts and delays of emulated links.

One measurement per line. The emulator counts its own losses, duplicates and reordered packets; a run is
spoiled if the emulator was behind schedule or the hypervisor took more than 2 % of the processors. Runs as
root.

    bench/stamp.py [RUNS]     default: 3
    LONGHAUL=PATH             measures with that build (default: target/release/longhaul)
    RAW=DIRECTORY             keeps both documents of every run there
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

from host_share import HostTime

HERE = os.path.dirname(os.path.abspath(__file__))
LONGHAUL = os.environ.get("LONGHAUL", os.path.join(HERE, "../target/release/longhaul"))
RAW = os.environ.get("RAW")
STOLEN_LIMIT = 0.02

# The options of the link, its delay there and back in ms, and the packets and their interval.
CASES = [
    ("--up-delay 0ms --down-delay 0ms", 0, 0, "-c 2000 -i 2ms"),
    ("--rtt 15ms", 7.5, 7.5, "-c 2000 -i 2ms"),
    ("--rtt 90ms", 45, 45, "-c 2000 -i 2ms"),
    ("--rtt 180ms", 90, 90, "-c 2000 -i 2ms"),
    ("--up-delay 40ms --down-delay 5ms", 40, 5, "-c 2000 -i 2ms"),
    ("--rtt 90ms --loss 1e-2", 45, 45, "-c 3000 -i 2ms"),
    ("--rtt 90ms --loss 1e-3", 45, 45, "-c 5000 -i 1ms"),
    ("--rtt 90ms --loss 1e-4", 45, 45, "-c 20000 -i 500us"),
    ("--rtt 15ms --duplicate 1e-2", 7.5, 7.5, "-c 3000 -i 2ms"),
    ("--rtt 15ms --reorder 2e-2", 7.5, 7.5, "-c 3000 -i 1ms"),
    ("--rtt 90ms --loss 1e-2 --duplicate 1e-2 --reorder 1e-2", 45, 45, "-c 3000 -i 1ms"),
]


def measure(link, arguments, directory):
    """Runs one measurement and returns both documents and the stolen share."""
    log, report = f"{directory}/serve", f"{directory}/link.json"
    open(log, "w").close()
    near = (
        f"until grep -q answering {log}; do sleep 0.05; done; "
        f"exec {LONGHAUL} path --stamp far -4 --same-clock --json {arguments}"
    )
    command = [LONGHAUL, "wan", "run", *link.split(), "--json-report", report]
    command += ["--far", f"exec {LONGHAUL} serve --stamp 2>{log}", "--", "bash", "-c", near]
    before = HostTime.now()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    host = HostTime.now() - before
    if done.returncode != 0:
        sys.exit(f"{link}: {done.stderr}")
    with open(report) as file:
        emulator = json.load(file)
    return json.loads(done.stdout), emulator, host.stolen_share


def row(case, run, found, emulator, stolen):
    link, there, back, _ = case
    counts = []
    for key, count in (("lost", "lost"), ("duplicated", "duplicated"), ("reordered", "reordered")):
        for way, direction in (("forward", "up"), ("reverse", "down")):
            ours = found[way][key]["count"]
            theirs = emulator[direction]["impairments"][count]["segments"]
            counts.append(f"{ours} / {theirs}")
    delays = [found[way]["delay"]["p50_ms"] - wanted for way, wanted in (("forward", there), ("reverse", back))]
    rtt = found["rtt"]["p50_ms"] - there - back
    behind = any(warning["warning"] == "behind_schedule" for warning in emulator["warnings"])
    spoiled = [name for name, is_so in (("behind schedule", behind), ("stolen", stolen > STOLEN_LIMIT)) if is_so]
    cells = [f"`{link}`", str(run), str(found["sent"]), f"{rtt:+.3f}", *(f"{delay:+.3f}" for delay in delays), *counts]
    print("|", " | ".join(cells), f"| {stolen * 100:.1f} % | {', '.join(spoiled)} |", flush=True)
    exact = all(len(set(count.split(" / "))) == 1 for count in counts[:2])
    return rtt, delays, exact, not spoiled


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print("Differences in ms of the medians from the emulated delay. Counts: STAMP / emulator.\n")
    print(
        "| link | run | sent | RTT | there | back | lost there | lost back | duplicated there "
        "| duplicated back | reordered there | reordered back | stolen | spoiled |"
    )
    print("|" + "---|" * 14)
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        os.environ["HOME"] = directory
        for number, case in enumerate(CASES):
            for run in range(1, runs + 1):
                found, emulator, stolen = measure(case[0], case[3], directory)
                rows.append(row(case, run, found, emulator, stolen))
                if RAW:
                    os.makedirs(RAW, exist_ok=True)
                    with open(f"{RAW}/stamp-{number}-{run}.json", "w") as out:
                        json.dump({"stamp": found, "link": emulator}, out)
    good = [one for one in rows if one[3]]
    worst = max((abs(one[0]) for one in good), default=float("nan"))
    delay = max((abs(value) for one in good for value in one[1]), default=float("nan"))
    exact = sum(one[2] for one in rows)
    print(f"\n{len(good)} of {len(rows)} runs are not spoiled. In these the largest difference of a median RTT is "
          f"{worst:.3f} ms, and of a median one-way delay {delay:.3f} ms.")
    if good:
        print(f"The median of the differences of the RTT is {statistics.median(one[0] for one in good):+.3f} ms.")
    print(f"The loss per direction is that of the emulator in {exact} of {len(rows)} runs.")


main()
