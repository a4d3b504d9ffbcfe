#!/usr/bin/env python3
"""Injects a limit into a copy, and checks the limit that `longhaul cp` reports.

  bench/verdicts.py [--rounds N] [--seed N] [--only CASE]

Each of the twelve cases has one injected limit and one right answer. Cases are shuffled within
rounds that have each of them once. "silent" means that the copy moved nothing and must name no
limit. Prints a line per copy and a table. Exits with 1 if fewer than 57 of 60 answers (95 %) are
right. LONGHAUL is the binary (default: target/release/longhaul). Runs as root: it emulates links.
The data are in memory, so that the disk of the machine is no limit.
"""

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

LONGHAUL = os.path.realpath(os.environ.get("LONGHAUL", "target/release/longhaul"))
SILENT = "silent"
RIGHT_SHARE = 0.95
BUSY = "for core in $(seq $(nproc)); do sh -c 'while :; do :; done' & done"
SMALL_WINDOW = "echo '4096 131072 262144' > /proc/sys/net/ipv4/tcp_rmem"


@dataclass
class Case:
    """An injected limit: `link` is empty for a copy within the host."""
    right: str
    copy: str
    link: str = ""
    before: str = ""
    far: str = ""


FAR = "lh://far/"
CASES = {
    "rate limit, within the host": Case("rate", "--bwlimit 80M data30 out"),
    "rate limit, short copy": Case("rate", f"--bwlimit 40M data5 {FAR}", "--rtt 20ms"),
    "rate limit, busy host": Case("rate", f"--bwlimit 40M data30 {FAR}", "--rtt 20ms", BUSY),
    "outage": Case("outage", f"data30 {FAR}", "--rtt 20ms --rate 60M --outage 2s+6s"),
    "outage and rate limit": Case("outage", f"--bwlimit 40M data30 {FAR}",
                                  "--rtt 20ms --outage 3s+9s"),
    "ramp-up at 180 ms": Case("ramp_up", f"data30 {FAR}", "--rtt 180ms --rate 1G"),
    "ramp-up at 90 ms": Case("ramp_up", f"data5 {FAR}", "--rtt 90ms --rate 1G"),
    "100 kB within the host": Case("too_short", "--no-fsync data0 out"),
    "missing source": Case(SILENT, "nosuch out"),
    "up to date": Case(SILENT, "-p -u data0 same"),
    "link rate": Case("path", f"data30 {FAR}", "--rtt 10ms --rate 80M --queue 2MB"),
    "receive window": Case("receive_window", f"-P 1 data30 {FAR}", "--rtt 60ms",
                           far=SMALL_WINDOW),
}


def prepare(work):
    """Makes the files of 0.1, 5 and 30 MB, and the target that is up to date."""
    noise = random.Random(1)
    for name, size in (("data0", 100_000), ("data5", 5_000_000), ("data30", 30_000_000)):
        (work / name).write_bytes(noise.randbytes(size))
    subprocess.run(["cp", "-p", work / "data0", work / "same"], check=True)


def run(case, work):
    """Runs the copy of `case`, and returns its limit and its sentence."""
    with tempfile.TemporaryDirectory(dir=work) as far:
        copy = f"{LONGHAUL} cp --json {case.copy}"
        if case.link:
            serve = f"{case.far or ':'}; exec {LONGHAUL} serve --root {far}"
            near = f"{case.before or ':'}; {copy}; code=$?; kill $(jobs -p) 2>/dev/null; exit $code"
            command = [LONGHAUL, "wan", "run", *case.link.split(), "--far", serve, "--", "bash",
                       "-c", near]
        else:
            (work / "out").unlink(missing_ok=True)
            command = ["sh", "-c", copy]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=120,
                              check=False)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return "failed", (done.stderr.strip().splitlines() or [""])[-1]
    if not result["verdict"] and result["limit"] is None:
        return SILENT, ""
    return result["limit"] or "none", result["verdict"]


def table(names, answers, rounds):
    """Prints the answers per case."""
    print("\n| injected | right answer | right | other answers |")
    print("|---|---|---:|---|")
    for name in names:
        right = CASES[name].right
        others = ", ".join(f"{n} x {what}" for what, n in answers[name].items() if what != right)
        print(f"| {name} | {right.replace('_', ' ')} | {answers[name][right]} of {rounds} "
              f"| {others} |")


def main():
    """Runs the rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    args = parser.parse_args()
    names = [name for name in CASES if args.only in (None, name)]
    order = random.Random(args.seed)
    answers = {name: collections.Counter() for name in names}
    with tempfile.TemporaryDirectory(prefix="verdicts-", dir="/dev/shm") as directory:
        work = Path(directory)
        os.environ["XDG_CONFIG_HOME"] = str(work / "config")
        prepare(work)
        for number in range(args.rounds):
            for name in order.sample(names, len(names)):
                limit, sentence = run(CASES[name], work)
                answers[name][limit] += 1
                mark = "right" if limit == CASES[name].right else "WRONG"
                print(f"{number} {mark}  {name}: {limit}: {sentence}", flush=True)
    table(names, answers, args.rounds)
    right = sum(answers[name][CASES[name].right] for name in names)
    total = args.rounds * len(names)
    print(f"\nright: {right} of {total}")
    return 0 if right >= RIGHT_SHARE * total else 1


if __name__ == "__main__":
    sys.exit(main())
