#!/usr/bin/env python3
"""Records the control connections of iperf3 programs for the transcript tests.

    record.py DIR/iperf3-3.7/bin/iperf3 ... --out crates/longhaul-interop/tests/transcripts

Client and server are the same program. A proxy between them forwards every TCP connection and writes
the bytes of the first one, as a line per message: C from the client, S from the server, in
hexadecimal. The first line has the version and the options.
"""

import argparse
import os
import re
import socket
import subprocess
import threading
import time

CASES = {
    "forward": ["-n", "256K"],
    "reverse": ["-t", "1", "-b", "2M", "-l", "8K", "-R", "-P", "2"],
    "bidir": ["-t", "1", "-b", "2M", "-l", "8K", "--bidir"],
    "options": [
        "-t", "1", "-O", "1", "-b", "1M", "-l", "1000", "-S", "0xb8", "-M", "1400", "-N", "-w", "64K",
    ],
}


def pump(source, target, record):
    while True:
        try:
            data = source.recv(65536)
        except OSError:
            data = b""
        if not data:
            break
        record(data)
        try:
            target.sendall(data)
        except OSError:
            break
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


class Proxy:
    """Forwards connections from a free port to `port`, and records the first."""

    def __init__(self, port):
        self.target, self.messages, self.count = port, [], 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            first, self.count = self.count == 0, self.count + 1
            for source, target, name in ((near, far, "C"), (far, near, "S")):
                record = (lambda data, name=name: self.messages.append((name, data))) if first else (lambda data: None)
                thread = threading.Thread(target=pump, args=(source, target, record))
                thread.start()
                self.threads.append(thread)

    def end(self):
        for thread in self.threads:
            thread.join(5)
        self.listener.close()
        merged = []
        for name, data in self.messages:
            if merged and merged[-1][0] == name:
                merged[-1][1].extend(data)
            else:
                merged.append((name, bytearray(data)))
        return merged


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def record(program, version, name, options, out):
    port = free_port()
    server = subprocess.Popen([program, "-s", "-1", "-p", str(port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    proxy = Proxy(port)
    client = subprocess.run([program, "-c", "127.0.0.1", "-p", str(proxy.port), *options],
                            capture_output=True, timeout=30)
    messages = proxy.end()
    server.terminate()
    server.wait()
    if client.returncode != 0:
        print(f"{version} {name}: exit code {client.returncode}")
        return
    path = os.path.join(out, f"iperf3-{version}-{name}.txt")
    with open(path, "w") as file:
        file.write(f"# iperf3 {version}: {' '.join(options)}\n")
        for source, data in messages:
            file.write(f"{source} {bytes(data).hex()}\n")
    print(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("iperf3", nargs="+")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for program in args.iperf3:
        text = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        version = re.search(r"iperf (\S+)", text).group(1)
        for name, options in CASES.items():
            old = tuple(int(part) for part in version.split(".")[:2]) < (3, 7)
            if name != "bidir" or not old:
                record(program, version, name, options, args.out)


if __name__ == "__main__":
    main()
