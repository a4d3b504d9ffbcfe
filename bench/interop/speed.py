#!/usr/bin/env python3
"""Compares the rates of longhaul and iperf3 over loopback, each against the same stock program.

    speed.py --longhaul target/release/longhaul [--seconds 3] [--rounds 3] [IPERF3]

TCP, 1 and 4 streams, forward and reverse: the clients of both programs against `IPERF3 -s`, and the
client of IPERF3 against the servers of both. UDP with 1472 bytes: the client of IPERF3 without a rate
limit, and longhaul at multiples of the rate that IPERF3 reached, both with socket buffers of 4 MiB (-w 4M),
because the default of 208 KiB overflows whenever the receiver waits for a processor. The runs of both programs alternate;
a table has the median and all rates. The machine should do nothing else.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile

from conformance import Background, run, version_of

UDP_BYTES = 1472
MULTIPLES = [1, 1.5, 2, 3, 3.5]


def document(command, seconds):
    done, failed = run(command, seconds + 40)
    if failed or done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {failed or done.stderr or done.stdout}")
    return json.loads(done.stdout)


def stock(iperf3, port, options, seconds):
    """Returns the rate that the receiver of a client of iperf3 counted, in Gb/s."""
    end = document([iperf3, "-c", "127.0.0.1", "-p", str(port), "-J", *options], seconds)["end"]
    return end["sum_received"]["bits_per_second"] / 1e9


def ours(longhaul, port, options, seconds):
    """The same for longhaul."""
    command = [longhaul, "test", f"iperf3://127.0.0.1:{port}", "--json", *options]
    receiver = document(command, seconds)["summary"]["receiver"]
    return receiver["bytes"] * 8 / receiver["seconds"] / 1e9


def alternate(rounds, first, other):
    """Returns the rates of both functions, called in turn."""
    pairs = [(first(), other()) for _ in range(rounds)]
    return [one for one, _ in pairs], [two for _, two in pairs]


def show(name, rates, base):
    median = statistics.median(rates)
    each = ", ".join(f"{rate:.2f}" for rate in rates)
    print(f"| {name} | {median:.2f} | {each} | {median / statistics.median(base):.2f} |", flush=True)


def tcp(args, stock_port, our_port):
    """The rates over TCP."""
    print("| test | median Gb/s | runs | longhaul / iperf3 |\n|---|---|---|---|")
    for streams in (1, 4):
        for direction in ([], ["-R"]):
            options = ["-t", str(args.seconds), "-P", str(streams), *direction]
            name = f"{streams} stream{'s' * (streams > 1)}{', reverse' * bool(direction)}"
            base, rates = alternate(
                args.rounds, lambda: stock(args.iperf3, stock_port, options, args.seconds),
                lambda: ours(args.longhaul, stock_port, options, args.seconds))
            show(f"iperf3 to iperf3, {name}", base, base)
            show(f"longhaul to iperf3, {name}", rates, base)
            base, rates = alternate(
                args.rounds, lambda: stock(args.iperf3, stock_port, options, args.seconds),
                lambda: stock(args.iperf3, our_port, options, args.seconds))
            show(f"iperf3 to iperf3 again, {name}", base, base)
            show(f"iperf3 to longhaul, {name}", rates, base)


def udp(args, port):
    """The rates over UDP to a stock server."""
    common = ["-u", "-l", str(UDP_BYTES), "-w", "4M", "-t", str(args.seconds)]
    rates = []
    print("\n| UDP, 1472 bytes | sent Gb/s | received Gb/s | lost |\n|---|---|---|---|")
    for _ in range(args.rounds):
        command = [args.iperf3, "-c", "127.0.0.1", "-p", str(port), "-J", "-b", "0", *common]
        total = document(command, args.seconds)["end"]["sum"]
        sent = total["bits_per_second"] / 1e9
        rates.append(sent)
        received = sent * (1 - total["lost_percent"] / 100)
        print(f"| iperf3, no limit | {sent:.2f} | {received:.2f} | {total['lost_percent']:.3f} % |", flush=True)
    base = statistics.median(rates)
    for multiple in MULTIPLES:
        for _ in range(args.rounds):
            rate = ["-b", f"{base * multiple * 1000:.0f}M"]
            command = [args.longhaul, "test", f"iperf3://127.0.0.1:{port}", "--json", *rate, *common]
            half = document(command, args.seconds)["summary"]
            sent, received = (half[end]["bytes"] * 8 / half[end]["seconds"] / 1e9 for end in ("sender", "receiver"))
            lost = half["udp"]["lost_percent"]
            print(f"| longhaul, {multiple} x {base:.2f} Gb/s | {sent:.2f} | {received:.2f} | {lost:.3f} % |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longhaul", required=True)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=15800)
    parser.add_argument("--only", choices=["tcp", "udp"])
    parser.add_argument("iperf3", nargs="?", default="iperf3")
    args = parser.parse_args()
    os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="longhaul-interop-")
    server = [args.longhaul, "serve", "-p", str(args.port + 2), f"--iperf3={args.port}", "--no-penalties"]
    print(f"iperf3 {version_of(args.iperf3)}, {args.rounds} runs of {args.seconds} s\n")
    with Background(server, args.port):
        with Background([args.iperf3, "-s", "-p", str(args.port + 1)], args.port + 1):
            if args.only != "udp":
                tcp(args, args.port + 1, args.port)
            if args.only != "tcp":
                udp(args, args.port + 1)


if __name__ == "__main__":
    main()
