#!/bin/sh
# Runs the rows of bench/guest-access.sh inside of a guest and prints a line per row: the name, a tab and
# Mb/s, operations per second, or the reason why there is no figure. usage: client.sh MEBIBYTES [ROW]
set -u
mib=${1:-8} only=${2:-.}
point=/mnt/guest
mkdir -p $point /var/lib/nfs/rpc_pipefs /run/lock/iscsi
quiet() { "$@" >/tmp/log 2>&1; }
reason() { grep -v '^Logging in' /tmp/log | tail -n 1 | cut -c 1-90; }
row() { # NAME COMMAND...
    name=$1
    shift
    echo "$name" | grep -Eq "$only" || return 0
    printf '%s\t%s\n' "$name" "$("$@" || echo "failed: $(reason)")"
}
now() { cut -d ' ' -f 1 /proc/uptime; }
# Prints the rate of some bytes between two times.
rate() { awk -v b="$1" -v s="$2" -v e="$3" 'BEGIN { printf "%.1f Mb/s\n", b * 8 / 1e6 / (e - s) }'; }

prepare() {
    [ -e /sys/class/infiniband/rxe0 ] && return
    modprobe -a nfs nfsv4 nfsv3 rpcrdma rdma_rxe ib_iser iscsi_tcp sd_mod
    rdma link add rxe0 type rxe netdev eth0
    # The package creates the name of the initiator when it is installed.
    echo InitiatorName=iqn.2026-11.example:client >/etc/iscsi/initiatorname.iscsi
    ulimit -l unlimited
    iscsid >/dev/null 2>&1
}

mounted() { # OPTIONS COMMAND...
    options=$1
    shift
    quiet timeout 60 mount -t nfs -o "$options" server:/ $point ||
        quiet timeout 60 mount -t nfs -o "$options" server:/srv/export $point || return 1
    "$@"
    status=$?
    umount -l $point
    return $status
}
write_file() { # RECORD: until the data are at the server
    start=$(now)
    quiet timeout 240 dd if=/dev/zero of=$point/file bs="$1" count="$((mib * 1048576))" iflag=count_bytes conv=fsync || return 1
    rate $((mib * 1048576)) "$start" "$(now)"
}
read_file() { # RECORD: the mount is new, so that nothing is in the cache
    start=$(now)
    quiet timeout 240 dd if=$point/file of=/dev/null bs="$1" || return 1
    rate $((mib * 1048576)) "$start" "$(now)"
}
write_four() {
    start=$(now)
    for n in 1 2 3 4; do
        timeout 240 dd if=/dev/zero of=$point/part$n bs=1M count=$((mib * 262144)) iflag=count_bytes conv=fsync 2>/dev/null &
    done
    wait
    rate $((mib * 1048576)) "$start" "$(now)"
}
metadata() {
    start=$(now)
    for n in 1 2 3 4 5 6 7 8 9 10; do
        : >$point/new$n && mv $point/new$n $point/old$n && rm $point/old$n || return 1
    done
    awk -v s="$start" -v e="$(now)" 'BEGIN { printf "%.1f operations/s\n", 30 / (e - s) }'
}

disk() { # PORT write|read INTERFACE
    target=iqn.2026-11.example:disk port=$1
    quiet iscsiadm -m node -o new -T "$target" -p "$server:$port,1" -I "$3" || return 1
    quiet iscsiadm -m node -T "$target" -p "$server:$port" -o update -n node.session.timeo.replacement_timeout -v 20
    if ! quiet timeout 60 iscsiadm -m node -T "$target" -p "$server:$port" --login; then
        iscsiadm -m node -T "$target" -o delete >/dev/null 2>&1
        return 1
    fi
    device=
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        device=$(ls -d /sys/class/iscsi_session/session*/device/target*/*/block/* 2>/dev/null | head -n 1)
        [ -n "$device" ] && break
        sleep 0.5
    done
    status=1
    if [ -n "$device" ]; then
        device=/dev/${device##*/}
        start=$(now)
        case $2 in
            write) quiet timeout 240 dd if=/dev/zero of="$device" bs=1M count="$mib" oflag=direct ;;
            read) quiet timeout 240 dd if="$device" of=/dev/null bs=1M count="$mib" iflag=direct ;;
        esac && status=0 && rate $((mib * 1048576)) "$start" "$(now)"
    fi
    timeout 30 iscsiadm -m node -T "$target" --logout >/dev/null 2>&1
    iscsiadm -m node -T "$target" -o delete >/dev/null 2>&1
    return $status
}

perftest() { # PORT OPTIONS...
    port=$1
    shift
    # The default acknowledgement timeout of 67 ms is shorter than a long round trip.
    quiet timeout 60 ib_write_bw -d rxe0 -x 1 -F -u 20 -p "$port" "$@" --report_gbits server || return 1
    awk '/BW average/ { getline; printf "%.1f Mb/s\n", $4 * 1000; found = 1 } END { exit !found }' /tmp/log
}

server=$LONGHAUL_SERVER
quiet prepare
row "NFS v3, write, 1 MiB records" mounted vers=3,nolock,proto=tcp write_file 1M
row "NFS v3, read, 1 MiB records" mounted vers=3,nolock,proto=tcp read_file 1M
row "NFS v4.2, write, 1 MiB records" mounted vers=4.2 write_file 1M
row "NFS v4.2, write, 64 KiB records" mounted vers=4.2 write_file 64K
row "NFS v4.2, read, 1 MiB records" mounted vers=4.2 read_file 1M
row "NFS v4.2, read, 64 KiB records" mounted vers=4.2 read_file 64K
row "NFS v4.2 nconnect=16, write" mounted vers=4.2,nconnect=16 write_file 1M
row "NFS v4.2 nconnect=16, read" mounted vers=4.2,nconnect=16 read_file 1M
row "NFS v4.2 nconnect=16, write of four files" mounted vers=4.2,nconnect=16 write_four
row "NFS v4.2, create, rename, remove" mounted vers=4.2 metadata
row "NFS v3 over RDMA, write" mounted vers=3,nolock,proto=rdma,port=20049 write_file 1M
row "NFS v3 over RDMA, read" mounted vers=3,nolock,proto=rdma,port=20049 read_file 1M
row "NFS v4.2 over RDMA, write" mounted vers=4.2,proto=rdma,port=20049 write_file 1M
row "NFS v4.2 over RDMA, read" mounted vers=4.2,proto=rdma,port=20049 read_file 1M
row "iSCSI, write" disk 3260 write default
row "iSCSI, read" disk 3260 read default
row "iSER, write" disk 3261 write iser
row "iSER, read" disk 3261 read iser
row "ib_write_bw, 1 queue pair" perftest 18515 -n 400
row "ib_write_bw, 4 queue pairs" perftest 18516 -q 4 -n 100
