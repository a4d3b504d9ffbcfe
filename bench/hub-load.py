#!/usr/bin/env python3
"""Loads a hub with simulated agents, on SQLite and on PostgreSQL, and prints a table of what it took.

Usage: bench/hub-load.py LONGHAUL LOAD [--seconds 300] [--agents 1000] [--interfaces 10] [--every MINUTES]
       [--databases sqlite,postgres] [--earlier]

LOAD is the example `load` of longhaul-agent. Runs as root, because PostgreSQL needs another user. Every agent
enrolls, signs its requests and uploads samples at 1 s: two series per interface (traffic and queue), one of the
host, and the latest connections. With --earlier, agents upload only the traffic of interfaces, as earlier versions
do. With --every, a mesh of pairs of hosts runs a test of each directed pair every MINUTES. The hub, the database and
the agents share the machine. The figures begin 60 s after the first agent, when all agents upload. Databases have their default durability: a sync per commit.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from host_share import HostTime
from hubs import Hub, used

WARM = 60


def mesh(agents, minutes):
    """Returns a mesh in which hosts test each other in pairs."""
    text = ['name = "load"']
    for at in range(agents):
        address = f"10.{at // 250}.{at % 250}.1"
        text.append(f'[hosts.h{at:04}]\naddress = "{address}"\ninterface = "eth0"\ncapacity = "1G"')
    for at in range(0, agents - 1, 2):
        pair = f'["h{at:04}", "h{at + 1:04}"]'
        text.append(f'[groups]\n' if at == 0 else "")
        text[-1] += f'g{at} = {pair}'
    for at in range(0, agents - 1, 2):
        text.append(f'[tests.t{at}]\nkind = "throughput"\ngroup = "g{at}"\nseconds = 2\nevery = "{minutes}m"')
    return "\n".join(text)


def watch(hub, load, stop, rows):
    """Samples the processes and the hub's own figures every five seconds."""
    while not stop.wait(5):
        try:
            figures = hub.metrics()
        except Exception as error:  # A hub that does not answer is a finding, not the end of the run.
            figures = {"error": str(error)}
        rows.append({"at": time.monotonic(), "hub": used(hub.pids()), "database": used(hub.database_pids()),
                     "load": used([load.pid]), "machine": HostTime.now(), "figures": figures})


def share(rows, name):
    """Returns the CPU time of a process in percent of one core."""
    first, last = rows[0], rows[-1]
    return 100 * (last[name][0] - first[name][0]) / (last["at"] - first["at"])


def measure(options, database):
    directory = tempfile.mkdtemp(prefix="longhaul-load-", dir="/var/tmp")
    subprocess.run(["chmod", "711", directory], check=True)
    hub = Hub(options.longhaul, database, directory)
    hub.start()
    try:
        hub.login()
        if options.every:
            hub.post("/api/v1/mesh/apply", {"text": mesh(options.agents, options.every)})
        command = [options.load, "--hub", f"https://127.0.0.1:{hub.port}", "--pin", hub.pin, "--password", hub.password,
                   "--agents", str(options.agents), "--interfaces", str(options.interfaces), "--seconds", str(options.seconds),
                   "--earlier", "yes" if options.earlier else "no"]
        load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        rows, stop = [], threading.Event()
        watcher = threading.Thread(target=watch, args=(hub, load, stop, rows))
        watcher.start()
        document = json.loads(load.communicate(timeout=options.seconds + 300)[0])
        stop.set()
        watcher.join()
        return document, rows
    finally:
        hub.end()
        shutil.rmtree(directory, ignore_errors=True)


def report(database, document, rows):
    begin = rows[0]["at"] + WARM
    steady = [row for row in rows if row["at"] >= begin][:-2]
    last = steady[-1]
    spent = last["at"] - steady[0]["at"]
    host = last["machine"] - steady[0]["machine"]
    figure = lambda name: [row["figures"].get(f"longhaul_fleet_{name}", float("nan")) for row in steady]
    times = document["load"]["times_ms"]
    size = figure("database_bytes")
    print(f"\n### {database}\n")
    print("| figure | value |\n|---|---|")
    for name, value in [
        ("agents, series per agent, seconds", f"{document['agents']}, {document['series']}, {document['seconds']}"),
        ("samples stored", f"{document['load']['samples']}"),
        ("samples stored per second after the first 60 s; made per second",
         f"{document.get('samples_per_second_when_warm') or float('nan'):.0f}; {document['agents'] * document['series']}"),
        ("uploads, reports of runs", f"{document['load']['syncs']}, {document['load']['reports']}"),
        ("errors, unacknowledged uploads", f"{sum(document['load']['errors'].values())} {document['load']['errors'] or ''}, {document['load']['unacknowledged']}"),
        ("acknowledged samples of 40 series, returned by the hub", f"{document['acknowledged_and_missing']['expected']}, {document['acknowledged_and_missing']['read']}"),
        ("hub: CPU, % of one core", f"{share(steady, 'hub'):.0f}"),
        ("database: CPU, % of one core", f"{share(steady, 'database'):.0f}"),
        ("agents: CPU, % of one core", f"{share(steady, 'load'):.0f}"),
        ("hub: memory, peak, MiB", f"{last['hub'][1]:.0f}, {last['hub'][2]:.0f}"),
        ("database: size, MB; growth, MB/h", f"{size[-1] / 1e6:.0f}; {(size[-1] - size[0]) / 1e6 / spent * 3600:.0f}"),
        ("waiting transactions, largest of reads, writes", f"{max(figure('store_waiting_reads')):.0f}, {max(figure('store_waiting_writes')):.0f}"),
        ("blocks that wait for consolidation, first, largest, last", f"{figure('blocks_waiting')[0]:.0f}, {max(figure('blocks_waiting')):.0f}, {figure('blocks_waiting')[-1]:.0f}"),
        ("steal, % of all cores", f"{100 * host.stolen_share:.1f}"),
    ]:
        print(f"| {name} | {value} |")
    print("\n| time, ms | n | median | 99 % | largest |\n|---|---|---|---|---|")
    for name, one in times.items():
        print(f"| {name.replace('_', ' ')} | {one['n']} | {one['p50']:.0f} | {one['p99']:.0f} | {one['max']:.0f} |")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("longhaul")
    parser.add_argument("load")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--interfaces", type=int, default=10)
    parser.add_argument("--earlier", action="store_true")
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--databases", default="sqlite,postgres")
    options = parser.parse_args()
    for database in options.databases.split(","):
        report(database, *measure(options, database))


if __name__ == "__main__":
    main()
