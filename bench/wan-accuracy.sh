#!/bin/bash
# Measures loss, duplication and corruption at 1e-2, 1e-3 and 1e-4 with several seeds. Prints the
# configured share, the share that the independent probe measured with its 95 % interval (Wilson),
# and the count of the emulator.
#
# usage: bench/wan-accuracy.sh [LONGHAUL [SEED...]]       (as root; needs jq)
#
# Of many right intervals one of twenty misses the truth; the last line says how many did.
set -euo pipefail

longhaul=$(realpath -m "${1:-target/release/longhaul}")
shift || true
[ $# -gt 0 ] || set -- 1 2 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkfifo "$work/sent"
receive='{"receive":{"bind":"0.0.0.0:5300","drain_seconds":0.3,"verify":true}}'

measure() { # OPTION RATE DATAGRAMS SEED
    local send="{\"send\":{\"to\":\"far\",\"port\":5300,\"datagrams\":$3,\"payload_bytes\":200,\
\"together\":64,\"interval_seconds\":0.00015,\"verify\":true}}"
    rm -f "$work/done"
    # The receiver opens the pipe for both ways and so at once: it listens before anything is sent.
    "$longhaul" wan run "--up-$1" "$2" --seed "$4" --json-report "$work/link.json" \
        --far "$longhaul wan probe '$receive' 0<>'$work/sent' >'$work/seen'; touch '$work/done'" -- \
        sh -c "$longhaul wan probe '$send' >'$work/sent'
               while [ ! -e '$work/done' ]; do sleep 0.1; done" 2>"$work/log"
    tail -n 1 "$work/seen" >"$work/report.json"
    local seen=lost counted
    case $1 in
        loss) seen=lost counted=lost ;;
        duplicate) seen=duplicates counted=duplicated ;;
        corrupt) seen=checksum_errors counted=corrupted ;;
        corrupt-silent) seen=changed counted=corrupted_silent ;;
    esac
    jq -r --arg kind "$1" --arg p "$2" --arg seed "$4" --slurpfile link "$work/link.json" "
        [\$kind, \$p, \$seed, .sent.datagrams, .$seen, \$link[0].up.impairments.$counted.segments,
         .socket_drops + \$link[0].up.interface_drops] | @tsv" "$work/report.json" |
        awk -F'\t' '{
            n = $4; k = $5; z = 1.959964; p = k / n; d = 1 + z * z / n
            m = (p + z * z / (2 * n)) / d; h = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / d
            printf "| %s | %s | %s | %d | %d | %d | %.4g | %.4g to %.4g | %s | %s |\n",
                $1, $2, $3, n, k, $6, p, m - h, m + h,
                (m - h <= $2 && $2 <= m + h) ? "yes" : "no", $7 == 0 ? "" : $7 " lost by the probe"
        }'
}

echo "| kind | configured | seed | datagrams | probe | emulator | share | 95 % interval | inside | |"
echo "|---|---|---|---|---|---|---|---|---|---|"
for seed in "$@"; do
    for kind in loss duplicate corrupt corrupt-silent; do
        measure $kind 1e-2 200000 "$seed"
        measure $kind 1e-3 400000 "$seed"
        measure $kind 1e-4 2000000 "$seed"
    done
done | tee "$work/table"
echo
echo "$(grep -c '| yes |' "$work/table") of $(grep -c '^| [a-z]' "$work/table") intervals hold what was configured."
