#!/usr/bin/env python3
"""Measures a running flow beside a copy: its share, the copy's loss, and the recovery.

  bench/fairness.py [--rounds N] [--rates 1G,5G] [--rtts 20,90] [--queues 0.25,1,4]
                    [--hosts bbr,cubic] [--tools cp,dedicated,two,iperf3-4,iperf3-8]
                    [--flow cubic|bbr] [--alone] [--loss SHARE] [--after SECONDS]

Per case, a flow of iperf3 with the congestion control --flow fills an emulated link for 8 s. Then a
copy of random bytes, from memory to memory and large enough for about 10 s, runs over the same
link. The flow goes on for --after seconds (10) after the copy. --hosts is the kernel's default congestion control,
--queues the size of the queue in bandwidth-delay products. The tools are longhaul cp, longhaul cp
--dedicated, two copies at once, and iperf3 with that many parallel cubic streams. With --alone there
is no flow, and --loss adds random loss. A case takes 32 s, or 15 s with --alone.

The output is a table for Markdown, preceded by the meaning of its columns (LEGEND). "first" and "rest"
are read from ss every 0.2 s. LONGHAUL names the binary (default: target/release/longhaul). Runs as
root: it sets the default congestion control, and restores it.
"""

import argparse
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from host_share import HostTime

LONGHAUL = os.path.realpath(os.environ.get("LONGHAUL", "target/release/longhaul"))
CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
BEFORE, DURING = 8, 10
LEGEND = """
| column | meaning |
|---|---|
| default | the default congestion control of the hosts; iperf3 uses cubic |
| rate, RTT, queue | the emulated link; the queue in bandwidth-delay products (BDP) |
| tool | `cp`: `longhaul cp`; `dedicated`: `longhaul cp --dedicated`; `two`: two copies at once; `iperf3-N`: iperf3 with N streams |
| beside | the congestion control of the flow that runs before, during and after the copy; `-` without a flow |
| rounds | the valid rounds and all rounds. A round is invalid if the hypervisor took more than 10 % of the CPU time or the emulator ran late. The figures are medians of the valid rounds |
| goodput | the goodput of the tool, as a share of the rate of the link |
| lost | the share of its bytes that the tool retransmitted; of `two`, that of the copy with more loss |
| first, rest | that share in the first second of data, and after it; of `two`, that of both copies together |
| share | the share of the first of two copies in the bytes of both when one of them ended |
| flow | the mean goodput of the flow during the copy, as a share of the rate of the link |
| least | the same in the worst second |
| after | the time from the end of the copy until the flow has 80 % of the rate of the link again |
| flow after N s | the goodput of the flow in its last second, about N s (--after) after the copy, as a share of the rate of the link |
"""


def bits(rate):
    return float(rate[:-1]) * {"G": 1e9, "M": 1e6}[rate[-1]]


def listen(port):
    """Waits until the server listens on `port`."""
    deadline = time.monotonic() + 30
    probe = ["bash", "-c", f"exec 3<>/dev/tcp/far/{port}"]
    while subprocess.run(probe, stderr=subprocess.DEVNULL).returncode:
        if time.monotonic() > deadline:
            sys.exit(f"no server listens on port {port}")
        time.sleep(0.1)


