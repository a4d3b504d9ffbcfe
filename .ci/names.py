#!/usr/bin/env python3
"""Finds public types of the workspace that share a name; CONTRIBUTING.md states the rule.

Two types may share a name only if they share a meaning, such as the options of the clients of two
protocols. SHARED lists these names with the reason. Exits with 1 if a name is used twice that SHARED
does not list, or if SHARED lists a name that is used only once.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

PARALLEL = "the same part of two protocols, iperf3 and nuttcp"

# The names that several types share, with the reason.
SHARED = {
    "ClientEvent": PARALLEL,
    "ClientOptions": PARALLEL,
    "ClientResult": PARALLEL,
    "DatagramHeader": "the header of the datagrams of a UDP test, of longhaul and of iperf3",
    "Observer": PARALLEL,
    "Parameters": PARALLEL,
    "Result": "`std::result::Result` with the error of the crate",
    "Server": PARALLEL,
}

TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{", re.M)
TYPE = re.compile(r"^[ \t]*pub (?:struct|enum|trait|union|type) (\w+)", re.M)


def main():
    root = Path(__file__).resolve().parent.parent
    places = defaultdict(list)
    for file in sorted(root.glob("crates/*/src/**/*.rs")):
        text = TESTS.split(file.read_text(), maxsplit=1)[0]
        for name in TYPE.findall(text):
            places[name].append(str(file.relative_to(root / "crates")))
    shared = {name: files for name, files in places.items() if len(files) > 1}
    for name in sorted(shared.keys() - SHARED.keys()):
        print(f"{name} is the name of several public types: {', '.join(shared[name])}")
    for name in sorted(SHARED.keys() - shared.keys()):
        print(f"{name} is the name of one public type: remove it from SHARED in .ci/names.py")
    return 1 if shared.keys() ^ SHARED.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
