#!/usr/bin/env bash
# Long faults of longhaul cp over the emulated path, which the tests have no time for.
#
#   bench/cp-faults.sh [cut|kill|corrupt]...            default: all
#
# cut      the link drops everything for 1, 10 and 100 s in the middle of a copy
# kill     20 times, kill -9 of either side at a random moment; the same command again
# corrupt  one packet in 100,000 is changed silently, its checksum made right (--corrupt-silent)
#
# After each the copy is compared with its source. DIR is where the files go (a real disk), LONGHAUL
# the binary. Runs as root.
set -euo pipefail

longhaul=$(realpath "${LONGHAUL:-target/release/longhaul}")
dir=$(mktemp -d "${DIR:-$PWD}/bench-cp-faults.XXXXXX")
export HOME=$dir/home
mkdir -p "$HOME" "$dir/far"
trap 'rm -rf "$dir"' EXIT
head -c 2G /dev/urandom >"$dir/data"
serve="exec '$longhaul' serve --root '$dir/far' 2>/dev/null"

check() { # WHAT
    cmp "$dir/data" "$dir/far/copy"
    left=$(find "$dir/far" -name '.*longhaul*')
    [ -z "$left" ] || { echo "$1: left behind: $left"; exit 1; }
    python3 - "$1" "$dir/said" <<'PYTHON'
import json, sys
summary = json.load(open(sys.argv[2]))["summary"]
print(f"{sys.argv[1]:24} {summary['seconds']:7.1f} s  reconnects {summary['reconnects']}  "
      f"blocks sent again {summary['resent_blocks']}  "
      f"there already {summary['resumed_bytes'] / 2**20:.0f} MiB  same", flush=True)
PYTHON
    rm "$dir/far/copy"
}

cut() {
    for seconds in 1 10 100; do
        # Everything the near side sends is dropped by its own routing: nothing leaves.
        "$longhaul" wan run --rtt 20ms --far "$serve" -- bash -c "
            sleep 1
            far=\$(getent ahostsv4 far | awk '{ print \$1; exit }')
            (sleep 2; ip route add blackhole \$far/32; sleep $seconds
                ip route del blackhole \$far/32) &
            '$longhaul' cp --json --bwlimit 2G '$dir/data' lh://far/copy >'$dir/said'
            wait"
        check "cut for $seconds s"
    done
}

kill_() {
    for round in $(seq 20); do
        moment=$(awk "BEGIN { srand($round); print 0.05 + 3 * rand() }")
        "$longhaul" serve --root "$dir/far" --bind 127.0.0.1 -p 5299 2>/dev/null &
        server=$!
        sleep 0.3
        "$longhaul" cp --json --bwlimit 5G "$dir/data" lh://127.0.0.1:5299/copy >"$dir/said" 2>/dev/null &
        client=$!
        sleep "$moment"
        if ((round % 2)); then
            kill -9 "$client" 2>/dev/null || true
            wait "$client" || true
            [ ! -e "$dir/far/copy" ] || cmp "$dir/data" "$dir/far/copy"
            "$longhaul" cp --json "$dir/data" lh://127.0.0.1:5299/copy >"$dir/said"
            who=client
        else
            kill -9 "$server"
            wait "$server" || true
            [ ! -e "$dir/far/copy" ] || cmp "$dir/data" "$dir/far/copy"
            "$longhaul" serve --root "$dir/far" --bind 127.0.0.1 -p 5299 2>/dev/null &
            server=$!
            wait "$client"
            who=server
        fi
        check "$who killed at $moment s"
        kill "$server"
        wait "$server" || true
    done
}

corrupt() {
    for protection in "" --cleartext; do
        "$longhaul" wan run --rtt 20ms --corrupt-silent 1e-5 --far "$serve" -- bash -c "
            sleep 1
            '$longhaul' cp --json $protection '$dir/data' lh://far/copy >'$dir/said'"
        check "corrupt $protection"
    done
}

for fault in "${@:-cut kill corrupt}"; do
    for each in $fault; do
        case $each in
            cut) cut ;;
            kill) kill_ ;;
            corrupt) corrupt ;;
            *) echo "unknown fault: $each" >&2; exit 2 ;;
        esac
    done
done
