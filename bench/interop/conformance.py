#!/usr/bin/env python3
"""Runs longhaul against versions of iperf3, in both roles, and prints a table.

    conformance.py --longhaul target/release/longhaul iperf3 DIR/iperf3-3.7/bin/iperf3 ...

Each test runs over loopback. A test passes if both programs exit with 0 and agree on the bytes, up to
those in flight and in buffers when the client ends the test (per stream the largest buffers of TCP
on this host, and 5 % with an omitted time, because both ends omit by their own clock), and if at
least 97 % of the datagrams arrive. After a failure the client of the version runs against its own server, by the same rules: a
test that fails there as well ("stock fails") says nothing about longhaul. --short runs a part. With
--attempts, a failed test is repeated; "ok (2)" is a test that passed at the second attempt.
"""

import argparse
import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time


def largest_buffer(name):
    with open(f"/proc/sys/net/ipv4/{name}") as limits:
        return int(limits.read().split()[2])


# The bytes of a stream that may be in flight or in a buffer when a test ends: what the kernel lets the
# buffers of both ends grow to.
IN_FLIGHT = sum(largest_buffer(name) for name in ("tcp_rmem", "tcp_wmem"))
# A busy machine drops datagrams at the small socket buffers of the programs.
LOST_PERCENT = 3
# The rate of a UDP stream in Mb/s: low, so that few datagrams are lost at the buffers of a busy host.
RATE = 8
NO_END = "no end within"
USER, PASSWORD = "mario", "rossi"


def version_of(program):
    text = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    return re.search(r"iperf (\S+)", text).group(1)


def number(version):
    return tuple(int(part) for part in re.findall(r"\d+", version))


def cases(short):
    """Yields names and options; every option is the same in both programs."""
    for udp, direction, streams in itertools.product(
        [False, True], ["", "-R", "--bidir"], [1] if short else [1, 8]
    ):
        yield udp, direction, streams, ["-t", "1"], "time"
    for udp, direction in itertools.product([False, True], ["", "-R"]):
        amount = "1M" if udp else "512M"
        yield udp, direction, 1, ["-n", amount], "bytes"
        if not short:
            yield udp, direction, 1, ["-t", "1", "-O", "1"], "omit"
    if not short:
        yield False, "", 2, ["-k", "4000", "-l", "64K"], "blocks"
        yield False, "", 1, ["-t", "1", "-6"], "IPv6"
        yield True, "-R", 1, ["-t", "1", "-6"], "IPv6"
        yield False, "", 1, ["-t", "1", "-Z", "-N", "-w", "1M", "-M", "1400", "-S", "0xb8"], "options"


def name_of(case):
    udp, direction, streams, _, kind = case
    way = {"": "forward", "-R": "reverse", "--bidir": "both ways"}[direction]
    return f"{'UDP' if udp else 'TCP'} {way}, {streams} stream{'s' * (streams > 1)}, {kind}"


def options_of(case, longhaul):
    udp, direction, streams, options, _ = case
    words = options + (["-P", str(streams)] if streams > 1 else [])
    if direction:
        words.append(direction)
    if udp:
        # iperf3 limits each stream, longhaul all together.
        rate = RATE * (streams if longhaul else 1)
        words += ["-u", "-b", f"{rate}M", "-l", "1400"]
    return words


def run(command, seconds=25, env=None):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=env)
    except subprocess.TimeoutExpired:
        return None, f"{NO_END} {seconds} s"
    return done, None


def wait_for(port):
    for _ in range(100):
        with open("/proc/net/tcp") as one, open("/proc/net/tcp6") as other:
            if f":{port:04X} " in one.read() + other.read():
                return
        time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


