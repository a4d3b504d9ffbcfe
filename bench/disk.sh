#!/usr/bin/env bash
# Compares direct I/O with threads, one call in flight each as in longhaul cp, to io_uring with
# registered buffers: reading one file and writing another, separately and at once, at several
# depths.
#
#   bench/disk.sh [REPEATS [SIZE_MIB]]          default: 3 2048; 3 minutes on a disk of 1 GB/s
#
# With fio, on a real disk (DIR, default: a directory under the current one). Prints MB/s and CPU
# seconds for each 10^9 bytes.
set -euo pipefail

repeats=${1:-3}
mib=${2:-2048}
dir=$(mktemp -d "${DIR:-$PWD}/bench-disk.XXXXXX")
trap 'rm -rf "$dir"' EXIT
head -c "${mib}M" /dev/urandom >"$dir/data"
sync

run() { # NAME KEEP-READING-AND-WRITING-APART FIO-OPTIONS...
    local name=$1 apart=$2
    shift 2
    fio --output-format=json --group_reporting --direct=1 \
        --name=read --filename="$dir/data" --rw=read --size="${mib}m" "$@" \
        --name=write ${apart:+--stonewall} --new_group --filename="$dir/out" --rw=write \
        --fallocate=posix --size="${mib}m" "$@" | python3 -c '
import json, sys
told = []
for job in json.load(sys.stdin)["jobs"]:
    way = job["read"] if job["read"]["io_bytes"] else job["write"]
    cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3
    told.append("{} {:5.0f} MB/s {:6.3f} CPU s/GB".format(
        job["jobname"], way["bw_bytes"] / 1e6, cpu / (way["io_bytes"] / 1e9)))
print("{:26} {}".format(sys.argv[1], "   ".join(told)), flush=True)' "$name"
    rm -f "$dir/out"
    sync
}

threads() { # UNIT_MIB
    local share=$((mib / 4))
    echo "--thread --numjobs=4 --ioengine=psync --bs=$1m --size=${share}m --offset_increment=${share}m"
}
uring() { # UNIT_MIB DEPTH
    echo "--ioengine=io_uring --fixedbufs --registerfiles --bs=$1m --iodepth=$2"
}

for ((i = 0; i < repeats; i++)); do
    for unit in 1 4; do
        for apart in apart ""; do
            # shellcheck disable=SC2046
            run "threads-4-${unit}MiB ${apart:-together}" "$apart" $(threads "$unit")
            for depth in 4 16; do
                # shellcheck disable=SC2046
                run "uring-$depth-${unit}MiB ${apart:-together}" "$apart" $(uring "$unit" "$depth")
            done
        done
    done
done
