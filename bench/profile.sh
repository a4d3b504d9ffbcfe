#!/usr/bin/env bash
# Samples the stacks of a test or copy over loopback, and prints them as text: shares by function, then
# folded stacks (the input of flame graph tools), a line per stack with its number of samples.
#
#   bench/profile.sh test [STREAMS]              longhaul test for 5 s
#   bench/profile.sh cp [SIZE_MIB [OPTIONS]]     longhaul cp from tmpfs to tmpfs; default 4096 --cleartext
#
# Sampling is by the timer of perf(1) (cpu-clock), on all processors, because virtual machines often have
# no counters. The stacks of the kernel are complete; those of the program end at its first function
# unless it was built with RUSTFLAGS="-C force-frame-pointers=yes". LONGHAUL names the binary (default:
# target/release/longhaul). LEAST is the smallest number of samples of a printed stack (default: 5).
# As root.
set -euo pipefail

what=${1:?test or cp}
longhaul=$(realpath "${LONGHAUL:-target/release/longhaul}")
dir=$(mktemp -d /tmp/bench-profile.XXXXXX)
export HOME=$dir
data=$dir/data
mkdir "$data"
mount -t tmpfs none "$data"
server=
finish() {
    [ -z "$server" ] || { kill "$server"; wait "$server" 2>/dev/null || true; }
    umount "$data"
    rm -rf "$dir"
}
trap finish EXIT
mkdir "$data/far"
"$longhaul" serve --bind 127.0.0.1 -p 5210 --root "$data/far" 2>/dev/null &
server=$!
for _ in $(seq 50); do (: </dev/tcp/127.0.0.1/5210) 2>/dev/null && break; sleep 0.1; done

case $what in
    test) work=("$longhaul" test 127.0.0.1 -t 5 -P "${2:-1}") ;;
    cp)
        head -c "${2:-4096}M" /dev/urandom >"$data/file"
        read -ra options <<<"${3:---cleartext}"
        work=("$longhaul" cp "${options[@]}" "$data/file" lh://127.0.0.1/copy)
        ;;
    *) echo "profile.sh: unknown part '$what': test or cp" >&2 && exit 2 ;;
esac
perf record -q -a -g -e cpu-clock -F 997 -o "$dir/perf.data" -- "${work[@]}" >"$dir/said" 2>&1 || {
    cat "$dir/said" >&2
    exit 1
}
echo "## Output"
echo
sed 's/^/    /' "$dir/said"
for by in "comm" "comm,symbol"; do
    echo
    echo "## Share of the samples by $by, without callees, at least 1 %"
    echo
    perf report -i "$dir/perf.data" --no-children -g none --stdio --sort "$by" --percent-limit 1 2>/dev/null |
        sed -n '/^ *[0-9]/ { s/[ -]*$//; s/^/    /p; }'
done
echo
echo "## Folded stacks"
echo
perf script -i "$dir/perf.data" -F comm,ip,sym 2>/dev/null | python3 "$(dirname "$0")/fold_stacks.py" "${LEAST:-5}"
