#!/bin/bash
# Measures access to files and RDMA between two guests over emulated round-trip times: NFS v3 and v4.2,
# NFS over RDMA, iSCSI, iSER and perftest with the servers and clients of Debian's kernel.
#
# usage: bench/guest-access.sh [LONGHAUL]
#        MIB=8 RTTS='0ms 15ms 90ms' ROUNDS=1 ROWS=REGEX RATE=1G MTU=9000
# needs: qemu-system-x86, and the image of packaging/guest-image
#
# Prints a table. Without KVM a round takes about a minute per round-trip time, and the figures are
# those of an emulated processor: compare them only with each other.
set -euo pipefail

longhaul=$(realpath "${1:-target/release/longhaul}")
here=$(cd "$(dirname "$0")" && pwd)
mib=${MIB:-8} rounds=${ROUNDS:-1} rtts=${RTTS:-0ms 15ms 90ms} name=guest-access-$$
work=$(mktemp -d)
finish() {
    "$longhaul" wan down --name "$name" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT
trap "exit 1" INT TERM

cat >"$work/guests.toml" <<END
[[site]]
name = "client"
vm = true
[[site]]
name = "server"
vm = true
vm-memory = "2GiB"
[[link]]
name = "path"
between = ["client", "server"]
rate = "${RATE:-1G}"
mtu = ${MTU:-9000}
queue = "4MiB"
END
"$longhaul" wan up --name "$name" "$work/guests.toml" >&2
guest() { "$longhaul" wan exec --name "$name" "$@"; }
guest server -- sh "$here/guest/server.sh" </dev/null >"$work/server" 2>&1 &
for _ in $(seq 180); do
    ! grep -q 'server: ready' "$work/server" || break
    sleep 1
done
grep 'server:' "$work/server" >&2 || true
grep -q 'server: ready' "$work/server" || {
    echo "guest-access: the servers in the guest did not start" >&2
    cat "$work/server" >&2
    exit 1
}
for round in $(seq "$rounds"); do
    for rtt in $rtts; do
        "$longhaul" wan set "$name/path" --rtt "$rtt" >/dev/null
        guest client -- sh "$here/guest/client.sh" "$mib" "${ROWS:-.}" </dev/null |
            while IFS= read -r line; do printf '%s\t%s\n' "$rtt" "$line"; done | tee -a "$work/rows" >&2
    done
done
processor=$("$longhaul" wan status --name "$name" --json | jq -r '.sites[0].guest')
echo "Guests with $(guest client -- uname -sr </dev/null), $processor processor, ${mib} MiB per row, rate ${RATE:-1G}, MTU ${MTU:-9000}; median of $rounds."
echo
python3 - "$work/rows" $rtts <<'END'
import statistics, sys
rtts, cells, names = sys.argv[2:], {}, []
for line in open(sys.argv[1]):
    rtt, name, value = line.rstrip("\n").split("\t", 2)
    names += [name] if name not in names else []
    cells.setdefault((name, rtt), []).append(value)
print("| row | " + " | ".join(rtts) + " |\n|---" + "|---" * len(rtts) + "|")
for name in names:
    row = []
    for rtt in rtts:
        values = cells.get((name, rtt), ["not run"])
        numbers = [value.split() for value in values if not value.startswith(("failed", "not run"))]
        if len(numbers) == len(values):
            row.append(f"{statistics.median(float(n) for n, *_ in numbers):.1f} {numbers[0][1]}")
        else:
            row.append(values[-1] if len(values) == 1 else f"{len(numbers)} of {len(values)} runs; {values[-1]}")
    print(f"| {name} | " + " | ".join(row) + " |")
END