class Sockets(threading.Thread):
    """Reads the counters of the senders' sockets every 0.2 s."""

    PORTS = ("5210", "5211", "5202")

    def __init__(self):
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.seen = {}
        self.history = []

    def run(self):
        where = " or ".join(f"dport = :{port}" for port in self.PORTS)
        while not self.over.wait(0.2):
            text = subprocess.run(["ss", "-tinH", f"( {where} )"], stdout=subprocess.PIPE, text=True).stdout
            lines = text.splitlines()
            for head, info in zip(lines, lines[1:]):
                words, counters = head.split(), dict(re.findall(r"(bytes_\w+):(\d+)", info))
                if len(words) >= 5 and not head.startswith("\t") and "bytes_sent" in counters:
                    self.seen[words[3], words[4]] = {k: int(v) for k, v in counters.items()}
            self.history.append((time.monotonic(), self.sums()))

    def sums(self):
        """Returns the bytes sent, retransmitted and acknowledged per port of the receiver."""
        sums = {port: [0, 0, 0] for port in self.PORTS}
        for (_, peer), counters in self.seen.items():
            names = ("bytes_sent", "bytes_retrans", "bytes_acked")
            of = sums[peer.rsplit(":", 1)[1]]
            of[:] = [a + counters.get(name, 0) for a, name in zip(of, names)]
        return sums

    def finish(self):
        """Returns the lost share in the first second of data and afterwards, and the share of the
        first copy in the bytes of both when one of them ended."""
        self.over.set()
        self.join()
        total = [(at, [sum(column) for column in zip(*of.values())]) for at, of in self.history]
        data = [(at, of) for at, of in total if of[0] > 100_000]
        if not data:
            return None, None, None
        first = next((of for at, of in data if at >= data[0][0] + 1), data[-1][1])
        last = data[-1][1]
        lost = lambda sent, again: again / sent if sent > 0 else None
        both = [of for _, of in self.history if of["5210"][2] and of["5211"][2]]
        share = None
        if both:
            growing = [now for before, now in zip(both, both[1:])
                       if all(now[port][2] > before[port][2] for port in ("5210", "5211"))]
            end = growing[-1] if growing else both[-1]
            share = end["5210"][2] / (end["5210"][2] + end["5211"][2])
        rest = lost(last[0] - first[0], last[1] - first[1])
        return lost(first[0], first[1]), rest, share


def copy(tool, directory):
    """Runs the copy; returns its seconds, bytes and retransmitted share."""
    size = os.path.getsize(directory / "data")
    start = time.monotonic()
    if tool == "two":
        command = [LONGHAUL, "cp", "--json", str(directory / "data")]
        copies = [subprocess.Popen([*command, target], stdout=subprocess.PIPE)
                  for target in ("lh://far/copy", "lh://far:5211/copy")]
        results = [json.loads(copy.communicate()[0]) for copy in copies]
        lost = max(result["path"]["loss"] for result in results)
        return time.monotonic() - start, 2 * size, lost
    if tool.startswith("iperf3-"):
        streams = tool.split("-")[1]
        command = ["iperf3", "-c", "far", "-p", "5202", "-J", "-C", "cubic", "-P", streams]
        done = subprocess.run([*command, "-n", str(size)], stdout=subprocess.PIPE)
        sent = json.loads(done.stdout)["end"]["sum_sent"]
        lost = sent["retransmits"] * 1448 / sent["bytes"]
    else:
        more = ["--dedicated"] if tool == "dedicated" else []
        command = [LONGHAUL, "cp", "--json", *more, str(directory / "data"), "lh://far/copy"]
        done = subprocess.run(command, stdout=subprocess.PIPE)
        lost = json.loads(done.stdout)["path"]["loss"] if done.returncode == 0 else 0
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}")
    return time.monotonic() - start, size, lost


def near(tool, directory, congestion, after):
    """Runs at the near end: the flow, if it has a congestion control, and the copy."""
    listen(5210)
    listen(5211)
    flow = None
    start = time.monotonic()
    if congestion:
        listen(5201)
        start = time.monotonic()
        command = ["iperf3", "-c", "far", "-p", "5201", "-C", congestion, "-t", "600", "-i", "1", "-J"]
        with open(directory / "flow.json", "w") as output:
            flow = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        time.sleep(BEFORE)
    begun = time.monotonic() - start
    sockets = Sockets()
    sockets.start()
    seconds, size, lost = copy(tool, directory)
    ended = time.monotonic() - start
    first, rest, share = sockets.finish()
    rates = []
    if flow:
        time.sleep(after + 1)
        flow.terminate()
        flow.wait(20)
        intervals = json.loads((directory / "flow.json").read_text())["intervals"]
        rates = [(i["sum"]["start"], i["sum"]["bits_per_second"]) for i in intervals]
    print(json.dumps({"rates": rates, "begun": begun, "ended": ended, "seconds": seconds,
                      "bytes": size, "lost": lost, "first": first, "rest": rest, "share": share}))


