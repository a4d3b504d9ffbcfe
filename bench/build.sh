# Sourced by the benchmarks: goes to the project's root and sets `longhaul` to the build that is
# measured, which is $LONGHAUL, or a release build made now.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
longhaul=${LONGHAUL:-}
if [ -z "$longhaul" ]; then
    cargo build --release -p longhaul
    longhaul=${CARGO_TARGET_DIR:-target}/release/longhaul
fi
