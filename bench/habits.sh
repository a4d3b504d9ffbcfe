#!/usr/bin/env bash
# Habits of users of iperf3, rsync, scp and Mahimahi, tried with the real program: each line is a
# command with the exit code and a word that its output must have.
#
#   bench/habits.sh                       LONGHAUL=PATH is the program [default: target/debug/longhaul]
#
# Prints a line per command, and exits with 1 if one differs. Uses loopback and network namespaces.
# Runs as root, for a minute.
set -uo pipefail

longhaul=$(realpath "${LONGHAUL:-target/debug/longhaul}")
work=$(mktemp -d)
export XDG_CONFIG_HOME=$work/config XDG_CACHE_HOME=$work/cache COLUMNS=80
mkdir -p "$work/far"
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
cd "$work" || exit 1
head -c 3000000 /dev/urandom >data
"$longhaul" serve --bind 127.0.0.1 -p 0 --root "$work/far" 2>serve.log &
server=$!
for _ in $(seq 100); do
    port=$(sed -n 's/.*address=127\.0\.0\.1:\([0-9]*\).*/\1/p' serve.log | head -n 1)
    [ -n "$port" ] && break
    sleep 0.1
done
"$longhaul" key >/dev/null
at=127.0.0.1:$port url=lh://127.0.0.1:$port failed=0

# expect CODE WORD COMMAND...: WORD is an extended regular expression.
expect() {
    local code=$1 word=$2
    shift 2
    local output found
    output=$(timeout 60 "$longhaul" "$@" 2>&1 </dev/null)
    found=$?
    if [ "$found" = "$code" ] && grep -qE -- "$word" <<<"$output"; then
        echo "as expected   longhaul $*"
    else
        failed=1
        printf 'DIFFERS       longhaul %s\n  expected exit code %s and /%s/, found %s:\n%s\n' \
            "$*" "$code" "$word" "$found" "$(tail -n 8 <<<"$output" | sed 's/^/    /')"
    fi
}

rates() {
    expect 0 'paced to 80\.0 Mb/s' test "$at" -t 1 -b 10MB/s
    expect 0 'paced to 80\.0 Mb/s' test "$at" -t 1 -b 10MBps
    expect 0 'paced to 10\.0 Mb/s' test "$at" -t 1 -b 10Mb/s
    expect 0 'paced to 10\.0 Mb/s' test "$at" -t 1 -b 10Mbit/s
    expect 0 'paced to 10\.0 Mb/s' test "$at" -t 1 -b 10Mbps
    expect 0 'paced to 10\.0 Mb/s' test "$at" -t 1 -b 10M
    expect 0 'paced to 8\.00 Mb/s' test "$at" -t 1 -b 1000kB/s
    expect 0 'paced to 83\.9 Mb/s' test "$at" -t 1 -b 10MiB/s
    expect 0 'requested rate \(--bwlimit\)' cp --bwlimit 2MB/s data "$url/a"
    expect 0 'MiB in 1 file' cp --bwlimit 0 data "$url/b"
    expect 2 'did you mean 90ms\?' wan run --rtt 90 true
    expect 0 'rtt min' wan run --rtt 10ms --rate 10MB/s ping -c 1 far
}

iperf3() {
    expect 0 'goodput' test -c 127.0.0.1 -p "$port" -t 1
    expect 0 '"schema": "longhaul.test/1"' test -c 127.0.0.1 -p "$port" -t 1 -J
    expect 0 'goodput' test -c 127.0.0.1 -p "$port" -t 1 -V --get-server-output
    expect 0 'goodput' test -c 127.0.0.1 -p "$port" -t 1 -B 127.0.0.1
    expect 0 '-f has no effect' test -c 127.0.0.1 -p "$port" -t 1 -f m
    expect 2 '> out\.log' test -c 127.0.0.1 -p "$port" --logfile out.log
    expect 2 '-t 1h' test -c 127.0.0.1 -p "$port" -t 0
    expect 2 'setsid' serve -D
    expect 2 'setsid' test -s -D
    expect 0 'in both directions together' test "$at" --bidir -t 1 -b 20M
    expect 3 'omit -4 or -6' test "$at" -6 -t 1
}

copiers() {
    expect 0 'MiB in 1 file' cp -P data "$url/c"
    expect 0 'does not compress' cp -z data "$url/d"
    expect 0 'Usage' cp -h
    expect 0 'MiB in 1 file' cp --progress --partial data "$url/e"
    expect 0 'MiB in 1 file' cp --info=progress2 data "$url/f"
    expect 0 'does not compress' cp -avzP data "$url/g"
    expect 0 'create .*/?h' cp -v data "$url/h"
    expect 0 '^$' cp -q data "$url/i"
    expect 0 'files copied +1' cp --stats data "$url/j"
    expect 2 'ssh -p 22' cp -P 22 data me@far:x
    expect 2 '--bwlimit 8000k' cp -l 8000 data me@far:x
    expect 0 '1 unchanged' cp --sync-level exists data "$url/j"
    expect 0 '1 unchanged' cp --sync-level size data "$url/j"
    expect 0 '1 unchanged' cp --sync-level checksum data "$url/j"
    expect 2 'exists' cp --sync-level sometimes data "$url/j"
    expect 5 'is outside the offered directory' cp data "$url/../../x"
    expect 5 'nosuch' cp nosuch "$url/k"
    expect 0 'longhaul\.cp/1' cp --json data "$url/l"
}

errors() {
    expect 2 '^[^:]*:[^:]*nosuch' wan run --rate-trace nosuch true
    printf 'name = "x"\n[conditions]\nrt = ["9ms"]\n[memory]\nseconds = 1\n[[entries]]\ntool = "longhaul"\nworkload = "memory"\n' >plan.toml
    expect 2 "no link option 'rt'" matrix plan.toml
    expect 3 'longhaul\.error/1' test 127.0.0.1:1 --json
    expect 3 'longhaul\.error/1' cp --json data lh://127.0.0.1:1/x
    expect 2 'longhaul\.error/1' wan status --json --nonsense
    expect 0 'in the cache' cache
    expect 0 'echo|--loss' wan run --rtt 2ms echo --loss
}

for part in rates iperf3 copiers errors; do $part; done
[ "$failed" = 0 ] && echo "every command does what is expected"
exit "$failed"
