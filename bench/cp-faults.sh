#!/usr/bin/env bash
# Faults of longhaul cp over the emulated path that take too long for the tests.
#
#   bench/cp-faults.sh [cut|kill|corrupt]...            default: all
#
# cut      the link drops everything for 1, 10 and 100 s in the middle of a copy
# kill     20 times, kill -9 of either side at a random moment; the same command again
# corrupt  one packet in 100,000 is changed silently, its checksum made right (--corrupt-silent)
#
# After each the copy is compared with its source, and what the link did to it must be more than
# nothing. DIR is where the files go (a real disk, 8 GB free), LONGHAUL the binary. Runs as root, some
# eight minutes.
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
    tell "$1" "same"
    rm "$dir/far/copy"
}

tell() { # WHAT OUTCOME
    python3 - "$1" "$2" "$dir/said" <<'PYTHON'
import json, sys
what, outcome, said = sys.argv[1:]
summary = json.load(open(said))["summary"]
print(f"{what:32} {summary['seconds']:7.1f} s  reconnects {summary['reconnects']}  "
      f"blocks sent again {summary['resent_blocks']:3}  "
      f"there already {summary['resumed_bytes'] / 2**20:6.0f} MiB  {outcome}", flush=True)
PYTHON
}

touched() { # IMPAIRMENT: the numbers of affected segments, in both directions
    python3 - "$1" "$dir/link" <<'PYTHON'
import json, sys
name, link = sys.argv[1:]
link = json.load(open(link))
up, down = (link[way]["impairments"][name]["segments"] for way in ("up", "down"))
if up + down == 0:
    sys.exit(f"the link did nothing: {name}")
print(f"{up} + {down} segments")
PYTHON
}

over() { # LINK OPTIONS -- FLAGS OF CP
    options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    "$longhaul" wan run "${options[@]}" --json-report "$dir/link" --far "$serve" -- bash -c "
        until (exec 3<>/dev/tcp/far/5210) 2>/dev/null; do sleep 0.1; done
        exec '$longhaul' cp --json $* '$dir/data' lh://far/copy >'$dir/said' 2>/dev/null"
}

cut() {
    for seconds in 1 10 100; do
        over --rtt 20ms --outage "3s+${seconds}s" -- --bwlimit 2G
        check "cut for $seconds s: $(touched outage)"
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
        over --rtt 20ms --mtu 1500 --corrupt-silent 1e-5 -- $protection
        check "corrupt ${protection:-sealed}: $(touched corrupted_silent)"
    done
    over --rtt 20ms --mtu 1500 --corrupt-silent 1e-5 -- --cleartext --no-verify
    outcome=same
    cmp -s "$dir/data" "$dir/far/copy" || outcome="differs, as nobody looked"
    tell "corrupt --no-verify: $(touched corrupted_silent)" "$outcome"
    rm "$dir/far/copy"
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
