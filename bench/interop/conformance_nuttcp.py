#!/usr/bin/env python3
"""Tests longhaul against real nuttcp programs, as client, as server and in nuttcp's place.

Usage: conformance_nuttcp.py [--parser nuttcp_parser.py] [--short] NUTTCP [NUTTCP...]

Per NUTTCP and combination of protocol, direction, streams, amount and IP version, three tests run
over loopback: `longhaul test nuttcp://` against `NUTTCP -S`, NUTTCP against `longhaul nuttcp -S`,
and `longhaul nuttcp` against `NUTTCP -S`. A test passes if the client exits with 0, bytes moved,
and the byte counts of both ends agree: over TCP to the 4 digits of a megabyte that nuttcp prints,
over UDP within 2 %, which also bounds the loss. With --parser, pScheduler's own parser (fetched by
the user, no part of this tree) has to read the same fields from the output of `longhaul nuttcp` and
of NUTTCP. LONGHAUL names the binary (default: target/debug/longhaul). The exit status is 1 if a
test fails. With --attempts, a failed test is repeated. The last lines are a table in Markdown.
"""

import argparse
import contextlib
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import types

from record_nuttcp import free_ports, version, wait_for

LONGHAUL = os.path.realpath(os.environ.get("LONGHAUL", "target/debug/longhaul"))
LIMIT = 60
DROP_IN = [LONGHAUL, "nuttcp"]


def cases(short):
    """Yields the arguments of longhaul and of nuttcp for the same test, with a name."""
    protocols = {"tcp": ([], []), "udp": (["-u", "-b", "20M", "-l", "1400"],
                                          ["-u", "-R20m", "-l1400"])}
    directions = {"forward": ([], []), "reverse": (["-R"], ["-r"])}
    streams = {"1": ([], []), "8": (["-P", "8"], ["-N8"])}
    amounts = {"time": (["-t", "1", "-i", "0.5"], ["-T1", "-i0.5"]),
               "bytes": (["-n", "2800000"], ["-n2000", "-l1400"])}
    versions = {"v4": "127.0.0.1"} if short else {"v4": "127.0.0.1", "v6": "::1"}
    choices = (protocols, directions, streams, amounts, versions)
    for names in itertools.product(*choices):
        protocol, direction, count, amount, family = names
        if short and (count == "8") != (amount == "bytes"):
            continue
        parts = [choice[name] for choice, name in zip(choices[:4], names)]
        ours, theirs = ([word for part in parts for word in part[end]] for end in (0, 1))
        yield " ".join(names), ours, theirs, versions[family], protocol == "udp"


