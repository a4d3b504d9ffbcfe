#!/usr/bin/env bash
# Injects a limit into a test, and checks the reason that `longhaul test` reports.
#
# Each run is one test over a separate emulated link with one injected limit. Prints a line per run
# (the injected limit, the reported reason, whether it is correct, the sentence) and the totals. Runs
# as root on an idle machine with at least two cores; needs python3, taskset and nice. The case
# `memory` lowers net.ipv4.tcp_mem of this host, which affects all connections, and restores it.
#
#   bench/attribution.sh [RUNS] [CASE...]     defaults: 3, all cases
#   LONGHAUL=PATH                             measures that build
#   WAN=PATH                                  emulates the link by that build
#   RAW=DIRECTORY                             keeps the document of every run there
set -euo pipefail

runs=${1:-3}
cases=("${@:2}")

source "$(dirname "$0")/build.sh"
export LONGHAUL=$longhaul WAN=${WAN:-$longhaul}

work=$(mktemp -d)
export XDG_CONFIG_HOME=$work
memory=$(cat /proc/sys/net/ipv4/tcp_mem)
trap 'echo "$memory" > /proc/sys/net/ipv4/tcp_mem; rm -rf "$work"' EXIT

python3 - "$runs" "${cases[@]}" <<'PYTHON'
import collections, json, os, subprocess, sys

LH, WAN = os.environ["LONGHAUL"], os.environ["WAN"]
TCP_MEM = "/proc/sys/net/ipv4/tcp_mem"
BUSY = "nice -n -20 taskset -c {core} sh -c 'while :; do :; done' &"

def setting(name, value):
    return f"echo '{value}' > /proc/sys/net/ipv4/{name}"

def case(expected, link, test="", near="", far="", near_core=None, far_core=None, memory=None,
         seconds=3):
    def command(core, before, arguments):
        pin = f"taskset -c {core} " if core is not None else ""
        return "; ".join(filter(None, [before, f"{pin}{LH} {arguments}"]))
    def busy(core):
        return BUSY.format(core=core) + " true" if core is not None else ""
    return {
        "expected": expected,
        "link": link.split(),
        "near": command(near_core, "; ".join(filter(None, [near, busy(near_core)])),
                        f"test far -t {seconds} --json {test}"),
        "far": command(far_core, "; ".join(filter(None, [far, busy(far_core)])), "serve"),
        "memory": memory,
    }

CASES = {
    "receiver-window-15ms": case("receiver_window", "--rtt 15ms",
                                 far=setting("tcp_rmem", "4096 131072 2097152")),
    "receiver-window-90ms": case("receiver_window", "--rtt 90ms",
                                 far=setting("tcp_rmem", "4096 131072 4194304")),
    "sender-buffer-15ms": case("send_buffer", "--rtt 15ms",
                               near=setting("tcp_wmem", "4096 16384 1048576")),
    "sender-buffer-90ms": case("send_buffer", "--rtt 90ms",
                               near=setting("tcp_wmem", "4096 16384 4194304")),
    **{f"link-rate-{rtt}-{control}": case("link_rate", f"--rtt {rtt} --rate 1G", f"-C {control}")
       for rtt in ("0ms", "15ms", "90ms") for control in ("cubic", "bbr")},
    "loss-15ms": case("loss", "--rtt 15ms --loss 1e-3", "-C cubic"),
    # In 3 s cubic may not meet enough losses to be held by them.
    "loss-90ms": case("loss", "--rtt 90ms --loss 1e-4", "-C cubic", seconds=8),
    "receiver-cpu": case("receiver_cpu", "--rtt 15ms", far_core=1),
    "sender-cpu": case("sender_cpu", "--rtt 15ms", near_core=0),
    "pacing": case("pacing", "--rtt 15ms", "-b 500M"),
    "memory": case("tcp_memory", "--rtt 15ms", memory="128 256 600000"),
}

def run(name, number):
    chosen = CASES[name]
    before = open(TCP_MEM).read()
    if chosen["memory"]:
        open(TCP_MEM, "w").write(chosen["memory"])
    try:
        done = subprocess.run(
            [WAN, "wan", "run", *chosen["link"], "--far", chosen["far"], "--",
             "sh", "-c", chosen["near"]],
            capture_output=True, text=True, timeout=60)
        if "RAW" in os.environ:
            with open(f"{os.environ['RAW']}/{name}-{number}.json", "w") as raw:
                raw.write(done.stdout)
        summary = json.loads(done.stdout)["summary"]
        reason = summary["reason"]
        return reason["limit"], summary["throughput_bps"], reason["sentence"]
    except (ValueError, KeyError, TypeError):
        return "failed", 0, (done.stderr.strip().splitlines() or [""])[-1]
    except subprocess.TimeoutExpired:
        return "failed", 0, "took longer than a minute"
    finally:
        open(TCP_MEM, "w").write(before)

runs, names = int(sys.argv[1]), sys.argv[2:] or list(CASES)
right, total = collections.Counter(), collections.Counter()
for number in range(runs):
    for name in names:
        expected = CASES[name]["expected"]
        said, rate, sentence = run(name, number)
        total[name] += 1
        right[name] += said == expected
        mark = "right" if said == expected else "WRONG"
        print(f"{mark}  {name:<21} {said:<17} {rate / 1e6:>7.0f} Mb/s  {sentence}", flush=True)
print()
for name in names:
    print(f"{name:<21} {CASES[name]['expected']:<17} {right[name]:>3} of {total[name]}")
print(f"{'all':<39} {sum(right.values()):>3} of {sum(total.values())}")
PYTHON
