#!/usr/bin/env python3
"""Runs a full mesh of tests and STAMP between 24 emulated sites, and compares the results with the links.

Usage: bench/fleet-sites.py LONGHAUL [--sites N,N,N] [--seconds S] [--margin SECONDS] [--minutes M] [--keep DIR]

Runs as root. The links have 20 to 50 Mb/s, so that one emulator carries them beside other programs. The
script waits until every pair has a result, and at least for M minutes. It checks:

- the time of the first cycle against the prediction of `fleet plan`;
- that no two tests overlap on a resource, by the journals of the agents;
- throughput, delay and loss against the configuration of the links;
- that every run without a result has a reason.

At least 98 % of the rates of a class of paths must reach their lower bound. Without loss the bound is 0.8 of the
configured rate, or 0.5 from an RTT of 50 ms on: a test of 2 s contains the ramp-up, which takes about 0.5 s at an RTT of
100 ms. With random loss the bound is half of 0.8 (or 0.5) of the rate that the congestion control reaches in the long
term. BBR does not reduce its rate at these losses (at most 1.5 %), so this is the configured rate. For others it is at
most the rate of Mathis et al. (1997), 1.22 segments / (RTT x sqrt(loss)), which Cubic reaches or exceeds (RFC 9438,
section 4.3). The half is for the few losses in 2 s: at 108 ms and 1.5 %, there are three at the rate of Mathis, and an
early one ends the ramp-up. The script prints the runs below their bound with the reasons of their rates.

The exit code is 1 if a check failed. The script prints CPU time and memory of the agents and the hub.
"""

import argparse
import collections
import json
import math
import shutil
import sys
import tempfile
import time

import fleet as lab

#: The payload of a segment in bytes, at a path MTU of 1500 bytes with timestamps.
SEGMENT = 1448
#: The most runs below their bound that are printed.
MOST_LOW = 60


def wait_for_cycle(fleet, pairs, predicted, minutes):
    """Waits until every pair has a result; returns the runs."""
    begun = time.monotonic()
    while True:
        time.sleep(10)
        runs = fleet.fleet("runs", "--limit", "10000")["runs"]
        done = {(run["source"], run["destination"]) for run in runs if run["state"] == "finished"}
        elapsed = time.monotonic() - begun
        print(f"{elapsed:.0f} s: {len(done)} of {pairs} pairs have a result", file=sys.stderr, flush=True)
        if (len(done) == pairs and elapsed > 60 * minutes) or elapsed > max(2 * predicted + 120, 60 * minutes):
            return runs


def check_cycle(checks, runs, predicted):
    first = {}
    for run in runs:
        pair = (run["source"], run["destination"])
        if run["state"] == "finished" and (pair not in first or run["started_ms"] < first[pair][0]):
            first[pair] = (run["started_ms"], run["window_end_ms"])
    begun = min(run["planned_ms"] for run in runs)
    measured = (max(end for _, end in first.values()) - begun) / 1000
    share = measured / predicted - 1
    checks.add("time of the first cycle", abs(share) <= 0.1,
               f"{measured:.1f} s, predicted {predicted} s ({share:+.1%}); {len(first)} pairs")
    starts = collections.defaultdict(list)
    for run in runs:
        if run["state"] == "finished":
            starts[run["source"], run["destination"]].append(run["started_ms"])
    periods = [b - a for times in starts.values() for a, b in zip(sorted(times), sorted(times)[1:])]
    if periods:
        low, middle, high = (value / 1000 for value in lab.quantiles(periods))
        checks.add("time between two runs of a pair", True,
                   f"median {middle:.1f} s, {low:.1f} to {high:.1f} s, n = {len(periods)}")


def check_reasons(checks, runs):
    states = collections.Counter(run["state"] for run in runs)
    lacking = [run for run in runs if run["state"] in ("failed", "missed", "cancelled")
               and run["reason"] in (None, "unknown")]
    reasons = collections.Counter(str(run["reason"]) for run in runs if run["reason"])
    checks.add("every run without a result has a reason", not lacking,
               f"{dict(states)}; reasons {dict(reasons)}")
    for run in [run for run in runs if run["state"] == "failed"][:8]:
        print(f"failed: {run['source']} > {run['destination']}: {run['reason']} {run.get('message')}",
              file=sys.stderr)


def long_term_rate(rate, rtt, loss, congestion):
    """Returns the rate in Mb/s that a congestion control reaches over a path in the long term, see above."""
    if not loss or congestion.startswith("bbr"):
        return rate
    return min(rate, 1.22 * SEGMENT * 8 / 1e6 / (rtt / 1e3 * math.sqrt(loss)))


