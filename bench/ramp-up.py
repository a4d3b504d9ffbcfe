#!/usr/bin/env python3
"""Measures short copies over long paths beside the computed floor.

  bench/ramp-up.py floor  [--sizes 1,4,10] [--rtts 0,15,90,180] [--rates 1,8,10]
  bench/ramp-up.py copies [--rounds 5] [--size 1024] [--rtts 0,90,180] [--rate 10G] [--mtu 9000]
                          [--disk DIR] [--fast-open] [NAME=PATH...] [-- CP_OPTIONS]
  bench/ramp-up.py loss   [--rounds 5] [--rtt 40] [--queue 0.25] [NAME=PATH...]

"floor" prints the least time in seconds of a copy of so many GiB, by the formula of
docs/design/ramp-up.md.

"copies" copies a file of random bytes over an emulated link of --rate, from memory to memory or
from and to the disk of DIR (as root, caches dropped). The builds of longhaul are interleaved. A
build runs twice per round: "first" knows nothing of the path, and "again" finds the rate that the
first has remembered, and cookies of TCP Fast Open, which the far end allows with --fast-open. Prints
the seconds of the command, the floor for the rate that the same build reaches at 0 ms, the
connections, the loss, the share of the time in which the receive window was full, and the CPU
seconds of both ends and of the rest, which is mainly the emulator.

"loss" copies over 1 Gb/s with a short queue in bandwidth-delay products, for about 4 s, and
compares the retransmitted share with iperf3 with as many streams, of the host's congestion control.

NAME=PATH are builds (default: longhaul=target/release/longhaul). The first is the emulator. -- ends
the builds; further words are options of cp.
"""

import argparse
import collections
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from host_share import HostTime

SETUP_TRIPS = 3
LAST_TRIP = 1
FIRST_SEGMENTS = 10
FIRST_WINDOW = 65535
COPY_STREAMS = [(0.060, 16), (0.020, 8), (0, 4)]


def first_streams(rtt):
    """Connections of a copy over an unknown path."""
    return next(streams for least, streams in COPY_STREAMS if rtt >= least)


def first_window(mtu):
    """Bytes that a connection sends in its first round trip."""
    segment = mtu - 52
    return min(FIRST_SEGMENTS * segment, FIRST_WINDOW // segment * segment)


def floor(size, rtt, rate, streams=None, mtu=9000, trips=SETUP_TRIPS + LAST_TRIP):
    """The least seconds for `size` bytes at `rate` bytes per second and `rtt` seconds."""
    if rtt == 0:
        return size / rate
    window = (streams or first_streams(rtt)) * first_window(mtu)
    seconds, left, product = trips * rtt, size, rate * rtt
    while window < product and left > window:
        seconds, left, window = seconds + rtt, left - window, 2 * window
    return seconds + left / rate


def print_floor(args):
    numbers = lambda text: [float(number) for number in text.split(",")]
    print("GiB    RTT    " + "".join(f"{rate:>7g} Gb/s" for rate in numbers(args.rates)))
    for gib in numbers(args.sizes):
        for rtt in numbers(args.rtts):
            cells = [floor(gib * 2**30, rtt / 1e3, rate * 1e9 / 8, mtu=args.mtu)
                     for rate in numbers(args.rates)]
            print(f"{gib:<6g} {rtt:>3g} ms " + "".join(f"{cell:>12.2f}" for cell in cells))


def listen(port):
    deadline = time.monotonic() + 30
    probe = ["bash", "-c", f"exec 3<>/dev/tcp/far/{port}"]
    while subprocess.run(probe, stderr=subprocess.DEVNULL).returncode:
        if time.monotonic() > deadline:
            sys.exit(f"no server listens on port {port}")
        time.sleep(0.1)


def copy(longhaul, data, target, options):
    """Runs one copy; returns its figures."""
    if target.exists():
        target.unlink()
    before, start = HostTime.now(), time.monotonic()
    command = [longhaul, "cp", "--json", *options, str(data), f"lh://far/{target.name}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=120)
    seconds, host = time.monotonic() - start, HostTime.now() - before
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}")
    seen = json.loads(done.stdout)
    ends = [seen[end]["cpu_seconds"] for end in ("source", "sink")]
    return {
        "seconds": seconds, "streams": seen["path"]["streams"], "loss": seen["path"]["loss"],
        "window": seen["path"]["receive_window_limited"], "peak": seen["path"].get("peak_bps", 0),
        "source": ends[0], "sink": ends[1], "rest": host.busy - sum(ends),
        "stolen": host.stolen, "verdict": seen["limit"], "steps": seen["path"]["steps"],
    }


def near(args):
    """Runs at the near end of the link."""
    listen(5210)
    directory = Path(args.near)
    data, target = directory / "data", directory / "far" / "copy"
    figures = []
    for _ in ("first", "again"):
        if args.disk:
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("1")
        figures.append(copy(args.builds[0], data, target, args.options))
    print(json.dumps(figures))


def near_loss(args):
    listen(5210)
    listen(5202)
    directory = Path(args.near)
    data, target = directory / "data", directory / "far" / "copy"
    figures = [copy(args.builds[0], data, target, args.options) for _ in range(2)]
    command = ["iperf3", "-c", "far", "-p", "5202", "-J", "-P", str(figures[0]["streams"]), "-n",
               str(data.stat().st_size)]
    done = json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=120).stdout)
    sent = done["end"]["sum_sent"]
    segment = done["start"].get("tcp_mss_default", 1448)
    figures.append({"seconds": sent["seconds"], "streams": figures[0]["streams"],
                    "loss": sent["retransmits"] * segment / sent["bytes"]})
    print(json.dumps(figures))