class Background:
    def __init__(self, command, port, env=None):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=env)
        wait_for(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def agree(case, sent, received, lost_percent):
    """Returns the reason why both ends disagree; None if they agree."""
    udp, _, streams, _, kind = case
    if udp:
        return None if lost_percent < LOST_PERCENT else f"{lost_percent:.1f} % lost"
    if received == 0:
        return "nothing received"
    allowed = IN_FLIGHT * streams + (sent // 20 if kind == "omit" else 0)
    if abs(sent - received) > allowed:
        return f"{sent} sent and {received} received"
    return None


def again(test):
    """Repeats a test that a stock server refused because it has not yet left the one before."""
    def run_again(*arguments):
        for _ in range(3):
            time.sleep(0.3)
            wrong = test(*arguments)
            if not wrong or not re.search("busy|reset by peer", wrong):
                break
        return wrong
    return run_again


@again
def ours(case, longhaul, port):
    """Our client against a stock server."""
    host = "[::1]" if "-6" in case[3] else "127.0.0.1"
    command = [longhaul, "test", f"iperf3://{host}:{port}", "--json", *options_of(case, True)]
    done, failed = run(command)
    if failed or done.returncode != 0:
        return failed or f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"
    document = json.loads(done.stdout)
    if document["peer"]["program"] != "iperf3":
        return "no peer in the document"
    halves = [document["summary"]]
    if document["reverse"]:
        halves.append(document["reverse"]["summary"])
    for half in halves:
        lost = half["udp"]["lost_percent"] if half["udp"] else 0
        wrong = agree(case, half["sender"]["bytes"], half["receiver"]["bytes"], lost)
        if wrong:
            return wrong
    return None


@again
def theirs(case, iperf3, port):
    """A stock client against our server, or a stock one."""
    host = "::1" if "-6" in case[3] else "127.0.0.1"
    command = [iperf3, "-c", host, "-p", str(port), "-J", *options_of(case, False)]
    done, failed = run(command)
    if failed or done.returncode != 0:
        return failed or f"exit code {done.returncode}: {(done.stdout + done.stderr)[-200:]}"
    # Some versions print "-nan" for the losses of an interval without datagrams.
    document = json.loads(re.sub(r"(?<=[\s:])-?nan\b", "null", done.stdout))
    if "error" in document:
        return document["error"]
    end = document["end"]
    for suffix in ["", "_bidir_reverse"]:
        if case[0]:
            total = end.get(f"sum{suffix}")
            if total and (total["lost_percent"] or 0) >= LOST_PERCENT:
                return f"{total['lost_percent']:.1f} % lost"
        elif f"sum_sent{suffix}" in end:
            sent, received = end[f"sum_sent{suffix}"], end[f"sum_received{suffix}"]
            wrong = agree(case, sent["bytes"], received["bytes"], 0)
            if wrong:
                return wrong
    return None


def first_pass(attempts, test, *arguments):
    """Runs a test until it passes, `attempts` times at most. Returns the cell of the table: 'ok', with
    the number of the attempt from the second on, or the last reason of a failure."""
    for attempt in range(1, attempts + 1):
        wrong = test(*arguments)
        if not wrong:
            return "ok" if attempt == 1 else f"ok ({attempt})"
        case = name_of(arguments[0]) if isinstance(arguments[0], tuple) else test.__name__
        print(f"{case}, attempt {attempt}: {wrong}", file=sys.stderr, flush=True)
        if NO_END in wrong:
            break
    return wrong


def their_login(server, client, port):
    """A stock client with the right and a wrong password against our server."""
    with Background(server, port):
        good, failed = run(client, env=dict(os.environ, IPERF3_PASSWORD=PASSWORD))
        if failed or good.returncode != 0:
            return failed or f"exit code {good.returncode}: {good.stderr.strip()[-200:]}"
        bad, failed = run(client, env=dict(os.environ, IPERF3_PASSWORD="wrong"))
        if failed or bad.returncode == 0:
            return failed or "a wrong password was accepted"
    return None


def refused_by_name(case, longhaul, port):
    """An option that the peer lacks: our client names it and exits with 2."""
    command = [longhaul, "test", f"iperf3://127.0.0.1:{port}", *options_of(case, True)]
    done, failed = run(command)
    if failed:
        return failed
    if done.returncode != 2 or "--bidir" not in done.stderr:
        return f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"
    return None


def paddings(version):
    """Returns the paddings of a version: names and options of longhaul and of iperf3."""
    if number(version) < (3, 2):
        return []
    if number(version) < (3, 17):
        return [("PKCS #1", ["--use-pkcs1-padding"], [])]
    both = ["--use-pkcs1-padding"]
    return [("OAEP", [], []), ("PKCS #1", both, both)]


def keys(directory):
    """Makes a key pair and a file of users, and returns their paths."""
    private, public = f"{directory}/private.pem", f"{directory}/public.pem"
    subprocess.run(["openssl", "genrsa", "-out", private, "2048"], check=True, capture_output=True)
    subprocess.run(["openssl", "rsa", "-in", private, "-outform", "PEM", "-pubout", "-out", public],
                   check=True, capture_output=True)
    digest = hashlib.sha256(f"{{{USER}}}{PASSWORD}".encode()).hexdigest()
    users = f"{directory}/users.csv"
    with open(users, "w") as file:
        file.write(f"{USER},{digest}\n")
    return private, public, users


def logins(longhaul, iperf3, padding, port, directory):
    """Returns the tests with one padding: our client, our server, and iperf3 with itself. Clients from
    3.17 on have only OAEP."""
    _, ours, theirs = padding
    private, public, users = keys(directory)
    server = ["-s", "--rsa-private-key-path", private, "--authorized-users-path", users]
    client = ["-t", "1", "--username", USER, "--rsa-public-key-path", public]
    ports = [str(port + offset) for offset in range(3)]
    stock = [iperf3, "-c", "127.0.0.1", *client, "-p"]
    tests = {"server": (our_login, [iperf3, "-p", ports[0], *server, *theirs],
                        [longhaul, "test", f"iperf3://127.0.0.1:{port}", *client, *ours], port)}
    if not theirs:
        tests["client"] = (their_login, [longhaul, "iperf3", "-p", ports[1], *server, *ours],
                           [*stock, ports[1]], port + 1)
        tests["stock"] = (their_login, [iperf3, "-p", ports[2], *server], [*stock, ports[2]], port + 2)
    return tests


def our_login(server, client, port):
    """Our client with the right and a wrong password against a stock server."""
    with Background(server, port):
        good, failed = run(client, env=dict(os.environ, IPERF3_PASSWORD=PASSWORD))
        if failed or good.returncode != 0:
            return failed or f"exit code {good.returncode}: {good.stderr.strip()[-200:]}"
        bad, failed = run(client, env=dict(os.environ, IPERF3_PASSWORD="wrong"))
        if failed or bad.returncode not in (3, 4) or not bad.stderr.strip():
            return failed or f"a wrong password: exit code {bad.returncode}: {bad.stderr}"
    return None


def cell(attempts, test, stock=None):
    """Returns the cell of a test: 'ok', the last reason of a failure, or that the same test fails with
    two stock programs. Both tests are functions with their arguments."""
    found = first_pass(attempts, *test)
    if found.startswith("ok") or stock is None:
        return found
    return found if first_pass(attempts, *stock).startswith("ok") else f"stock fails ({found})"


def check_version(args, version, program, rows):
    """Runs all tests of one version and enters the cells."""
    ours_port, stock_port = args.port, args.port + 1
    old = number(version) < (3, 7)
    with Background([program, "-s", "-p", str(stock_port)], stock_port):
        for case in cases(args.short):
            results = rows.setdefault(name_of(case), {})
            if old and case[1] == "--bidir":
                found = cell(args.attempts, (refused_by_name, case, args.longhaul, stock_port))
                results[version, "server"] = "refused" if found == "ok" else found
                continue
            stock = theirs, case, program, stock_port
            results[version, "server"] = cell(args.attempts, (ours, case, args.longhaul, stock_port), stock)
            results[version, "client"] = cell(args.attempts, (theirs, case, program, ours_port), stock)
    with tempfile.TemporaryDirectory(prefix="longhaul-interop-") as directory:
        for padding in paddings(version):
            row = rows.setdefault(f"authentication, {padding[0]}", {})
            tests = logins(args.longhaul, program, padding, stock_port + 5, directory)
            for role in ("server", "client"):
                if role in tests:
                    stock = tests.get("stock") if role == "client" else None
                    row[version, role] = cell(args.attempts, tests[role], stock)


def table(rows, versions):
    """Prints the table and returns the failures."""
    columns = [(version, role) for version, _ in versions for role in ("server", "client")]
    print("| test | " + " | ".join(f"{version} {role}" for version, role in columns) + " |")
    print("|---|" + "---|" * len(columns))
    failures = []
    for name, results in rows.items():
        cells = []
        for column in columns:
            result = results.get(column, "-")
            if result.startswith("stock fails"):
                print(f"{name}, {' '.join(column)}: {result}", file=sys.stderr)
                result = "stock fails"
            elif not result.startswith(("ok", "-", "refused")):
                failures.append(f"{name}, {' '.join(column)}: {result}")
                result = "FAILED"
            cells.append(result)
        print(f"| {name} | " + " | ".join(cells) + " |")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longhaul", required=True)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--attempts", type=int, default=1, help="for a host that others load")
    parser.add_argument("--port", type=int, default=15300)
    parser.add_argument("iperf3", nargs="+")
    args = parser.parse_args()
    os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="longhaul-interop-")
    server = [args.longhaul, "serve", "-p", str(args.port + 2), f"--iperf3={args.port}",
              "--no-penalties"]
    versions, rows = [(version_of(program), program) for program in args.iperf3], {}
    # A run that is ended early prints its results.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    failures = []
    try:
        with Background(server, args.port):
            for version, program in versions:
                check_version(args, version, program, rows)
                print(f"iperf3 {version} done", file=sys.stderr, flush=True)
    finally:
        failures += table(rows, versions)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
