#!/bin/bash
# Measures the emulator on this machine: throughput compared with a veth pair, the CPU cost of loss,
# RTT idle and under load, the CPU time of an idle link, and memory.
#
# usage: bench/wan.sh PART [LONGHAUL]       (as root; needs iperf3, ip, ping, tcpdump, jq)
#        PART: throughput (80 s), causes (50 s), cost (45 s), rtt (75 s), idle (20 s), memory (30 s):
#              one round, added to the files in $OUT (default /tmp/longhaul-wan-bench);
#              report: tables of medians, in Markdown
#
# A round measures everything of its part once, the veth pairs among it, so that whatever else the
# machine does falls on all of them alike. Run each part some times and then the report.
set -euo pipefail

part=${1:?throughput, causes, cost, rtt, idle, memory or report}
longhaul=$(realpath -m "${2:-target/release/longhaul}")
out=${OUT:-/tmp/longhaul-wan-bench}
rtts="0 15 90 180"
omit=4 seconds=4
mkdir -p "$out"

note() { echo "$*" | tee -a "$out/$part" >&2; }
gbps() { jq -r '.end.sum_received.bits_per_second / 1e9 * 100 | round / 100' "$1"; }

work=$(mktemp -d)
near=lhbench-near-$$ far=lhbench-far-$$
cleanup() {
    ip netns del "$near" 2>/dev/null || true
    ip netns del "$far" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

veth() { # MTU
    ip netns add "$near"
    ip netns add "$far"
    ip -n "$near" link add veth0 mtu "$1" type veth peer name veth0 mtu "$1" netns "$far"
    ip -n "$near" address add 198.18.1.1/30 dev veth0
    ip -n "$far" address add 198.18.1.2/30 dev veth0
    ip -n "$near" link set veth0 up
    ip -n "$far" link set veth0 up
    ip netns exec "$far" iperf3 -s -1 >/dev/null 2>&1 &
    sleep 0.5
    ip netns exec "$near" iperf3 -c 198.18.1.2 -O $omit -t $seconds -J >"$work/run.json"
    wait
    ip netns del "$near"
    ip netns del "$far"
    note "veth $1 0 $(gbps "$work/run.json")"
}

wan() { # MTU RTT
    "$longhaul" wan run --rtt "$2ms" --mtu "$1" --json-report "$work/link.json" \
        --far 'iperf3 -s -1 >/dev/null' -- \
        iperf3 -c far -O $omit -t $seconds -J >"$work/run.json" 2>"$work/log"
    note "wan $1 $2 $(gbps "$work/run.json") $(jq -r \
        '"late_p999_ms=\(.up.lateness.p999_ms) warnings=\([.warnings[].warning] | join(","))"' \
        "$work/link.json")"
}

throughput() {
    veth 9000
    for rtt in $rtts; do wan 9000 "$rtt"; done
    veth 1500
    wan 1500 0
    wan 1500 90
}

# What made packets late, and how late a bare real-time timer was in the same seconds, which moves
# nothing and knows nothing of the emulator.
causes_of() { # NAME OPTIONS FAR NEAR
    "$longhaul" wan probe '{"watch":{"seconds":6}}' >"$work/machine.json" &
    # shellcheck disable=SC2086
    "$longhaul" wan run $2 --json-report "$work/link.json" --far "$3" -- sh -c "$4" \
        >"$work/run.json" 2>"$work/log"
    wait
    note "$(jq -r --arg name "$1" --slurpfile m "$work/machine.json" '
        def ms: . * 100 | round / 100;
        .up.lateness as $l | $l.causes as $c | $m[0] as $m
        | ([$c.processor_ms, $c.host_ms, $c.timer_ms, $c.write_ms, $c.read_ms, $c.backlog_ms]) as $all
        | ($all | add) as $sum
        | [$name, ($l.p99_ms | ms), ($l.p999_ms | ms), ($l.max_ms | ms)]
          + [$all[] | if $sum > 0 then . / $sum * 100 | round else 0 end]
          + [($m.p99_ms | ms), ($m.p999_ms | ms), ($m.max_ms | ms),
             ($m.withheld_share * 1000 | round / 10)]
        | join("|")' "$work/link.json")"
}

causes() {
    for rtt in 0 15 90 180; do
        causes_of "iperf3, $rtt ms" "--rtt ${rtt}ms" 'iperf3 -s -1 >/dev/null' 'iperf3 -c far -t 5 -J'
    done
    for rtt in 10 90; do
        causes_of "ping, idle, $rtt ms" "--rtt ${rtt}ms" true 'ping -q -i 0.01 -c 500 far'
    done
}

# The plans of a load of super-packets of 64 KB that cannot respond to anything.
load() { # GBPS SECONDS
    local bytes=64768 interval
    interval=$(awk "BEGIN { print $bytes * 8 / ($1 * 1e9) }")
    send="{\"send\":{\"to\":\"far\",\"port\":5300,\"datagrams\":$(awk \
        "BEGIN { printf \"%d\", $2 * 44 / $interval }"),\"payload_bytes\":1472,\"together\":44,\
\"interval_seconds\":$interval,\"verify\":false}}"
    receive='{"receive":{"bind":"0.0.0.0:5300","drain_seconds":0.3,"verify":false}}'
}

# Processor time of the emulator's thread for each byte that entered, MTU 1500, with and without
# loss.
cost() {
    for gbps in 4 8; do
        load $gbps 4
        for loss in 0 1e-4; do
            "$longhaul" wan run --mtu 1500 --up-loss $loss --json-report "$work/link.json" \
                --far "sleep 6 | $longhaul wan probe '$receive' >/dev/null" -- \
                "$longhaul" wan probe "$send" >"$work/sent" 2>"$work/log" || true
            note "cost $gbps $loss $(jq -r '"\(.up.entered.bytes) \(.processor.busy_seconds)
                \(.up.impairments.lost.segments) \(.up.interface_drops)" | gsub("\\s+"; " ")' \
                "$work/link.json")"
        done
    done
}

# Errors of the round trip against what was asked for, in microseconds, one line a reply: as ping
# prints them, to three digits (rtt-), and between the kernel's time stamps of request and reply at
# the near end's device (stamps-).
echoes() { # NAME RTT COMMAND-BEFORE OPTIONS...
    local name=$1 rtt=$2 before=$3
    shift 3
    "$longhaul" wan run --rtt "${rtt}ms" --json-report "$work/link.json" "$@" -- sh -c "
        tcpdump -i wan0 -n -tt --time-stamp-precision nano -l icmp >'$work/stamps' 2>'$work/log' &
        tcpdump=\$!
        until grep -q listening '$work/log'; do sleep 0.05; done
        $before
        ping -i 0.02 -c 200 far; sleep 0.3; kill \$tcpdump" >"$work/ping" 2>/dev/null
    sed -n 's/.*time=\([0-9.]*\) ms.*/\1/p' "$work/ping" |
        awk -v rtt="$rtt" '{ printf "%.0f\n", ($1 - rtt) * 1000 }' >>"$out/rtt-$name-$rtt"
    # Seconds and nanoseconds apart: a double does not hold both.
    awk -v rtt="$rtt" '{ split($1, t, "."); match($0, /seq [0-9]+/); n = substr($0, RSTART, RLENGTH) }
        / echo request/ { s[n] = t[1]; ns[n] = t[2] }
        / echo reply/ && n in s {
            printf "%.0f\n", ((t[1] - s[n]) * 1e9 + t[2] - ns[n]) / 1000 - rtt * 1000
        }' "$work/stamps" >>"$out/stamps-$name-$rtt"
}

rtt() {
    for rtt in $rtts; do echoes idle "$rtt" true; done
    load 5 7
    for rtt in 0 15 90; do
        # The first two seconds are the load's start.
        echoes load5G "$rtt" "$longhaul wan probe '$send' >/dev/null & sleep 2" --mtu 1500 \
            --far "sleep 12 | $longhaul wan probe '$receive' >/dev/null"
        note "load $rtt $(jq -r '"\(.up.delivered.bytes * 8 / 7e9) Gb/s late_p999_ms=\(.up.lateness.p999_ms)"' "$work/link.json")"
    done
}

# Of the whole process, its commands included.
idle() {
    for rtt in 0 180; do
        TIMEFORMAT='%U %S'
        { time "$longhaul" wan run --rtt "${rtt}ms" --json-report "$work/link.json" -- sleep 10; } 2>"$work/time"
        note "idle $rtt $(tail -n 1 "$work/time") $(jq .processor.busy_seconds "$work/link.json")"
    done
}

# The most that was resident while iperf3 ran, before the process took the link down.
memory() {
    for options in "--rtt 0ms" "--rtt 90ms" "--rtt 180ms --rate 1G" "--rtt 180ms --rate 5G"; do
        # shellcheck disable=SC2086
        "$longhaul" wan run $options --json-report "$work/link.json" \
            --far 'iperf3 -s -1 >/dev/null' -- iperf3 -c far -t 6 -J >"$work/run.json" 2>/dev/null &
        local pid=$! peak=0 now
        while now=$(awk '/VmHWM/ { print $2 }' "/proc/$pid/status" 2>/dev/null) && [ -n "$now" ]; do
            peak=$now
            sleep 0.1
        done
        wait
        note "memory|$options|$((peak / 1024))|$(jq -r '"\(.up.peak_memory_bytes / 1048576 | round)|\(.down.peak_memory_bytes / 1048576 | round)"' "$work/link.json")|$(gbps "$work/run.json")"
    done
}

quantile() { # FILE Q
    sort -n "$1" | awk -v q="$2" '{ v[NR] = $1 } END {
        p = 1 + q * (NR - 1); i = int(p); printf "%.4g", v[i] + (v[i + (i < NR)] - v[i]) * (p - i) }'
}
median_of() { # FILE PATTERN COLUMN
    grep "^$2 " "$1" | awk -v c="$3" '{ print $c }' >"$work/values"
    quantile "$work/values" 0.5
}

