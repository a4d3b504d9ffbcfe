#!/usr/bin/env python3
"""Measures the figures of the emulator beside the kernel's own paths, and prints them as Markdown.

    bench/wan-figures.py PROGRAM [--base OLDER] [--rounds 5] [--parts stream,cost,bridge,sites,start,parallel]

As root, on a host that does nothing else; needs iperf3, ip, ping. Five rounds take about eleven minutes. Every round
measures everything once, so that what else the host does affects all paths alike. A failed measurement is named at the
end and leaves a gap. With --base, the streams at 0 and 90 ms, the cost of a byte and the bridges are also measured with
that program.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from host_share import HostTime

WORK = Path(tempfile.mkdtemp(prefix="longhaul-wan-"))
NAME = f"figures{os.getpid()}"
SPACES = [f"{NAME}-{box}" for box in ("a", "b", "box")]
# The MTU, the RTT in ms (None: a veth pair) and the seconds that iperf3 omits while TCP speeds up.
STREAMS = [(9000, None, 1), (9000, 0, 1), (9000, 15, 2), (9000, 90, 3), (9000, 180, 3), (1500, None, 1), (1500, 0, 1),
           (1500, 90, 3)]
SECONDS = 3
OFFLOADS = (0x1F, 0x24, 0x2C)  # ETHTOOL_STSO, ETHTOOL_SGSO and ETHTOOL_SGRO of include/uapi/linux/ethtool.h


def run(words, limit=60, **options):
    """Runs a command and returns its output; an error if it fails or takes longer than `limit` seconds."""
    options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True} | options
    done = subprocess.run(words, stdout=subprocess.PIPE, timeout=limit, check=False, **options)
    if done.returncode:
        reason = (done.stderr or done.stdout or "").strip().splitlines()[-1:]
        raise RuntimeError(f"{' '.join(map(str, words[:6]))}: {reason}")
    return done.stdout


def ip(*words):
    return run(["ip", *words])


def inside(space, *words):
    return ["ip", "netns", "exec", space, *words]


def received(text):
    """Returns the Gb/s that the receiver of iperf3 got."""
    return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 1e9


class Spaces:
    """Three network namespaces: two hosts, and the box between them."""

    def __enter__(self):
        for space in SPACES:
            ip("netns", "add", space)
        return SPACES

    def __exit__(self, *_):
        for space in SPACES:
            subprocess.run(["ip", "netns", "del", space], check=False, stderr=subprocess.DEVNULL)


def host(space, address, mtu, peer, peer_space):
    """Gives a host the interface eth0, whose other end is `peer` in another namespace."""
    ip("link", "add", "eth0", "netns", space, "mtu", mtu, "type", "veth", "peer", "name", peer, "netns", peer_space, "mtu", mtu)
    if address:
        ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
    ip("-n", space, "link", "set", "eth0", "up")


def between(a, b, omit):
    """Returns the rate of a stream between two namespaces."""
    server = subprocess.Popen(inside(b, "iperf3", "-s", "-1"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.4)
        return received(run(inside(a, "iperf3", "-c", "10.77.0.2", "-O", str(omit), "-t", str(SECONDS), "-J")))
    finally:
        server.kill()
        server.wait()


def veth_stream(mtu, omit):
    with Spaces() as (a, b, _):
        host(a, "10.77.0.1", str(mtu), "eth0", b)
        ip("-n", b, "addr", "add", "10.77.0.2/24", "dev", "eth0")
        ip("-n", b, "link", "set", "eth0", "up")
        return {"gbps": between(a, b, omit)}


def link(program, options, far, near):
    """Runs a command over a link; returns its output and the report of the link."""
    report = WORK / "link.json"
    words = [program, "wan", "run", *options, "--json-report", report, "--far", far, "--", *near]
    output = run(words)
    return output, json.loads(report.read_text())


def cpu_per_gb(report):
    entered = report["up"]["entered"]["bytes"] + report["down"]["entered"]["bytes"]
    return report["processor"]["busy_seconds"] / entered * 1e9


def wan_stream(program, mtu, rtt, omit):
    near = ["iperf3", "-c", "far", "-O", str(omit), "-t", str(SECONDS), "-J"]
    output, report = link(program, ["--rtt", f"{rtt}ms", "--mtu", str(mtu)], "iperf3 -s -1 >/dev/null", near)
    late = report["up"]["lateness"]
    return {"gbps": received(output), "cpu": cpu_per_gb(report), "p99": late["p99_ms"], "p999": late["p999_ms"]}


def streams(programs, results):
    for mtu, rtt, omit in STREAMS:
        if rtt is None:
            results.add(("veth", mtu, None), lambda: veth_stream(mtu, omit))
            continue
        for name, program in programs.items():
            if name == "wan" or (mtu == 9000 and rtt in (0, 90)):
                results.add((name, mtu, rtt), lambda: wan_stream(program, mtu, rtt, omit))


def cost(program):
    """Measures the processor time of a byte: datagrams of 4 Gb/s, MTU 1500, as bench/wan.sh does."""
    together, gbps, seconds = 44, 4, 3
    interval = together * 1472 * 8 / (gbps * 1e9)
    send = {"to": "far", "port": 5300, "datagrams": int(seconds * together / interval), "payload_bytes": 1472,
            "together": together, "interval_seconds": interval, "verify": False}
    receive = {"bind": "0.0.0.0:5300", "drain_seconds": 0.3, "verify": False}
    far = f"sleep {seconds + 2} | {program} wan probe '{json.dumps({'receive': receive})}' >/dev/null"
    near = [program, "wan", "probe", json.dumps({"send": send})]
    return {"cpu": cpu_per_gb(link(program, ["--mtu", "1500"], far, near)[1])}


def set_offloads(space, value):
    code = ("import array,fcntl,socket,struct\n"
            "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
            f"for command in {OFFLOADS}:\n"
            f" v=array.array('B',struct.pack('II',command,{value}))\n"
            " fcntl.ioctl(s,0x8946,struct.pack('16sP',b'eth0',v.buffer_info()[0])+bytes(16))\n")
    run(inside(space, sys.executable, "-c", code))


def pinged(a):
    text = run(inside(a, "ping", "-c", "100", "-i", "0.01", "10.77.0.2"))
    return statistics.median(float(ms) for ms in re.findall(r"time=([0-9.]+) ms", text))


def bridge(programs, results):
    with Spaces() as (a, b, box):
        for space, peer, address in ((a, "eth1", "10.77.0.1"), (b, "eth2", "10.77.0.2")):
            host(space, address, "9000", peer, box)
            ip("-n", box, "link", "set", peer, "up")
        ip("-n", box, "link", "add", "br0", "type", "bridge")
        ip("-n", box, "link", "set", "br0", "up")
        for gso in (1, 0):
            set_offloads(a, gso)
            set_offloads(b, gso)
            results.add(("kernel bridge", gso), lambda: kernel_bridge(a, b, box))
            for name, program in programs.items():
                results.add((f"{name} bridge", gso), lambda: wan_bridge(program, a, b, box))


def over_bridge(a, b):
    run(inside(a, "ping", "-c", "1", "-W", "9", "10.77.0.2"))
    return {"gbps": between(a, b, 1), "rtt": pinged(a)}


def kernel_bridge(a, b, box):
    for port in ("eth1", "eth2"):
        ip("-n", box, "link", "set", port, "master", "br0")
    try:
        return over_bridge(a, b)
    finally:
        for port in ("eth1", "eth2"):
            ip("-n", box, "link", "set", port, "nomaster")


def wan_bridge(program, a, b, box):
    report = WORK / "bridge.json"
    words = inside(box, program, "wan", "bridge", "eth1", "eth2", "--fix", "--name", NAME, "--json-report", report)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        # An error is a single line, too, and the process has then ended.
        line = process.stderr.readline()
        time.sleep(0.1)
        if process.poll() is not None:
            raise RuntimeError(line.strip())
        found = over_bridge(a, b)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    return found | {"cpu": cpu_per_gb(json.loads(report.read_text()))}


class Topology:
    """A topology that is up, with its holder."""

    def __init__(self, program, text):
        self.program, self.file = program, WORK / "sites.toml"
        self.file.write_text(text)

    def __enter__(self):
        begun = time.monotonic()
        run([self.program, "wan", "up", self.file, "--name", NAME])
        self.seconds = time.monotonic() - begun
        self.holder = int(run(["pgrep", "-f", "--", f"--background --name {NAME}"]).split()[0])
        return self

    def __exit__(self, *_):
        subprocess.run([self.program, "wan", "down", "--name", NAME], check=False, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=60)

    def at(self, site, *words):
        return [self.program, "wan", "exec", "--name", NAME, site, "--", *words]

    def cpu(self):
        fields = Path(f"/proc/{self.holder}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def mib(self):
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.holder}/status").read_text())[1]) / 1024

    def delivered(self):
        report = json.loads(run([self.program, "wan", "status", "--name", NAME, "--json"]))
        return [link["link"]["up"]["delivered"]["bytes"] for link in report["links"]]


def sites(count, links, rtt):
    names = "".join(f'[[site]]\nname = "s{number}"\n' for number in range(count))
    return names + "".join(f'[[link]]\nbetween = ["s{a}", "s{b}"]\nrtt = "{rtt}"\n' for a, b in links)


def start(program):
    links = [((number - 1) // 3, number) for number in range(1, 100)]
    with Topology(program, sites(100, links, "10ms")) as topology:
        return {"seconds": topology.seconds, "mib": topology.mib()}


def loaded_sites(program):
    links = [(n, (n + 1) % 24) for n in range(24)] + [(n, (n + 5) % 24) for n in range(16)]
    seconds, clients = 10, []
    with Topology(program, sites(24, links, "20ms")) as topology:
        try:
            for port, (_, b) in enumerate(links, 6000):
                run(topology.at(f"s{b}", "iperf3", "-s", "-1", "-D", "-p", str(port)))
            for port, (a, b) in enumerate(links, 6000):
                words = ("iperf3", "-c", f"s{b}", "-u", "-b", "1M", "-l", "1400", "-p", str(port), "-t", str(seconds + 30))
                quiet = subprocess.DEVNULL
                clients.append(subprocess.Popen(topology.at(f"s{a}", *words), stdin=quiet, stdout=quiet, stderr=quiet))
            time.sleep(5)
            busy, bytes_before, begun = topology.cpu(), topology.delivered(), time.monotonic()
            time.sleep(seconds)
            passed = time.monotonic() - begun
            rates = [(after - before) * 8 / passed / 1e6 for before, after in zip(bytes_before, topology.delivered())]
            share = (topology.cpu() - busy) / passed * 100
            return {"percent": share, "mib": topology.mib(), "slowest": min(rates)}
        finally:
            for client in clients:
                client.kill()
                client.wait()


def parallel(program):
    plan = ('failover = "50ms"\n[[site]]\nname = "a"\n[[site]]\nname = "b"\n[[link]]\nname = "wave"\nbetween = ["a", "b"]\n'
            'count = 4\nrtt = "20ms"\nrate = "2G"\n')
    with Topology(program, plan) as topology:
        run(topology.at("b", "iperf3", "-s", "-1", "-D"))
        words = topology.at("a", "iperf3", "-c", "b", "-P", "16", "-t", "30")
        client = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(4)
            all_up = rates(topology, 3)
            run([program, "wan", "set", "--name", NAME, "wave-2", "--down"])
            time.sleep(0.5)
            return {"four": all_up, "one down": rates(topology, 2)}
        finally:
            client.kill()
            client.wait()


def rates(topology, seconds):
    """Returns the Gb/s of each link."""
    first, begun = topology.delivered(), time.monotonic()
    time.sleep(seconds)
    passed, second = time.monotonic() - begun, topology.delivered()
    return [(after - before) * 8 / passed / 1e9 for before, after in zip(first, second)]


class Results:
    """The measurements by their key, one per round."""

    def __init__(self):
        self.found, self.failed = {}, []

    def add(self, key, measure):
        before = HostTime.now()
        try:
            found = measure()
        except (RuntimeError, OSError, ValueError, KeyError, AttributeError, IndexError, subprocess.SubprocessError) as error:
            self.failed.append(f"{key}: {error}")
            print(f"{key}: {error}", file=sys.stderr, flush=True)
            return
        found["stolen"] = (HostTime.now() - before).stolen_share * 100
        self.found.setdefault(key, []).append(found)
        print(key, found, file=sys.stderr, flush=True)

    def all(self, key, field):
        return [found[field] for found in self.found.get(key, [])]

    def median(self, key, field):
        values = self.all(key, field)
        return statistics.median(values) if values else float("nan")


def rounds_of(values, digits=2):
    return " ".join(f"{value:.{digits}f}" for value in values)


def stream_table(results):
    print("\n## One TCP stream\n\n| path | MTU | RTT, ms | Gb/s, each round | median | of veth | CPU s/GB, median "
          "| lateness p99, ms | p99.9 | stolen, % |\n|---|---|---|---|---|---|---|---|---|---|")
    for key in [key for key in results.found if key[0] in ("veth", "wan", "base")]:
        median, veth = results.median(key, "gbps"), results.median(("veth", key[1], None), "gbps")
        more = ["", "", ""] if key[0] == "veth" else [f"{results.median(key, field):.3f}" for field in ("cpu", "p99", "p999")]
        print(f"| {key[0]} | {key[1]} | {'' if key[2] is None else key[2]} | {rounds_of(results.all(key, 'gbps'))} | {median:.2f} "
              f"| {median / veth:.2f} | {' | '.join(more)} | {results.median(key, 'stolen'):.1f} |")


def other_tables(results):
    print("\n## Processor time of the emulator's thread, datagrams of 4 Gb/s, MTU 1500\n\n| program | CPU s/GB, each round "
          "| median | stolen, % |\n|---|---|---|---|")
    for key in [key for key in results.found if key[0].endswith("cost")]:
        print(f"| {key[0]} | {rounds_of(results.all(key, 'cpu'), 3)} | {results.median(key, 'cpu'):.3f} "
              f"| {results.median(key, 'stolen'):.1f} |")
    print("\n## Bridges between two hosts, MTU 9000\n\n| program | segmentation offload | kernel, Gb/s | longhaul, Gb/s | ratio "
          "| CPU s/GB | added RTT, ms | stolen, % |\n|---|---|---|---|---|---|---|---|")
    for wan in [key for key in results.found if key[0] in ("wan bridge", "base bridge")]:
        kernel = ("kernel bridge", wan[1])
        added = results.median(wan, "rtt") - results.median(kernel, "rtt")
        print(f"| {wan[0].split()[0]} | {'on' if wan[1] else 'off'} | {rounds_of(results.all(kernel, 'gbps'))} | "
              f"{rounds_of(results.all(wan, 'gbps'))} | {results.median(wan, 'gbps') / results.median(kernel, 'gbps'):.2f} | "
              f"{results.median(wan, 'cpu'):.3f} | {added:.3f} | {results.median(wan, 'stolen'):.1f} |")
    print("\n## Topologies\n\n| figure | each round | median |\n|---|---|---|")
    for key, field, text in ((("sites",), "percent", "24 sites, 40 links of 1 Mb/s: % of a core"),
                             (("sites",), "mib", "the same: MiB"), (("sites",), "slowest", "the same: slowest link, Mb/s"),
                             (("sites",), "stolen", "the same: stolen, %"), (("start",), "seconds", "100 sites: seconds to start")):
        print(f"| {text} | {rounds_of(results.all(key, field))} | {results.median(key, field):.2f} |")
    print("\n## 16 flows over four links of 2 Gb/s, 20 ms\n\n| Gb/s of each link | of 8 Gb/s, % | with wave-2 down | of 6 Gb/s, % "
          "| stolen, % |\n|---|---|---|---|---|")
    for found in results.found.get(("parallel",), []):
        print(f"| {rounds_of(found['four'])} | {sum(found['four']) / 8 * 100:.0f} | {rounds_of(found['one down'])} | "
              f"{sum(found['one down']) / 6 * 100:.0f} | {found['stolen']:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--base", help="an older program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", default="stream,cost,bridge,sites,start,parallel")
    args = parser.parse_args()
    programs = {"wan": os.path.realpath(args.program)} | ({"base": os.path.realpath(args.base)} if args.base else {})
    program, parts, results, begun = programs["wan"], args.parts.split(","), Results(), time.monotonic()
    os.environ.update(HOME=str(WORK), XDG_CONFIG_HOME=str(WORK))
    for number in range(args.rounds):
        print(f"round {number + 1}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        if "stream" in parts:
            streams(programs, results)
        if "cost" in parts:
            for name, other in programs.items():
                results.add((f"{name} cost",), lambda: cost(other))
        if "bridge" in parts:
            bridge(programs, results)
        for part, measure in (("sites", loaded_sites), ("start", start), ("parallel", parallel)):
            if part in parts:
                results.add((part,), lambda: measure(program))
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    print(f"# Figures of the emulator\n\n{run([program, '--version']).strip()}; Linux {os.uname().release}, {os.cpu_count()} x "
          f"{cpu[1] if cpu else os.uname().machine}, {Path('/proc/sys/net/ipv4/tcp_congestion_control').read_text().strip()}; "
          f"{args.rounds} interleaved rounds in {time.monotonic() - begun:.0f} s; load at the end {os.getloadavg()[0]:.1f}. "
          "Medians of the rounds.")
    stream_table(results)
    other_tables(results)
    for failure in results.failed:
        print(f"\nNot measured: {failure}")


if __name__ == "__main__":
    try:
        main()
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
