#!/usr/bin/env bash
# Measures the cost of large topologies: the time to start 100 sites, and the CPU time and memory of
# the holder of 24 sites and 40 links with 1 Mb/s of datagrams on each link.
#
#   bench/wan-topology.sh PROGRAM [ROUNDS]     as root; needs iperf3, jq
set -eu
program=${1:?the longhaul to measure}
rounds=${2:-5}
seconds=20
directory=$(mktemp -d)
name=bench$$
trap '"$program" wan down --name $name >/dev/null 2>&1 || true; rm -rf "$directory"' EXIT

stolen() { awk '/^cpu /{print $9}' /proc/stat; }
hz=$(getconf CLK_TCK)

{
  for n in $(seq 0 99); do printf '[[site]]\nname = "s%d"\n' "$n"; done
  for n in $(seq 1 99); do
    printf '[[link]]\nbetween = ["s%d", "s%d"]\nrtt = "10ms"\n' $(((n - 1) / 3)) "$n"
  done
} > "$directory/hundred.toml"

links=()
{
  for n in $(seq 0 23); do printf '[[site]]\nname = "s%d"\n' "$n"; done
  for n in $(seq 0 23); do links+=("$n $(((n + 1) % 24))"); done
  for n in $(seq 0 15); do links+=("$n $(((n + 5) % 24))"); done
  for link in "${links[@]}"; do
    set -- $link
    printf '[[link]]\nbetween = ["s%d", "s%d"]\nrtt = "20ms"\n' "$1" "$2"
  done
} > "$directory/forty.toml"

holder() { pgrep -f -- "--background --name $name" | head -1; }
cpu() { awk '{print $14 + $15}' "/proc/$1/stat"; }

echo "$(uname -r), $(nproc) processors, $("$program" --version)"
for round in $(seq "$rounds"); do
  before=$(stolen); begin=$(date +%s.%N)
  "$program" wan up "$directory/hundred.toml" --name $name > /dev/null
  end=$(date +%s.%N)
  memory=$(awk '/VmRSS/{print $2}' "/proc/$(holder)/status")
  "$program" wan down --name $name > /dev/null
  awk -v a="$begin" -v b="$end" -v m="$memory" -v r="$round" -v s=$(($(stolen) - before)) -v hz="$hz" \
    'BEGIN{printf "round %d: 100 sites up in %.2f s, %.0f MiB; stolen %.2f s\n", r, b-a, m/1024, s/hz}'
done

for round in $(seq "$rounds"); do
  "$program" wan up "$directory/forty.toml" --name $name > /dev/null
  port=6000
  for link in "${links[@]}"; do
    set -- $link; port=$((port + 1))
    "$program" wan exec --name $name "s$2" -- iperf3 -s -1 -D -p $port > /dev/null
  done
  port=6000
  for link in "${links[@]}"; do
    set -- $link; port=$((port + 1))
    "$program" wan exec --name $name "s$1" -- \
      iperf3 -c "s$2" -u -b 1M -l 1400 -p $port -t $((seconds + 15)) > /dev/null 2>&1 &
  done
  sleep 8
  process=$(holder); before=$(stolen); busy=$(cpu "$process")
  sleep $seconds
  busy=$(($(cpu "$process") - busy)); taken=$(($(stolen) - before))
  memory=$(awk '/VmRSS/{print $2}' "/proc/$process/status")
  rates=$("$program" wan status --name $name --json |
    jq '[.links[].link | (.up, .down) | .delivered.packets | select(. > 500)] | length')
  "$program" wan down --name $name > /dev/null
  wait || true
  awk -v b=$busy -v m="$memory" -v t=$taken -v s=$seconds -v hz="$hz" -v r="$round" -v l="$rates" \
    'BEGIN{printf "round %d: 40 links, %.1f %% of a core, %.0f MiB; %d directions with traffic; stolen %.2f s of %d s\n",
     r, 100*b/hz/s, m/1024, l, t/hz, s}'
done
