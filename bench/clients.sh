#!/usr/bin/env bash
# Measures a server with many clients, half of them hostile: the number of served honest clients and
# the memory of the server.
#
# In each round, half of the clients are hostile: they send nothing, random bytes, the start of a TLS
# handshake, or a handshake byte by byte, and reconnect when the server closes the connection. The
# other half request a test of 1 MB each, all at once. Prints per round the number of served clients,
# the longest wait, and the memory, threads and descriptors of the server. Needs python3.
#
#   bench/clients.sh [CLIENTS] [ROUNDS] [SERVER OPTIONS...]     defaults: 500 3
#   LONGHAUL=PATH                                               measures that build
set -euo pipefail

clients=${1:-500}
rounds=${2:-3}
options=("${@:3}")

source "$(dirname "$0")/build.sh"

work=$(mktemp -d)
export XDG_CONFIG_HOME=$work
ulimit -n 8192
"$longhaul" serve --bind 127.0.0.1 --port 5312 "${options[@]}" 2>"$work/log" &
server=$!
trap 'kill $server 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
sleep 1

echo "longhaul serve ${options[*]}: $clients clients, half of them hostile"
python3 - "$longhaul" "$server" "$clients" "$rounds" <<'PYTHON'
import os, random, socket, subprocess, sys, threading, time

longhaul, server, clients, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def status():
    fields = dict(line.split(":", 1) for line in open(f"/proc/{server}/status"))
    number = lambda name: int(fields[name].split()[0])
    return number("VmRSS") / 1024, number("Threads"), len(os.listdir(f"/proc/{server}/fd"))

# The beginning of a TLS record with a handshake of 512 bytes, of which most will not come.
HELLO = bytes([0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3])

def hostile(kind, over):
    while not over.is_set():
        try:
            with socket.create_connection(("127.0.0.1", 5312), timeout=1) as peer:
                if kind == "garbage":
                    peer.sendall(random.randbytes(4096))
                elif kind == "half-open":
                    peer.sendall(HELLO)
                while not over.wait(0.5):
                    if kind == "slow":
                        peer.sendall(b"\x16" if random.random() < 0.1 else b"\x03")
                    peer.setblocking(False)
                    try:
                        if peer.recv(4096) == b"":
                            break
                    except BlockingIOError:
                        pass
        except OSError:
            over.wait(0.2)

def honest(results):
    begun = time.monotonic()
    done = subprocess.run([longhaul, "test", "127.0.0.1:5312", "-n", "1MB", "--json"],
                          capture_output=True, text=True)
    results.append((done.returncode, time.monotonic() - begun, done.stderr))

print(f"{'round':>5} {'answered':>12} {'slowest':>9} {'told a place':>13} {'memory':>10} "
      f"{'at most':>10} {'threads':>8} {'files':>6}")
for number in range(1, rounds + 1):
    over, results, most = threading.Event(), [], 0.0
    kinds = ["silent", "garbage", "half-open", "slow"]
    foes = [threading.Thread(target=hostile, args=(kinds[n % 4], over))
            for n in range(clients // 2)]
    [foe.start() for foe in foes]
    time.sleep(2)
    friends = [threading.Thread(target=honest, args=(results,))
               for _ in range(clients - clients // 2)]
    [friend.start() for friend in friends]
    while any(friend.is_alive() for friend in friends):
        most = max(most, status()[0])
        time.sleep(0.05)
    over.set()
    [foe.join() for foe in foes]
    time.sleep(2)
    memory, threads, files = status()
    answered = sum(code == 0 for code, _, _ in results)
    queued = sum("in the queue" in said for _, _, said in results)
    print(f"{number:>5} {answered:>5} of {len(results):<3} {max(t for _, t, _ in results):>7.1f} s "
          f"{queued:>13} {memory:>6.1f} MiB {most:>6.1f} MiB {threads:>8} {files:>6}", flush=True)
    for code, _, said in results:
        if code != 0:
            print(f"      code {code}: {said.strip()}")
            break
PYTHON
