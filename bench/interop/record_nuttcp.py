#!/usr/bin/env python3
"""Records the control channel of nuttcp between a real client and a real server.

Usage: record_nuttcp.py OUTPUT_DIRECTORY NUTTCP [NUTTCP...]

Every NUTTCP is a nuttcp program. The script runs each case of CASES with every pair of client and
server program over loopback, through a relay that reads the control connection. It writes one
transcript per case and pair:

    # CLIENT_VERSION SERVER_VERSION ARGUMENTS
    > a line from the client
    < a line from the server
    | a line that the client printed
    = the exit status of the client

Bytes that are not printable are escaped as in Python. The transcripts are the fixtures of
`longhaul-interop`; it keeps those of equal versions and a few mixed pairs.
"""

import pathlib
import selectors
import socket
import subprocess
import sys
import threading
import time

# Names and arguments of the client; a word `HOST` stands for the address of the server.
CASES = {
    "tcp": "-T1",
    "tcp-interval": "-T1 -i0.5",
    "tcp-reverse": "-r -T1",
    "tcp-reverse-interval": "-r -T1 -i0.5",
    "tcp-bytes": "-n64 -l65536",
    "tcp-streams": "-N4 -T1 -i0.5",
    "tcp-flip": "-F -T1",
    "tcp-options": "-T1 -w256 -M1000 -c10 -R100m -l16384",
    "tcp-verbose": "-v -T1",
    "tcp-verbose-reverse": "-v -r -T1",
    "tcp-parse": "-fparse -T1 -i0.5",
    "tcp-parse-reverse": "-fparse -r -T1 -i0.5",
    "udp": "-u -T1 -R20m",
    "udp-interval": "-u -T1 -i0.5 -R20m",
    "udp-reverse": "-u -r -T1 -i0.5 -R20m",
    "udp-instant": "-u -T1 -Ri20m -l1200",
    "udp-parse": "-u -fparse -T1 -i0.5 -R20m",
    "udp-bytes": "-u -n100 -R20m -l1000",
}
# Cases for versions from 7.0.1.
LATER_CASES = {
    "udp-jitter": "-u -j -T1 -i0.5 -R20m",
    "udp-owd": "-u -o -T1 -i0.5 -Ri20m",
    "tcp-burst": "-T1 -Ri100m/10",
    "refused-jitter": "-j -T1",
}
LIMIT = 20


def free_ports(count):
    """Returns the first of `count` adjacent TCP ports that were free."""
    for first in range(20000 + time.time_ns() % 10000, 40000, count):
        held = []
        try:
            for port in range(first, first + count):
                held.append(socket.socket())
                held[-1].bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for one in held:
                one.close()
    raise SystemExit("no adjacent free ports")


def version(program):
    said = subprocess.run([program, "-V"], capture_output=True, text=True, check=True).stdout
    return said.strip().removeprefix("nuttcp-")


class Relay(threading.Thread):
    """Passes one control connection on, and keeps its bytes in the order of their arrival."""

    def __init__(self, server_port):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.server_port = server_port
        self.pieces = []

    def run(self):
        self.listener.settimeout(LIMIT)
        client, _ = self.listener.accept()
        server = socket.create_connection(("127.0.0.1", self.server_port))
        ways = {client: (">", server), server: ("<", client)}
        with selectors.DefaultSelector() as selector:
            for end in ways:
                selector.register(end, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select(LIMIT) or self.expire():
                    mark, other = ways[key.fileobj]
                    data = self.receive(key.fileobj)
                    self.pieces.append((mark, data))
                    if data:
                        other.sendall(data)
                    else:
                        selector.unregister(key.fileobj)
                        self.shut(other)

    @staticmethod
    def receive(end):
        try:
            return end.recv(65536)
        except ConnectionError:
            return b""

    @staticmethod
    def shut(end):
        try:
            end.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    @staticmethod
    def expire():
        raise SystemExit("the control connection was silent for too long")

    def lines(self):
        """Returns the lines with their marks; a half-closed direction is the line `EOF`."""
        waiting = {">": b"", "<": b""}
        for mark, data in self.pieces:
            waiting[mark] += data
            while b"\n" in waiting[mark]:
                line, waiting[mark] = waiting[mark].split(b"\n", 1)
                yield mark, line.decode("latin-1").encode("unicode_escape").decode()
            if not data:
                if waiting[mark]:
                    yield mark, waiting[mark].decode("latin-1") + "\\"
                yield mark, "EOF"


def wait_for(port):
    limit = time.monotonic() + LIMIT
    while time.monotonic() < limit:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table, encoding="ascii") as lines:
                if any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
                       for line in lines.readlines()[1:]):
                    return
        time.sleep(0.02)
    raise SystemExit("the server does not listen")


def record(client, server, arguments):
    """Runs one test and returns its transcript."""
    control, data = free_ports(1), free_ports(8)
    serving = subprocess.Popen([server, "-S", "--nofork", "-1", f"-P{control}"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(control)
        relay = Relay(control)
        relay.start()
        words = arguments.split()
        if not any(word.startswith("-p") for word in words):
            words.insert(0, f"-p{data}")
        # The standard input and output are pipes, as in a script.
        ran = subprocess.run([client, f"-P{relay.port}", *words, "127.0.0.1"], timeout=LIMIT,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, check=False)
        relay.join(LIMIT)
    finally:
        serving.kill()
        serving.wait()
    text = [f"# {version(client)} {version(server)} {' '.join(words)}"]
    text += [f"{mark} {line}" for mark, line in relay.lines()]
    text += [f"| {line}" for line in ran.stdout.decode("latin-1").splitlines()]
    return "\n".join([*text, f"= {ran.returncode}", ""])


def main(directory, programs):
    versions = {program: version(program) for program in programs}
    for client in programs:
        for server in programs:
            later = "6." not in (versions[client][:2], versions[server][:2])
            for name, arguments in {**CASES, **(LATER_CASES if later else {})}.items():
                pair = f"{versions[client]}-{versions[server]}"
                path = pathlib.Path(directory, f"{name}.{pair}.txt")
                path.write_text(record(client, server, arguments), encoding="utf-8")
                print(path)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2:])
