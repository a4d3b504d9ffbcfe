#!/usr/bin/env bash
# Memory to memory: `longhaul test` beside iperf3 and nuttcp, interleaved, over loopback, a veth
# pair and the emulator.
#
# Prints medians of the goodput and, over TCP, of the CPU time of both hosts per gigabyte (10^9 bytes).
# The CPU time depends less on the load of the machine.
# Needs iperf3, nuttcp and python3; root for `udp` (a network namespace) and `wan`.
#
#   bench/test.sh tcp [RUNS] [SECONDS] [STREAMS...]    loopback; defaults 3 2 1 2 4
#   bench/test.sh zerocopy [RUNS] [SECONDS] [STREAMS...]
#   bench/test.sh udp [SECONDS]     the fastest rate received at under 0.1 % loss, in steps of 30 %
#   bench/test.sh pace [SECONDS]    the sent rate beside the rate of -b, over UDP and loopback
#   bench/test.sh wan [RUNS] [SECONDS]    the steady rate through a 10G link of 90 and 180 ms;
#                                         defaults 3 15
#   LONGHAUL=PATH bench/test.sh ...                    measures that build
set -euo pipefail

what=${1:-tcp}
source "$(dirname "$0")/build.sh"
longhaul=$(realpath "$longhaul")

work=$(mktemp -d)
pids=()
space=longhaul-bench-$$
cleanup() {
    kill "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    ip netns del "$space" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
export XDG_CONFIG_HOME=$work

# The far ends, run by the command that is given, if any.
serve() {
    "$@" "$longhaul" serve --port 5310 2>/dev/null &
    pids+=($!)
    "$@" iperf3 -s -p 5311 >/dev/null 2>&1 &
    pids+=($!)
    "$@" nuttcp -S --nofork -P 5312 >/dev/null 2>&1 &
    pids+=($!)
}

echo "$(uname -sr), $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
echo "$("$longhaul" --version), $(iperf3 --version | head -1), $(nuttcp -V)"
uptime
[ "$what" = wan ] || serve
if [ "$what" = udp ]; then
    ip netns add "$space"
    ip link add lhb0 mtu 9000 type veth peer name lhb1 mtu 9000 netns "$space"
    ip addr add 198.18.0.1/30 dev lhb0
    ip link set lhb0 up
    ip -n "$space" addr add 198.18.0.2/30 dev lhb1
    ip -n "$space" link set lhb1 up
    ip -n "$space" link set lo up
    serve ip netns exec "$space"
fi
sleep 1
python3 bench/test.py "$what" "$longhaul" "${@:2}"
uptime
