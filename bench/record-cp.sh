#!/usr/bin/env bash
# Records the copies, their ramp-up and their share of a link in markdown files, 27 minutes in all.
#
#   bench/record-cp.sh DIR [SECTION...]        default: all sections, in this order
#
#   section   minutes  file                content
#   tmpfs     6        cp-memory.md        1 GiB, tmpfs to tmpfs, loopback and 15, 90, 180 ms, beside globus-url-copy
#   disk      6        cp-disk.md          1 GiB, disk to disk, 0 ms, and 15, 90, 180 ms at 10 Gb/s
#   large     4        cp-large.md         8 GiB, tmpfs over loopback and 90 ms, disk at 90 ms, one round
#   small     5        cp-small.md         10,000 files of 64 KiB and 100,000 files of 4 KiB at 90 ms
#   ramp-up   3        ramp-up.md          1 GiB at 0, 90, 180 ms, and the loss beside iperf3
#   fairness  3        fairness.md         a cubic flow beside a copy at 20 and 90 ms, one round
#
# A section that fails or takes longer than twice its time leaves its output so far, and the next
# section runs. LONGHAUL names the binary (default: target/release/longhaul). DISK is a directory on
# a real disk with 20 GB (default: the current one). As root.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
record=${1:?the directory of the record is missing}
shift
sections=("$@")
[ $# = 0 ] && sections=(tmpfs disk large small ramp-up fairness)
LONGHAUL=$(realpath "${LONGHAUL:-target/release/longhaul}")
export LONGHAUL
disk=$(realpath "${DISK:-$PWD}")
unset DISK # bench/cp-memory.sh would copy files on this disk.
mkdir -p "$record"
failed=0

begin() { # FILE TITLE
    file=$record/$1
    {
        echo "# $2"
        echo
        echo "Commit $(git rev-parse --short HEAD), $(date -u +%F), $(nproc) cores" \
            "($(sed -n 's/^model name\t*: //p' /proc/cpuinfo | head -1))," \
            "$(free -g | awk '/^Mem/ { print $2 }') GB, Linux $(uname -r)," \
            "default congestion control $(cat /proc/sys/net/ipv4/tcp_congestion_control)," \
            "load average at the start $(cut -d' ' -f1 /proc/loadavg)."
    } >"$file"
}

# Adds the command, its output and its end to the file.
add() { # MINUTES COMMAND...
    local minutes=$1 code
    shift
    local shown="${*//$disk/DISK}"
    shown=${shown//$LONGHAUL/longhaul}
    printf '\n    %s\n\n```text\n' "$shown" >>"$file"
    timeout --kill-after=10 $((minutes * 120)) env "$@" 2>&1 </dev/null |
        sed -e "s#$LONGHAUL#longhaul#g" -e "s#$disk#DISK#g" | tee -a "$file"
    code=${PIPESTATUS[0]}
    printf '```\n' >>"$file"
    if [ "$code" != 0 ]; then
        echo "The command ended with $code, so the output is incomplete." | tee -a "$file"
        failed=1
    fi
}

for section in "${sections[@]}"; do
    start=$SECONDS
    case $section in
        tmpfs)
            begin cp-memory.md "Copies from memory to memory"
            add 6 BUILDS="longhaul=$LONGHAUL" TOOLS="sealed cleartext globus" \
                bench/cp-memory.sh 5 1024 loopback 15 90 180
            ;;
        disk)
            begin cp-disk.md "Copies from disk to disk"
            add 2 DIR="$disk" COMPARE=no TOOLS="sealed cleartext globus" bench/cp.sh 5 1024 0
            add 5 DIR="$disk" LINK="--rate 10G" COMPARE=no TOOLS="sealed cleartext globus" bench/cp.sh 5 1024 15 90 180
            ;;
        large)
            begin cp-large.md "Copies of 8 GiB"
            add 3 BUILDS="longhaul=$LONGHAUL" TOOLS="sealed cleartext globus" \
                bench/cp-memory.sh 1 8192 loopback 90
            add 2 DIR="$disk" LINK="--rate 10G" COMPARE=no TOOLS="sealed cleartext globus" bench/cp.sh 1 8192 90
            ;;
        small)
            begin cp-small.md "Small files"
            add 3 DIR="$disk" TOOLS="sealed rsync" bench/cp-small.sh 5 10000 64 90
            add 1 DIR="$disk" TOOLS=sealed bench/cp-small.sh 2 100000 4 90
            ;;
        ramp-up)
            begin ramp-up.md "The ramp-up of a copy"
            add 2 bench/ramp-up.py copies --rounds 5 --size 1024 --rtts 0,90,180 "longhaul=$LONGHAUL"
            add 1 bench/ramp-up.py loss --rounds 5 "longhaul=$LONGHAUL"
            ;;
        fairness)
            begin fairness.md "A cubic flow beside a copy"
            add 3 bench/fairness.py --rounds 1 --rtts 20,90 --queues 1 --hosts bbr,cubic --tools cp
            add 1 bench/fairness.py --rounds 1 --rtts 40 --queues 0.25 --hosts bbr --tools cp,iperf3-4
            ;;
        *)
            echo "no section is called $section" >&2
            failed=1
            ;;
    esac
    echo "$section: $((SECONDS - start)) s" >&2
done
exit "$failed"
