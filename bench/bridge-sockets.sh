#!/usr/bin/env bash
# Compares ways to receive and send the frames of a bridge between two hosts (namespaces): one iperf3
# stream per way, with segmentation offload and MTU 9000, without it, and at MTU 1500 without checksum
# offload, which AF_XDP needs. CPU time is that of the forwarding process.
#
#   bench/bridge-sockets.sh [ROUNDS] [SECONDS]     as root; needs cc, iperf3, ping, jq, python3
set -eu
cd "$(dirname "$0")"
rounds=${1:-3}; seconds=${2:-3}
id=lhbs$$; a=$id-a; b=$id-b; box=$id-box; forwarder=
scratch=$(mktemp -d)
cleanup() {
  [ -z "$forwarder" ] || kill "$forwarder" 2>/dev/null || true
  for ns in $a $b $box; do ip netns del $ns 2>/dev/null || true; done
  rm -rf "$scratch"
}
trap cleanup EXIT
cc -O2 -o "$scratch/forward" bridge_sockets.c
for ns in $a $b $box; do ip netns add $ns; done
ip link add eth0 netns $a mtu 9000 type veth peer name eth1 netns $box mtu 9000
ip link add eth0 netns $b mtu 9000 type veth peer name eth2 netns $box mtu 9000
ip -n $a addr add 10.77.0.1/24 dev eth0; ip -n $a link set eth0 up
ip -n $b addr add 10.77.0.2/24 dev eth0; ip -n $b link set eth0 up
for port in eth1 eth2; do ip -n $box link set $port up; done
# ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO and ETHTOOL_STXCSUM of include/uapi/linux/ethtool.h.
offload() { # NAMESPACE SEGMENTS CHECKSUMS
  ip netns exec "$1" python3 - "$2" "$3" <<'PYTHON'
import array, fcntl, socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
segments, checksums = int(sys.argv[1]), int(sys.argv[2])
for command, wanted in ((0x17, checksums), (0x1f, segments), (0x24, segments), (0x2c, segments)):
    value = array.array("B", struct.pack("II", command, wanted))
    request = struct.pack("16sP", b"eth0", value.buffer_info()[0]) + bytes(16)
    fcntl.ioctl(s, 0x8946, request)
PYTHON
}
measure() { # LABEL WAY
  ip netns exec $box "$scratch/forward" "$2" eth1 eth2 2> "$scratch/log" & forwarder=$!
  for _ in $(seq 100); do grep -q ready "$scratch/log" && break; sleep 0.1; done
  if ! ip netns exec $a ping -c 1 -W 5 -q 10.77.0.2 > /dev/null; then
    echo "$1 $2: no connection: $(tr '\n' ' ' < "$scratch/log")"
  else
    ip netns exec $b iperf3 -s -1 > /dev/null & server=$!
    sleep 0.3
    gbps=$(ip netns exec $a iperf3 -c 10.77.0.2 -t "$seconds" --json | jq -r '.end.sum_received | "\(.bits_per_second / 1e9) \(.bytes / 1e9)"')
    wait $server || true
    cpu=$(awk '{print ($14 + $15)}' /proc/$forwarder/stat)
    echo "$gbps $cpu" | awk -v l="$1 $2" -v hz="$(getconf CLK_TCK)" '{printf "%-26s %6.2f Gb/s, %.2f CPU s/GB\n", l, $1, $2 ? $3/hz/$2 : 0}'
  fi
  kill $forwarder 2>/dev/null || true; wait $forwarder 2>/dev/null || true; forwarder=
}
echo "$(uname -r), $(nproc) processors"
for round in $(seq "$rounds"); do
  for way in recvmsg recvmmsg ring; do
    for ns in $a $b; do offload $ns 1 1; done; measure "round $round: gso 9000" $way
    for ns in $a $b; do offload $ns 0 1; done; measure "round $round: plain 9000" $way
  done
  for ns in $a $b; do ip -n $ns link set eth0 mtu 1500; offload $ns 0 0; done
  for way in recvmsg recvmmsg xdp; do measure "round $round: plain 1500" $way; done
  for ns in $a $b; do ip -n $ns link set eth0 mtu 9000; done
done
