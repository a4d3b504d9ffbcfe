#!/usr/bin/env bash
# Disk to disk over the emulated path: longhaul cp beside globus-url-copy -fast -p 8, rsync and scp.
#
#   bench/cp.sh [REPEATS [SIZE_MIB [RTT_MS...]]]        default: 3 8192 0 15 90 180
#
# One file of random bytes, on a real disk (DIR, default: a directory under the current one; DATA
# names a file to use instead of making one). DIR=ram makes an ext4 file system on a loop device over a
# file in a tmpfs, which needs four times SIZE_MIB of memory: the same steps without a slow disk.
# Tools are interleaved within each repeat; before each run caches are dropped (as root) and after it
# the destination is compared and removed. Prints one line a run, then medians. "steal" is the share of
# the processors' time that the hypervisor withheld from the start of the client until the copy is synced.
# "seconds" is the client command's wall time; longhaul's includes the sync that the others leave
# to the kernel, and "synced" is the time until they would be as durable. "cpu" has three figures in
# CPU seconds for each 10^9 bytes: those of all processes of the near end and of the far end, from
# cgroups, and those of the whole machine from the start of the client until the copy is synced
# (/proc/stat, without idle, iowait and steal). The third one contains the emulator, the kernel's
# writeback threads and all other programs.
#
# rsync and scp copy the first 512 MiB, at 90 ms and more 128 MiB: they need minutes for the rest.
#
# LONGHAUL names the binary; CP has more options of longhaul cp, such as '--block 1MiB'; LINK more
# link options, such as '--loss 1e-4'; COMPARE=no leaves the comparison out, for a quick look; TOOLS
# picks among
#   sealed cleartext globus rsync scp   the copies,
#   read memory write disk              the steps they stand on, with longhaul: the source's disk to
#                                       memory, memory to memory, memory to the sink's disk; and
#                                       read and write at once, as both ends do to one disk. With
#                                       them the filling ratio is printed: the rate of a copy over
#                                       the smallest of the first three, and with "disk" of all.
#
# For the record, 25 minutes on a disk of 1 GB/s each way:
#   TOOLS="cleartext globus sealed read memory write disk" bench/cp.sh 2 8192 0 90
#   TOOLS="cleartext globus memory" bench/cp.sh 1 8192 15 180
#   TOOLS="rsync" bench/cp.sh 1 512
#   TOOLS="cleartext" LINK="--loss 1e-4" bench/cp.sh 1 8192 90
set -euo pipefail

