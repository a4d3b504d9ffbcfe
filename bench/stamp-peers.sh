#!/usr/bin/env bash
# Measures with another STAMP implementation, stamp-suite (cargo install stamp-suite), in both roles.
#
# One line per combination: the packets answered of those sent, and the properties that the sender found.
#
#   STAMP_SUITE=PATH bench/stamp-peers.sh
#   LONGHAUL=PATH                            measures with that build
set -euo pipefail

source "$(dirname "$0")/build.sh"
peer=${STAMP_SUITE:-stamp-suite}
work=$(mktemp -d)
export HOME=$work
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

key=$(printf '0a%.0s' {1..32})
echo "$key" > "$work/key"
chmod 600 "$work/key"
port=40862

# Waits until a UDP socket listens on the port.
await() { until ss -Hlun "sport = :$port" | grep -q .; do sleep 0.05; done; }

from_longhaul() {
    local name=$1 options=$2
    shift 2
    "$peer" -i -S 127.0.0.1 -o "$port" "$@" >/dev/null 2>&1 &
    await
    # shellcheck disable=SC2086
    "$longhaul" path --stamp "127.0.0.1:$port" -c 200 -i 2ms --dscp 10 --json $options | python3 -c '
import json, sys
found = json.load(sys.stdin)
reflector, classes = found["reflector"], found["forward"]["classes"]
names = ["extensions", "follow_up", "ptp"]
facts = [reflector["numbering"], *(name for name in names if reflector[name])]
facts += ["DSCP %d" % classes[0]["dscp"]] if classes else []
answered = "%d of %d" % (found["answered"], found["sent"])
print("|", sys.argv[1], "|", answered, "|", ", ".join(facts), "|")' "$name"
    kill %% && wait %% 2>/dev/null || true
    port=$((port + 1))
}

to_longhaul() {
    local name=$1 options=$2
    shift 2
    # shellcheck disable=SC2086
    "$longhaul" serve --bind 127.0.0.1 -p 0 "--stamp=$port" $options 2>/dev/null &
    await
    local found
    found=$("$peer" -r 127.0.0.1 -p "$port" -S 127.0.0.1 -o $((port + 100)) -c 200 -d 2 --cos --dscp 10 "$@" 2>/dev/null)
    echo "| $name | $(sed -n 's/^Packets received: //p' <<<"$found") of $(sed -n 's/^Packets sent: //p' <<<"$found") |" \
        "$(sed -n 's/^\(Follow-Up: [0-9]* matched\).*/\1/p' <<<"$found") |"
    kill %% && wait %% 2>/dev/null || true
    port=$((port + 1))
}

echo "| sender and reflector | answered | properties |"
echo "|---|---|---|"
from_longhaul "longhaul, $("$peer" --version) stateful" "" --stateful-reflector
from_longhaul "longhaul, the same stateless" ""
from_longhaul "longhaul, the same authenticated" "--stamp-key $work/key" --stateful-reflector -A A --hmac-key "$key" --verify-tlv-hmac
from_longhaul "longhaul, the same with PTP" "" --stateful-reflector -K PTP
from_longhaul "longhaul, the same without extensions" "" --stateful-reflector --tlv-mode ignore
to_longhaul "stamp-suite, longhaul" "" --timestamp-info --direct-measurement --follow-up-telemetry
to_longhaul "stamp-suite, longhaul stateless" "--stamp-stateless"
to_longhaul "stamp-suite, longhaul authenticated" "--stamp-key $work/key" -A A --hmac-key "$key"