def session(args, build, link, directory, mode):
    """Runs `mode` over `link` for one build; returns its figures."""
    home = tempfile.mkdtemp(dir=directory)
    iperf3 = "iperf3 -s -p 5202 >/dev/null & " if mode == "--near-loss" else ""
    fast_open = "sysctl -qw net.ipv4.tcp_fastopen=3; " if args.fast_open else ""
    serve = f"{fast_open}{iperf3}exec '{build}' serve --root '{directory}/far' 2>/dev/null"
    me = [sys.executable, os.path.realpath(__file__), mode.removeprefix("--"), "--near",
          str(directory), f"emulated={build}"]
    me += ["--disk", args.disk] if args.disk else []
    me += ["--", *args.options] if args.options else []
    emulator = os.path.realpath(args.builds[0].split("=", 1)[1])
    done = subprocess.run([emulator, "wan", "run", *link, "--far", serve, "--", *me],
                          env={**os.environ, "HOME": home}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"{link}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def with_data(args, size, work):
    parent = args.disk or "/dev/shm"
    directory = Path(tempfile.mkdtemp(prefix="longhaul-ramp-up.", dir=parent))
    try:
        with open(directory / "data", "wb") as data:
            subprocess.run(["head", "-c", str(size), "/dev/urandom"], stdout=data, check=True)
        os.mkdir(directory / "far")
        work(directory)
    finally:
        shutil.rmtree(directory)


def median(rows, column):
    return statistics.median(row[column] for row in rows)


def copies(args):
    size = args.size << 20
    rows = collections.defaultdict(list)

    def measure(directory):
        for number in range(args.rounds):
            for rtt in [int(rtt) for rtt in args.rtts.split(",")]:
                for at in range(len(args.builds)):
                    name, build = args.builds[(at + number) % len(args.builds)].split("=", 1)
                    link = ["--rtt", f"{rtt}ms", "--rate", args.rate, "--mtu", str(args.mtu)]
                    seen = session(args, os.path.realpath(build), link, directory, "--near")
                    for which, row in zip(("first", "again"), seen):
                        rows[rtt, name, which].append(row)
                        print(f"{number + 1} {rtt:3} ms {name}/{which:6}{line(row)} {row['verdict']}"
                              f" {'; '.join(row['steps'])}", flush=True)

    with_data(args, size, measure)
    print("\nmedians of", args.rounds)
    for (rtt, name, which), of in sorted(rows.items()):
        row = {column: median(of, column) for column in of[0] if column not in ("verdict", "steps")}
        least = ""
        if (0, name, which) in rows and rtt:
            rate = size / median(rows[0, name, which], "seconds")
            least = floor(size, rtt / 1e3, rate, round(row["streams"]), args.mtu)
            least = f"  floor {least:.2f} s, {row['seconds'] / least:.2f} times"
        span = (min(r["seconds"] for r in of), max(r["seconds"] for r in of))
        print(f"{rtt:3} ms {name}/{which:6}{line(row)}  {span[0]:.2f} to {span[1]:.2f} s{least}")


def line(row):
    return (f"{row['seconds']:7.2f} s  {row['streams']:3.0f} streams  lost {row['loss']:7.3%}"
            f"  window full {row['window']:4.0%}  peak {row['peak'] / 1e9:5.2f} Gb/s"
            f"  CPU {row['source']:4.2f} {row['sink']:4.2f} {row['rest']:4.2f} s"
            f"  stolen {row['stolen']:4.2f} s")


def loss(args):
    rows = collections.defaultdict(list)
    queue = int(1e9 / 8 * args.rtt / 1e3 * args.queue)
    link = ["--rtt", f"{args.rtt}ms", "--rate", "1G", "--queue", f"{queue}B", "--mtu",
            str(args.mtu)]

    def measure(directory):
        for number in range(args.rounds):
            for at in range(len(args.builds)):
                name, build = args.builds[(at + number) % len(args.builds)].split("=", 1)
                seen = session(args, os.path.realpath(build), link, directory, "--near-loss")
                for which, row in zip(("first", "again", "iperf3"), seen):
                    rows[name, which].append(row)
                    print(f"{number + 1} {name}/{which:6} {row['seconds']:6.2f} s "
                          f"{row['streams']:3} streams  lost {row['loss']:.3%}", flush=True)

    with_data(args, 500 << 20, measure)
    print("\nmedians of", args.rounds)
    for (name, which), of in sorted(rows.items()):
        print(f"{name}/{which:6} {median(of, 'seconds'):6.2f} s {median(of, 'streams'):3.0f} streams"
              f"  lost {median(of, 'loss'):.3%}")


def main():
    words = sys.argv[1:]
    options = words[words.index("--") + 1:] if "--" in words else []
    words = words[:words.index("--")] if "--" in words else words
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["floor", "copies", "loss", "near", "near-loss"])
    parser.add_argument("builds", nargs="*", default=["longhaul=target/release/longhaul"])
    parser.add_argument("--sizes", default="1,4,10")
    parser.add_argument("--rates", default="1,8,10")
    parser.add_argument("--rtts")
    parser.add_argument("--rtt", type=int, default=40)
    parser.add_argument("--queue", type=float, default=0.25)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rate", default="10G")
    parser.add_argument("--mtu", type=int, default=9000)
    parser.add_argument("--disk", default="")
    parser.add_argument("--fast-open", action="store_true")
    parser.add_argument("--near")
    args = parser.parse_intermixed_args(words)
    args.options = options
    if args.mode == "floor":
        args.rtts = args.rtts or "0,15,90,180"
        return print_floor(args)
    args.rtts = args.rtts or "0,90,180"
    if args.near:
        args.builds = [build.split("=", 1)[1] for build in args.builds]
    work = {"copies": copies, "loss": loss, "near": near, "near-loss": near_loss}
    return work[args.mode](args)


if __name__ == "__main__":
    main()
