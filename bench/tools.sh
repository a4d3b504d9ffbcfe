#!/bin/bash
# Runs every driver of `longhaul matrix` whose tool is installed once, client and server, over an
# emulated path of 20 ms, and prints a record of each as Markdown: version, commands and output.
# Every copy is compared with its source, so a record shows that both halves of a driver work.
#
#   bench/tools.sh [LONGHAUL [TOOL...]] > bench/runs/DATE-HOST/tools.md
#
# With TOOL only these drivers run, for example those of tools that are built from source.
#
# As root. Two minutes. On Debian, for all drivers that it can install:
#
#   apt install iperf3 iperf nuttcp openssh-client openssh-server rsync rclone lftp vsftpd \
#       globus-gass-copy-progs globus-gridftp-server-progs xrootd-client xrootd-server xrootd-fuse curl wget \
#       aria2 squid nginx-light sshfs nfs-ganesha nfs-ganesha-vfs libnfs-utils rpcbind uftp
set -euo pipefail

longhaul=$(realpath "${1:-target/release/longhaul}")
shift || true
dir=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-bench-tools-XXXXXX")
trap 'rm -rf "$dir"' EXIT

python3 - "$longhaul" "$@" > "$dir/tools.toml" <<'END'
import subprocess, sys
print('''name = "tools"
[conditions]
rtt = ["20ms"]
[memory]
seconds = 3
omit_seconds = 1
[disk]
size = "32MiB"
[[workloads]]
name = "tree"
files = 8
size = "2MiB"''')
memory = {"longhaul test", "iperf3", "iperf", "nuttcp", "perftest"}
files_only = {"xrdcp", "curl", "wget", "aria2c", "wget through squid", "uftp", "bbftp", "tsunami", "xdd", "qcp"}
listed = subprocess.run([sys.argv[1], "matrix", "--list-tools"], capture_output=True, text=True,
                        check=True).stdout
for line in listed.splitlines():
    # A long name, which ends with a parenthesis, exceeds its column.
    tool = line[:line.index("server)") + 7] if "server)" in line[:40] else line[:20].strip()
    if not tool or "not installed" in line or (sys.argv[2:] and tool not in sys.argv[2:]):
        continue
    access = tool.split()[0] in {"sshfs", "nfs-ganesha", "webdav", "xrootdfs"}
    in_memory = tool in memory or tool.endswith("server)")
    works = ["memory"] if in_memory else ["disk"]
    if not access and not in_memory and tool not in files_only:
        works.append("tree")
    print(f'[[entries]]\ntool = "{tool}"\nworkload = {works!r}')
END
"$longhaul" matrix "$dir/tools.toml" --out "$dir/out" --yes > "$dir/table.txt" || true

echo "# Every driver against the real tool"
echo
echo "$("$longhaul" --version), $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(date --utc +%F)."
echo "\`bench/tools.sh\`, one run each over an emulated path of 20 ms, other work on the host. The rates show"
echo "that the drivers work; they are not for comparison."
echo
echo '```text'
cat "$dir/table.txt"
echo '```'
echo
if [ $# -eq 0 ]; then
    echo '```text'
    "$longhaul" matrix --list-tools
    echo '```'
fi
python3 "$(dirname "$0")/tools_record.py" "$dir/out/matrix.sqlite" "$dir" "$longhaul"
