"""The parts that all executables of the tool plugin share. It needs only the standard library."""

import datetime
import json
import re
import subprocess
import sys

# The throughput schema that the plugin understands, and the options that it accepts.
SCHEMA = 7
OPTIONS = {
    "bandwidth", "bandwidth-strict", "buffer-length", "congestion", "dest", "dest-node", "duration",
    "interval", "ip-tos", "ip-version", "link-rtt", "mss", "no-delay", "omit",
    "parallel", "reverse", "schema", "source", "source-node", "udp", "window-size", "zero-copy",
}
PROGRAM = "longhaul"
PORT = 7411
DEFAULT_SECONDS = 10
# The server starts before the client.
SERVER_SECONDS = 2
# The time for the end of the test and the report.
END_SECONDS = 5


def read():
    """Returns the document on standard input."""
    try:
        return json.load(sys.stdin)
    except ValueError as error:
        fail(f"Invalid JSON on standard input: {error}")


def write(document):
    """Prints a document and ends the program."""
    json.dump(document, sys.stdout)
    print()
    sys.exit(0)


def fail(reason):
    """Prints the reason of a failure and ends the program."""
    print(reason, file=sys.stderr)
    sys.exit(1)


def seconds(duration, default):
    """Returns an ISO 8601 duration without years and months in seconds."""
    if duration is None:
        return default
    form = r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?"
    match = re.fullmatch(form, duration)
    if match is None or duration in ("P", "PT"):
        raise ValueError(f"invalid duration '{duration}'")
    weeks, days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return (((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60 + rest


def can_run(test):
    """Returns the answer whether the tool can run a test."""
    if test.get("type") != "throughput":
        return {"can-run": False, "reasons": ["Unsupported test type"]}
    spec = test.get("spec")
    if not isinstance(spec, dict):
        return {"can-run": False, "reasons": ["Missing test specification"]}
    reasons = [f"Option '{name}' is not supported." for name in sorted(set(spec) - OPTIONS)]
    if spec.get("schema", 1) > SCHEMA:
        reasons.append(f"Schema {spec['schema']} is newer than {SCHEMA}.")
    for name in ("duration", "interval", "omit"):
        try:
            seconds(spec.get(name), 0)
        except ValueError as error:
            reasons.append(str(error))
    if spec.get("udp") and spec.get("congestion"):
        reasons.append("UDP has no congestion control.")
    return {"can-run": not reasons, **({"reasons": reasons} if reasons else {})}


def setup_seconds(spec):
    """Returns the time to connect over the stated round-trip time."""
    return max(1, round(seconds(spec.get("link-rtt"), 0) / 0.05))


def duration(spec):
    """Returns the time that a run takes, in whole seconds."""
    test = seconds(spec.get("duration"), DEFAULT_SECONDS) + seconds(spec.get("omit"), 0)
    return int(-(-test // 1)) + setup_seconds(spec) + SERVER_SECONDS + END_SECONDS


def client_command(spec, port):
    """Returns the command of the sender, or of the receiver of a reverse test."""
    host = spec["dest"]
    command = [PROGRAM, "test", f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "--json"]
    command += ["-t", f"{seconds(spec.get('duration'), DEFAULT_SECONDS):g}"]
    for name, option in (("interval", "-i"), ("omit", "-O")):
        if spec.get(name) is not None:
            command += [option, f"{seconds(spec[name], 0):g}"]
    values = (("parallel", "-P"), ("bandwidth", "-b"), ("window-size", "-w"), ("mss", "-M"),
              ("buffer-length", "-l"), ("congestion", "-C"), ("ip-tos", "-S"))
    for name, option in values:
        if spec.get(name) is not None:
            command += [option, str(spec[name])]
    flags = (("udp", "-u"), ("reverse", "-R"), ("no-delay", "-N"), ("zero-copy", "-Z"))
    command += [option for name, option in flags if spec.get(name)]
    if spec.get("ip-version"):
        command.append(f"-{spec['ip-version']}")
    return command


def server_command(port):
    """Returns the command of the server for one test."""
    return [PROGRAM, "serve", "--one-off", "--port", str(port)]


def rate(part, spec):
    """Returns the fields of one stream or of the sum."""
    fields = {"throughput-bits": part["throughput_bps"]}
    if part.get("bytes") is not None:
        fields["throughput-bytes"] = part["bytes"]
    udp = part.get("udp")
    if spec.get("udp") and udp:
        fields |= {"sent": udp["sent"], "lost": udp["lost"]}
        if udp.get("jitter_ms") is not None:
            fields["jitter"] = udp["jitter_ms"]
    elif part.get("retransmits") is not None:
        fields["retransmits"] = part["retransmits"]
    if not spec.get("udp") and part.get("rtt_ms"):
        fields["rtt"] = round(part["rtt_ms"] * 1000)
    return fields


def interval(sample, spec):
    """Returns one interval in the form of the throughput test."""
    times = {"start": sample["start_seconds"], "end": sample["end_seconds"]}
    streams = []
    for stream in sample["streams"]:
        part = dict(stream)
        tcp = stream.get("sender") or {}
        part |= {"retransmits": tcp.get("retransmits"), "rtt_ms": tcp.get("rtt_ms")}
        fields = {"stream-id": stream["stream"] + 1, **times, **rate(part, spec)}
        if tcp.get("cwnd_bytes") is not None:
            fields["tcp-window-size"] = tcp["cwnd_bytes"]
        streams.append(fields)
    summary = {**times, **rate(sample, spec), "omitted": sample["omitted"]}
    return {"summary": summary, "streams": streams}


def result(document, spec, diags):
    """Returns the result of the throughput test for a document of `longhaul test --json`."""
    total, receiver = document["summary"], document["summary"]["receiver"]
    whole = {**total, "bytes": receiver["bytes"], "retransmits": total["sender"]["retransmits"],
             "rtt_ms": total["sender"]["rtt_ms"]}
    times = {"start": 0, "end": receiver["seconds"]}
    streams = [{"stream-id": stream["stream"] + 1, **times, **rate(stream, spec)}
               for stream in document["streams"]]
    reason = (total.get("reason") or {}).get("sentence")
    lines = [*diags, *([f"Reason for the rate: {reason}"] if reason else []), json.dumps(document)]
    return {
        "succeeded": document["end"]["how"] == "completed",
        "diags": "\n".join(lines),
        "intervals": [interval(sample, spec) for sample in document["intervals"]],
        "summary": {"summary": {**times, **rate(whole, spec)}, "streams": streams},
    }


def failed(reason, diags):
    """Returns the result of a test that failed."""
    return {"succeeded": False, "diags": "\n".join(diags), "error": reason}


def until(start):
    """Returns the seconds until an ISO 8601 time."""
    moment = datetime.datetime.fromisoformat(start.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return max(0.0, (moment - datetime.datetime.now(datetime.timezone.utc)).total_seconds())


def run_client(spec, port):
    """Runs the client and returns the result."""
    command = client_command(spec, port)
    diags = [" ".join(command)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False,
                             timeout=duration(spec) + 60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return failed(f"Cannot run {PROGRAM}: {error}", diags)
    if ran.returncode != 0:
        return failed(ran.stderr.strip() or f"{PROGRAM} ended with {ran.returncode}", diags)
    try:
        return result(json.loads(ran.stdout), spec, diags)
    except (ValueError, KeyError, TypeError) as error:
        return failed(f"Cannot read the result: {error!r}", [*diags, ran.stdout])


def run_server(spec, port):
    """Runs the server of one test, for as long as a run takes at most."""
    command = server_command(port)
    diags = [" ".join(command)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False,
                             timeout=duration(spec))
    except subprocess.TimeoutExpired:
        return failed("The client did not run its test in time", diags)
    except OSError as error:
        return failed(f"Cannot run {PROGRAM}: {error}", diags)
    diags.append(ran.stderr.strip())
    if ran.returncode != 0:
        return failed(ran.stderr.strip(), diags)
    return {"succeeded": True, "diags": "\n".join(diags)}


def merged(document):
    """Returns the result of the test: that of the client, with the messages of both."""
    results = [one for one in document.get("results", []) if isinstance(one, dict)]
    if not results:
        return failed("No participant has a result", [])
    diags = [f"Participant {number}:\n{one.get('diags', '')}" for number, one in enumerate(results)]
    return {**results[0], "diags": "\n".join(diags)}
