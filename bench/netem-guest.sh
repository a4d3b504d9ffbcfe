#!/bin/bash
# Runs kernel netem in a small virtual machine with Debian's stock kernel, and counts what it does
# with the probe of `longhaul wan selftest`; the same settings then through `longhaul wan run` here.
#
# usage: bench/netem-guest.sh [LONGHAUL]       (ONLY=REGEX: those settings alone)
# needs: qemu-system-x86, busybox-static, cpio, kmod, iproute2, dpkg; and the .deb of a Debian kernel:
#        KERNEL_DEB=linux-image-6.1.0-56-amd64_....deb   (apt-get download linux-image-...)
#
# The guest's clock counts instructions (-icount): it stands still while the host does something
# else, so that netem's timers are judged by themselves and not by the host's load. It takes some
# ten minutes. Prints a table; the reports themselves, a line of JSON each, go to RAW if that is set. ONLY_HERE=FILE takes the guest's from such a file.
set -euo pipefail

longhaul=${1:-target/release/longhaul}
[ "${ONLY_HERE:-}" ] || : "${KERNEL_DEB:?the .deb file of the kernel to boot}"
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# setting | netem's words | longhaul's options | datagrams | interval in seconds
# Jitter reorders by default in netem and keeps order in longhaul, so datagrams stand further apart
# than the jitter wherever the distribution of delays is compared. What netem calls "reorder 25%" lets
# a quarter of the packets pass at once and holds the rest back by the delay.
settings() {
    grep -E "${ONLY:-.}" <<'END'
delay 10 ms|delay 10ms|--delay 10ms|2000|0.001
delay 10 ms, jitter 2 ms uniform|delay 10ms 2ms|--delay 10ms --jitter 2ms:uniform|2000|0.005
delay 10 ms, jitter 2 ms normal|delay 10ms 2ms distribution normal|--delay 10ms --jitter 2ms:normal|2000|0.020
delay 10 ms, jitter 2 ms pareto|delay 10ms 2ms distribution pareto|--delay 10ms --jitter 2ms:pareto|2000|0.020
loss 1e-2|loss random 1%|--loss 1e-2|200000|0.0001
bursts of mean 5, loss 1e-2|loss gemodel 0.202% 20%|--loss 1e-2 --loss-burst 5|200000|0.0001
reorder 25 %|delay 10ms reorder 25%|--reorder 0.75:10ms|20000|0.0005
duplicate 1e-2|duplicate 1%|--duplicate 1e-2|200000|0.0001
super-packets of 64, loss 1e-2|loss random 1%|--loss 1e-2|640000|0.0064*64
END
}

# The probe's plan: datagrams of 100 bytes, `together` a super-packet.
send_plan() { # ADDRESS DATAGRAMS INTERVAL TOGETHER
    printf '{"send":{"to":"%s","port":9000,"datagrams":%s,"payload_bytes":100,"together":%s,"interval_seconds":%s,"verify":true}}' \
        "$1" "$2" "$4" "$3"
}
receive_plan() {
    printf '{"receive":{"bind":"0.0.0.0:9000","drain_seconds":1.0,"verify":true}}'
}

# INTERVAL may say "S*N": N datagrams together every S seconds.
split_interval() {
    case $1 in
        *\**) together=${1#*\*} interval=${1%\**} ;;
        *) together=1 interval=$1 ;;
    esac
}

