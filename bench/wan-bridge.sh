#!/usr/bin/env bash
# Compares `longhaul wan bridge` with a bridge of the kernel between two hosts (namespaces, MTU 9000):
# one iperf3 stream, with and without segmentation offload at the hosts, and the RTT of an idle link.
#
#   bench/wan-bridge.sh PROGRAM [ROUNDS]     as root; needs iperf3, ping, jq, python3
set -eu
program=$(realpath "${1:?the longhaul to measure}")
rounds=${2:-5}
id=lhbb$$
a=$id-a b=$id-b box=$id-box
bridge=
cleanup() {
  [ -z "$bridge" ] || kill "$bridge" 2>/dev/null || true
  for ns in $a $b $box; do ip netns del $ns 2>/dev/null || true; done
}
trap cleanup EXIT
for ns in $a $b $box; do ip netns add $ns; done
ip link add eth0 netns $a mtu 9000 type veth peer name eth1 netns $box mtu 9000
ip link add eth0 netns $b mtu 9000 type veth peer name eth2 netns $box mtu 9000
ip -n $a addr add 10.77.0.1/24 dev eth0; ip -n $a link set eth0 up
ip -n $b addr add 10.77.0.2/24 dev eth0; ip -n $b link set eth0 up
ip -n $box link set eth1 up; ip -n $box link set eth2 up
ip -n $box link add br0 type bridge; ip -n $box link set br0 up

# ETHTOOL_STSO, ETHTOOL_SGSO and ETHTOOL_SGRO of include/uapi/linux/ethtool.h.
offload() { # NAMESPACE VALUE
  ip netns exec "$1" python3 - "$2" <<'PYTHON'
import array, fcntl, socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for command in (0x1f, 0x24, 0x2c):
    value = array.array("B", struct.pack("II", command, int(sys.argv[1])))
    request = struct.pack("16sP", b"eth0", value.buffer_info()[0]) + bytes(16)
    fcntl.ioctl(s, 0x8946, request)
PYTHON
}
stolen() { awk '/^cpu /{print $9}' /proc/stat; }
start() {
  case $1 in
  kernel) for port in eth1 eth2; do ip -n $box link set $port master br0; done ;;
  longhaul)
    ip netns exec $box "$program" wan bridge eth1 eth2 --fix --name $id > /dev/null 2>&1 &
    bridge=$!
    sleep 1 ;;
  esac
  ip netns exec $a ping -c 1 -W 9 -q 10.77.0.2 > /dev/null
}
stop() {
  case $1 in
  kernel) for port in eth1 eth2; do ip -n $box link set $port nomaster; done ;;
  longhaul) kill -INT $bridge; wait $bridge || true; bridge= ;;
  esac
}
gbps() {
  ip netns exec $b iperf3 -s -1 > /dev/null &
  sleep 0.5
  ip netns exec $a iperf3 -c 10.77.0.2 -t 4 -O 1 --json | jq -r '.end.sum_received.bits_per_second / 1e9'
  wait $!
}
rtt_us() {
  ip netns exec $a ping -c 200 -i 0.01 10.77.0.2 | sed -n 's/.*time=\([0-9.]*\) ms/\1/p' |
    sort -n | awk '{v[NR] = $1} END {print 1000 * v[int((NR + 1) / 2)]}'
}
echo "$(uname -r), $(nproc) processors, $("$program" --version)"
for round in $(seq "$rounds"); do
  for gso in 1 0; do
    for ns in $a $b; do offload $ns $gso; done
    for mode in kernel longhaul; do
      before=$(stolen)
      start $mode
      rate=$(gbps); rtt=$(rtt_us)
      stop $mode
      printf 'round %d: gso %d %-8s %6.2f Gb/s, median RTT %4.0f us, stolen %d ticks\n' \
        "$round" $gso $mode "$rate" "$rtt" $(($(stolen) - before))
    done
  done
done
