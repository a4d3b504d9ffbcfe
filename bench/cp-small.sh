#!/usr/bin/env bash
# Many small files over the emulated path: longhaul cp -r beside rsync over ssh.
#
#   bench/cp-small.sh [REPEATS [COUNT [SIZE_KIB [RTT_MS...]]]]      default: 3 10000 64 0 90
#
# A tree of COUNT files of random bytes, 250 to a directory, on a real disk (DIR, default: a
# directory under the current one). Tools are interleaved within each repeat; before each run caches
# are dropped (as root), after it the trees are compared. "first" is when the first file had its
# final name, from the start of the client's command; memory is what longhaul's JSON reports.
#
# LONGHAUL names the binary; CP has more options of longhaul cp; TOOLS picks among: sealed cleartext
# nosync rsync.
#
# For the record, 8 minutes:
#   TOOLS="sealed rsync" bench/cp-small.sh 3
#   TOOLS=sealed bench/cp-small.sh 1 200000 4 90
set -euo pipefail

repeats=${1:-3}
count=${2:-10000}
kib=${3:-64}
shift $(($# < 3 ? $# : 3))
rtts=("${@:-0 90}")
read -ra rtts <<<"${rtts[*]}"
longhaul=$(realpath "${LONGHAUL:-target/release/longhaul}")
read -ra tools <<<"${TOOLS:-sealed cleartext nosync rsync}"
dir=$(mktemp -d "${DIR:-$PWD}/bench-cp-small.XXXXXX")
export HOME=$dir/home
mkdir -p "$HOME" "$dir/far" "$dir/tree"
trap 'rm -rf "$dir"' EXIT

python3 - "$dir/tree" "$count" "$kib" <<'PYTHON'
import os, sys
root, count, kib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for i in range(count):
    d = f"{root}/d{i // 250:05}"
    if i % 250 == 0:
        os.mkdir(d)
    with open(f"{d}/f{i:07}", "wb") as f:
        f.write(os.urandom(kib << 10))
PYTHON
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
CONFIG
ssh="ssh -F none -i $dir/user -p 2222 -o IdentitiesOnly=yes -o BatchMode=yes \
-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"

far_of() {
    case $1 in
        rsync) echo "exec /usr/sbin/sshd -D -f '$dir/sshd_config'" ;;
        *) echo "exec '$longhaul' serve --root '$dir/far' 2>/dev/null" ;;
    esac
}
near_of() {
    case $1 in
        sealed) echo "'$longhaul' cp --json ${CP:-} -r '$dir/tree' lh://far/copy" ;;
        cleartext) echo "'$longhaul' cp --json ${CP:-} --cleartext -r '$dir/tree' lh://far/copy" ;;
        nosync) echo "'$longhaul' cp --json ${CP:-} --no-fsync -r '$dir/tree' lh://far/copy" ;;
        rsync) echo "rsync -r -e '$ssh' '$dir/tree/' 'root@far:$dir/far/copy/'" ;;
    esac
}

done_runs=0
run() { # TOOL RTT_MS
    local out
    sync
    [ "$(id -u)" = 0 ] && echo 3 >/proc/sys/vm/drop_caches
    out=$("$longhaul" wan run --rtt "${2}ms" --far "$(far_of "$1")" -- bash -c "
        for i in \$(seq 50); do
            for port in 5210 2222; do (: </dev/tcp/far/\$port) 2>/dev/null && break 2; done
            sleep 0.1
        done
        start=\$(date +%s%N)
        (until compgen -G '$dir/far/copy/*/f*' >/dev/null; do sleep 0.01; done
            date +%s%N >'$dir/first') &
        $(near_of "$1") >'$dir/said' 2>'$dir/erred' || { cat '$dir/erred' >&2; exit 1; }
        end=\$(date +%s%N)
        wait
        echo \$(( end - start )) \$(( \$(cat '$dir/first') - start ))")
    diff -r "$dir/tree" "$dir/far/copy"
    # ext4 looks around inodes that were deleted within a minute (recently_deleted in
    # fs/ext4/ialloc.c), at twice the cost of making a file: nothing is deleted between runs.
    mv "$dir/far/copy" "$dir/far/done-$((++done_runs))"
    python3 - "$1" "$2" "$count" "$dir/said" $out <<'PYTHON' | tee -a "$dir/runs"
import json, sys
tool, rtt, count, said, took, first = sys.argv[1:7]
seconds = int(took) / 1e9
memory = ""
try:
    result = json.load(open(said))
    ends = [result[end] for end in ("source", "sink")]
    memory = "memory " + " ".join(f"{e['peak_memory_bytes'] / 2**20:.0f}" for e in ends) + " MiB  cpu "
    memory += " ".join(f"{e['cpu_seconds']:.2f}" for e in ends) + " s  " + result["verdict"]
except ValueError:
    pass
print(f"{tool:10} {rtt:>4} ms  {seconds:7.2f} s  {int(count) / seconds:8.0f} files/s  "
      f"first {int(first) / 1e9:6.2f} s  {memory}", flush=True)
PYTHON
}

for ((i = 0; i < repeats; i++)); do
    for rtt in "${rtts[@]}"; do
        for tool in "${tools[@]}"; do
            run "$tool" "$rtt"
        done
    done
done
