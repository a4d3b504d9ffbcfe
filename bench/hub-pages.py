#!/usr/bin/env python3
"""Measures every page and list of a hub with a year of a mesh, on SQLite and on PostgreSQL.

Usage: bench/hub-pages.py LONGHAUL YEAR [--requests 40] [--days 365] [--databases sqlite,postgres] [--keep DIR] [--fill]

YEAR is the example `year` of longhaul-hub, which fills the database. Runs as root, because PostgreSQL needs another
user. A time is that from the request to the last byte of the answer, on a kept connection over TLS; "first byte" is
printed for exports. Requests of one row differ in host, pair or run. With --keep, the filled databases stay
at DIR/sqlite and DIR/postgres, and are used again: fill them with --fill while the host is busy (a quarter of an hour
and 6 GB each), and measure later (two to four minutes each).
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from host_share import HostTime
from hubs import Hub, used

RANGES = {"day": "now-24h", "week": "now-7d", "month": "now-30d", "year": "now-365d"}


def paths(hub):
    """Returns rows of a name and a function that makes a path."""
    hosts = [one["name"] for one in json.loads(hub.get("/api/v1/hosts")[1])["hosts"]]
    runs = json.loads(hub.get("/api/v1/runs?limit=500")[1])["runs"]
    host = lambda: random.choice(hosts)
    pair = lambda: random.sample(hosts, 2)
    rows = [
        ("page grid", lambda: "/"),
        ("page grid, throughput", lambda: "/?metric=throughput"),
        ("page hosts", lambda: "/hosts"),
        ("page host", lambda: f"/hosts/{host()}"),
        ("page runs", lambda: "/runs"),
        ("page runs of a host", lambda: f"/runs?host={host()}"),
        ("page runs, missed", lambda: "/runs?state=missed"),
        ("page runs, cancelled", lambda: "/runs?state=cancelled"),
        ("page runs, failed, of a source", lambda: f"/runs?source={host()}&state=failed"),
        ("page run", lambda: f"/runs/{random.choice(runs)['run']}"),
        ("page schedule", lambda: "/schedule"),
        ("page events", lambda: "/events"),
        ("page events, all", lambda: "/events?all=1"),
        ("page search", lambda: f"/search?q={host()[:4]}"),
        ("API status", lambda: "/api/v1/status"),
        ("API hosts", lambda: "/api/v1/hosts"),
        ("API schedule", lambda: "/api/v1/schedule"),
        ("API runs", lambda: "/api/v1/runs?limit=200"),
        ("API runs, reason peer_away", lambda: "/api/v1/runs?reason=peer_away"),
        ("API run", lambda: f"/api/v1/runs/{random.choice(runs)['run']}"),
        ("API events", lambda: "/api/v1/events"),
        ("API events of a pair", lambda: "/api/v1/events?subject=%s%%20%%3E%%20%s" % tuple(pair())),
        ("metrics", lambda: "/metrics"),
        ("export CSV, 10,000 runs", lambda: "/api/v1/runs?format=csv&limit=10000"),
        ("export JSON lines, 10,000 runs", lambda: "/api/v1/runs?format=jsonl&limit=10000"),
    ]
    for word, start in RANGES.items():
        days = {"day": 1, "week": 7, "month": 30, "year": 365}[word]
        rows += [
            (f"page pair, {word}", lambda start=start: "/pairs/%s/%s" % tuple(pair()) + f"?from={start}&to=now"),
            (f"API pair, {word}", lambda start=start: "/api/v1/pairs/%s/%s" % tuple(pair()) + f"?from={start}"),
            (f"API series of an interface, {word}", lambda start=start: f"/api/v1/series?kind=interface&host={host()}&name=eth0&from={start}"),
            (f"API series of STAMP, {word}", lambda start=start: "/api/v1/series?kind=stamp&host=%s&name=%s" % tuple(pair()) + f"&from={start}"),
            (f"API runs of a host, {word}", lambda start=start: f"/api/v1/runs?host={host()}&from={start}"),
            (f"API counts, {word}", lambda days=days: f"/api/v1/counts?days={days}"),
        ]
    return rows


def timed(hub, connection, path):
    """Returns the ms to the first and to the last byte, and the number of bytes."""
    begun = time.perf_counter()
    connection.request("GET", path, headers=hub.headers())
    answer = connection.getresponse()
    first = time.perf_counter()
    body = answer.read()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status} {body[:200]}")
    return (first - begun) * 1000, (time.perf_counter() - begun) * 1000, len(body)


def quantile(all, share):
    return sorted(all)[round((len(all) - 1) * share)]


def measure(hub, requests):
    connection, slow = hub.connection(), []
    print("| request | n | first byte, median, ms | median, ms | 99 %, ms | kB |\n|---|---|---|---|---|---|")
    everything = []
    for name, path in paths(hub):
        times = [timed(hub, connection, path()) for _ in range(requests)]
        first, total = [one[0] for one in times], [one[1] for one in times]
        everything += total
        median, high = quantile(total, 0.5), quantile(total, 0.99)
        print(f"| {name} | {len(times)} | {quantile(first, 0.5):.0f} | {median:.0f} | {high:.0f} | {times[0][2] / 1000:.0f} |")
        sys.stdout.flush()
        if median > 200 or high > 1000:
            slow.append(name)
    print(f"| all | {len(everything)} | | {quantile(everything, 0.5):.0f} | {quantile(everything, 0.99):.0f} | |")
    print(f"\nRows above 200 ms at the median or 1 s at 99 %: {', '.join(slow) or 'none'}.")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("longhaul")
    parser.add_argument("year")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--databases", default="sqlite,postgres")
    parser.add_argument("--keep")
    parser.add_argument("--fill", action="store_true", help="only fill the databases of --keep")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # The hub and PostgreSQL end, too.
    for database in options.databases.split(","):
        keep = os.path.abspath(f"{options.keep}/{database}") if options.keep else None
        directory = keep or tempfile.mkdtemp(prefix="longhaul-year-", dir="/var/tmp")
        os.makedirs(directory, exist_ok=True)
        for path in filter(None, [directory, options.keep]):
            os.chmod(path, 0o711)
        hub = Hub(options.longhaul, database, directory)
        try:
            print(f"\n## {database}\n")
            if not os.path.exists(f"{directory}/year.json"):
                command = [options.year, *hub.database_arguments(), "--days", str(options.days)]
                made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                open(f"{directory}/year.json", "w").write(made.stdout)
            made = json.load(open(f"{directory}/year.json"))
            for part in made["parts"]:
                print(f"- {part['part']}: {part['rows']} rows, {part['bytes'] / 1e6:.0f} MB")
            print(f"- in all {made['bytes'] / 1e6:.0f} MB (forecast {made['forecast'] / 1e6:.0f} MB), made in {made['seconds']:.0f} s\n")
            if options.fill:
                continue
            begun = HostTime.now()
            hub.start()
            if hub.password is None:
                hub.password = open(f"{directory}/password").read()
            open(f"{directory}/password", "w").write(hub.password)
            hub.login()
            time.sleep(35)  # The hub computes the whole grid after 30 s.
            measure(hub, options.requests)
            stolen = (HostTime.now() - begun).stolen_share
            cpu, resident, peak = used(hub.pids())
            print(f"\nHub: {cpu:.0f} s of CPU, {resident:.0f} MiB of memory, {peak:.0f} MiB at most. "
                  f"Steal: {100 * stolen:.1f} % of all cores.")
        finally:
            hub.end()
            if not keep:
                shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
