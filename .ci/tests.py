#!/usr/bin/env python3
"""Runs all tests of the workspace, and repeats the failed ones without other tests beside them.

Many tests measure times on real sockets and emulated links. On a machine with two cores that other
machines share, a test can fail only because other tests had the processors. So a failed test runs
again, with nothing beside it, and must pass twice in succession. The last lines name every test that was
repeated. More than MAX_REPEATED failures are a defect and are not repeated.

    .ci/tests.py [cargo test's build options] [-- options of the test programs]
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

MAX_REPEATED = 8
PASSES = 2
ATTEMPTS = 4
# The limits of one test program and of one repeated test, in seconds.
PROGRAM_LIMIT = 2400
TEST_LIMIT = 300

SUMMARY = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")


class Program:
    """A test program, as cargo has built it."""

    def __init__(self, path, manifest, name):
        self.path = path
        self.directory = os.path.dirname(manifest)
        self.name = name


def build(options):
    """Builds the test programs and returns them in cargo's order."""
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *options]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    programs = []
    for line in output.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
            target = message["target"]
            crate = os.path.basename(os.path.dirname(message["manifest_path"]))
            name = f"{crate} ({target['kind'][0]} {target['name']})"
            programs.append(Program(message["executable"], message["manifest_path"], name))
    return programs


def run(program, arguments, limit):
    """Runs a test program, prints its output, and returns the lines and the exit code."""
    environment = dict(os.environ, CARGO_MANIFEST_DIR=program.directory)
    process = subprocess.Popen(
        [program.path, *arguments],
        cwd=program.directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        errors="replace",
    )

    def stop():
        print(f"{program.name}: stopped after {limit} s", flush=True)
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(limit, stop)
    timer.start()
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        print(line, end="", flush=True)
    code = process.wait()
    timer.cancel()
    return lines, code


def failed_tests(lines):
    """The names in the last list of failures that the test harness prints."""
    starts = [index for index, line in enumerate(lines) if line == "failures:"]
    if not starts:
        return []
    names = []
    for line in lines[starts[-1] + 1 :]:
        if not line.startswith("    "):
            break
        names.append(line.strip())
    return names


def passes_alone(program, test, arguments):
    """Whether a test passes PASSES times in succession within ATTEMPTS runs of its own."""
    successes = 0
    for _ in range(ATTEMPTS):
        print(f"== repeating {test}", flush=True)
        lines, code = run(program, ["--exact", test, "--include-ignored", *arguments], TEST_LIMIT)
        ran = [match for match in map(SUMMARY.match, lines) if match and match.group(1) == "1"]
        successes = successes + 1 if code == 0 and ran else 0
        if successes == PASSES:
            return True
    return False


def main():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, arguments = sys.argv[1:split], sys.argv[split + 1 :]
    begun = time.monotonic()
    passed, defects, failures = 0, [], []
    for program in build(options):
        print(f"\n-- {program.name}", flush=True)
        lines, code = run(program, arguments, PROGRAM_LIMIT)
        counts = [match for match in map(SUMMARY.match, lines) if match]
        passed += sum(int(match.group(1)) for match in counts)
        names = failed_tests(lines)
        failures += [(program, name) for name in names]
        if code != 0 and not names:
            defects.append(f"{program.name}: exit code {code} without a list of failed tests")
    repeated = []
    if len(failures) > MAX_REPEATED:
        defects += [f"{program.name}: {name}" for program, name in failures]
        failures = []
    kept = [argument for argument in arguments if argument not in ("--ignored", "--include-ignored")]
    for program, name in failures:
        if passes_alone(program, name, kept):
            repeated.append(f"{program.name}: {name}")
        else:
            defects.append(f"{program.name}: {name}")
    print()
    for name in repeated:
        print(f"failed beside other tests, and passed {PASSES} times without them: {name}")
    for name in defects:
        print(f"failed: {name}")
    print(f"{time.monotonic() - begun:.0f} s")
    print(f"{passed + len(repeated)} passed, {len(defects)} failed")
    return 1 if defects or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
