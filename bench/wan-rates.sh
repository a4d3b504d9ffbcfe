#!/usr/bin/env bash
# Records an emulated path whose rate changes every minute, and certifies two replays at the same time: that of the
# recording, and that of the recording with its median rate throughout. The first certificate should pass and the
# second one fail.
#
#   bench/wan-rates.sh PROGRAM     as root; needs jq; takes eleven minutes
set -eu
program=$(realpath "${1:?the longhaul to measure}")
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
export HOME=$directory XDG_CONFIG_HOME=$directory
cd "$directory"

stolen() { awk '/^cpu /{print $9}' /proc/stat; }
printf '0 100M\n60s 40M\n120s 80M\n180s 40M\n240s 160M\n300s repeat\n' > rates
before=$(stolen)
"$program" wan run --rtt 40ms --rate-trace rates --seed 16 --far "$program serve" -- \
  "$program" path far --record path.jsonl -t 5m --rate-every 1m --quiet >&2
estimates() { jq -r 'select(.up.capacity_bps or .down.capacity_bps)
  | "| \(.seconds) | \((.up.capacity_bps // 0) / 1e6) | \((.down.capacity_bps // 0) / 1e6) |"' "$1"; }
median() { jq -s '[.[] | .up.capacity_bps // empty] | sort | .[length / 2 | floor]' path.jsonl; }
jq -c --argjson rate "$(median)" 'if .up.capacity_bps then .up.capacity_bps = $rate else . end
  | if .down.capacity_bps then .down.capacity_bps = $rate else . end' path.jsonl > constant.jsonl
"$program" wan certify path.jsonl --replay constant.jsonl --json > constant.json & constant=$!
code=0
"$program" wan certify path.jsonl --json > same.json || code=$?
constant_code=0
wait $constant || constant_code=$?
echo "$(uname -r), $(nproc) processors, $("$program" --version), a recording of 5 minutes; stolen" \
  "$(($(stolen) - before)) ticks; load at the end $(cut -d' ' -f1 /proc/loadavg)"
printf '\nThe link: %s\n\n| s | up, Mb/s | down, Mb/s |\n|---|---|---|\n' "$(tr '\n' ',' < rates)"
estimates path.jsonl
for run in "same $code" "constant $constant_code"; do
  set -- $run
  printf '\n%s rate: exit code %s (0: the certificate passes, 8: it fails)\n\n' "$1" "$2"
  echo "| from | figure | recorded | rebuilt | distance | bound | passed |"
  echo "|---|---|---|---|---|---|---|"
  jq -r '.checks[] | "| \(.from) | \(.figure) | \(.recorded) | \(.rebuilt) | \(.distance) | \(.bound) | \(.passed) |"' "$1.json"
  jq -r '.warnings[] | "\nwarning: \(.)"' "$1.json"
done
