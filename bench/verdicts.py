#!/usr/bin/env python3
"""Injects a limit into a copy, and checks the limit that `longhaul cp` reports.

  bench/verdicts.py [--rounds N] [--first N] [--seed N] [--only CASE]... [--dir DIR]

Each case has one injected limit and one right answer. Cases are shuffled within rounds that have
each of them once; --first N starts with round N. "silent" means that the copy moved nothing and
must name no limit. Prints a line per copy and a table. Exits with 1 if less than 95 % of the answers
are right. LONGHAUL is the binary (default: target/release/longhaul). Runs as root: it emulates
links, and makes control groups.

The data are in memory, so that the disk of the machine is no limit. A slow disk is a limit of the
block layer on the control group of one end (blkio.throttle, io.max), for files in DIR on a real disk
(default: this directory). A slow processor is a CPU quota of one end.
"""

import argparse
import collections
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

LONGHAUL = os.path.realpath(os.environ.get("LONGHAUL", "target/release/longhaul"))
SILENT = "silent"
RIGHT_SHARE = 0.95
BUSY = "for core in $(seq $(nproc)); do sh -c 'while :; do :; done' & done"
SMALL_WINDOW = "echo '4096 131072 262144' > /proc/sys/net/ipv4/tcp_rmem"
SEND_WINDOW = "echo '4096 16384 262144' > /proc/sys/net/ipv4/tcp_wmem"


@dataclass
class Case:
    """An injected limit: `link` is empty for a copy within the host."""
    right: str
    copy: str
    link: str = ""
    before: str = ""
    far: str = ""
    # (end, "read" or "write", bytes per second), (end, percent of a core). A source needs 1 ms of CPU
    # time per megabyte, a sink up to 7 ms.
    disk: tuple = ()
    quota: tuple = ()


FAR = "lh://far/"
LAN = "--rtt 20ms"
SLOW_DISK = 6_000_000
CASES = {
    "rate limit, within the host": Case("rate", "--bwlimit 80M data30 out"),
    "rate limit, short copy": Case("rate", f"--bwlimit 40M data5 {FAR}", LAN),
    "rate limit, busy host": Case("rate", f"--bwlimit 40M data30 {FAR}", LAN, BUSY),
    "outage": Case("outage", f"data30 {FAR}", "--rtt 20ms --rate 60M --outage 2s+6s"),
    "outage and rate limit": Case("outage", f"--bwlimit 40M data30 {FAR}",
                                  "--rtt 20ms --outage 3s+9s"),
    "ramp-up at 180 ms": Case("ramp_up", f"data30 {FAR}", "--rtt 180ms --rate 1G"),
    "ramp-up at 90 ms": Case("ramp_up", f"data5 {FAR}", "--rtt 90ms --rate 1G"),
    "100 kB within the host": Case("too_short", "--no-fsync data0 out"),
    "missing source": Case(SILENT, "nosuch out"),
    "up to date": Case(SILENT, "-p -u data0 same"),
    "full target": Case(SILENT, f"data30 {FAR}", LAN, far="mount -t tmpfs -o size=8M none {far}"),
    "link rate": Case("path", f"data30 {FAR}", "--rtt 10ms --rate 80M --queue 2MB"),
    "loss": Case("loss", f"-P 2 data30 {FAR}", "--rtt 20ms --loss 5e-2"),
    "receive window": Case("receive_window", f"-P 1 data30 {FAR}", "--rtt 60ms",
                           far=SMALL_WINDOW),
    "send window": Case("send_window", f"-P 1 data30 {FAR}", "--rtt 60ms", SEND_WINDOW),
    "slow source disk": Case("source_disk", f"--direct always {{disk}}/data30 {FAR}", LAN,
                             disk=("near", "read", SLOW_DISK)),
    "slow sink disk": Case("sink_disk", f"--direct always data30 {FAR}", LAN,
                           disk=("far", "write", SLOW_DISK)),
    "CPU quota at the source": Case("source_cpu", f"data30 {FAR}", LAN, quota=("near", 1)),
    "CPU quota at the sink": Case("sink_cpu", f"data30 {FAR}", LAN, quota=("far", 3)),
}


