#!/usr/bin/env python3
"""Feeds the plugin the specifications of pScheduler's own tests, and pScheduler's validators the
results of the plugin.

    test_with_pscheduler.py PSCHEDULER

PSCHEDULER is a copy of the sources of pScheduler, which the user provides; the validators need the
Python package jsonschema. Every specification that pScheduler's tests contain and its validator
accepts goes through `can-run` and `duration`, and becomes a command: the plugin accepts the
specification, or states by name what it does not support.
"""

import ast
import importlib.util
import json
import pathlib
import subprocess
import sys
import types

PLUGIN = pathlib.Path(__file__).parent.parent / "longhaul"
sys.path.insert(0, str(PLUGIN))

import latency_tests  # noqa: E402
import longhaul_tool  # noqa: E402
import path_tests  # noqa: E402

KINDS = ["throughput", "rtt", "latency", "latencybg", "trace"]
# The tools whose tests have specifications of each kind.
TOOLS = {"throughput": ["iperf3", "nuttcp", "iperf2", "ethr"], "rtt": ["ping", "twping"],
         "latency": ["owping", "halfping"], "latencybg": ["powstream"],
         "trace": ["traceroute", "tracepath", "paris-traceroute"]}


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def validators(root):
    """Returns the validator of each kind. They need only one part of pScheduler's library."""
    values = load(root / "python-pscheduler/pscheduler/pscheduler/jsonval.py", "jsonval")
    stub = types.ModuleType("pscheduler")
    stub.__getattr__ = lambda name: getattr(values, name, lambda *_, **__: None)
    sys.modules["pscheduler"] = stub
    found = {}
    for kind in KINDS:
        folder = root / f"pscheduler-test-{kind}/{kind}"
        sys.path.insert(0, str(folder))
        found[kind] = load(folder / "validate.py", f"validate_{kind}")
        sys.path.remove(str(folder))
    return found


def literals(path):
    """Returns the dictionaries in a Python file: literals, and strings with JSON."""
    for node in ast.walk(ast.parse(path.read_text())):
        try:
            value = ast.literal_eval(node)
            yield json.loads(value) if isinstance(value, str) else value
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue


def specifications(root, kind, validator):
    """Returns the distinct valid specifications of a kind in pScheduler's tests and samples."""
    files = list(root.glob(f"pscheduler-test-{kind}/tests/*.py"))
    for tool in TOOLS[kind]:
        files += root.glob(f"pscheduler-tool-{tool}/tests/*.py")
    found = [value for file in files for value in literals(file)]
    found += [json.loads(file.read_text()) for file in root.glob(f"pscheduler-test-{kind}/misc/*.json")]
    distinct = {}
    for value in found:
        value = value.get("test", value) if isinstance(value, dict) else value
        value = value.get("spec", value) if isinstance(value, dict) else value
        if isinstance(value, dict) and "dest" in value and validator.spec_is_valid(value)[0] is True:
            distinct[json.dumps(value, sort_keys=True)] = value
    return list(distinct.values())


def options_of(root, kind):
    """Returns the names of all options in the schemas of a kind."""
    names = set()
    for value in literals(root / f"pscheduler-test-{kind}/{kind}/validate.py"):
        properties = value.get("properties", {}) if isinstance(value, dict) else {}
        if "dest" in properties and "duration" not in properties.get("dest", {}):
            names |= set(properties)
    return sorted(names - {"endpoint"})


def call(name, document):
    ran = subprocess.run([sys.executable, PLUGIN / name], input=json.dumps(document),
                         capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


def command_of(kind, spec):
    if kind == "throughput":
        return longhaul_tool.client_command(spec, longhaul_tool.PORT)
    if kind in ("rtt", "trace"):
        return path_tests.path_command(kind, spec)
    return latency_tests.sender_command(kind, spec, longhaul_tool.PORT)


def check(kind, spec):
    """Returns whether the plugin accepts a specification."""
    answer = call("can-run", {"type": kind, "spec": spec})
    if not answer["can-run"]:
        assert answer["reasons"] and all(answer["reasons"]), (kind, spec, answer)
        unknown = set(spec) - known_options(kind)
        named = {reason.split("'")[1] for reason in answer["reasons"] if "'" in reason}
        assert unknown <= named, (kind, spec, answer)
        return False
    length = call("duration", {"type": kind, "spec": spec})["duration"]
    assert longhaul_tool.seconds(length, 0) > 0, (kind, spec, length)
    assert all(isinstance(word, str) for word in command_of(kind, spec)), (kind, spec)
    return True


def known_options(kind):
    return longhaul_tool.OPTIONS if kind == "throughput" else path_tests.OPTIONS[kind][1]


def results():
    """Returns results of the plugin for documents of longhaul."""
    tcp = {"retransmits": 2, "rtt_ms": 0.5, "cwnd_bytes": 1000}
    udp = {"sent": 9, "lost": 1, "jitter_ms": 0.1}
    stream = {"stream": 0, "bytes": 125, "throughput_bps": 1000.5, "udp": udp}
    times = {"start_seconds": 0.0, "end_seconds": 1.0, "omitted": False}
    end = {"bytes": 125, "seconds": 1.0, "retransmits": 2, "rtt_ms": 0.5}
    test = {"end": {"how": "completed"}, "streams": [{**stream, **end}],
            "summary": {"throughput_bps": 1000.5, "reason": None, "sender": end, "receiver": end,
                        "udp": udp},
            "intervals": [{**times, **stream, **end, "streams": [{**stream, "sender": tcp}]}]}
    hop = {"distance": 2, "addresses": ["192.0.2.9"], "min_ms": 90.5, "says_mtu_bytes": 1400}
    echoes = {"asked": 5, "answered": 4, "min_ms": 1.0, "max_ms": 3.5}
    counts = {name: {"count": 1} for name in ("lost", "duplicated", "reordered")}
    record = {"sent": 100, "answered": 98, "clocks": {"error_ms": 0.5},
              "forward": {**counts, "delay": {"min_ms": -4.5}, "hop_limits": [255, 255]},
              "histograms": {"forward_variation": [[0.001, 90], [4.6, 8]]}}
    trace = {"forward": {"hops": {"list": [hop]}}, "unmeasured": []}
    yield "throughput", longhaul_tool.result(test, {}, ["command"])
    yield "throughput", longhaul_tool.result(test, {"udp": True}, ["command"])
    yield "trace", path_tests.trace_result(trace, {"hostnames": False}, [])
    yield "rtt", path_tests.rtt_result({"rtt": {"small": echoes}}, [])
    for kind in ("latency", "latencybg"):
        yield kind, latency_tests.latency_result(record, {}, [])
        yield kind, longhaul_tool.failed("reason", [])


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: test_with_pscheduler.py PSCHEDULER")
    root = pathlib.Path(sys.argv[1])
    found = validators(root)
    for kind in KINDS:
        specs = specifications(root, kind, found[kind])
        accepted = sum(check(kind, spec) for spec in specs)
        options = options_of(root, kind)
        assert specs and len(options) > 5, (kind, specs, options)
        assert accepted or kind == "trace", kind
        for option in set(options) - known_options(kind):
            assert not check(kind, {"dest": "192.0.2.1", option: 1}), (kind, option)
        print(f"{kind}: {len(specs)} specifications, {accepted} accepted; "
              f"{len(options)} options, {len(set(options) & known_options(kind))} supported")
    valid = 0
    for kind, result in results():
        answer = found[kind].result_is_valid(result)
        assert answer[0] is True, (kind, result, answer)
        valid += 1
    print(f"{valid} results are valid")


if __name__ == "__main__":
    main()
