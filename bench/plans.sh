#!/bin/bash
# Runs every shipped plan once, with less data and shorter tests, and keeps a table (Markdown) and the
# runs (CSV) of each plan.
#
#   bench/plans.sh LONGHAUL DIR [PLAN...]   # DIR/NAME.md, DIR/NAME.csv, DIR/README.md
#
# As root, on an idle machine: about 50 minutes on two cores for all plans. A plan that fails or reaches its
# time limit does not end the others; its table has the runs until then. Not included: `rdma`, which
# needs RDMA devices, unless it is named, and `real`, which needs another host: REAL=user@host adds it.
set -uo pipefail

longhaul=$(realpath "$1")
dir=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-bench-plans-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$dir"

# The plan, the factor of the data's size, the seconds per memory run, and the time limit in seconds.
plans() {
    cat <<'LIST'
quick 0.1 2 180
default 0.02 2 180
sc10 0.0003 2 400
loss 0.06 1 240
small-files 0.01 1 150
distance 0.1 2 180
stability 1 2 120
streams-windows 1 1 150
cross-traffic 0.12 2 90
cross-flows 0.12 2 90
fairness 0.12 4 1200
corruption 0.12 2 90
frames 0.1 2 150
messages 1 1 90
parallel-links 0.12 2 90
tune 0.25 2 90
scaling 0.15 1 180
peers 1 2 90
access 0.5 2 400
rdma 1 2 90
real 0.1 2 240
LIST
}

# Runs one plan: NAME SCALE SECONDS LIMIT.
run() {
    local name=$1 scale=$2 seconds=$3 limit=$4 out=$work/$1 far=() begun took code
    # Shorter tests: a second is omitted, and the plan's own numbers are replaced.
    "$longhaul" matrix "$name" --show-plan |
        sed -E "s/^seconds = .*/seconds = $seconds/; s/^omit_seconds = .*/omit_seconds = 1/; s/^after_seconds = .*/after_seconds = 4/" > "$work/$name.toml"
    [ "$name" = real ] && far=(--far "$REAL")
    echo "$name: at most $limit s" >&2
    begun=$(date +%s)
    timeout --signal=INT --kill-after=30 "$limit" "$longhaul" matrix "$work/$name.toml" \
        "${far[@]}" --repeats 1 --scale "$scale" --yes --out "$out" > "$work/$name.txt" 2> "$work/$name.err"
    code=$?
    took=$(($(date +%s) - begun))
    if [ -f "$out/matrix.sqlite" ]; then
        "$longhaul" report "$out" --format markdown > "$work/$name.table" 2>> "$work/$name.err"
        "$longhaul" report "$out" --format csv > "$work/$name.csv" 2>> "$work/$name.err"
    else
        rm -f "$work/$name.table" "$work/$name.csv"
    fi
    python3 "$here/plans.py" "$work" "$dir" "$name" "$scale" "$seconds" "$took" "$code"
    rm -rf "$out"
}

while read -r name scale seconds limit; do
    if [ $# -gt 0 ]; then
        [[ " $* " == *" $name "* ]] || continue
    elif [ "$name" = rdma ]; then
        continue
    fi
    if [ "$name" = real ] && [ -z "${REAL:-}" ]; then
        continue
    fi
    run "$name" "$scale" "$seconds" "$limit" < /dev/null || echo "$name: no table" >&2
done < <(plans)

{
    echo "# One run of each shipped plan"
    echo
    echo "$("$longhaul" --version), $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -1), $(nproc) cores."
    echo "\`bench/plans.sh\`, less data and shorter tests than in the plans, one run per cell. The tables show that"
    echo "each plan runs and which figures it has; the rates are not medians."
    echo
    echo "| plan | runs | valid | failed or invalid | more than 10 % stolen | time | result |"
    echo "|---|---:|---:|---:|---:|---:|---|"
    for file in "$dir"/*.md; do
        sed -n 's/^<!-- row: \(.*\) -->$/\1/p' "$file"
    done
} > "$work/README.md"
mv "$work/README.md" "$dir/README.md"
