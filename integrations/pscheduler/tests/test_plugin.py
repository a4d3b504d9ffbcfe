#!/usr/bin/env python3
"""Runs the executables of the plugin with specifications as pScheduler makes them."""

import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

PLUGIN = pathlib.Path(__file__).parent.parent / "longhaul"
sys.path.insert(0, str(PLUGIN))

import latency_tests  # noqa: E402
import longhaul_tool  # noqa: E402
import path_tests  # noqa: E402


def call(name, document=None):
    ran = subprocess.run([sys.executable, PLUGIN / name], input=json.dumps(document),
                         capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


class Plugin(unittest.TestCase):
    def test_enumerate_names_the_tests_and_wins(self):
        described = call("enumerate")
        self.assertEqual(described["tests"],
                         ["latency", "latencybg", "rtt", "throughput", "trace"])
        self.assertGreater(described["preference"], 10)

    def test_can_run_accepts_known_options_and_names_others(self):
        minimal = {"type": "throughput", "spec": {"dest": "127.0.1.1"}}
        self.assertEqual(call("can-run", minimal), {"can-run": True})
        spec = {"dest": "fe80::a00:27ff:fea3:14ba", "source": "localhost", "schema": 1,
                "duration": "PT10S", "interval": "PT1S", "parallel": 1, "udp": True,
                "bandwidth": 1000, "window-size": 1000, "mss": 9000, "buffer-length": 100,
                "ip-tos": 10, "omit": "PT10S", "no-delay": False, "zero-copy": True,
                "reverse": True}
        self.assertTrue(call("can-run", {"type": "throughput", "spec": spec})["can-run"])
        other = call("can-run", {"type": "throughput", "spec": {**spec, "flow-label": 1,
                                                                "schema": 8}})
        self.assertEqual(other["reasons"], ["Option 'flow-label' is not supported.",
                                            "Schema 8 is newer than 7."])
        self.assertFalse(call("can-run", {"type": "clock", "spec": {}})["can-run"])
        self.assertFalse(call("can-run", {"type": "throughput"})["can-run"])

    def test_duration_includes_the_setup(self):
        self.assertEqual(call("duration", {"spec": {}}), {"duration": "PT18S"})
        spec = {"duration": "PT1M", "omit": "PT5S", "link-rtt": "PT0.2S"}
        self.assertEqual(call("duration", {"spec": spec}), {"duration": "PT76S"})

    def test_participant_data_has_the_port_of_the_server(self):
        self.assertEqual(call("participant-data", {"participant": 0}), {})
        self.assertEqual(call("participant-data", {"participant": 1}), {"port": 7411})

    def test_durations_of_iso_8601(self):
        self.assertEqual(longhaul_tool.seconds("P1DT2H3M4.5S", 0), 93784.5)
        for invalid in ("10", "P", "PT", "PT-1S", "P1Y"):
            with self.assertRaises(ValueError):
                longhaul_tool.seconds(invalid, 0)

    def test_the_command_has_the_options_of_the_specification(self):
        spec = {"dest": "2001:db8::1", "duration": "PT5S", "interval": "PT0.5S", "omit": "PT1S",
                "parallel": 4, "bandwidth": 10**9, "udp": True, "reverse": True, "ip-version": 6}
        self.assertEqual(longhaul_tool.client_command(spec, 7411), [
            "longhaul", "test", "[2001:db8::1]:7411", "--json", "-t", "5", "-i", "0.5", "-O", "1",
            "-P", "4", "-b", "1000000000", "-u", "-R", "-6"])

    def test_a_document_becomes_a_result(self):
        tcp = {"retransmits": 2, "rtt_ms": 0.5, "cwnd_bytes": 1000}
        stream = {"stream": 0, "bytes": 125, "throughput_bps": 1000}
        document = {
            "end": {"how": "completed"},
            "summary": {"throughput_bps": 1000, "reason": {"sentence": "no limit found"},
                        "sender": {"retransmits": 2, "rtt_ms": 0.5}, "udp": None,
                        "receiver": {"bytes": 125, "seconds": 1.0}},
            "streams": [{**stream, "retransmits": 2, "rtt_ms": 0.5}],
            "intervals": [{"start_seconds": 0.0, "end_seconds": 1.0, "bytes": 125,
                           "throughput_bps": 1000, "omitted": False, "retransmits": 2,
                           "rtt_ms": 0.5, "streams": [{**stream, "sender": tcp}]}],
        }
        result = longhaul_tool.result(document, {}, ["command"])
        self.assertTrue(result["succeeded"])
        self.assertIn("no limit found", result["diags"])
        expected = {"start": 0, "end": 1.0, "throughput-bits": 1000, "throughput-bytes": 125,
                    "retransmits": 2, "rtt": 500}
        self.assertEqual(result["summary"]["summary"], expected)
        self.assertEqual(result["intervals"][0]["streams"][0]["tcp-window-size"], 1000)
        self.assertEqual(set(result), {"succeeded", "diags", "intervals", "summary"})

    def test_merged_results_are_those_of_the_client(self):
        results = [{"succeeded": True, "diags": "a", "intervals": []}, {"succeeded": True}]
        merged = call("merged-results", {"results": results})
        self.assertTrue(merged["succeeded"])
        self.assertEqual(merged["diags"], "Participant 0:\na\nParticipant 1:\n")
        self.assertFalse(call("merged-results", {"results": [None]})["succeeded"])


class PathTests(unittest.TestCase):
    def test_can_run_names_options_of_paths(self):
        trace = {"type": "trace", "spec": {"dest": "h", "hops": 20, "ip-version": 4}}
        self.assertEqual(call("can-run", trace), {"can-run": True})
        trace["spec"] |= {"algorithm": "paris-traceroute", "queries": 1, "schema": 3}
        self.assertEqual(call("can-run", trace)["reasons"], [
            "Option 'algorithm' is not supported.", "Schema 3 is newer than 2.",
            "A trace begins at the first hop and has 3 queries per hop."])
        rtt = {"type": "rtt", "spec": {"schema": 2, "dest": "h", "protocol": "twamp"}}
        self.assertFalse(call("can-run", rtt)["can-run"])
        latency = {"type": "latency", "spec": {"schema": 1, "dest": "h", "packet-count": 600}}
        self.assertEqual(call("can-run", latency), {"can-run": True})
        latency["spec"]["flip"] = True
        self.assertFalse(call("can-run", latency)["can-run"])

    def test_durations_of_paths(self):
        rtt = {"type": "rtt", "spec": {"dest": "h", "count": 10}}
        self.assertEqual(call("duration", rtt), {"duration": "PT15S"})
        latency = {"type": "latency", "spec": {"packet-count": 600, "packet-interval": 0.1}}
        self.assertEqual(call("duration", latency), {"duration": "PT71S"})

    def test_commands_of_paths(self):
        self.assertEqual(path_tests.path_command("trace", {"dest": "h", "hops": 9})[2:], [
            "h", "--no-server", "--json", "--skip", "rtt", "--skip", "mtu", "--skip", "loss", "--skip",
            "capacity", "--max-hops", "9"])
        spec = {"dest": "2001:db8::1", "packet-count": 100, "packet-interval": 0.01, "ip-tos": 184}
        self.assertEqual(latency_tests.sender_command("latency", spec, 7412)[2:], [
            "--stamp", "[2001:db8::1]:7412", "--continuous", "--record-time", "1s", "-i", "10ms",
            "--dscp", "46"])

    def test_a_background_test_needs_only_one_participant(self):
        spec = {"schema": 2, "dest": "h", "protocol": "stamp", "duration": "PT1H",
                "packet-count": 300, "packet-timeout": 3, "ctrl-port": 5000}
        self.assertEqual(call("can-run", {"type": "latencybg", "spec": spec}), {"can-run": True})
        self.assertEqual(call("duration", {"type": "latencybg", "spec": spec}),
                         {"duration": "PT3605S"})
        self.assertEqual(latency_tests.sender_command("latencybg", spec, 5000)[2:], [
            "--stamp", "h:5000", "--continuous", "--record-time", "30s", "-i", "100ms"])
        spec |= {"protocol": "owamp", "packet-timeout": 2, "output-raw": True}
        self.assertEqual(call("can-run", {"type": "latencybg", "spec": spec})["reasons"], [
            "Option 'output-raw' is not supported.", "Only the protocol stamp is supported.",
            "A packet is lost after 3 s."])

    def test_a_background_test_emits_a_sequence_and_starts_again(self):
        record = {"sent": 9, "answered": 9, "forward": {"lost": {"count": 0}, "hop_limits": None},
                  "clocks": {}, "histograms": {}}
        script = f"""#!/bin/sh
again="$(dirname "$0")/again"
[ -e "$again" ] && {{ kill -TERM $PPID; sleep 60; }}
touch "$again"
echo '{json.dumps(record)}'
echo '{json.dumps(record)}'
echo gone >&2
"""
        before, path = signal.getsignal(signal.SIGTERM), os.environ["PATH"]
        with tempfile.TemporaryDirectory() as directory:
            program = pathlib.Path(directory, "longhaul")
            program.write_text(script)
            program.chmod(0o755)
            os.environ["PATH"] = f"{directory}:{path}"
            try:
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    with self.assertRaises(SystemExit):
                        latency_tests.run_background({"dest": "h"}, 600, restart=0)
            finally:
                signal.signal(signal.SIGTERM, before)
                os.environ["PATH"] = path
        parts = out.getvalue().split("\x1e")
        results = [json.loads(part) for part in parts[1:]]
        self.assertEqual(parts[0], "")
        self.assertEqual([one["succeeded"] for one in results], [True, True, False])
        self.assertEqual((results[0]["packets-sent"], results[0]["packets-lost"]), (9, 0))
        self.assertIn("gone", results[2]["error"])

    def test_the_executable_runs_a_background_test_for_its_time(self):
        document = {"participant": 0, "participant-data": [{}],
                    "schedule": {"start": "2026-01-01T00:00:00Z", "duration": "PT0S"},
                    "test": {"type": "latencybg", "spec": {"dest": "h"}}}
        ran = subprocess.run([sys.executable, PLUGIN / "run"], input=json.dumps(document),
                             capture_output=True, text=True, check=True)
        self.assertEqual(ran.stdout, "")

    def test_a_path_becomes_a_trace(self):
        hops = [{"distance": 1, "addresses": ["192.0.2.1"], "min_ms": 0.25, "says_mtu_bytes": None},
                {"distance": 2, "addresses": [], "min_ms": None, "says_mtu_bytes": None},
                {"distance": 3, "addresses": ["192.0.2.9"], "min_ms": 90.5,
                 "says_mtu_bytes": 1400}]
        document = {"forward": {"hops": {"list": hops}}, "unmeasured": []}
        result = path_tests.trace_result(document, {"hostnames": False}, [])
        self.assertEqual(result["paths"], [[
            {"ip": "192.0.2.1", "rtt": "PT0.000250S"}, {},
            {"ip": "192.0.2.9", "rtt": "PT0.090500S", "mtu": 1400}]])
        lost = path_tests.trace_result(
            {"forward": None, "unmeasured": [{"why": "no route"}]}, {}, [])
        self.assertEqual((lost["succeeded"], lost["error"]), (False, "no route"))

    def test_echoes_become_round_trips(self):
        echoes = {"asked": 5, "answered": 4, "min_ms": 1.0, "max_ms": 3.5}
        result = path_tests.rtt_result({"rtt": {"small": echoes}}, [])
        self.assertEqual((result["sent"], result["lost"], result["loss"]), (5, 1, 0.2))
        self.assertEqual((result["min"], result["max"]), ("PT0.001000S", "PT0.003500S"))
        none = path_tests.rtt_result({"rtt": {"small": {"asked": 5, "answered": 0}}}, [])
        self.assertEqual((none["succeeded"], none["loss"]), (False, 1.0))

    def test_a_record_becomes_a_latency(self):
        counts = {name: {"count": count} for name, count in
                  (("lost", 2), ("duplicated", 1), ("reordered", 3))}
        record = {"sent": 100, "answered": 97, "clocks": {"error_ms": 0.5},
                  "forward": {**counts, "delay": {"min_ms": 45.0},
                                            "hop_limits": [250, 250]},
                  "histograms": {"forward_variation": [[0.001, 60], [0.5, 30], [0.504, 8]]}}
        result = latency_tests.latency_result(record, {"bucket-width": 0.001}, [])
        self.assertEqual(result["histogram-latency"], {"45.00": 60, "45.50": 38})
        self.assertEqual((result["packets-received"], result["packets-lost"]), (98, 2))
        self.assertEqual((result["packets-duplicated"], result["packets-reordered"]), (1, 3))
        self.assertEqual((result["max-clock-error"], result["histogram-ttl"]), (0.5, {"250": 97}))
        record["clocks"]["error_ms"] = None
        self.assertNotIn("histogram-latency", latency_tests.latency_result(record, {}, []))


if __name__ == "__main__":
    unittest.main()
