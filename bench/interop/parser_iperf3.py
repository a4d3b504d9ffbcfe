#!/usr/bin/env python3
"""Compares the fields that pScheduler's iperf3_parser.py reads from longhaul and from iperf3.

    parser_iperf3.py --longhaul target/release/longhaul --parser iperf3_parser.py IPERF3...

The user provides the parser; it is no part of this tree. Both programs run the same test as client of
`IPERF3 -s -1`, and as server of a client `IPERF3 -R`, whose document is pScheduler's result of a
reverse test. The names of all fields, the number of whole intervals and of streams, and the type of
every value have to be the same.
"""

import argparse
import importlib.util
import json
import sys
import types

from conformance import Background, run, version_of

# The options that pScheduler's plugin passes. The last ones are for its tests over UDP.
CASES = [
    ["-t", "2", "-i", "1"],
    ["-t", "2", "-i", "1", "-P", "3"],
    ["-t", "2", "-i", "1", "-O", "1"],
    ["-t", "2", "-i", "1", "-w", "131072", "-M", "1400", "-N", "-Z"],
    ["-t", "2", "-i", "1", "-u", "-b", "10000000", "-l", "1400"],
    ["-t", "2", "-i", "1", "-u", "-b", "10000000", "-l", "1400", "-P", "2"],
]


def load_parser(path):
    """Loads the parser with the only name of pScheduler's library that it uses."""
    stub = types.ModuleType("pscheduler")
    silent = types.SimpleNamespace(debug=lambda *_: None, error=lambda *_: None, warning=lambda *_: None)
    stub.Log = lambda **_: silent
    sys.modules["pscheduler"] = stub
    spec = importlib.util.spec_from_file_location("iperf3_parser", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.parse_output


def shape(value):
    """Returns the names and types of a result without its values. Integers count as numbers."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items() if name not in ("diags", "raw")}
    if isinstance(value, list):
        return [shape(part) for part in value]
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def as_client(client, server, options, port):
    """Returns the document of `client`."""
    with Background([server, "-s", "-1", "-p", str(port)], port):
        done, failed = run([*client, "-c", "127.0.0.1", "-p", str(port), "--json", *options])
    return failed or done.stdout


def as_server(server, client, options, port):
    """Returns the document of `server` for a reverse test."""
    command = [*server, "-s", "-1", "--json", "-p", str(port)]
    with Background(command, port) as running:
        run([client, "-c", "127.0.0.1", "-p", str(port), "--json", "-R", *options])
        running.process.wait(timeout=40)
        running.log.seek(0)
        return running.log.read().decode()


def compare(parse, role, iperf3, longhaul, case):
    """Returns the differences between what the parser reads from both programs."""
    options, port = case
    stock, ours = (parse([role(program, iperf3, options, port)]) for program in ([iperf3], longhaul))
    if not stock.get("succeeded"):
        return f"iperf3 itself: {stock.get('error')}"
    if not ours.get("succeeded"):
        return f"longhaul: {ours.get('error')}"
    for one in (stock, ours):
        one["intervals"] = distinct(one["intervals"])
    theirs, same = shape(stock), shape(ours)
    return None if theirs == same else f"{theirs} of iperf3, {same} of longhaul"


def distinct(intervals):
    """Returns the intervals of at least half a second, one per shape: a server of iperf3 ends with a
    short interval or not, depending on the moment at which the client's end arrives."""
    whole = [one for one in intervals if one["summary"]["end"] - one["summary"]["start"] >= 0.5]
    return [{str(len(whole)): 0}, *{json.dumps(shape(one), sort_keys=True): one for one in whole}.values()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longhaul", required=True)
    parser.add_argument("--parser", required=True)
    parser.add_argument("--port", type=int, default=15700)
    parser.add_argument("iperf3", nargs="+")
    args = parser.parse_args()
    parse, failures = load_parser(args.parser), 0
    for iperf3 in args.iperf3:
        for name, role in (("client", as_client), ("server", as_server)):
            for number, options in enumerate(CASES):
                case = options, args.port + number
                wrong = compare(parse, role, iperf3, [args.longhaul, "iperf3"], case)
                failures += bool(wrong)
                print(f"{version_of(iperf3)} {name} {' '.join(options)}: {wrong or 'ok'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