repeats=${1:-3}
mib=${2:-8192}
shift $(($# < 2 ? $# : 2))
rtts=("${@:-0 15 90 180}")
read -ra rtts <<<"${rtts[*]}"
longhaul=$(realpath "${LONGHAUL:-target/release/longhaul}")
here=$(dirname "$(realpath "$0")")
read -ra tools <<<"${TOOLS:-sealed cleartext globus rsync}"
read -ra link <<<"${LINK:-}"
ram=
if [ "${DIR:-}" = ram ]; then
    ram=$(mktemp -d /tmp/bench-ram.XXXXXX)
    mount -t tmpfs -o size=95% none "$ram"
    mkdir "$ram/disk"
    truncate -s "$((2 * mib + mib / 4 + 1024))M" "$ram/image"
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$ram/image"
    mount -o loop "$ram/image" "$ram/disk"
    DIR=$ram/disk
fi
dir=$(mktemp -d "${DIR:-$PWD}/bench-cp.XXXXXX")
# The service and its client share the user's key; a home of their own keeps the user's untouched.
export HOME=$dir/home
mkdir -p "$HOME" "$dir/far"

# A group for each end, to count its processors' time; cgroup v1 and v2 differ in names. Mounted
# here, since the sites of a link have a /sys of their own.
groups=$dir/groups
mkdir "$groups"
if grep -q '^cpuacct.*1$' /proc/cgroups && mount -t cgroup -o cpuacct none "$groups" 2>/dev/null; then
    used() { awk '{ print $1 / 1e9 }' "$groups/lh-bench-$1/cpuacct.usage"; }
else
    mount -t cgroup2 none "$groups"
    used() { awk '/usage_usec/ { print $2 / 1e6 }' "$groups/lh-bench-$1/cpu.stat"; }
fi
mkdir -p "$groups/lh-bench-near" "$groups/lh-bench-far"
finish() {
    rmdir "$groups/lh-bench-near" "$groups/lh-bench-far"
    umount "$groups"
    rm -rf "$dir"
    [ -z "$ram" ] || { umount "$ram/disk" && umount "$ram" && rmdir "$ram"; }
}
trap finish EXIT

if [ -n "${DATA:-}" ]; then
    ln "$DATA" "$dir/data"
else
    head -c "${mib}M" /dev/urandom >"$dir/data"
fi
if [[ " ${tools[*]} " =~ " "(rsync|scp)" " ]]; then
    head -c "$((mib < 512 ? mib : 512))M" "$dir/data" >"$dir/data-512"
    head -c "$((mib < 128 ? mib : 128))M" "$dir/data" >"$dir/data-128"
fi
for key in host user; do ssh-keygen -q -t ed25519 -N '' -f "$dir/$key"; done
cp "$dir/user.pub" "$dir/authorized_keys"
mkdir -p /run/sshd
cat >"$dir/sshd_config" <<CONFIG
Port 2222
HostKey $dir/host
AuthorizedKeysFile $dir/authorized_keys
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
CONFIG

serve="exec '$longhaul' serve --root '$dir/far' 2>/dev/null"
ssh_options="-F none -i $dir/user -o IdentitiesOnly=yes -o BatchMode=yes \
-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
far_of() {
    case $1 in
        globus) echo "GLOBUS_HOSTNAME=far exec globus-gridftp-server -aa -p 2811 -anonymous-user root -allow-root -log-level ERROR >/dev/null 2>&1" ;;
        scp | rsync) echo "exec /usr/sbin/sshd -D -f '$dir/sshd_config'" ;;
        *) echo "$serve" ;;
    esac
}
near_of() { # TOOL FILE
    case $1 in
        sealed) echo "'$longhaul' cp --json ${CP:-} '$2' lh://far/copy" ;;
        cleartext) echo "'$longhaul' cp --json ${CP:-} --cleartext '$2' lh://far/copy" ;;
        read) echo "'$longhaul' cp --json ${CP:-} --cleartext '$2' /dev/null" ;;
        memory) echo "'$longhaul' cp --json ${CP:-} --cleartext --size ${mib}MiB /dev/zero lh://far/dev/null" ;;
        write) echo "'$longhaul' cp --json ${CP:-} --cleartext --size ${mib}MiB /dev/zero '$dir/far/copy'" ;;
        disk) echo "{ $(near_of read "$2") & read=\$!; $(near_of write "$2") && wait \$read; }" ;;
        globus) echo "GLOBUS_HOSTNAME=near globus-url-copy -fast -p 8 'file://$2' 'ftp://far:2811$dir/far/copy'" ;;
        rsync) echo "rsync -e 'ssh $ssh_options -p 2222' '$2' 'root@far:$dir/far/copy'" ;;
        scp) echo "scp $ssh_options -P 2222 '$2' 'root@far:$dir/far/copy'" ;;
    esac
}

run() { # TOOL RTT_MS
    local out data=$dir/data size=$mib near far
    case $1:$2 in
        scp:?? | scp:??? | rsync:?? | rsync:???) data=$dir/data-128 size=$((mib < 128 ? mib : 128)) ;;
        scp:* | rsync:*) data=$dir/data-512 size=$((mib < 512 ? mib : 512)) ;;
    esac
    sync
    [ "$(id -u)" = 0 ] && echo 1 >/proc/sys/vm/drop_caches
    near=$(used near) far=$(used far)
    out=$("$longhaul" wan run --rtt "${2}ms" "${link[@]}" \
        --far "echo 0 >$groups/lh-bench-far/cgroup.procs; $(far_of "$1")" -- bash -c "
        echo 0 >$groups/lh-bench-near/cgroup.procs
        for i in \$(seq 50); do
            for port in 5210 2811 2222; do (: </dev/tcp/far/\$port) 2>/dev/null && break 2; done
            sleep 0.1
        done
        head -1 /proc/stat >'$dir/stat'
        start=\$(date +%s%N)
        $(near_of "$1" "$data") >'$dir/said' 2>'$dir/erred' || { cat '$dir/erred' >&2; exit 1; }
        end=\$(date +%s%N)
        [ -e '$dir/far/copy' ] && sync -f '$dir/far/copy'
        head -1 /proc/stat >>'$dir/stat'
        echo \$(( end - start )) \$(( \$(date +%s%N) - start ))" 2>"$dir/warned") || {
        cat "$dir/warned" >&2
        exit 1
    }
    case $1 in
        read | memory) ;;
        write | disk) rm "$dir/far/copy" ;;
        *)
            [ "${COMPARE:-yes}" = no ] || cmp "$data" "$dir/far/copy"
            rm "$dir/far/copy"
            ;;
    esac
    near=$(awk "BEGIN { print $(used near) - $near }") far=$(awk "BEGIN { print $(used far) - $far }")
    PYTHONPATH=$here python3 - "$1" "$2" "$size" "$near" "$far" "$dir" "${link[*]}" "$out" <<'PYTHON' | tee -a "$dir/runs"
