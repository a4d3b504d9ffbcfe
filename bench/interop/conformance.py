#!/usr/bin/env python3
"""Runs longhaul against versions of iperf3, in both roles, and prints a table.

    conformance.py --longhaul target/release/longhaul iperf3 DIR/iperf3-3.7/bin/iperf3 ...

Each test runs over loopback. A test passes if both programs exit with 0 and agree on the bytes, up to
those in flight and in buffers when the client ends the test (16 MiB per stream, and 5 % with an
omitted time, because both ends omit by their own clock), and if at least 97 % of the datagrams
arrive. The column "stock" has the client of a version against its own server, by the same rules; a
test that fails there says nothing about longhaul. --short runs a part. With --attempts, a failed test
is repeated.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time

# The bytes of a stream that may be in flight or in a buffer when a test ends.
IN_FLIGHT = 16 << 20
# A busy machine drops datagrams at the small socket buffers of the programs.
LOST_PERCENT = 3
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
        amount = "2M" if udp else "64M"
        yield udp, direction, 1, ["-n", amount], "bytes"
        if not short:
            yield udp, direction, 1, ["-t", "1", "-O", "1"], "omit"
    if not short:
        yield False, "", 2, ["-k", "100", "-l", "64K"], "blocks"
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
        rate = 50 * (streams if longhaul else 1)
        words += ["-u", "-b", f"{rate}M", "-l", "1400"]
    return words


def run(command, seconds=40, env=None):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=env)
    except subprocess.TimeoutExpired:
        return None, f"no end within {seconds} s"
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
    document = json.loads(done.stdout)
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
    """Runs a test until it passes, `attempts` times at most; returns the last reason of a failure."""
    for _ in range(attempts):
        wrong = test(*arguments)
        if not wrong:
            return None
    return wrong


def their_login(server, iperf3, public, port):
    """A stock client with the right and a wrong password against our server."""
    client = [iperf3, "-c", "127.0.0.1", "-p", str(port), "-t", "1", "--username", USER,
              "--rsa-public-key-path", public]
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


def authenticate(longhaul, iperf3, version, port, directory):
    """Returns the faults of our client and of our server with the right and a wrong password."""
    private, public = f"{directory}/private.pem", f"{directory}/public.pem"
    subprocess.run(["openssl", "genrsa", "-out", private, "2048"], check=True, capture_output=True)
    subprocess.run(["openssl", "rsa", "-in", private, "-outform", "PEM", "-pubout", "-out", public],
                   check=True, capture_output=True)
    import hashlib
    digest = hashlib.sha256(f"{{{USER}}}{PASSWORD}".encode()).hexdigest()
    users = f"{directory}/users.csv"
    with open(users, "w") as file:
        file.write(f"{USER},{digest}\n")
    server = [iperf3, "-s", "-p", str(port), "--rsa-private-key-path", private,
              "--authorized-users-path", users]
    padding = ["--use-pkcs1-padding"] if number(version) < (3, 17) else []
    client = [longhaul, "test", f"iperf3://127.0.0.1:{port}", "-t", "1", "--username", USER,
              "--rsa-public-key-path", public, *padding]
    ours = [longhaul, "iperf3", "-s", "-p", str(port + 1), "--rsa-private-key-path", private,
            "--authorized-users-path", users, *(["--use-pkcs1-padding"] if padding else [])]
    return our_login(server, client, port), their_login(ours, iperf3, public, port + 1)


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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longhaul", required=True)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--attempts", type=int, default=1, help="for a host that others load")
    parser.add_argument("--baseline", action="store_true", help="add the column 'stock'")
    parser.add_argument("--port", type=int, default=15300)
    parser.add_argument("iperf3", nargs="+")
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="longhaul-interop-")
    os.environ["XDG_CONFIG_HOME"] = directory
    failures, rows = [], {}
    ours_port, stock_port = args.port, args.port + 1
    server = [args.longhaul, "serve", "-p", str(args.port + 2), f"--iperf3={ours_port}",
              "--no-penalties"]
    versions = [(version_of(program), program) for program in args.iperf3]
    with Background(server, ours_port):
        for version, program in versions:
            old = number(version) < (3, 7)
            with Background([program, "-s", "-p", str(stock_port)], stock_port):
                for case in cases(args.short):
                    both = case[1] == "--bidir"
                    results = rows.setdefault(name_of(case), {})
                    check = refused_by_name if old and both else ours
                    wrong = first_pass(args.attempts, check, case, args.longhaul, stock_port)
                    results[version, "server"] = wrong or ("refused" if old and both else "ok")
                    if not (old and both):
                        wrong = first_pass(args.attempts, theirs, case, program, ours_port)
                        results[version, "client"] = wrong or "ok"
                        if args.baseline:
                            results[version, "stock"] = theirs(case, program, stock_port) or "ok"
            if number(version) >= (3, 2):
                for _ in range(args.attempts):
                    both = authenticate(args.longhaul, program, version, stock_port + 5, directory)
                    if not any(both):
                        break
                for role, wrong in zip(("server", "client"), both):
                    rows.setdefault("authentication", {})[version, role] = wrong or "ok"
            print(f"iperf3 {version} done", file=sys.stderr, flush=True)
    roles = ("server", "client", "stock") if args.baseline else ("server", "client")
    columns = [(version, role) for version, _ in versions for role in roles]
    print("| test | " + " | ".join(f"{version} {role}" for version, role in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for name, results in rows.items():
        cells = []
        for column in columns:
            result = results.get(column, "-")
            if result not in ("ok", "-", "refused"):
                stock = results.get((column[0], "stock"), "ok") != "ok"
                if column[1] == "stock" or stock:
                    cells.append("fails" if column[1] == "stock" else "(stock fails)")
                    continue
                failures.append(f"{name}, {' '.join(column)}: {result}")
                result = "FAILED"
            cells.append(result)
        print(f"| {name} | " + " | ".join(cells) + " |")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
