#!/usr/bin/env bash
# Injects a limit into a copy, and checks the first limit that `longhaul diagnose` reports.
#
# Each run is one diagnosis over a separate emulated link, from a file (or a tree) on the disk of DIR
# to another directory on it, with one injected limit. Runs are shuffled within blocks that have each
# case once. Prints a line per run, then the confusion matrix in Markdown. Runs as root on an idle
# machine with at least two cores; needs python3, taskset, nice, and cgroup v1 or v2 with CPU quotas
# and disk limits.
#
#   bench/diagnose.sh [RUNS] [CASE...]        defaults: 1, all cases; 5 for the record
#   LONGHAUL=PATH                             measures that build
#   WAN=PATH                                  emulates the link by that build
#   RAW=DIRECTORY                             keeps the document of every run there
#   DIR=DIRECTORY                             works on the disk of that [default: this one]
#   SEED=N                                    another order
#
# Slow disks are limits of the block layer on the control group of one end (blkio.throttle, io.max),
# which holds for what a copy does past the page cache. The slow core of "encryption" is a processor
# quota on the sender's end: nothing else runs there, and sealing is the largest part of its work.
# The case `tcp-memory` lowers net.ipv4.tcp_mem of this host, which all its connections share, and
# restores it; cubic is allowed to everybody meanwhile.
set -euo pipefail

runs=${1:-1}
cases=("${@:2}")

source "$(dirname "$0")/build.sh"
export LONGHAUL=$longhaul WAN=${WAN:-$longhaul}

work=$(mktemp -d "${DIR:-$PWD}/bench-diagnose.XXXXXX")
export WORK=$work XDG_CONFIG_HOME=$work/config SEED=${SEED:-1}
mkdir -p "$work/far" "$work/config" "$work/cpu" "$work/disk"
memory=$(cat /proc/sys/net/ipv4/tcp_mem)
allowed=$(cat /proc/sys/net/ipv4/tcp_allowed_congestion_control)

# The groups of both ends. Mounted here, since the sites of a link have a /sys of their own.
if grep -q '^blkio.*1$' /proc/cgroups && mount -t cgroup -o blkio none "$work/disk" 2>/dev/null; then
    mount -t cgroup -o cpu none "$work/cpu"
    export GROUPS_V=1
else
    mount -t cgroup2 none "$work/disk"
    mount -t cgroup2 none "$work/cpu"
    echo '+cpu +io' >"$work/cpu/cgroup.subtree_control"
    export GROUPS_V=2
fi
mkdir -p "$work"/{cpu,disk}/lh-diagnose-{near,far}
clean() {
    echo "$memory" >/proc/sys/net/ipv4/tcp_mem
    echo "$allowed" >/proc/sys/net/ipv4/tcp_allowed_congestion_control
    sleep 1
    rmdir "$work"/{cpu,disk}/lh-diagnose-{near,far} 2>/dev/null || true
    umount "$work/cpu" "$work/disk"
    rm -rf "$work"
}
trap clean EXIT
# A site may choose only what is allowed to everybody.
echo "$allowed cubic" >/proc/sys/net/ipv4/tcp_allowed_congestion_control

head -c 1G </dev/urandom >"$work/data"
mkdir "$work/tiny"
python3 -c '
import os
for d in range(25):
    os.mkdir(f"'"$work"'/tiny/{d}")
    for f in range(200):
        open(f"'"$work"'/tiny/{d}/{f}", "wb").write(os.urandom(2048))'
sync

python3 - "$runs" "${cases[@]}" <<'PYTHON'
import collections, json, os, random, subprocess, sys, time

LH, WAN, WORK = os.environ["LONGHAUL"], os.environ["WAN"], os.environ["WORK"]
V1 = os.environ["GROUPS_V"] == "1"
TCP_MEM = "/proc/sys/net/ipv4/tcp_mem"
BUSY = "nice -n {nice} taskset -c {core} sh -c 'while :; do :; done' &"
# The sender's end has the client's work to do as well, and sending costs more than receiving.
NICE = {"near": -10, "far": -15}

def device():
    number = os.stat(WORK).st_dev
    major, minor = os.major(number), os.minor(number)
    # Limits are of whole disks.
    path = os.path.realpath(f"/sys/dev/block/{major}:{minor}")
    if os.path.exists(f"{path}/partition"):
        path = os.path.dirname(path)
    return open(f"{path}/dev").read().strip()

def write(path, text):
    with open(path, "w") as file:
        file.write(text)

def disk_limit(end, what, rate):
    group = f"{WORK}/disk/lh-diagnose-{end}"
    if V1:
        write(f"{group}/blkio.throttle.{what}_bps_device", f"{device()} {rate or 0}")
    else:
        short = "rbps" if what == "read" else "wbps"
        write(f"{group}/io.max", f"{device()} {short}={rate or 'max'}")

def quota(end, percent):
    group = f"{WORK}/cpu/lh-diagnose-{end}"
    if V1:
        write(f"{group}/cpu.cfs_quota_us", str(percent * 1000 if percent else -1))
    else:
        write(f"{group}/cpu.max", f"{percent * 1000 if percent else 'max'} 100000")

def setting(name, value):
    return f"echo '{value}' > /proc/sys/net/ipv4/{name}"

