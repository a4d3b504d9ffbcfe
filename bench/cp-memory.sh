#!/usr/bin/env bash
# Memory to memory: longhaul cp beside globus-url-copy and rsync, with the files in a tmpfs.
#
#   bench/cp-memory.sh [ROUNDS [SIZE_MIB [RTT_MS...]]]        default: 5 1024 loopback 90
#
# One file of random bytes in a tmpfs at the source, and another tmpfs at the target. "loopback"
# means both ends on this host without the emulator; a number is the RTT of an emulated 10G link. The
# order of the tools changes with each round. The copy of the run before is removed right before
# the client starts, because a hypervisor takes freed pages back after some seconds. As root.
#
# Prints a line per run: the wall time of the client's command, the rate, three figures of CPU
# seconds for each 10^9 bytes, the share of the processors' time that the hypervisor withheld, and
# the largest resident sets that longhaul reports; then medians. The three figures are those of the
# near end and of the far end (from cgroups), and that of the whole machine while the client runs
# (/proc/stat, without idle, iowait and steal), which contains the emulator and all other programs.
#
# BUILDS names binaries of longhaul as NAME=PATH (default: longhaul=target/release/longhaul). TOOLS picks
# among: sealed cleartext globus rsync. CP has more options of longhaul cp, LINK more options of the
# link, such as '--loss 1e-3'. With DISK=DIR source and target are directories below DIR instead, for
# --direct never; caches are dropped before each run.
set -euo pipefail

rounds=${1:-5}
mib=${2:-1024}
shift $(($# < 2 ? $# : 2))
paths=("${@:-loopback 90}")
read -ra paths <<<"${paths[*]}"
read -ra builds <<<"${BUILDS:-longhaul=target/release/longhaul}"
read -ra tools <<<"${TOOLS:-sealed cleartext globus rsync}"
read -ra link <<<"${LINK:-}"
emulator=$(realpath "${builds[0]#*=}")
here=$(dirname "$(realpath "$0")")
dir=$(mktemp -d /tmp/bench-cp-memory.XXXXXX)
export HOME=$dir/home
mkdir -p "$HOME" "$dir/groups"
if [ -n "${DISK:-}" ]; then
    data=$(mktemp -d "$DISK/bench-cp-memory.XXXXXX")
else
    data=$dir/data
    mkdir "$data"
    mount -t tmpfs none "$data"
fi
mkdir "$data/near" "$data/far"
if grep -q '^cpuacct.*1$' /proc/cgroups && mount -t cgroup -o cpuacct none "$dir/groups" 2>/dev/null; then
    used() { awk '{ print $1 / 1e9 }' "$dir/groups/lh-memory-$1/cpuacct.usage"; }
else
    mount -t cgroup2 none "$dir/groups"
    used() { awk '/usage_usec/ { print $2 / 1e6 }' "$dir/groups/lh-memory-$1/cpu.stat"; }
fi
mkdir -p "$dir/groups/lh-memory-near" "$dir/groups/lh-memory-far"
finish() {
    rmdir "$dir/groups/lh-memory-near" "$dir/groups/lh-memory-far" || true
    umount "$dir/groups" || true
    if [ -n "${DISK:-}" ]; then rm -rf "$data"; else umount "$data"; fi
    rm -rf "$dir"
}
trap finish EXIT
head -c "${mib}M" /dev/urandom >"$data/near/file"
cat >"$dir/rsyncd.conf" <<CONFIG
use chroot = no
uid = 0
gid = 0
[far]
path = $data/far
read only = no
CONFIG

far_of() { # TOOL BINARY
    case $1 in
        globus) echo "GLOBUS_HOSTNAME=\$host exec globus-gridftp-server -aa -p 2811 -anonymous-user root -allow-root -log-level ERROR" ;;
        rsync) echo "exec rsync --daemon --no-detach --port 8873 --config '$dir/rsyncd.conf'" ;;
        *) echo "exec '$2' serve --port 5210 --root '$data/far'" ;;
    esac
}
near_of() { # TOOL BINARY
    case $1 in
        sealed) echo "'$2' cp --json ${CP:-} '$data/near/file' lh://\$host/copy" ;;
        cleartext) echo "'$2' cp --json ${CP:-} --cleartext '$data/near/file' lh://\$host/copy" ;;
        globus) echo "GLOBUS_HOSTNAME=near globus-url-copy -fast -p 8 'file://$data/near/file' 'ftp://'\$host':2811$data/far/copy'" ;;
        rsync) echo "rsync -W --inplace '$data/near/file' 'rsync://'\$host':8873/far/copy'" ;;
    esac
}
port_of() { case $1 in globus) echo 2811 ;; rsync) echo 8873 ;; *) echo 5210 ;; esac; }

