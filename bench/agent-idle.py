#!/usr/bin/env python3
"""Measures the CPU time and memory of an idle agent: no runs, one interface or more, a hub on the same host.

Usage: bench/agent-idle.py LONGHAUL [SECONDS]

Prints a row of a table: SECONDS (120 by default) that begin 20 s after the enrollment, when the facts of the host are
sent. The goals are 0.5 % of a core and 60 MiB.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

from host_share import HostTime
from hubs import Hub, used


def main():
    program = os.path.abspath(sys.argv[1])
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 120
    with tempfile.TemporaryDirectory() as directory:
        hub, agent = Hub(program, "sqlite", directory), None
        try:
            hub.start()
            hub.login()
            token = hub.post("/api/v1/tokens", {"host": "idle", "valid_seconds": 600})["token"]
            command = [program, "agent", "--hub", f"https://127.0.0.1:{hub.port}", "--name", "idle", "--stamp-port", "0",
                       "--state", f"{directory}/agent"]
            environment = {**os.environ, "LONGHAUL_AGENT_TOKEN": token}
            agent = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
            time.sleep(20)
            if agent.poll() is not None:
                sys.exit(f"the agent ended with status {agent.returncode}")
            before, began = HostTime.now(), time.monotonic()
            cpu, _, _ = used([agent.pid])
            time.sleep(seconds)
            end, resident, peak = used([agent.pid])
            took, host = time.monotonic() - began, HostTime.now() - before
            print("| seconds | CPU, % of a core | memory, MiB | most memory, MiB | steal, % |\n|---|---|---|---|---|")
            print(f"| {took:.0f} | {(end - cpu) / took * 100:.2f} | {resident:.1f} | {peak:.1f} | {host.stolen_share * 100:.1f} |")
        finally:
            if agent and agent.poll() is None:
                agent.send_signal(signal.SIGTERM)
                agent.wait(30)
            hub.end()


main()
