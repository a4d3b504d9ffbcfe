#!/usr/bin/env bash
# Measures parallel links: the rate of 16 flows over four links of RATE (each 20 ms), compared with
# the rate that the hash allows, and the time in which no flow of a failed link progresses.
#
#   bench/wan-parallel.sh PROGRAM [RATE_MBPS] [ROUNDS]     as root; needs iperf3, jq
set -eu
program=${1:?the longhaul to measure}
rate=${2:-2000}
rounds=${3:-5}
directory=$(mktemp -d)
name=benchp$$
trap '"$program" wan down --name $name >/dev/null 2>&1 || true; rm -rf "$directory"' EXIT
cat > "$directory/four.toml" <<END
failover = "50ms"
[[site]]
name = "a"
[[site]]
name = "b"
[[link]]
name = "wave"
between = ["a", "b"]
count = 4
rtt = "20ms"
rate = "${rate}M"
END
stolen() { awk '/^cpu /{print $9}' /proc/stat; }
# The segments and bytes that each link has delivered from a to b.
delivered() { "$program" wan status --name $name --json | jq -r '[.links[].link.up.delivered.bytes] | @tsv'; }

echo "$(uname -r), $(nproc) processors, $("$program" --version), 4 links of $rate Mb/s"
for round in $(seq "$rounds"); do
  before=$(stolen)
  "$program" wan up "$directory/four.toml" --name $name > /dev/null
  "$program" wan exec --name $name b -- iperf3 -s -1 -D > /dev/null
  "$program" wan exec --name $name a -- iperf3 -c b -P 16 -t 16 -O 2 > "$directory/out" 2>&1 &
  sleep 6; read -ra first <<< "$(delivered)"
  sleep 4; read -ra second <<< "$(delivered)"
  line=""
  for link in 0 1 2 3; do
    line+=$(awk -v a="${first[$link]}" -v b="${second[$link]}" 'BEGIN{printf " %.0f", (b-a)*8/4e6}')
  done
  "$program" wan set --name $name wave-2 --down > /dev/null
  sleep 1; read -ra third <<< "$(delivered)"
  sleep 3; read -ra fourth <<< "$(delivered)"
  after=""
  for link in 0 1 2 3; do
    after+=$(awk -v a="${third[$link]}" -v b="${fourth[$link]}" 'BEGIN{printf " %.0f", (b-a)*8/3e6}')
  done
  wait || true
  "$program" wan down --name $name > /dev/null
  echo "round $round: Mb/s per link$line; with wave-2 down$after; stolen $(($(stolen) - before)) ticks"
done