def least_rate(rate, rtt, loss, congestion):
    """Returns the lower bound of the rate in Mb/s of a test of 2 s."""
    ramped = 0.8 if rtt < 50 else 0.5
    return (0.5 if loss else 1) * ramped * long_term_rate(rate, rtt, loss, congestion)


def check_throughput(checks, fleet, runs):
    by_name = {site.name: site for site in fleet.sites}
    sysctl = ["sysctl", "-n", "net.ipv4.tcp_congestion_control"]
    congestion = fleet.run_at(fleet.sites[0].name, sysctl, longhaul=False).stdout.strip()
    classes, low_runs = collections.defaultdict(list), []
    for run in runs:
        if run["state"] == "finished":
            rate, rtt, loss = lab.path_between(by_name[run["source"]], by_name[run["destination"]])
            name = "RTT below 50 ms" if rtt < 50 else "RTT of 50 ms or more"
            least = least_rate(rate, rtt, loss, congestion) / rate
            share = (run["throughput_bps"] or 0) / (rate * 1e6)
            classes[name + (f" with loss, {congestion}" if loss else "")].append((share, least))
            if share < least:
                low_runs.append((share, run, rate, rtt, loss))
    for name, rates in sorted(classes.items()):
        low, middle, high = lab.quantiles([share for share, _ in rates])
        bounds = [least for _, least in rates]
        within = sum(least <= share <= 1.01 for share, least in rates)
        checks.add(f"throughput, share of the configured rate, {name}", within >= 0.98 * len(rates),
                   f"median {middle:.3f}, {low:.3f} to {high:.3f}; {within} of {len(rates)} runs between their "
                   f"bound ({min(bounds):.3f} to {max(bounds):.3f}) and 1.01")
    print_low(fleet, low_runs)


def print_low(fleet, runs):
    """Prints the runs below their bound with the reasons of their rates, the lowest first."""
    if not runs:
        return
    print("\n| run | rate, Mb/s | RTT, ms | loss | share | steady share | ramp-up, s | retransmits | limit (share, %) |"
          "\n|---|---|---|---|---|---|---|---|---|")
    for share, run, rate, rtt, loss in sorted(runs, key=lambda one: one[0])[:MOST_LOW]:
        document = fleet.fleet("runs", run["run"]).get("document") or {}
        summary = document.get("summary") or {}
        reason, steady = summary.get("reason") or {}, summary.get("steady") or {}
        of_rate = lambda bps: "-" if bps is None else f"{bps / (rate * 1e6):.3f}"
        ramp = steady.get("ramp_up_seconds")
        print(f"| {run['source']} > {run['destination']} | {rate} | {rtt} | {loss:.4f} | {share:.3f} "
              f"| {of_rate(steady.get('throughput_bps'))} | {'-' if ramp is None else f'{ramp:.2f}'} "
              f"| {summary.get('sender', {}).get('retransmits')} | {reason.get('limit')} ({reason.get('share_percent')}) |")
    print("\n| check | result | detail |\n|---|---|---|")


def check_stamp(checks, fleet):
    by_name = {site.name: site for site in fleet.sites}
    added, lost = [], collections.defaultdict(lambda: [0, 0])
    pairs = set()
    for site in fleet.sites:
        for row in fleet.rows(site.name, "SELECT body FROM seen_stamp WHERE acknowledged = 1"):
            summary = json.loads(row["body"])
            peer = by_name[summary["peer"]]
            _, rtt, loss = lab.path_between(site, peer)
            if summary.get("rtt_min_ms") is not None:
                pairs.add((site.name, peer.name))
                added.append(summary["rtt_min_ms"] - rtt)
            for direction in ("lost_forward", "lost_reverse"):
                if summary.get(direction) is not None:
                    lost[round(loss, 6)][0] += summary[direction]
                    lost[round(loss, 6)][1] += summary["sent"]
    expected = len(fleet.sites) * (len(fleet.sites) - 1)
    low, middle, high = lab.quantiles(added)
    within = sum(-0.05 <= value <= 5 for value in added)
    checks.add("lowest round-trip time of a minute, minus the configured one", within >= 0.98 * len(added),
               f"median {middle:.2f} ms, {low:.2f} to {high:.2f} ms; {within} of {len(added)} in -0.05 to 5 ms")
    checks.add("STAMP of all pairs", len(pairs) == expected, f"{len(pairs)} of {expected}")
    for loss, (count, sent) in sorted(lost.items()):
        # The path also loses the packets that its queues drop while a test fills them.
        bound = 4 * math.sqrt(sent * loss * (1 - loss)) + 0.004 * sent
        checks.add(f"loss of a direction, configured {loss:.4f}", abs(count - sent * loss) <= bound,
                   f"{count} of {sent} packets ({count / max(sent, 1):.5f})")