report() {
    echo "| path | MTU | RTT, ms | Gb/s, each round | median | of veth |"
    echo "|---|---|---|---|---|---|"
    for mtu in 9000 1500; do
        local veth
        veth=$(median_of "$out/throughput" "veth $mtu 0" 4)
        for path in "veth $mtu 0" "wan $mtu 0" "wan $mtu 15" "wan $mtu 90" "wan $mtu 180"; do
            grep -q "^$path " "$out/throughput" || continue
            median=$(median_of "$out/throughput" "$path" 4)
            echo "| ${path%% *} | $mtu | ${path##* } |" \
                "$(grep "^$path " "$out/throughput" | awk '{ printf "%s ", $4 }')| $median |" \
                "$(awk "BEGIN { printf \"%.2f\", $median / $veth }") |"
        done
    done
    printf '\n| load | p99, ms | p99.9 | largest | processor, %% | host | timer | write | read | backlog | bare timer p99, ms | p99.9 | largest | withheld, %% |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n'
    [ ! -e "$out/causes" ] || awk -F'|' '{ gsub(/\|/, " | "); print "| " $0 " |" }' "$out/causes"
    printf '\n| load, Gb/s | loss | ns of processor for each KB, each round | median | to no loss |\n|---|---|---|---|---|\n'
    for gbps in 4 8; do
        local clean=
        for loss in 0 1e-4; do
            grep "^cost $gbps $loss " "$out/cost" | awk '{ printf "%.1f\n", $5 / $4 * 1e12 }' >"$work/ns"
            median=$(quantile "$work/ns" 0.5)
            clean=${clean:-$median}
            echo "| $gbps | $loss | $(tr '\n' ' ' <"$work/ns")| $median |" \
                "$(awk "BEGIN { printf \"%.2f\", $median / $clean }") |"
        done
    done
    printf '\n| ping | RTT, ms | replies | median error, us | p99 | largest |\n|---|---|---|---|---|---|\n'
    for file in "$out"/rtt-* "$out"/stamps-*; do
        name=${file##*/}
        echo "| ${name%-*} | ${name##*-} | $(wc -l <"$file") | $(quantile "$file" 0.5) |" \
            "$(quantile "$file" 0.99) | $(quantile "$file" 1) |"
    done | sort -t'|' -k2,2 -k3,3n
    printf '\n| idle link of RTT, ms | processor, %% of a core | its thread alone |\n|---|---|---|\n'
    awk '/^idle/ { printf "| %s | %.2f | %.3f |\n", $2, ($3 + $4) * 10, $5 * 10 }' "$out/idle"
    printf '\n| link under iperf3 | Gb/s | resident at most, MiB | packets up, MiB | down |\n|---|---|---|---|---|\n'
    awk -F'|' '/^memory/ { printf "| %s | %s | %s | %s | %s |\n", $2, $6, $3, $4, $5 }' "$out/memory"
    printf '\niperf3 %s, one stream, -O %s -t %s, %s; Linux %s, %s x %s.\n' \
        "$(iperf3 --version | awk 'NR == 1 { print $2 }')" $omit $seconds \
        "$(cat /proc/sys/net/ipv4/tcp_congestion_control)" "$(uname -r | cut -d- -f1)" \
        "$(nproc)" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
}

case $part in
    throughput | causes | cost | rtt | idle | memory | report) $part ;;
    *) echo "there is no part '$part'" >&2; exit 2 ;;
esac
