#!/usr/bin/env bash
# Compares a copy that is interrupted at half of its file and resumed with an uninterrupted copy, over
# the emulated path.
#
#   bench/resume.sh [REPEATS [SIZE_MIB [RTT_MS]]]       default: 3 8192 90
#
# One file of random bytes on a real disk (DIR, default: a directory under the current one). Each
# repeat runs both copies. Before each attempt caches are dropped (as root), after each copy the file is
# compared. "bytes" is what the link carried from the client to the server, all attempts together,
# over the size of the file. "time" is the time of both attempts over the time of the other copy.
# A result that is over the limits, 1.02 times the bytes and 1.15 times the time in the median of
# the repeats, ends the script with status 1.
#
# HOW says how the client is interrupted: INT (default), TERM or KILL. LONGHAUL names the binary; CP
# has more options of longhaul cp; RATE is the rate of the link, 10G. Needs three times the size in
# disk space.
set -euo pipefail

repeats=${1:-3}
mib=${2:-8192}
rtt=${3:-90}
how=${HOW:-INT}
here=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"
longhaul=$(realpath "$longhaul")
dir=$(mktemp -d "${DIR:-$here}/bench-resume.XXXXXX")
export HOME=$dir/home
unset XDG_CONFIG_HOME
mkdir -p "$HOME" "$dir/far"
trap 'rm -rf "$dir"' EXIT
head -c "${mib}M" /dev/urandom >"$dir/data"
sync

cat >"$dir/near.py" <<'PYTHON'
"""Copies once, or until half and then again; prints the seconds of all attempts."""
import json, os, signal, subprocess, sys, time

longhaul, data, how, *more = sys.argv[1:]
command = [longhaul, "cp", "--json-stream", *more, data, "lh://far/copy"]
size = os.path.getsize(data)


def forget():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def run(until):
    """Runs the command, up to so many bytes; returns its seconds."""
    forget()
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        event = json.loads(line)
        done = event.get("data", {}).get("bytes", 0)
        if until and event.get("event") == "progress" and done >= until:
            process.send_signal(getattr(signal, "SIG" + how))
            until = None
    code = process.wait()
    return time.monotonic() - start, code


# Until the server listens.
deadline = time.monotonic() + 30
while subprocess.run(["bash", "-c", "exec 3<>/dev/tcp/far/5210"], stderr=subprocess.DEVNULL).returncode:
    if time.monotonic() > deadline:
        sys.exit("the server does not listen")
    time.sleep(0.1)
seconds = []
if how != "none":
    taken, code = run(size / 2)
    if code == 0:
        sys.exit("the copy was over before it was interrupted")
    seconds.append(taken)
taken, code = run(None)
if code != 0:
    sys.exit(f"longhaul cp ended with {code}")
seconds.append(taken)
print(json.dumps(seconds))
PYTHON

one() { # HOW: prints the seconds and the bytes that the link carried
    # shellcheck disable=SC2086
    "$longhaul" wan run --rtt "${rtt}ms" --rate "${RATE:-10G}" --json-report "$dir/link" \
        --far "exec '$longhaul' serve --root '$dir/far' 2>/dev/null" -- \
        python3 "$dir/near.py" "$longhaul" "$dir/data" "$1" ${CP:-} >"$dir/seconds" 2>"$dir/errors" \
        || { cat "$dir/errors" >&2; exit 1; }
    cmp "$dir/data" "$dir/far/copy"
    left=$(find "$dir/far" -name '.*longhaul*')
    [ -z "$left" ] || { echo "left behind: $left" >&2; exit 1; }
    rm "$dir/far/copy"
    python3 - "$dir" <<'PYTHON'
import json, sys
seconds = json.load(open(sys.argv[1] + "/seconds"))
link = json.load(open(sys.argv[1] + "/link"))
print(sum(seconds), link["up"]["entered"]["bytes"], *seconds)
PYTHON
}

for repeat in $(seq "$repeats"); do
    read -r whole plain _ <<<"$(one none)"
    read -r both bytes first second <<<"$(one "$how")"
    echo "$repeat $whole $plain $both $bytes $first $second"
done | tee "$dir/rounds" | while read -r repeat whole plain both bytes first second; do
    awk -v r="$repeat" -v w="$whole" -v p="$plain" -v b="$both" -v n="$bytes" -v f="$first" \
        -v s="$second" -v size="$((mib << 20))" 'BEGIN {
        printf "%d  uninterrupted %6.2f s %5.3f x size   SIG'"$how"' %6.2f s + %6.2f s %5.3f x size\n",
            r, w, p / size, f, s, n / size }'
done
python3 - "$dir/rounds" "$((mib << 20))" <<'PYTHON'
import statistics, sys
rows = [[float(word) for word in line.split()] for line in open(sys.argv[1])]
size = int(sys.argv[2])
time = statistics.median(row[3] / row[1] for row in rows)
carried = statistics.median(row[4] / size for row in rows)
extra = statistics.median((row[4] - row[2]) / size for row in rows)
print(f"median of {len(rows)}: time {time:.3f}, bytes {carried:.3f} of the file, "
      f"{extra:+.3f} beside the copy that was not interrupted")
sys.exit(time > 1.15 or carried > 1.02)
PYTHON
