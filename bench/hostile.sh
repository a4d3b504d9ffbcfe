#!/usr/bin/env bash
# Attacks a server with clients that break the protocol.
#
# The clients are crates/longhaul/examples/hostile. As authorized or anonymous clients over TLS, they
# send changed, repeated, reordered and invalid messages in every state of every service. After each
# round an honest copy and test must succeed, nothing outside the root may have changed, and the
# memory and descriptors of the server must return. Attacks three servers in turn: with all rights,
# --write-only and --read-only. Ends after MESSAGES messages in total.
#
#   bench/hostile.sh [MESSAGES] [SEED] [SERVER OPTIONS...]     defaults: 1000000 1
#   LONGHAUL=PATH                                              attacks that build
set -euo pipefail

messages=${1:-1000000}
seed=${2:-1}
options=("${@:3}")

source "$(dirname "$0")/build.sh"
longhaul=$(realpath "$longhaul")
cargo build --release -p longhaul --example hostile
hostile=${CARGO_TARGET_DIR:-target}/release/examples/hostile

work=$(mktemp -d "${DIR:-$PWD}/bench-hostile.XXXXXX")
trap 'rm -rf "$work"' EXIT
"$longhaul" --version
number=0
for rights in "" --write-only --read-only; do
    share=$((messages / (number == 0 ? 2 : 4)))
    number=$((number + 1))
    "$hostile" --longhaul "$longhaul" --dir "$work/$number" --seed "$((seed + number))" \
        --messages "$share" --seconds 36000 --round 30 --clients 16 \
        -- $rights "${options[@]}" 2>"$work/rounds" || { cat "$work/rounds"; exit 1; }
    tail -n 1 "$work/rounds"
done
