#!/usr/bin/env bash
# Records an emulated path, certifies its replay, and certifies a replay whose delays are altered by
# 5 %, at the same time. The first certificate should pass and the second one fail.
#
#   bench/wan-certificate.sh PROGRAM [MINUTES]     as root; needs jq; takes twice MINUTES (10)
set -eu
. "$(dirname "$0")/wan_certificate_lib.sh"
begin "$@"
minutes=${2:-10}

record '--rtt 40ms --jitter 1ms:normal --loss 2e-3 --rate 20M' "-t ${minutes}m"
# Lost probes are -1 and stay.
jq -c 'def late: if . != null and . >= 0 then (. * 1.05 | round) else . end;
  if .up then .up.delays_us |= map(late) | .down.delays_us |= map(late) else . end' path.jsonl > altered.jsonl
certify
print_host "$minutes"
print_certificate same "$same_code"
print_certificate altered "$altered_code"
