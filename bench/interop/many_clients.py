#!/usr/bin/env python3
"""Runs 100 stock iperf3 clients at once against longhaul, and kills a third of them at random times.

    many_clients.py --longhaul target/release/longhaul

Every other client must be answered: with a result or, if it finds no place, as busy. The memory and
the file descriptors of the server are printed before and after.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

CLIENTS, KILLED = 100, 33


def state(process):
    with open(f"/proc/{process.pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    descriptors = len(os.listdir(f"/proc/{process.pid}/fd"))
    return f"{lines['VmRSS'].strip()}, {lines['Threads'].strip()} threads, {descriptors} descriptors"


def kill_later(process):
    time.sleep(random.uniform(0, 5))
    process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longhaul", required=True)
    parser.add_argument("--port", type=int, default=15600)
    args = parser.parse_args()
    environment = dict(os.environ, XDG_CONFIG_HOME=tempfile.mkdtemp(prefix="longhaul-interop-"))
    server = subprocess.Popen(
        [args.longhaul, "serve", "--bind", "127.0.0.1", "-p", str(args.port + 1),
         f"--iperf3={args.port}", "--no-penalties", "--max-per-address", "200"],
        stderr=subprocess.DEVNULL, env=environment)
    time.sleep(1)
    print("before:", state(server))
    command = ["iperf3", "-c", "127.0.0.1", "-p", str(args.port), "-t", "1", "-J"]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
               for _ in range(CLIENTS)]
    victims = set(random.sample(range(CLIENTS), KILLED))
    for victim in victims:
        threading.Thread(target=kill_later, args=(clients[victim],)).start()
    answered = busy = failed = 0
    for number, client in enumerate(clients):
        output, _ = client.communicate(timeout=120)
        if number in victims:
            continue
        error = json.loads(output).get("error") if output else "no output"
        if client.returncode == 0 and not error:
            answered += 1
        elif error and "busy" in error:
            busy += 1
        else:
            failed += 1
            print(f"client {number}: {error}")
    time.sleep(5)
    print(f"{answered} answered, {busy} busy, {failed} failed")
    print("after: ", state(server))
    server.terminate()
    server.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
