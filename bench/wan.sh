#!/bin/sh
# Compares TCP throughput through `longhaul wan run` with a plain veth pair of the same MTU.
#
# usage: bench/wan.sh [LONGHAUL [ROUNDS [SECONDS]]]      (as root; needs iperf3, ip and ping)
#
# Each round measures the veth pair and then each round-trip time, so that whatever else the
# machine does falls on all of them alike, and each measurement waits for a quiet moment. The result is one line a measurement on standard error
# and, on standard output, a table of medians in Markdown. iperf3 runs one stream; its first
# seconds are left out (-O), since at 180 ms slow start alone takes two of them.
set -eu

longhaul=${1:-target/release/longhaul}
rounds=${2:-3}
seconds=${3:-10}
omit=4
mtu=9000
rtts="0 15 90 180"

work=$(mktemp -d)
near=lhbench-near-$$
far=lhbench-far-$$
cleanup() {
    ip netns del "$near" 2>/dev/null || true
    ip netns del "$far" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# Prints the receiver's Gb/s from an iperf3 JSON document.
gbps() {
    awk '/"sum_received"/ { inside = 1 }
         inside && /"bits_per_second"/ { gsub(/[^0-9.e+]/, "", $2); printf "%.2f\n", $2 / 1e9; exit }' "$1"
}

# Prints the median of the numbers in a file.
median() {
    sort -n "$1" | awk '{ v[NR] = $1 } END {
        printf "%.2f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

ip netns add "$near"
ip netns add "$far"
ip -n "$near" link add veth0 mtu $mtu type veth peer name veth0 mtu $mtu netns "$far"
ip -n "$near" address add 198.18.1.1/30 dev veth0
ip -n "$far" address add 198.18.1.2/30 dev veth0
ip -n "$near" link set veth0 up
ip -n "$far" link set veth0 up

# Waits, for at most two minutes, until the processors have been nine tenths idle for a second.
wait_for_quiet() {
    for attempt in $(seq 120); do
        set -- $(sed -n 's/^cpu  //p' /proc/stat)
        before_idle=$4 before=$(($1 + $2 + $3 + $4 + $5 + $6 + $7 + $8))
        sleep 1
        set -- $(sed -n 's/^cpu  //p' /proc/stat)
        idle=$(($4 - before_idle)) all=$(($1 + $2 + $3 + $4 + $5 + $6 + $7 + $8 - before))
        if [ $((idle * 10)) -ge $((all * 9)) ]; then return; fi
    done
    echo "the machine did not become quiet; measuring anyway" >&2
}

measure_veth() {
    wait_for_quiet
    ip netns exec "$far" iperf3 -s -1 >/dev/null 2>&1 &
    server=$!
    sleep 0.5
    ip netns exec "$near" iperf3 -c 198.18.1.2 -O $omit -t "$seconds" -J >"$work/run.json"
    wait "$server"
    gbps "$work/run.json" | tee -a "$work/veth" | sed 's/^/veth: /' >&2
}

measure_wan() {
    wait_for_quiet
    "$longhaul" wan run --rtt "$1ms" --mtu $mtu --json-report "$work/link.json" \
        --far 'iperf3 -s -1 >/dev/null' -- \
        iperf3 -c far -O $omit -t "$seconds" -J >"$work/run.json"
    gbps "$work/run.json" | tee -a "$work/wan-$1" | sed "s/^/wan $1 ms: /" >&2
}

measure_rtt() {
    wait_for_quiet
    "$longhaul" wan run --rtt "$1ms" --mtu $mtu -- ping -q -i 0.05 -c 60 far |
        sed -n 's|^rtt min/avg/max/mdev = \([^ ]*\) ms|\1|p' | tr / ' ' >"$work/rtt-$1"
}

round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    measure_veth
    for rtt in $rtts; do measure_wan "$rtt"; done
done
for rtt in $rtts; do measure_rtt "$rtt"; done

veth=$(median "$work/veth")
echo "| path | Gb/s, median of $rounds | of veth | ping min / mean / max, ms |"
echo "|---|---|---|---|"
echo "| veth pair | $veth | 1.00 | |"
for rtt in $rtts; do
    wan=$(median "$work/wan-$rtt")
    ratio=$(awk "BEGIN { printf \"%.2f\", $wan / $veth }")
    pings=$(awk '{ printf "%s / %s / %s", $1, $2, $3 }' "$work/rtt-$rtt")
    echo "| wan, RTT $rtt ms | $wan | $ratio | $pings |"
done
echo
echo "iperf3 $(iperf3 --version | awk 'NR == 1 { print $2 }'), one stream, -O $omit -t $seconds," \
    "MTU $mtu, $(cat /proc/sys/net/ipv4/tcp_congestion_control);" \
    "Linux $(uname -r | cut -d- -f1), $(nproc) x" \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
