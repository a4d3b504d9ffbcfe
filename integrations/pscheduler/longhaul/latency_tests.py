"""The tests latency and latencybg, which the plugin runs with `longhaul path --stamp --continuous`."""

import json
import select
import signal
import subprocess
import sys
import time

from longhaul_tool import END_SECONDS, PORT, PROGRAM, SERVER_SECONDS, failed
from path_tests import (DEFAULT_PACKET_SECONDS, RECORD_SECONDS, duration, family, record_seconds,
                        run_path)

# The port of a reflector that runs permanently (RFC 8762).
STAMP_PORT = 862
# The wait before longhaul starts again after an error.
RESTART_SECONDS = 30
# The byte before each document of a sequence (RFC 7464).
RECORD_SEPARATOR = "\x1e"


def sender_command(kind, spec, port):
    """Returns the command of the sender: it prints one record per result."""
    host = spec["dest"]
    command = [PROGRAM, "path", "--stamp", f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
               "--continuous", "--record-time", f"{record_seconds(kind, spec):g}s",
               "-i", f"{spec.get('packet-interval', DEFAULT_PACKET_SECONDS) * 1000:g}ms"]
    if spec.get("ip-tos"):
        command += ["--dscp", str(spec["ip-tos"] // 4)]
    return command + family(spec)


def reflector_command(port):
    """Returns the command of the reflector of a latency test; `serve` itself uses the port."""
    return [PROGRAM, "serve", "--port", str(port), f"--stamp={port + 1}"]


def histogram(record, spec):
    """Returns the histogram of the one-way delays, empty without a common clock: longhaul states
    only delays above the lowest then."""
    way, width, counts = record["forward"], spec.get("bucket-width", 0.001), {}
    if not way.get("delay") or record["clocks"].get("error_ms") is None:
        return counts
    for above, count in record["histograms"]["forward_variation"]:
        key = f"{(way['delay']['min_ms'] + above) / 1000 / width:.2f}"
        counts[key] = counts.get(key, 0) + count
    return counts


def latency_result(record, spec, diags):
    """Returns the result of a latency test for a record of `longhaul path --continuous`."""
    way = record["forward"]
    fields = {"schema": 1, "succeeded": True, "diags": "\n".join([*diags, json.dumps(record)]),
              "packets-sent": record["sent"]}
    if way.get("lost"):
        received = record["sent"] - way["lost"]["count"]
        fields |= {"packets-lost": way["lost"]["count"], "packets-received": received}
    for name, key in (("packets-duplicated", "duplicated"), ("packets-reordered", "reordered")):
        if way.get(key):
            fields[name] = way[key]["count"]
    if record["clocks"].get("error_ms") is not None:
        fields["max-clock-error"] = record["clocks"]["error_ms"]
    counts = histogram(record, spec)
    if counts:
        fields["histogram-latency"] = counts
    limits = way.get("hop_limits")
    if limits and limits[0] == limits[1]:
        fields["histogram-ttl"] = {str(limits[0]): record["answered"]}
    return fields


class Sender:
    """A running sender. It ends with the `with` block."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def record(self, limit):
        """Returns the next record, or None if none follows within `limit` seconds.

        Raises EOFError with longhaul's message if it ends."""
        deadline = time.monotonic() + limit
        while b"\n" not in self.buffer:
            left = max(0, deadline - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                return None
            part = self.process.stdout.read1(65536)
            if not part:
                message = self.process.stderr.read().decode(errors="replace").strip()
                raise EOFError(message or f"{PROGRAM} printed no record")
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)


def run_latency(spec, port):
    """Runs the sender until its first record and returns the result."""
    command = sender_command("latency", spec, port + 1)
    diags = [" ".join(command)]
    limit = record_seconds("latency", spec) + RECORD_SECONDS + END_SECONDS + 30
    try:
        with Sender(command) as sender:
            record = sender.record(limit)
            if record is None:
                return failed(f"{PROGRAM} printed no record within {limit:g} s", diags)
            return latency_result(record, spec, diags)
    except OSError as error:
        return failed(f"Cannot run {PROGRAM}: {error}", diags)
    except EOFError as error:
        return failed(str(error), diags)
    except (ValueError, KeyError, TypeError) as error:
        return failed(f"Cannot read the record: {error!r}", diags)


def run_reflector(spec, port):
    """Runs the reflector until the sender has ended."""
    command = reflector_command(port)
    diags = [" ".join(command)]
    try:
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True)
    except OSError as error:
        return failed(f"Cannot run {PROGRAM}: {error}", diags)
    try:
        _, message = server.communicate(timeout=duration("latency", spec))
        return failed(message.strip() or "The reflector ended", diags)
    except subprocess.TimeoutExpired:
        return {"succeeded": True, "diags": "\n".join(diags)}
    finally:
        server.kill()
        server.wait()


def emit(document):
    """Prints one result of a background test (RFC 7464)."""
    print(f"{RECORD_SEPARATOR}{json.dumps(document)}", flush=True)


def emit_records(spec, deadline):
    """Emits a result per record until the deadline. longhaul ends if the reflector never answers."""
    command = sender_command("latencybg", spec, spec.get("ctrl-port", STAMP_PORT))
    diags = [" ".join(command)]
    with Sender(command) as sender:
        while time.monotonic() < deadline:
            record = sender.record(max(0, deadline - time.monotonic()))
            if record is not None:
                emit(latency_result(record, spec, diags))


def run_background(spec, seconds, restart=RESTART_SECONDS):
    """Measures for this many seconds with a reflector that runs permanently, and emits the results."""
    # pScheduler stops a background test with this signal; the sender has to end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            emit_records(spec, deadline)
        except (OSError, EOFError) as error:
            emit(failed(f"Cannot measure with {PROGRAM}: {error}", []))
            time.sleep(max(0, min(restart, deadline - time.monotonic())))
        except (ValueError, KeyError, TypeError) as error:
            emit(failed(f"Cannot read the record: {error!r}", []))


def run(kind, spec, participant, port=PORT):
    """Runs one participant of a test with a single result."""
    if kind != "latency":
        return run_path(kind, spec)
    if participant == 1:
        return run_reflector(spec, port)
    time.sleep(SERVER_SECONDS)
    return run_latency(spec, port)