def measure(case, loss, after):
    """Returns the figures of one round of `case`."""
    host, rate, rtt, queue, tool, flow = case
    directory = Path(tempfile.mkdtemp(prefix="longhaul-fairness.", dir="/dev/shm"))
    before = HostTime.now()
    try:
        CONGESTION.write_text(host)
        share = (0.6 if flow else 1) / (2 if tool == "two" else 1)
        size = int(bits(rate) / 8 * DURING * share)
        with open(directory / "data", "wb") as data:
            subprocess.run(["head", "-c", str(size), "/dev/urandom"], stdout=data, check=True)
        for root in ("far", "far2"):
            os.mkdir(directory / root)
        limit = int(bits(rate) / 8 * rtt / 1e3 * queue)
        serve = (f"iperf3 -s -p 5201 >/dev/null & iperf3 -s -p 5202 >/dev/null & "
                 f"'{LONGHAUL}' serve -p 5211 --root '{directory}/far2' 2>/dev/null & "
                 f"exec '{LONGHAUL}' serve --root '{directory}/far' 2>/dev/null")
        link = ["--rtt", f"{rtt}ms", "--rate", rate, "--queue", f"{limit}B"]
        link += ["--loss", loss] if loss else []
        me = [sys.executable, os.path.realpath(__file__), "--near", str(directory), "--tools", tool,
              "--after", str(after)]
        me += ["--flow", flow] if flow else ["--alone"]
        done = subprocess.run(
            [LONGHAUL, "wan", "run", *link, "--far", serve, "--", *me],
            env={**os.environ, "HOME": str(directory)}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, timeout=300)
        if done.returncode:
            sys.exit(f"{case}: {done.stderr[-2000:]}")
        seen = json.loads(done.stdout)
    finally:
        shutil.rmtree(directory)
    steal = (HostTime.now() - before).stolen_share
    capacity = bits(rate)
    during = [r / capacity for at, r in seen["rates"]
              if at >= seen["begun"] - 0.3 and at + 1 <= seen["ended"] + 0.3]
    later = [(at + 1 - seen["ended"], r / capacity) for at, r in seen["rates"]
             if at >= seen["ended"]]
    return {
        "goodput": seen["bytes"] * 8 / seen["seconds"] / capacity,
        **{name: seen[name] for name in ("lost", "first", "rest", "share")},
        "flow": statistics.mean(during) if during else None,
        "least": min(during) if during else None,
        "after": next((at for at, share in later if share >= 0.8), None),
        "last": later[-1][1] if later else None,
        "spoiled": steal > 0.1 or "behind schedule" in done.stderr,
    }


def text(values, percent=True):
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    value = statistics.median(values)
    return f"{100 * value:.1f} %" if percent else f"{value:.1f} s"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--near", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rates", default="1G")
    parser.add_argument("--rtts", default="40")
    parser.add_argument("--queues", default="0.25,1,4")
    parser.add_argument("--hosts", default="bbr,cubic")
    parser.add_argument("--tools", default="cp,dedicated,iperf3-4")
    parser.add_argument("--flow", choices=("cubic", "bbr"), default="cubic")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--loss")
    parser.add_argument("--after", type=int, default=10)
    options = parser.parse_args()
    if options.near:
        flow = None if options.alone else options.flow
        return near(options.tools, options.near, flow, options.after)
    lists = (options.hosts, options.rates, options.rtts, options.queues, options.tools)
    flow = None if options.alone else options.flow
    cases = [(host, rate, int(rtt), float(queue), tool, flow)
             for host, rate, rtt, queue, tool in itertools.product(*(l.split(",") for l in lists))]
    results = {case: [] for case in cases}
    default = CONGESTION.read_text()
    try:
        for number in range(options.rounds):
            for case in cases if number % 2 == 0 else reversed(cases):
                results[case].append(measure(case, options.loss, options.after))
                print(number + 1, *case[:5], json.dumps(results[case][-1]), file=sys.stderr)
    finally:
        CONGESTION.write_text(default)
    print(LEGEND)
    print("| default | rate | RTT | queue | tool | beside | rounds | goodput | lost | first | rest "
          f"| share | flow | least | after | flow after {options.after} s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for case, rounds in results.items():
        good = [r for r in rounds if not r["spoiled"]]
        host, rate, rtt, queue, tool, flow = case
        column = lambda name, percent=True: text([r[name] for r in good], percent)
        back = [r["after"] for r in good]
        after = column("after", False) if None not in back else f"> {options.after} s"
        after = after if flow else "-"
        print(f"| {host} | {rate} | {rtt} ms | {queue:g} BDP | {tool} | {flow or '-'} "
              f"| {len(good)} of {len(rounds)} | {column('goodput')} | {column('lost')} "
              f"| {column('first')} | {column('rest')} | {column('share')} | {column('flow')} "
              f"| {column('least')} | {after} | {column('last')} |")


if __name__ == "__main__":
    main()