@contextlib.contextmanager
def serving(command, host):
    """Runs a server, and yields its control port and free data ports."""
    control, data = free_ports(1), free_ports(16)
    family = ["-6"] if ":" in host else ["-4"]
    server = subprocess.Popen([*command, "-S", "--nofork", "-1", f"-P{control}", *family],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(control)
        yield control, data
    finally:
        server.kill()
        server.wait()


def run(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False,
                          stdin=subprocess.DEVNULL)


def agree(sent, received, udp):
    limit = 0.02 * sent if udp else 106
    return received > 0 and abs(sent - received) <= limit


def our_client(nuttcp, ours, host, udp):
    """`longhaul test` against the server of nuttcp; returns the reason of a failure."""
    with serving([nuttcp], host) as (control, _):
        address = f"[{host}]" if ":" in host else host
        ran = run([LONGHAUL, "test", f"nuttcp://{address}:{control}", "--json", *ours])
    if ran.returncode:
        return ran.stderr.strip()
    document = json.loads(ran.stdout)
    sent, received = (document["summary"][end]["bytes"] for end in ("sender", "receiver"))
    if document["peer"]["version"] != version(nuttcp):
        return f"peer {document['peer']}"
    return None if agree(sent, received, udp) else f"{sent} bytes sent, {received} received"


def verbose_client(client, server, theirs, host, udp):
    """A client with the command line of nuttcp; compares the megabytes of both ends."""
    with serving(server, host) as (control, data):
        ran = run([*client, "-v", f"-P{control}", f"-p{data}", *theirs, host])
    if ran.returncode:
        return (ran.stderr + ran.stdout).strip()[-200:]
    found = dict(re.findall(r"nuttcp-([tr]): ([0-9.]+) MB in [0-9.]+ real", ran.stdout))
    if set(found) != {"t", "r"}:
        return f"no figures of both ends in {ran.stdout!r}"
    sent, received = (float(found[end]) * 2**20 for end in "tr")
    return None if agree(sent, received, udp) else f"{sent} bytes sent, {received} received"


def first_pass(attempts, test, *arguments):
    """Runs a test until it passes, `attempts` times at most; returns the last reason of a failure."""
    for _ in range(attempts):
        wrong = test(*arguments)
        if not wrong:
            return None
    return wrong


def load_parser(path):
    """Loads pScheduler's parser with the two functions of its library that it uses."""
    units = {"K": 1e3, "M": 1e6, "G": 1e9}
    stub = types.ModuleType("pscheduler")
    stub.Log = lambda **_: None
    stub.si_as_number = lambda text: int(float(text.rstrip("KMG")) * units.get(text[-1], 1))
    sys.modules["pscheduler"] = stub
    spec = importlib.util.spec_from_file_location("nuttcp_parser", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.parse_output


def shape(parsed):
    """Returns the names of all fields, and the number of intervals that cover the test."""
    summary = parsed["summary"]["summary"]
    intervals = sorted({name for one in parsed["intervals"] for name in one["summary"]})
    return sorted(summary), intervals, summary.get("end"), bool(parsed["intervals"])


def same_fields(parse, nuttcp, arguments):
    """Compares what pScheduler reads from both programs; returns the reason of a failure."""
    shapes = []
    for client in ([nuttcp], DROP_IN):
        with serving([nuttcp], "127.0.0.1") as (control, data):
            ran = run([*client, "-p", str(data), "-P", str(control), *arguments, "127.0.0.1"])
        shapes.append(shape(parse(ran.stdout.split("\n"))))
    return None if shapes[0] == shapes[1] else f"{shapes[0]} of nuttcp, {shapes[1]} of longhaul"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parser")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--attempts", type=int, default=1, help="for a host that others load")
    parser.add_argument("nuttcp", nargs="+")
    given = parser.parse_args()
    failures, table = [], []
    for nuttcp in given.nuttcp:
        checks = {"our client": [], "our server": [], "our `nuttcp`": []}
        for name, ours, theirs, host, udp in cases(given.short):
            family = ["-6"] if ":" in host else ["-4"]
            stock = [*family, *theirs]
            tests = {"our client": (our_client, nuttcp, ours),
                     "our server": (verbose_client, [nuttcp], DROP_IN, stock),
                     "our `nuttcp`": (verbose_client, DROP_IN, [nuttcp], stock)}
            for check, (test, *arguments) in tests.items():
                wrong = first_pass(given.attempts, test, *arguments, host, udp)
                checks[check].append((name, wrong))
        # Before 8 nuttcp prints no window, without which the parser fails.
        if given.parser and version(nuttcp) >= "8":
            parse = load_parser(given.parser)
            words = ["-T 2 -i 1", "-T 2 -i 1 -r", "-T 2 -i 1 -u -j -R10000.0"]
            checks["pScheduler"] = [(one, same_fields(parse, nuttcp, one.split())) for one in words]
        for check, results in checks.items():
            failed = [(name, reason) for name, reason in results if reason]
            failures += [f"{version(nuttcp)} {check}: {name}: {why}" for name, why in failed]
            passed = len(results) - len(failed)
            table.append(f"| {version(nuttcp)} | {check} | {passed} of {len(results)} |")
            print(table[-1], flush=True)
    print("\n".join([*failures, "", "| nuttcp | check | passed |", "|---|---|---|", *table]))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
