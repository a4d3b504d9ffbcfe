# shellcheck shell=bash
# Functions of bench/wan-certificate.sh and bench/wan-rates.sh. They record an emulated path in a temporary directory,
# and certify the replays of two recordings at the same time: the second one is altered and should fail.

# Takes the program, and enters a directory that exists until the end of the script.
begin() {
  program=$(realpath "${1:?the longhaul to measure}")
  directory=$(mktemp -d)
  trap 'rm -rf "$directory"' EXIT
  export HOME=$directory XDG_CONFIG_HOME=$directory
  cd "$directory"
  before=$(stolen)
}

stolen() { awk '/^cpu /{print $9}' /proc/stat; }

# Records a link with the options $1 to path.jsonl, with the options of the recorder $2.
record() {
  # shellcheck disable=SC2086
  "$program" wan run $1 --seed 16 --far "$program serve" -- \
    "$program" path far --record path.jsonl $2 --quiet >&2
}

# Certifies path.jsonl, and the replay of altered.jsonl.
certify() {
  "$program" wan certify path.jsonl --replay altered.jsonl --json > altered.json & altered=$!
  same_code=0 altered_code=0
  "$program" wan certify path.jsonl --json > same.json || same_code=$?
  wait $altered || altered_code=$?
}

# Prints the host and the length of the recording.
print_host() {
  echo "$(uname -r), $(nproc) processors, $("$program" --version), a recording of $1 minutes; stolen" \
    "$(($(stolen) - before)) ticks; load at the end $(cut -d' ' -f1 /proc/loadavg)"
}

# Prints a table of the certificate of the recording $1 (same, altered) with the exit code $2. Delays are in ms, and
# rates in Mb/s.
print_certificate() {
  printf '\nCertificate of the %s recording: exit code %s (0: passed, 8: failed)\n\n' "$1" "$2"
  echo "| from | figure | unit | recorded | rebuilt | distance | bound | passed |"
  echo "|---|---|---|---|---|---|---|---|"
  jq -r 'def round($digits): if type == "number" then (. * pow(10; $digits) | round) / pow(10; $digits) else . // "-" end;
    def unit: if .figure == "capacity" then ["Mb/s", 1e6, 1] elif .figure | startswith("delay") then ["ms", 1, 3]
      elif .figure | IN("loss", "outage", "reordering") then ["share", 1, 5] else ["", 1, 3] end;
    .checks[] | unit as [$unit, $scale, $digits]
    | def value: if type == "number" then . / $scale | round($digits) else "-" end;
    def verdict: if . == null then "-" elif . then "yes" else "no" end;
    "| \(.from) | \(.figure | gsub("_"; " ")) | \($unit) | \(.recorded | value) | \(.rebuilt | value) | \(.distance | round(3)) | \(.bound | round(3)) | \(.passed | verdict) |"' "$1.json"
  jq -r '.warnings[] | "\nwarning: \(.)"' "$1.json"
}
