#!/usr/bin/env bash
# Records an emulated path, certifies its replay, and certifies a replay whose delays are altered by
# 5 %, at the same time. The first certificate should pass and the second one fail.
#
#   bench/wan-certificate.sh PROGRAM [MINUTES]     as root; needs jq; takes twice MINUTES (10)
set -eu
program=$(realpath "${1:?the longhaul to measure}")
minutes=${2:-10}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
export HOME=$directory XDG_CONFIG_HOME=$directory
cd "$directory"

stolen() { awk '/^cpu /{print $9}' /proc/stat; }
# The recording with delays multiplied by 1.05; lost probes are -1 and stay.
alter() {
  jq -c 'def late: if . != null and . >= 0 then (. * 1.05 | round) else . end;
    if .up then .up.delays_us |= map(late) | .down.delays_us |= map(late) else . end' path.jsonl > altered.jsonl
}
rows() {
  jq -r '.checks[] | "| \(.from) | \(.figure) | \(.recorded) | \(.rebuilt) | \(.distance) | \(.bound) | \(.passed) |"' "$1"
}
before=$(stolen)
"$program" wan run --rtt 40ms --jitter 1ms:normal --loss 2e-3 --rate 20M --seed 16 --far "$program serve" -- \
  "$program" path far --record path.jsonl -t "${minutes}m" --quiet >&2
alter
"$program" wan certify path.jsonl --replay altered.jsonl --json > altered.json & altered=$!
code=0
"$program" wan certify path.jsonl --json > same.json || code=$?
altered_code=0
wait $altered || altered_code=$?
echo "$(uname -r), $(nproc) processors, $("$program" --version), a recording of $minutes minutes; stolen" \
  "$(($(stolen) - before)) ticks; load at the end $(cut -d' ' -f1 /proc/loadavg)"
for run in "same $code" "altered $altered_code"; do
  set -- $run
  printf '\n%s recording: exit code %s (0: the certificate passes, 8: it fails)\n\n' "$1" "$2"
  echo "| from | figure | recorded | rebuilt | distance | bound | passed |"
  echo "|---|---|---|---|---|---|---|"
  rows "$1.json"
  jq -r '.warnings[] | "\nwarning: \(.)"' "$1.json"
done
