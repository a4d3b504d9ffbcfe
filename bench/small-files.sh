#!/usr/bin/env bash
# Small files by system calls beside io_uring with the calls of 32 files in each submission.
#
#   bench/small-files.sh [COUNT [ROUNDS]]        default: 20000 5
#
# Creates files of 4 KiB under a temporary name, renames them, and reads them from the page cache, below
# DIR (default: the current directory) on a disk. Needs cc and liburing-dev.
set -euo pipefail

dir=$(mktemp -d "${DIR:-$PWD}/bench-small.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cc -O2 -o "$dir/small_files" "$(dirname "$0")/small_files.c" -luring
"$dir/small_files" "$dir" "${1:-20000}" "${2:-5}"
