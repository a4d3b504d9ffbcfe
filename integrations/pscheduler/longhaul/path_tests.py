"""The tests of a path that the plugin runs with `longhaul path`. This file has trace and rtt, and the
options of all."""

import json
import socket
import subprocess

from longhaul_tool import END_SECONDS, PROGRAM, SERVER_SECONDS, failed, seconds

# The options of each test that the plugin accepts, and the newest schema.
OPTIONS = {
    "trace": (2, {"schema", "dest", "source-node", "hops", "hostnames", "ip-version", "queries",
                  "first-ttl"}),
    "rtt": (3, {"schema", "dest", "source-node", "count", "hostnames", "ip-version", "protocol"}),
    "latency": (3, {"schema", "source", "source-node", "dest", "dest-node", "packet-count",
                    "packet-interval", "bucket-width", "ip-tos", "ip-version"}),
    "latencybg": (2, {"schema", "source", "source-node", "dest", "dest-node", "protocol", "duration",
                      "packet-count", "packet-interval", "packet-timeout", "ctrl-port", "ip-tos",
                      "ip-version", "bucket-width"}),
}
# The protocol of each test that has a choice.
PROTOCOLS = {"rtt": "icmp", "latencybg": "stamp"}
# The parts of `longhaul path` that no test needs.
PARTS = ("rtt", "hops", "mtu", "loss", "capacity")
# The probes of a hop.
QUERIES = 3
TRACE_SECONDS = 60
DEFAULT_COUNT = 5
# longhaul sends echoes 10 ms apart, or after the previous one's answer; this is the limit of one.
ECHO_SECONDS = 1
DEFAULT_PACKETS = {"latency": 100, "latencybg": 600}
DEFAULT_PACKET_SECONDS = 0.1
DEFAULT_BACKGROUND_SECONDS = 86400
# longhaul counts a packet without a reply as lost after this time.
LOST_SECONDS = 3
# A record follows this long after its last packet.
RECORD_SECONDS = 4


def reasons(kind, spec):
    """Returns the reasons why the plugin cannot run a test."""
    newest, known = OPTIONS[kind]
    found = [f"Option '{name}' is not supported." for name in sorted(set(spec) - known)]
    if spec.get("schema", 1) > newest:
        found.append(f"Schema {spec['schema']} is newer than {newest}.")
    protocol = PROTOCOLS.get(kind)
    if protocol and spec.get("protocol", protocol) != protocol:
        found.append(f"Only the protocol {protocol} is supported.")
    if spec.get("packet-timeout", LOST_SECONDS) != LOST_SECONDS:
        found.append(f"A packet is lost after {LOST_SECONDS} s.")
    try:
        seconds(spec.get("duration"), 0)
    except ValueError as error:
        found.append(str(error))
    if spec.get("first-ttl", 1) != 1 or spec.get("queries", QUERIES) != QUERIES:
        found.append(f"A trace begins at the first hop and has {QUERIES} queries per hop.")
    if spec.get("ip-tos", 0) % 4:
        found.append("The two lowest bits of ip-tos are those of ECN, which the network sets.")
    return found


def duration(kind, spec):
    """Returns the time that a run takes, in seconds."""
    if kind == "trace":
        return TRACE_SECONDS
    if kind == "rtt":
        return spec.get("count", DEFAULT_COUNT) * ECHO_SECONDS + END_SECONDS
    if kind == "latencybg":
        return seconds(spec.get("duration"), DEFAULT_BACKGROUND_SECONDS) + END_SECONDS
    return record_seconds(kind, spec) + SERVER_SECONDS + RECORD_SECONDS + END_SECONDS


def record_seconds(kind, spec):
    """Returns the time in which the packets of one result are sent."""
    count = spec.get("packet-count", DEFAULT_PACKETS[kind])
    return count * spec.get("packet-interval", DEFAULT_PACKET_SECONDS)


def family(spec):
    """Returns the option for the IP version."""
    return [f"-{spec['ip-version']}"] if spec.get("ip-version") else []


def path_command(kind, spec):
    """Returns the command of a trace or rtt test."""
    part = "hops" if kind == "trace" else "rtt"
    command = [PROGRAM, "path", spec["dest"], "--no-server", "--json"]
    for other in PARTS:
        command += ["--skip", other] if other != part else []
    if kind == "trace":
        command += ["--max-hops", str(spec["hops"])] if spec.get("hops") else []
    else:
        command += ["-c", str(spec.get("count", DEFAULT_COUNT))]
    return command + family(spec)


def iso(milliseconds):
    """Returns milliseconds as an ISO 8601 duration."""
    return f"PT{milliseconds / 1000:.6f}S"


def host_name(address):
    """Returns the fields with the name of an address, if it has one."""
    try:
        return {"hostname": socket.gethostbyaddr(address)[0]}
    except OSError:
        return {}


def trace_result(document, spec, diags):
    """Returns the result of the trace test for a document of `longhaul path --json`."""
    hops = ((document.get("forward") or {}).get("hops") or {}).get("list")
    if hops is None:
        return failed("; ".join(one["why"] for one in document["unmeasured"]), diags)
    listed, path = {hop["distance"]: hop for hop in hops}, []
    for distance in range(1, max(listed, default=0) + 1):
        hop = listed.get(distance) or {"addresses": []}
        if not hop["addresses"]:
            path.append({})
            continue
        fields = {"ip": hop["addresses"][0]}
        if hop.get("min_ms") is not None:
            fields["rtt"] = iso(hop["min_ms"])
        if hop.get("says_mtu_bytes"):
            fields["mtu"] = hop["says_mtu_bytes"]
        path.append({**fields, **(host_name(fields["ip"]) if spec.get("hostnames", True) else {})})
    return {"schema": 1, "succeeded": True, "diags": "\n".join(diags), "paths": [path]}


def rtt_result(document, diags):
    """Returns the result of the rtt test for a document of `longhaul path --json`.

    longhaul keeps no times of single packets, so the list of round trips is empty."""
    echoes = (document.get("rtt") or {}).get("small")
    if echoes is None:
        return failed("; ".join(one["why"] for one in document["unmeasured"]), diags)
    sent, received = echoes["asked"], echoes["answered"]
    fields = {"schema": 1, "succeeded": received > 0, "diags": "\n".join(diags), "roundtrips": [],
              "sent": sent, "received": received, "lost": sent - received,
              "loss": (sent - received) / sent}
    if received:
        fields |= {"min": iso(echoes["min_ms"]), "max": iso(echoes["max_ms"])}
    return fields


def run_path(kind, spec):
    """Runs a trace or rtt test and returns the result."""
    command = path_command(kind, spec)
    diags = [" ".join(command)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False,
                             timeout=duration(kind, spec) + 60)
        # Exit code 7: other parts than the requested one were not measured.
        if ran.returncode not in (0, 7):
            return failed(ran.stderr.strip() or f"{PROGRAM} ended with {ran.returncode}", diags)
        document = json.loads(ran.stdout)
        diags.append(ran.stdout)
        return (trace_result(document, spec, diags) if kind == "trace"
                else rtt_result(document, diags))
    except (OSError, subprocess.TimeoutExpired) as error:
        return failed(f"Cannot run {PROGRAM}: {error}", diags)
    except (ValueError, KeyError, TypeError) as error:
        return failed(f"Cannot read the result: {error!r}", diags)