def case(expected, link, near="", far="", near_core=None, far_core=None, memory=None, source="data",
         disk=None, cpu=None, options=""):
    # With a loaded core at one end, the other end has the other: two hosts share none.
    other = {None: None, 0: 1, 1: 0}
    def command(end, core, busy_core, before, arguments):
        group = f"echo 0 > {WORK}/disk/lh-diagnose-{end}/cgroup.procs"
        # Not without need: in a group of its own the end would share its core with a busy loop as
        # one group with another, whatever the loop's niceness.
        group += f"; echo 0 > {WORK}/cpu/lh-diagnose-{end}/cgroup.procs" if cpu else ""
        # What takes the core is no part of the group.
        busy = BUSY.format(core=busy_core, nice=NICE[end]) + " true" if busy_core is not None else ""
        pin = f"taskset -c {core} " if core is not None else ""
        return "; ".join(filter(None, [before, busy, group, f"{pin}{LH} {arguments}"]))
    diagnose = f"diagnose --time 2s --json {options} {WORK}/{source} lh://far/"
    return {
        "expected": expected,
        "link": link.split(),
        "near": command("near", other[far_core] if near_core is None else near_core, near_core,
                        near, diagnose),
        "far": command("far", other[near_core] if far_core is None else far_core, far_core,
                       far, f"serve --root {WORK}/far"),
        "memory": memory,
        "disk": disk,
        "cpu": cpu,
    }

SLOW_DISK = 60_000_000
CASES = {
    "source-disk": case("source_disk", "--rtt 20ms", disk=("near", "read", SLOW_DISK)),
    "sink-disk": case("sink_disk", "--rtt 20ms", disk=("far", "write", SLOW_DISK)),
    "sender-cpu": case("sender_cpu", "--rtt 20ms", near_core=0),
    "receiver-cpu": case("receiver_cpu", "--rtt 20ms", far_core=1),
    "receiver-window": case("receiver_window", "--rtt 40ms",
                            far=setting("tcp_rmem", "4096 131072 262144")),
    "sender-window": case("sender_window", "--rtt 40ms",
                          near=setting("tcp_wmem", "4096 16384 262144")),
    "link-rate": case("link_rate", "--rtt 20ms --rate 200M"),
    "loss-cubic": case("loss", "--rtt 40ms --loss 3e-3",
                       near=setting("tcp_congestion_control", "cubic")),
    "loss-bbr": case("loss", "--rtt 40ms --loss 3e-2",
                     near=setting("tcp_congestion_control", "bbr")),
    "tcp-memory": case("tcp_memory", "--rtt 15ms", memory="128 256 600000"),
    "tiny-files": case("small_files", "--rtt 20ms", source="tiny"),
    "encryption": case("encryption", "--rtt 10ms", cpu=("near", 15)),
}

def run(name, number):
    chosen = CASES[name]
    before = open(TCP_MEM).read()
    began = time.time()
    if chosen["memory"]:
        write(TCP_MEM, chosen["memory"])
    if chosen["disk"]:
        disk_limit(*chosen["disk"])
    if chosen["cpu"]:
        quota(*chosen["cpu"])
    done = None
    try:
        done = subprocess.run(
            [WAN, "wan", "run", *chosen["link"], "--far", chosen["far"], "--",
             "sh", "-c", chosen["near"]],
            capture_output=True, text=True, timeout=90)
        if "RAW" in os.environ:
            write(f"{os.environ['RAW']}/{name}-{number}.json", done.stdout)
        found = json.loads(done.stdout)
        rates = " ".join(
            f"{rung['rung']}={(rung['throughput_bps'] or 0) / 1e9:.2f}" for rung in found["rungs"])
        first = found["limits"][0]
        return first["resource"], rates, first["sentence"], time.time() - began
    except (ValueError, KeyError, TypeError, IndexError):
        said = (done.stderr.strip().splitlines() or [""])[-1]
        return "failed", "", said, time.time() - began
    except subprocess.TimeoutExpired:
        return "failed", "", "took longer than a minute and a half", time.time() - began
    finally:
        write(TCP_MEM, before)
        if chosen["disk"]:
            disk_limit(*chosen["disk"][:2], None)
        if chosen["cpu"]:
            quota(chosen["cpu"][0], None)

runs, names = int(sys.argv[1]), sys.argv[2:] or list(CASES)
order = random.Random(int(os.environ["SEED"]))
said = {name: collections.Counter() for name in names}
for number in range(runs):
    block = list(names)
    order.shuffle(block)
    for name in block:
        expected = CASES[name]["expected"]
        resource, rates, sentence, seconds = run(name, number)
        said[name][resource] += 1
        mark = "right" if resource == expected else "WRONG"
        print(f"{mark}  {name:<16} {resource:<17} {seconds:>3.0f} s  {rates}\n       {sentence}",
              flush=True)

columns = list(dict.fromkeys(CASES[name]["expected"] for name in names))
columns += sorted({other for name in names for other in said[name]} - set(columns))
print("\n| injected | " + " | ".join(column.replace("_", " ") for column in columns) + " | right |")
print("|---|" + "---:|" * len(columns) + "---:|")
for name in names:
    expected = CASES[name]["expected"]
    cells = [str(said[name][column] or "") for column in columns]
    cells = [f"**{cell}**" if cell and column == expected else cell
             for cell, column in zip(cells, columns)]
    print(f"| {name.replace('-', ' ')} | " + " | ".join(cells)
          + f" | {said[name][expected]} of {runs} |")
right = sum(said[name][CASES[name]["expected"]] for name in names)
print(f"\nright: {right} of {runs * len(names)} ({100 * right / (runs * len(names)):.1f} %)")
PYTHON
