#!/usr/bin/env bash
# Compares ways to forward packets between two TUN devices with a veth pair: one iperf3 stream between two hosts
# (namespaces) per way. CPU time is that of the forwarding process.
#
#   bench/tun-forward.sh [ROUNDS] [WAY...]     as root; needs cc, liburing-dev, iperf3, jq
set -eu
cd "$(dirname "$0")"
rounds=${1:-5}; [ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- calls napi spin uring-1 uring-8 multishot
mtu=9000 id=lhtf$$; a=$id-a; b=$id-b; forwarder=
scratch=$(mktemp -d)
cleanup() {
  [ -z "$forwarder" ] || kill -9 "$forwarder" 2>/dev/null || true
  for ns in $a $b; do ip netns del $ns 2>/dev/null || true; done
  rm -rf "$scratch"
}
trap cleanup EXIT
cc -O2 -o "$scratch/forward" tun_forward.c -luring
stream() {
  ip netns exec $b iperf3 -s -1 > /dev/null & server=$!
  sleep 0.3
  ip netns exec $a timeout 20 iperf3 -c 10.77.0.2 -O 1 -t 3 --json | jq -r '.end.sum_received.bits_per_second / 1e9'
  wait $server || true
}
measure() { # ROUND WAY
  for ns in $a $b; do ip netns add $ns; done
  if [ "$2" = veth ]; then
    ip link add eth0 netns $a mtu $mtu type veth peer name eth0 netns $b mtu $mtu
    ip -n $a addr add 10.77.0.1/24 dev eth0; ip -n $b addr add 10.77.0.2/24 dev eth0
    for ns in $a $b; do ip -n $ns link set eth0 up; done
    gbps=$(stream); cost='- -'
  else
    "$scratch/forward" "$2" $a $b $mtu > "$scratch/log" & forwarder=$!
    for _ in $(seq 50); do grep -q ready "$scratch/log" && break; sleep 0.1; done
    gbps=$(stream)
    kill -INT $forwarder; wait $forwarder || true; forwarder=
    cost=$(tail -1 "$scratch/log")
  fi
  for ns in $a $b; do ip netns del $ns; done
  # shellcheck disable=SC2086
  printf '%s %-10s %6.2f Gb/s, %s CPU s/GB, %s calls per packet\n' "$1" "$2" "$gbps" $cost
}
echo "$(uname -r), $(nproc) processors, MTU $mtu"
for round in $(seq "$rounds"); do
  for way in veth "$@"; do measure "$round" "$way"; done
done
