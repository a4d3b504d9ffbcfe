#!/usr/bin/env python3
"""Measures the CPU time and memory of `longhaul watch` with eleven interfaces.

Usage: bench/watch.py LONGHAUL [SECONDS]

Runs as root: it makes a network namespace with loopback and ten Ethernet devices (veth), sends UDP
packets through four of them, and holds TCP connections over loopback. It prints a row of a table per mode
of the command. CPU time is user plus system time of the process (wait4), memory is its largest resident
set. The share of time that the hypervisor took is that of all cores in the same time.
"""

import ctypes
import fcntl
import os
import pty
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

from host_share import HostTime

CLONE_NEWNET = 0x40000000


def sh(command):
    subprocess.run(command, shell=True, check=True)


def connections(count):
    """Opens TCP connections over loopback; returns both ends of each."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    ends = []
    for _ in range(count):
        near = socket.create_connection(listener.getsockname())
        ends += [near, listener.accept()[0]]
    return ends


def traffic(ends, stop):
    """Sends 200 UDP packets a second through each of four devices, and data over four connections."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while not stop.is_set():
        for device in range(4):
            for _ in range(20):
                sender.sendto(b"x" * 1000, (f"10.77.{device}.2", 9))
        for near, far in zip(ends[0:8:2], ends[1:8:2]):
            near.sendall(b"x" * 10_000)
            far.recv(65536)
        time.sleep(0.1)


def start(command, terminal):
    """Starts a command, with a terminal of 120 x 40 or without output; returns its process id."""
    if not terminal:
        null = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
        return os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    child, master = pty.fork()
    if child == 0:
        os.execve(command[0], command, {**os.environ, "TERM": "xterm-256color"})
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    threading.Thread(target=drain, args=(master,), daemon=True).start()
    return child


def drain(master):
    """Reads the output of a terminal until it is closed."""
    try:
        while os.read(master, 65536):
            pass
    except OSError:
        pass


def run(mode, command, terminal=False):
    before, begun = HostTime.now(), time.monotonic()
    _, status, usage = os.wait4(start(command, terminal), 0)
    took, host = time.monotonic() - begun, HostTime.now() - before
    if status != 0:
        sys.exit(f"{mode}: status {status}")
    cpu = (usage.ru_utime + usage.ru_stime) / took * 100
    stolen = host.stolen_share * 100
    print(f"| {mode} | {took:.0f} | {cpu:.2f} | {usage.ru_maxrss / 1024:.1f} | {stolen:.1f} |", flush=True)


def make_interfaces():
    """Makes a namespace with eleven interfaces: loopback and five pairs."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        sys.exit(f"cannot make a network namespace: {os.strerror(ctypes.get_errno())}")
    sh("ip link set lo up")
    for device in range(5):
        sh(f"ip link add wa{device} type veth peer name wb{device}")
        sh(f"ip addr add 10.77.{device}.1/24 dev wa{device}; ip link set wa{device} up")
        sh(f"ip link set wb{device} up")
        sh(f"ip neigh add 10.77.{device}.2 lladdr 02:00:00:00:00:01 dev wa{device}")


def measure(watch, count, directory):
    """Runs each mode beside `count` connections."""
    ends, stop = connections(count), threading.Event()
    sender = threading.Thread(target=traffic, args=(ends, stop))
    sender.start()
    try:
        run(f"terminal display, {count} connections", watch, terminal=True)
        run(f"record, {count} connections", [*watch, "-q", "--record", f"{directory}/{count}"])
        run(f"metrics, {count} connections", [*watch, "-q", "--metrics", "127.0.0.1:0"])
        run(f"JSON stream, {count} connections", [*watch, "--json-stream"])
    finally:
        stop.set()
        sender.join()
    for end in ends:
        end.close()


def main():
    program = os.path.abspath(sys.argv[1])
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    make_interfaces()
    print("| mode | seconds | CPU, % of a core | memory, MiB | steal, % |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        for count in (20, 2000):
            measure([program, "watch", f"--samples={seconds}"], count, directory)


main()