class ControlGroups:
    """The control groups of both ends. The sites of a link have a private /sys, so that the groups
    are mounted below `work`."""

    def __init__(self, work):
        self.work = work
        # Version 1 if its hierarchy of blkio exists.
        self.first = re.search(r"^blkio\s+[1-9]", Path("/proc/cgroups").read_text(), re.M)
        self.mounts = {}
        for kind, controller in (("disk", "blkio"), ("cpu", "cpu")):
            mount = self.mounts[kind] = work / f"{kind}-groups"
            mount.mkdir()
            options = ["cgroup", "-o", controller] if self.first else ["cgroup2"]
            subprocess.run(["mount", "-t", *options, "none", mount], check=True)
            if not self.first:
                (mount / "cgroup.subtree_control").write_text("+cpu +io")
            for end in ("near", "far"):
                self.group(kind, end).mkdir(exist_ok=True)

    def group(self, kind, end):
        return self.mounts[kind] / f"lh-verdicts-{os.getpid()}-{end}"

    def enter(self, end):
        """Returns a shell command that moves the shell to the groups of `end`."""
        return "; ".join(f"echo 0 > {self.group(kind, end)}/cgroup.procs" for kind in self.mounts)

    def limit_disk(self, end, what, rate, directory):
        group = self.group("disk", end)
        if self.first:
            (group / f"blkio.throttle.{what}_bps_device").write_text(f"{disk(directory)} {rate or 0}")
        else:
            (group / "io.max").write_text(f"{disk(directory)} {what[0]}bps={rate or 'max'}")

    def limit_cpu(self, end, percent):
        group = self.group("cpu", end)
        if self.first:
            quota = str(percent * 1000) if percent else "-1"
            (group / "cpu.cfs_quota_us").write_text(quota)
        else:
            (group / "cpu.max").write_text(f"{percent * 1000 if percent else 'max'} 100000")

    def apply(self, case, directory, remove=False):
        """Sets the limits of `case`, or removes them."""
        if case.disk:
            end, what, rate = case.disk
            self.limit_disk(end, what, 0 if remove else rate, directory)
        if case.quota:
            end, percent = case.quota
            self.limit_cpu(end, 0 if remove else percent)

    def close(self):
        for kind, mount in self.mounts.items():
            for end in ("near", "far"):
                for _ in range(50):
                    try:
                        self.group(kind, end).rmdir()
                        break
                    except OSError:
                        time.sleep(0.1)
            subprocess.run(["umount", mount], check=True)


def disk(directory):
    """Returns the device number of the whole disk of `directory`."""
    number = os.stat(directory).st_dev
    path = Path(os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"))
    if (path / "partition").exists():
        path = path.parent
    return (path / "dev").read_text().strip()


def prepare(work, on_disk):
    """Makes the files of 0.1, 5 and 30 MB, and the target that is up to date."""
    noise = random.Random(1)
    for name, size in (("data0", 100_000), ("data5", 5_000_000), ("data30", 30_000_000)):
        (work / name).write_bytes(noise.randbytes(size))
    subprocess.run(["cp", "-p", work / "data0", work / "same"], check=True)
    subprocess.run(["cp", work / "data30", on_disk / "data30"], check=True)
    os.sync()


def commands(case, groups, copy, far):
    """Returns the shell commands of the near and the far end."""
    enter = {"near": ":", "far": ":"}
    for end in {"near", "far"} & {*case.disk[:1], *case.quota[:1]}:
        enter[end] = groups.enter(end)
    serve = (f"{case.far.format(far=far) or ':'}; {enter['far']}; "
             f"exec {LONGHAUL} serve --root {far}")
    near = (f"{case.before or ':'}; ({enter['near']}; exec {copy}); "
            "code=$?; kill $(jobs -p) 2>/dev/null; exit $code")
    return near, serve


def run(case, work, on_disk, groups):
    """Runs the copy of `case`, and returns its limit and its sentence."""
    parent = on_disk if case.disk else work
    with tempfile.TemporaryDirectory(dir=parent) as far:
        copy = f"{LONGHAUL} cp --json {case.copy.format(disk=on_disk)}"
        if case.link:
            near, serve = commands(case, groups, copy, far)
            command = [LONGHAUL, "wan", "run", *case.link.split(), "--far", serve, "--", "bash",
                       "-c", near]
        else:
            (work / "out").unlink(missing_ok=True)
            command = ["sh", "-c", copy]
        with open(on_disk / "data30", "rb") as data:
            os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        groups.apply(case, on_disk)
        try:
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=120,
                                  check=False)
        except subprocess.TimeoutExpired:
            return "failed", "no end within two minutes"
        finally:
            groups.apply(case, on_disk, remove=True)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return "failed", (done.stderr.strip().splitlines() or [""])[-1]
    if result["schema"] == "longhaul.error/1":
        return SILENT, result["message"]
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


def rounds(args, names, work, on_disk):
    """Runs the rounds, and returns the answers per case."""
    # The groups are removed also when the run is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    order = random.Random(args.seed)
    answers = {name: collections.Counter() for name in names}
    groups = ControlGroups(work)
    try:
        prepare(work, on_disk)
        for number in range(args.first + args.rounds):
            block = order.sample(names, len(names))
            for name in block if number >= args.first else []:
                began = time.time()
                limit, sentence = run(CASES[name], work, on_disk, groups)
                answers[name][limit] += 1
                mark = "right" if limit == CASES[name].right else "WRONG"
                seconds = time.time() - began
                print(f"{number} {mark}  {name} ({seconds:.0f} s): {limit}: {sentence}", flush=True)
    finally:
        groups.close()
    return answers


def main():
    """Prints the answers, and returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append")
    parser.add_argument("--dir", default=".")
    args = parser.parse_args()
    names = [name for name in CASES if args.only is None or name in args.only]
    with tempfile.TemporaryDirectory(prefix="verdicts-", dir="/dev/shm") as memory, \
            tempfile.TemporaryDirectory(prefix="verdicts-", dir=args.dir) as disk_directory:
        os.environ["XDG_CONFIG_HOME"] = str(Path(memory, "config"))
        answers = rounds(args, names, Path(memory), Path(disk_directory).resolve())
    table(names, answers, args.rounds)
    right = sum(answers[name][CASES[name].right] for name in names)
    total = args.rounds * len(names)
    print(f"\nright: {right} of {total}")
    return 0 if right >= RIGHT_SHARE * total else 1


if __name__ == "__main__":
    sys.exit(main())
