#!/bin/bash
# Runs the drivers `nfs` and `perftest` of `longhaul matrix`, and the plan `rdma`, with the real tools in two
# guests, and prints a record as Markdown: tables, commands and output. The kernel of the host needs
# neither an NFS server nor an RDMA device.
#
# usage: bench/guest-drivers.sh [LONGHAUL] > bench/runs/DATE-HOST/tools-guest.md
#        RTTS='0ms 15ms 90ms' TIME=4 REPEATS=3 PARTS='nfs rdma' GUESTS=2
# needs: qemu-system-x86, and the image of packaging/guest-image
#
# nfs: emulated paths inside one guest. perftest: a real path, which is the emulated link between the
# guests, with soft-RoCE (rdma_rxe). With GUESTS=1, which needs less of the processor, both ends of
# perftest are in one guest, and RTTS must be 0ms. Without KVM the figures are those of an emulated processor:
# compare them only with each other. The start takes about a minute per guest.
set -euo pipefail

longhaul=$(realpath "${1:-target/release/longhaul}")
here=$(cd "$(dirname "$0")" && pwd)
rtts=${RTTS:-0ms 15ms 90ms} seconds=${TIME:-4} repeats=${REPEATS:-3} name=guest-drivers-$$
parts=${PARTS:-nfs rdma} guests=${GUESTS:-2}
work=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-bench-guests-XXXXXX")
finish() {
    "$longhaul" wan down --name "$name" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT
trap "exit 1" INT TERM

# NFS needs one guest; with one guest, the far end of perftest is the same guest.
[[ " $parts " == *" rdma "* ]] || guests=1
[ "$guests" = 2 ] && vm=true sites="client server" far=server || vm=false sites=client far=client
cat >"$work/guests.toml" <<END
[[site]]
name = "client"
vm = true
vm-memory = "2GiB"
[[site]]
name = "server"
$([ $vm = false ] || printf 'vm = true\nvm-memory = "1GiB"')
[[link]]
name = "path"
between = ["client", "server"]
rate = "1G"
mtu = 9000
queue = "4MiB"
END
"$longhaul" wan up --name "$name" "$work/guests.toml" >&2
guest() { "$longhaul" wan exec --name "$name" "$@"; }
run() { guest "$1" -- sh -euc "$2" </dev/null; }

# The guests have no writable files of the host: they get the program on standard input.
cp "$longhaul" "$work/longhaul"
strip "$work/longhaul"
for site in $sites; do
    guest "$site" -- sh -c 'cat >/usr/local/bin/longhaul && chmod 755 /usr/local/bin/longhaul' <"$work/longhaul"
done
run client 'modprobe -a tun nfs nfsv4 nfsd'
run client 'mkdir -p /tmp/copies; mount -t tmpfs tmpfs /tmp/copies'

# Adds devices of soft-RoCE, and lets the client log in at the far end, as `--far root@$far` needs. One ssh
# connection serves all commands, because a handshake takes long on an emulated processor.
prepare_rdma() {
    for site in $sites; do
        run "$site" 'modprobe -a rdma_rxe; rdma link add rxe0 type rxe netdev eth0'
    done
    run client 'mkdir -p -m 700 /root/.ssh && ssh-keygen -q -t ed25519 -N "" -f /tmp/key
        printf "Host *\nIdentityFile /tmp/key\nIdentitiesOnly yes\nStrictHostKeyChecking accept-new\n" >/root/.ssh/config
        printf "ControlMaster auto\nControlPath /tmp/ssh-%%C\nControlPersist yes\n" >>/root/.ssh/config'
    run client 'cat /tmp/key.pub' >"$work/key.pub"
    guest "$far" -- sh -c 'cat >/tmp/authorized_keys' <"$work/key.pub"
    run "$far" 'sed -e "s/^ListenAddress.*/ListenAddress $LONGHAUL_'"${far^^}"'/" -e "s#^AuthorizedKeysFile.*#AuthorizedKeysFile /tmp/authorized_keys#" \
        /etc/longhaul-guest/sshd_config >/tmp/sshd_config && /usr/sbin/sshd -f /tmp/sshd_config'
    run client "ssh root@$far true"
}

# Runs a plan in the client and fetches its archive: NAME ARGUMENTS, the plan on standard input.
matrix() {
    local out=$1
    shift
    guest client -- sh -c "cat >/tmp/$out.toml"
    run client "cd /tmp && longhaul matrix /tmp/$out.toml --yes --out /tmp/$out $* >/tmp/$out.txt 2>/tmp/$out.err || true
        [ -s /tmp/$out.txt ] || cat /tmp/$out.err >&2"
    run client "cat /tmp/$out.txt" >"$work/$out.txt"
    run client "cat /tmp/$out/runs/*.json" >"$work/$out.json"
}

processor=$("$longhaul" wan status --name "$name" --json | jq -r '.sites[0].guest')
echo "# Drivers with the real tools in guests"
echo
echo "$("$longhaul" --version), $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(date --utc +%F); guests with"
echo "$(run client 'uname -sr'), $processor processor. \`bench/guest-drivers.sh\`, other work on the host. The rates show that the"
echo "drivers work; compare them only with each other."

if [[ " $parts " == *" nfs "* ]]; then
    matrix nfs --scratch /tmp/copies <<'END'
name = "nfs"
limit_seconds = 600
[conditions]
rtt = ["0ms", "20ms"]
[disk]
size = "8MiB"
[[workloads]]
name = "tree"
files = 4
size = "1MiB"
[[entries]]
tool = "nfs"
workload = ["disk", "tree"]
[[entries]]
tool = "nfs"
workload = "disk"
streams = 4
END
    echo
    echo "The driver \`nfs\`, over emulated paths inside one guest:"
    echo
    echo '```text'
    cat "$work/nfs.txt"
    echo '```'
fi
if [[ " $parts " == *" rdma "* ]]; then
    prepare_rdma
    for rtt in $rtts; do
        "$longhaul" wan set "$name/path" --rtt "$rtt" >/dev/null
        "$longhaul" matrix rdma --show-plan |
            sed -E -e "s/^seconds = .*/seconds = $seconds/; s/^omit_seconds = .*/omit_seconds = 1/" \
                -e 's/^tool = "perftest"/&\noptions = ["-d", "rxe0", "-x", "1"]/' |
            matrix "rdma-$rtt" --far "root@$far" --repeats "$repeats"
        echo
        if [ "$guests" = 2 ]; then
            echo "The plan \`rdma\` between two guests with an RTT of $rtt, 1 Gb/s and MTU 9000, $repeats passes of $seconds s:"
        else
            echo "The plan \`rdma\` inside one guest, without a link, $repeats passes of $seconds s:"
        fi
        echo
        echo '```text'
        cat "$work/rdma-$rtt.txt"
        echo '```'
    done
fi
# The commands and the output: all runs of NFS, and those of one RTT.
for runs in "$work"/nfs.json "$work/rdma-${rtts%% *}.json"; do
    [ ! -s "$runs" ] || python3 "$here/tools_record.py" "$runs" /tmp/copies "$longhaul"
done
