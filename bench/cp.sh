#!/usr/bin/env bash
# Disk to disk over the emulated path: longhaul cp beside globus-url-copy -p 8 and scp.
#
#   bench/cp.sh [REPEATS [SIZE_MIB [RTT_MS...]]]        default: 3 8192 0 90 180
#
# One file of random bytes, on a real disk (DIR, default: a directory under the current one).
# Tools are interleaved within each repeat; before each run caches are dropped (as root) and after
# it the destination is compared and removed. Prints one line a run, then medians and ratios.
# "seconds" is the client command's wall time; longhaul's includes the sync that the others leave
# to the kernel, and "synced" is the time until they would be as durable.
#
# scp copies the first 512 MiB, at 90 ms alone.
#
# LONGHAUL names the binary; TOOLS picks among: sealed cleartext globus scp.
set -euo pipefail

repeats=${1:-3}
mib=${2:-8192}
shift $(($# < 2 ? $# : 2))
rtts=("${@:-0 90 180}")
read -ra rtts <<<"${rtts[*]}"
longhaul=$(realpath "${LONGHAUL:-target/release/longhaul}")
read -ra tools <<<"${TOOLS:-sealed cleartext globus scp}"
dir=$(mktemp -d "${DIR:-$PWD}/bench-cp.XXXXXX")
# The service and its client share the user's key; a home of their own keeps the user's untouched.
export HOME=$dir/home
mkdir -p "$HOME" "$dir/far"
trap 'rm -rf "$dir"' EXIT

head -c "${mib}M" /dev/urandom >"$dir/data"
# scp needs minutes for what the others move in seconds; a rate is a rate.
scp_mib=$((mib < 512 ? mib : 512))
head -c "${scp_mib}M" "$dir/data" >"$dir/data-scp"
for key in host user; do ssh-keygen -q -t ed25519 -N '' -f "$dir/$key"; done
cp "$dir/user.pub" "$dir/authorized_keys"
mkdir -p /run/sshd
cat >"$dir/sshd_config" <<EOF
Port 2222
HostKey $dir/host
AuthorizedKeysFile $dir/authorized_keys
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
EOF

serve="exec '$longhaul' serve --root '$dir/far' 2>/dev/null"
ssh_options="-F none -i $dir/user -o IdentitiesOnly=yes -o BatchMode=yes \
-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
far_of() {
    case $1 in
        sealed | cleartext) echo "$serve" ;;
        globus) echo "GLOBUS_HOSTNAME=far exec globus-gridftp-server -aa -p 2811 -anonymous-user root -allow-root -log-level ERROR >/dev/null 2>&1" ;;
        scp) echo "exec /usr/sbin/sshd -D -f '$dir/sshd_config'" ;;
    esac
}
near_of() {
    case $1 in
        sealed) echo "'$longhaul' cp '$dir/data' lh://far/copy" ;;
        cleartext) echo "'$longhaul' cp --cleartext '$dir/data' lh://far/copy" ;;
        globus) echo "GLOBUS_HOSTNAME=near globus-url-copy -p 8 'file://$dir/data' 'ftp://far:2811$dir/far/copy'" ;;
        scp) echo "scp $ssh_options -P 2222 '$dir/data-scp' 'root@far:$dir/far/copy'" ;;
    esac
}

run() { # TOOL RTT_MS
    local out data=$dir/data size=$mib
    [ "$1" = scp ] && data=$dir/data-scp size=$scp_mib
    sync
    [ "$(id -u)" = 0 ] && echo 1 >/proc/sys/vm/drop_caches
    out=$("$longhaul" wan run --rtt "${2}ms" --far "$(far_of "$1")" -- bash -c "
        for i in \$(seq 50); do
            for port in 5210 2811 2222; do (: </dev/tcp/far/\$port) 2>/dev/null && break 2; done
            sleep 0.1
        done
        start=\$(date +%s%N)
        $(near_of "$1") >'$dir/said' 2>&1 || { cat '$dir/said' >&2; exit 1; }
        end=\$(date +%s%N)
        sync -f '$dir/far/copy'
        echo \$(( end - start )) \$(( \$(date +%s%N) - start ))")
    cmp "$data" "$dir/far/copy"
    rm "$dir/far/copy"
    awk -v tool="$1" -v rtt="$2" -v mib="$size" -v out="$out" 'BEGIN {
        split(out, t, " ")
        printf "%-10s %4d ms  %7.2f s  %6.2f Gb/s   synced %7.2f s  %6.2f Gb/s\n", tool, rtt,
            t[1]/1e9, mib*8.388608e6/t[1], t[2]/1e9, mib*8.388608e6/t[2] }' | tee -a "$dir/runs"
}

for ((i = 0; i < repeats; i++)); do
    for rtt in "${rtts[@]}"; do
        for tool in "${tools[@]}"; do
            # scp at every distance takes longer than all the rest together.
            [ "$tool" = scp ] && [ "$rtt" != 90 ] && continue
            run "$tool" "$rtt"
        done
    done
done
echo
echo "medians, Gb/s:"
awk '{ key = $1 " " $2; rates[key] = rates[key] " " $6 }
    END { for (key in rates) print key rates[key] }' "$dir/runs" | sort -k2,2n -k1,1 |
    while read -r tool rtt rates; do
        median=$(tr ' ' '\n' <<<"$rates" | sort -n | awk '{ v[NR] = $1 } END {
            print (NR % 2) ? v[(NR+1)/2] : (v[NR/2] + v[NR/2+1]) / 2 }')
        printf '%-10s %4s ms  %s\n' "$tool" "$rtt" "$median"
    done
