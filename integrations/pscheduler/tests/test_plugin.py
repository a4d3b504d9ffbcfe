#!/usr/bin/env python3
"""Runs the executables of the plugin with specifications as pScheduler makes them."""

import json
import pathlib
import subprocess
import sys
import unittest

PLUGIN = pathlib.Path(__file__).parent.parent / "longhaul"
sys.path.insert(0, str(PLUGIN))

import longhaul_tool  # noqa: E402


def call(name, document=None):
    ran = subprocess.run([sys.executable, PLUGIN / name], input=json.dumps(document),
                         capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


class Plugin(unittest.TestCase):
    def test_enumerate_names_the_throughput_test_and_wins(self):
        described = call("enumerate")
        self.assertEqual(described["tests"], ["throughput"])
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
        self.assertFalse(call("can-run", {"type": "rtt", "spec": {}})["can-run"])
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
            "summary": {"throughput_bps": 1000, "reason": {"sentence": "nothing stands out"},
                        "sender": {"retransmits": 2, "rtt_ms": 0.5}, "udp": None,
                        "receiver": {"bytes": 125, "seconds": 1.0}},
            "streams": [{**stream, "retransmits": 2, "rtt_ms": 0.5}],
            "intervals": [{"start_seconds": 0.0, "end_seconds": 1.0, "bytes": 125,
                           "throughput_bps": 1000, "omitted": False, "retransmits": 2,
                           "rtt_ms": 0.5, "streams": [{**stream, "sender": tcp}]}],
        }
        result = longhaul_tool.result(document, {}, ["command"])
        self.assertTrue(result["succeeded"])
        self.assertIn("nothing stands out", result["diags"])
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


if __name__ == "__main__":
    unittest.main()