# Runs the client once its server listens, saves /proc/stat before and after, and prints the
# nanoseconds that it took.
client() { # HOST TOOL BINARY
    cat <<CLIENT
echo 0 >$dir/groups/lh-memory-near/cgroup.procs
host=$1
for i in \$(seq 100); do (: </dev/tcp/$1/$(port_of "$2")) 2>/dev/null && break; sleep 0.1; done
rm -f '$data/far/copy'
head -1 /proc/stat >'$dir/stat'
start=\$(date +%s%N)
$(near_of "$2" "$3") >'$dir/said' 2>'$dir/erred' || { cat '$dir/erred' >&2; exit 1; }
end=\$(date +%s%N)
head -1 /proc/stat >>'$dir/stat'
echo \$(( end - start ))
CLIENT
}

run() { # ROUND PATH TOOL BUILD
    local round=$1 path=$2 tool=$3 name=${4%%=*} binary took near far server
    binary=$(realpath "${4#*=}")
    : >"$dir/said"
    if [ -n "${DISK:-}" ]; then
        sync
        echo 1 >/proc/sys/vm/drop_caches
    fi
    near=$(used near) far=$(used far)
    if [ "$path" = loopback ]; then
        host=localhost bash -c "echo 0 >$dir/groups/lh-memory-far/cgroup.procs; $(far_of "$tool" "$binary")" \
            >/dev/null 2>&1 &
        server=$!
        took=$(bash -c "$(client localhost "$tool" "$binary")")
        kill "$server"
        wait "$server" 2>/dev/null || true
    else
        took=$("$emulator" wan run --rtt "${path}ms" --rate 10G "${link[@]}" \
            --far "host=far; echo 0 >$dir/groups/lh-memory-far/cgroup.procs; $(far_of "$tool" "$binary")" \
            -- bash -c "$(client far "$tool" "$binary")" 2>"$dir/warned") || { cat "$dir/warned" >&2; exit 1; }
    fi
    cmp "$data/near/file" "$data/far/copy"
    PYTHONPATH=$here python3 - "$round" "$path" "$tool" "$name" "$mib" "$took" "$dir" \
        "$near" "$(used near)" "$far" "$(used far)" <<'PYTHON' | tee -a "$dir/runs"
import json, os, sys
from host_share import HostTime
number, path, tool, name, mib, took, directory = sys.argv[1:8]
near0, near, far0, far = map(float, sys.argv[8:])
size, took = int(mib) * 2**20, int(took) / 1e9
ticks = os.sysconf("SC_CLK_TCK")
before, after = (HostTime.parse(line, ticks) for line in open(directory + "/stat"))
machine = after - before
more = ""
try:
    result = json.load(open(directory + "/said"))
    sizes = [result[end]["peak_memory_bytes"] / 2**20 for end in ("source", "sink")]
    ways = [result[end].get("data_path") or "-" for end in ("source", "sink")]
    more = "  {:.0f} {:.0f} MiB  {} {}".format(*sizes, *ways)
except ValueError:
    pass
name = tool if tool in ("globus", "rsync") else f"{tool}/{name}"
print(f"{number} {path:8} {name:20} {took:7.2f} s {size * 8 / took / 1e9:6.2f} Gb/s"
      f"  cpu {(near - near0) / size * 1e9:5.2f} {(far - far0) / size * 1e9:5.2f} "
      f"{machine.busy / size * 1e9:5.2f} s/GB  steal {machine.stolen_share * 100:2.0f} %{more}")
PYTHON
}

for round in $(seq "$rounds"); do
    for path in "${paths[@]}"; do
        cases=()
        for tool in "${tools[@]}"; do
            case $tool in
                globus | rsync) cases+=("$tool ${builds[0]}") ;;
                *) for build in "${builds[@]}"; do cases+=("$tool $build"); done ;;
            esac
        done
        for at in "${!cases[@]}"; do
            read -r tool build <<<"${cases[(at + round) % ${#cases[@]}]}"
            run "$round" "$path" "$tool" "$build"
        done
    done
done
python3 - "$dir/runs" <<'PYTHON'
import collections, statistics, sys
runs = collections.defaultdict(list)
for line in open(sys.argv[1]):
    words = line.split()
    runs[words[1], words[2]].append([float(words[at]) for at in (5, 8, 9, 10, 13)])
print("\nmedians          n    Gb/s   CPU s/GB near, far, both, machine   steal")
for (path, name), rows in sorted(runs.items()):
    rate, near, far, machine, steal = (statistics.median(column) for column in zip(*rows))
    both = statistics.median(row[1] + row[2] for row in rows)
    print(f"{path:8} {name:20} {len(rows)} {rate:6.2f} {near:6.2f} {far:6.2f} {both:6.2f} {machine:6.2f} {steal:4.0f} %")
PYTHON