make_guest() {
    local root=$work/root modules
    dpkg-deb -x "$KERNEL_DEB" "$work/kernel"
    modules=$(echo "$work"/kernel/lib/modules/*)
    mkdir -p "$root"/{bin,dev,proc,sys,etc,tmp,lib/tc,modules}
    cp "$(command -v busybox)" "$root/bin/"
    for program in "$longhaul" "$(command -v tc)" "$(command -v ip)"; do
        cp "$program" "$root/bin/"
        ldd "$program" | awk '/=> \// { print $3 } $1 ~ /^\/lib/ { print $1 }' |
            while read -r library; do
                mkdir -p "$root$(dirname "$library")"
                cp -L "$library" "$root$library"
            done
    done
    strip "$root/bin/longhaul"
    for distribution in normal pareto; do
        cp "$(find /usr/lib -path "*tc/$distribution.dist" | head -n 1)" "$root/lib/tc/"
    done
    for module in veth sch_netem; do
        depmod -b "$work/kernel" "$(basename "$modules")" 2>/dev/null || true
        modprobe -d "$work/kernel" -S "$(basename "$modules")" --show-depends "$module" |
            awk '/^insmod/ { print $2 }' | while read -r file; do
                cp "$file" "$root/modules/"
                basename "$file" >>"$root/modules/order"
            done
    done
    {
        echo '#!/bin/busybox sh'
        echo '/bin/busybox --install -s /bin; export PATH=/bin'
        # busybox's shell prefers its own ip.
        echo 'ip() { /bin/ip "$@"; }; export TC_LIB_DIR=/lib/tc'
        echo 'mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev'
        echo 'mkdir -p /run /tmp; while read -r m; do insmod /modules/$m 2>/dev/null; done </modules/order'
        echo 'ip netns add a; ip netns add b'
        echo 'ip link add va netns a mtu 1500 type veth peer name vb netns b mtu 1500'
        echo 'ip -n a address add 10.0.0.1/30 dev va; ip -n b address add 10.0.0.2/30 dev vb'
        echo 'ip -n a link set va up; ip -n b link set vb up; sleep 1'
        echo 'ip -n a neigh replace 10.0.0.2 dev va lladdr $(ip -n b link show vb | sed -n "s/.*ether \([^ ]*\).*/\1/p")'
        while IFS='|' read -r name netem _ datagrams interval; do
            split_interval "$interval"
            # netem's own limit of 1000 packets would add losses of its own.
            echo "ip netns exec a tc qdisc replace dev va root netem limit 1000000 $netem || echo FAILED $netem"
            echo "ip netns exec a longhaul wan probe '$(send_plan 10.0.0.2 "$datagrams" "$interval" "$together")' |" \
                "ip netns exec b longhaul wan probe '$(receive_plan)' | tail -n 1 |" \
                "sed 's/^/RESULT {\"emulator\":\"netem\",\"setting\":\"$name\",\"report\":/; s/\$/}/'"
            echo 'ip netns exec a tc qdisc del dev va root'
        done < <(settings)
        echo 'poweroff -f'
    } >"$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$work/initramfs"
}

run_guest() {
    timeout 1800 qemu-system-x86_64 -accel tcg -icount shift=0,sleep=off -cpu max -m 1024 \
        -display none -monitor none -serial stdio -no-reboot \
        -kernel "$work"/kernel/boot/vmlinuz-* -initrd "$work/initramfs" \
        -append 'console=ttyS0 panic=-1 quiet tsc=reliable mitigations=off' </dev/null |
        stdbuf -o0 tr -d '\r' | sed -un 's/^RESULT //p'
}

run_here() {
    while IFS='|' read -r name _ options datagrams interval; do
        split_interval "$interval"
        rm -f "$work/done"
        options=${options/--/--up-}
        "$longhaul" wan run --mtu 1500 ${options// --/ --up-} \
            --far "$longhaul wan probe '$(receive_plan)' 0<>'$work/sent' >'$work/report'; touch '$work/done'" -- \
            sh -c "$longhaul wan probe '$(send_plan 198.18.0.2 "$datagrams" "$interval" "$together")' >'$work/sent'
                   while [ ! -e '$work/done' ]; do sleep 0.1; done" 2>"$work/log"
        tail -n 1 "$work/report" |
            sed "s/^/{\"emulator\":\"longhaul\",\"setting\":\"$name\",\"report\":/; s/\$/}/"
    done < <(settings)
}

table() {
    echo "| setting | emulator | sent | lost | doubled | out of order | extents | mean run of losses | delay mean, ms | 1 % | median | 99 % | largest |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    jq -r -s 'def ms: . * 1000 | round / 1000;
        sort_by(.setting)[] | .report as $r | $r.delay as $d | ($d.quantiles_ms | length - 1) as $last
        | ($r.loss_runs | to_entries) as $runs | ($r.extents | to_entries) as $extents
        | ($runs | map(.value) | add) as $count
        | [.setting, .emulator, $r.sent.datagrams, $r.lost, $r.duplicates, $r.reordered,
           (if $extents == [] then "" else ($extents | map(.key | tonumber) | "\(min) to \(max)") end),
           (if $count then ($runs | map((.key | tonumber) * .value) | add) / $count | . * 100 | round / 100 else "" end),
           ($d.mean_ms | ms),
           ([0.01, 0.5, 0.99, 1][] | $d.quantiles_ms[. * $last | floor] | ms)]
        | "| " + (map(tostring) | join(" | ")) + " |"' "$1"
}

mkfifo "$work/sent"
{
    if [ "${ONLY_HERE:-}" ]; then
        cat "$ONLY_HERE"
    else
        make_guest
        run_guest
    fi
    run_here
} >"$work/results"
cp "$work/results" "${RAW:-/dev/null}"
table "$work/results"