import json, os, sys
from host_share import HostTime
tool, rtt, mib, near, far, directory, link, out = sys.argv[1:9]
ticks = os.sysconf("SC_CLK_TCK")
before, after = (HostTime.parse(line, ticks) for line in open(directory + "/stat"))
machine = after - before
size, (took, synced) = int(mib) * 2**20, (int(time) / 1e9 for time in out.split())
more = ""
try:
    result = json.load(open(directory + "/said"))
    ends = [result[end]["peak_memory_bytes"] / 2**20 for end in ("source", "sink")]
    more = "  memory {:.0f} {:.0f} MiB  {} streams {}  {}".format(
        *ends, result["path"]["streams"], result["path"]["congestion"], result["limit"])
except ValueError:
    pass
print(f"{tool:10} {rtt:>4} ms {link} {took:7.2f} s {size * 8e-9 / took:6.2f} Gb/s   "
      f"synced {synced:7.2f} s {size * 8e-9 / synced:6.2f} Gb/s   "
      f"cpu {float(near) * 1e9 / size:5.2f} {float(far) * 1e9 / size:5.2f} "
      f"{machine.busy * 1e9 / size:5.2f} s/GB  steal {machine.stolen_share * 100:2.0f} %{more}", flush=True)
PYTHON
    grep -h "behind schedule" "$dir/warned" || true
}

for ((i = 0; i < repeats; i++)); do
    for rtt in "${rtts[@]}"; do
        for tool in "${tools[@]}"; do
            run "$tool" "$rtt"
        done
    done
done
echo
echo "medians: tool, RTT, Gb/s, Gb/s until it is synced, CPU s/GB of both ends and of the machine"
python3 - "$dir/runs" <<'PYTHON'
import re, statistics, sys
runs = {}
for line in open(sys.argv[1]):
    if found := re.match(r"(\S+) +(\d+) ms.*? s +([\d.]+) Gb/s .* s +([\d.]+) Gb/s .*cpu +([\d.]+) +([\d.]+) +([\d.]+)", line):
        tool, rtt, *figures = found.groups()
        rate, synced, near, far, machine = map(float, figures)
        figures = rate, synced, near + far, machine
        runs.setdefault((int(rtt), tool), []).append(figures)
medians = {}
for (rtt, tool), seen in sorted(runs.items()):
    rate, synced, cpu, machine = (statistics.median(column) for column in zip(*seen))
    medians[rtt, tool] = rate
    print(f"{tool:10} {rtt:4} ms {rate:6.2f} {synced:6.2f} {cpu:6.2f} {machine:6.2f}   of {len(seen)}")
for (rtt, tool), rate in medians.items():
    steps = {step: medians.get((rtt, step)) for step in ("read", "memory", "write", "disk")}
    if tool in ("sealed", "cleartext") and all(steps[r] for r in ("read", "memory", "write")):
        least = min("read", "memory", "write", key=steps.get)
        told = f"filling {tool} {rtt} ms: {rate / steps[least]:.2f} of {least}"
        if steps["disk"]:
            least = min(steps, key=steps.get)
            told += f", {rate / steps[least]:.2f} of {least}"
        print(told)
PYTHON