def check_cells(checks, fleet):
    status = fleet.fleet("status")
    cells = collections.Counter((cell["metric"], cell["state"]) for cell in status["cells"])
    text = ", ".join(f"{metric} {state} {count}" for (metric, state), count in sorted(cells.items()))
    expected, finished = status["runs_expected"], status["runs_finished"]
    checks.add("grid", True, f"{text}; expected {expected} runs, finished {finished}")


def print_costs(fleet, before, after, seconds):
    print("\n| process | CPU, % of a core | memory (RSS), MiB | of it private, MiB |\n|---|---|---|---|")
    def row(name, keys):
        shares = [(after[key][0] - before[key][0]) / seconds * 100 for key in keys]
        memory, private = [after[key][1] for key in keys], [after[key][2] for key in keys]
        text = lambda values: " / ".join(f"{value:.2f}" for value in lab.quantiles(values))
        print(f"| {name} | {text(shares)} | {text(memory)} | {text(private)} |")
    row("agent (minimum / median / maximum)", [site.name for site in fleet.sites])
    row("hub", ["hub"])
    row("emulator", ["emulator"])


def measure(fleet, options):
    fleet.up()
    fleet.start_hub()
    fleet.login()
    fleet.enroll()
    if options.idle:
        before, begun = fleet.usages(), time.monotonic()
        time.sleep(options.idle)
        print(f"\nidle, without a mesh, for {options.idle} s:")
        print_costs(fleet, before, fleet.usages(), time.monotonic() - begun)
    if options.stamp:
        fleet.apply(fleet.mesh(2, options.margin, options.interval, tests=False))
        time.sleep(15)
        before, begun = fleet.usages(), time.monotonic()
        time.sleep(options.stamp)
        print(f"\nSTAMP to all peers ({options.interval}), without tests, for {options.stamp} s:")
        print_costs(fleet, before, fleet.usages(), time.monotonic() - begun)
    if options.minutes == 0:
        return 0
    plan = fleet.apply(fleet.mesh(options.seconds, options.margin, options.interval))
    predicted = plan["cycle_seconds"]
    print(f"\nplan: {plan['hosts']} hosts, {plan['rounds']} rounds, cycle {predicted} s")
    before, begun = fleet.usages(), time.monotonic()
    pairs = len(fleet.sites) * (len(fleet.sites) - 1)
    runs = wait_for_cycle(fleet, pairs, predicted, options.minutes)
    after, seconds = fleet.usages(), time.monotonic() - begun
    checks = lab.Checks()
    check_cycle(checks, runs, predicted)
    found, count, resources = lab.overlaps(fleet, lambda row: row["outcome"] == "finished")
    checks.add("no overlap on a resource", not found and count > 0,
               f"{count} finished runs on {resources} resources, {len(found)} overlaps {found[:2] or ''}")
    check_throughput(checks, fleet, runs)
    check_stamp(checks, fleet)
    check_reasons(checks, runs)
    check_cells(checks, fleet)
    print(f"\ncosts during the mesh, {seconds:.0f} s:")
    print_costs(fleet, before, after, seconds)
    return 1 if checks.failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--sites", default="11,11,2", help="sites of the three regions")
    parser.add_argument("--seconds", type=int, default=2, help="duration of a test")
    parser.add_argument("--margin", type=int, default=5, help="margin of the test in seconds")
    parser.add_argument("--interval", default="1s", help="time between two STAMP packets to a peer")
    parser.add_argument("--minutes", type=float, default=1, help="least time of the mesh; 0 for none")
    parser.add_argument("--idle", type=int, default=0, help="seconds of a measurement without a mesh")
    parser.add_argument("--stamp", type=int, default=0, help="seconds of a measurement with STAMP only")
    parser.add_argument("--emulator", help="longhaul that runs the emulator, if it is another build")
    parser.add_argument("--keep", help="directory that keeps the data")
    options = parser.parse_args()
    sites = lab.make_sites([int(count) for count in options.sites.split(",")])
    directory = options.keep or tempfile.mkdtemp(prefix="fleet-")
    fleet = lab.Fleet(options.program, directory, sites, options.emulator)
    try:
        sys.exit(measure(fleet, options))
    finally:
        fleet.close()
        if not options.keep:
            shutil.rmtree(directory, ignore_errors=True)


main()
