#!/usr/bin/env bash
# Records an emulated path whose rate changes every minute, and certifies two replays at the same time: that of the
# recording, and that of the recording with its median rate throughout. The first certificate should pass and the
# second one fail.
#
#   bench/wan-rates.sh PROGRAM [MINUTES]     as root; needs jq; takes twice MINUTES (5)
set -eu
. "$(dirname "$0")/wan_certificate_lib.sh"
begin "$@"
minutes=${2:-5}

printf '0 100M\n60s 40M\n120s 80M\n180s 40M\n240s 160M\n300s repeat\n' > rates
record '--rtt 40ms --rate-trace rates' "-t ${minutes}m --rate-every 1m"
median() { jq -s "[.[] | .$1.capacity_bps // empty] | sort | .[length / 2 | floor]" path.jsonl; }
jq -c --argjson up "$(median up)" --argjson down "$(median down)" \
  'if .up.capacity_bps then .up.capacity_bps = $up else . end
  | if .down.capacity_bps then .down.capacity_bps = $down else . end' path.jsonl > altered.jsonl
certify
print_host "$minutes"
printf '\nThe rate of the link: 100 Mb/s, after 60 s 40, after 120 s 80, after 180 s 40, and after 240 s 160 Mb/s.\n'
printf '\n| seconds | up, Mb/s | down, Mb/s |\n|---|---|---|\n'
jq -r 'def mbps: if . then . / 1e5 | round / 10 else "-" end; select(.up.capacity_bps or .down.capacity_bps)
  | "| \(.seconds | round) | \(.up.capacity_bps | mbps) | \(.down.capacity_bps | mbps) |"' path.jsonl
print_certificate same "$same_code"
print_certificate altered "$altered_code"
