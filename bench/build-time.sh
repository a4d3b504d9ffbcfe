#!/usr/bin/env bash
# The time of a release build from nothing: wall clock, CPU, and the CPU time of the slowest crates.
#
#   bench/build-time.sh [TARGET]     TARGET is a target of Rust [default: that of this host]
#   PROFILE=dev bench/build-time.sh  builds another profile
#
# Uses 2 GiB of disk for a target directory that it removes. Leave the machine idle meanwhile. The result
# goes to standard output.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d "${TMPDIR:-/tmp}/build-time.XXXXXX")
trap 'rm -rf "$work"' EXIT
target=${1:-} profile=${PROFILE:-release}
if [ -n "$target" ]; then
    arch=${target%%-*}
    # shellcheck source=packaging/toolchain
    . packaging/toolchain
fi

# Runs rustc, and writes its CPU seconds and the name of its crate.
cat > "$work/rustc" <<'END'
#!/usr/bin/env bash
name=?
for ((at = 1; at < $#; at++)); do
    if [ "${!at}" = --crate-name ]; then after=$((at + 1)) name=${!after}; fi
done
TIMEFORMAT="%U %S $name"
{ time "$@" 2>&3; } 3>&2 2>> "$TIMES"
END
chmod +x "$work/rustc"

cargo fetch --quiet --locked
export TIMES=$work/times CARGO_TARGET_DIR=$work/target CARGO_INCREMENTAL=0 RUSTC_WRAPPER=$work/rustc
steal() { awk '/^cpu /{print $9}' /proc/stat; }
before=$(steal)
TIMEFORMAT='%R %U %S'
took=$({ time cargo build --quiet --locked --profile "$profile" -p longhaul ${target:+--target "$target"} >&2; } 2>&1 | tail -n 1)
read -r wall user system <<< "$took"
echo "commit $(git rev-parse --short HEAD), $(rustc --version), $(nproc) cores, profile $profile${target:+, $target}"
awk -v wall="$wall" -v user="$user" -v system="$system" -v steal="$(($(steal) - before))" -v cores="$(nproc)" 'BEGIN {
    printf "wall %.0f s, CPU %.0f s (user %.0f, system %.0f), stolen %.1f %%\n",
        wall, user + system, user, system, steal / wall / cores }'
echo
echo "CPU s  crate"
awk '{ spent[$3] += $1 + $2 } END { for (name in spent) printf "%5.1f  %s\n", spent[name], name }' "$TIMES" \
    | sort -rn | head -n 30
size=$(find "$work/target" -maxdepth 3 -name longhaul -type f -exec stat -c %s {} + | head -n 1)
echo
echo "program: $((size >> 20)) MiB"
