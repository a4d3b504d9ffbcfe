#!/usr/bin/env python3
"""Kills copies at random moments, damages what they leave, and completes them.

  bench/kill.py [--rounds N] [--seed N] [--workers N] [--only ROUND]

A round copies a tree of small files, a large file or both, with a rate limit; as a put or a get over
`longhaul serve`, or within the host; sealed or in the clear; over 1 to 4 connections; with a block
size chosen at random for each attempt. It kills the client or the server with SIGKILL one to three
times. In a third of the rounds the temporary file or the journal is damaged in between: truncated,
extended, changed, replaced by a file of another user, or given another mode. Then the same command
runs to its end. A round fails if

  - a file under a final name ever differs from its source (wrong),
  - the last command or the server does not end in time (hang),
  - the last command does not exit with 0 (failed),
  - anything is in the target that is not in the source (left over).

Everything follows from the seed except the moment at which the kernel delivers the signal.
LONGHAUL is the binary (default: target/release/longhaul), DIR the place of the files. Runs as root:
it gives files to another user. Prints one line per failed round and a table at the end; exits with
1 if a round failed.
"""

import argparse
import concurrent.futures
import filecmp
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

LONGHAUL = os.path.realpath(os.environ.get("LONGHAUL", "target/release/longhaul"))
BLOCKS = ["16KiB", "64KiB", "256KiB", "1MiB", "4MiB"]
DAMAGES = ["truncate", "extend", "truncate and extend", "flip", "another user's", "chown", "chmod",
           "second link"]
OTHER_USER = 65534
HANG_SECONDS = 90
# States of connections in /proc/net/tcp.
LISTEN, TIME_WAIT = "0A", "06"


class Failed(Exception):
    """A round that did not go as it must: (kind, detail)."""


def make_sources(near):
    """Three sources: small files, a large file, and both with sizes around those of packs."""
    noise = random.Random(1)
    small = near / "small"
    for n in range(240):
        directory = small / f"d{n % 7}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"f{n}").write_bytes(noise.randbytes(noise.choice([0, 1, 700, 9000, 50_000])))
    (near / "large").write_bytes(noise.randbytes(40 << 20))
    mixed = near / "mixed"
    mixed.mkdir()
    for n, size in enumerate([900 << 10, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 6 << 20, 70_000,
                              12 << 20, 300, 0, 500_000]):
        (mixed / f"m{n}").write_bytes(noise.randbytes(size))


def bytes_of(path):
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


class Server:
    def __init__(self, config, root):
        self.config, self.root, self.process = config, root, None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [LONGHAUL, "serve", "--bind", "127.0.0.1", "-p", str(self.port), "--root", self.root],
            env=self.config, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.01)
        raise Failed("hang", "the server does not begin to listen")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def connections(self):
        """The states of the server's connections: the hexadecimal codes of /proc/net/tcp."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        states = [row[3] for row in rows if int(row[1].split(":")[1], 16) == self.port]
        return [state for state in states if state not in (LISTEN, TIME_WAIT)]

    def await_idle(self):
        """Waits until the server has closed the connections of a killed client."""
        deadline = time.monotonic() + HANG_SECONDS
        while states := self.connections():
            if time.monotonic() > deadline:
                raise Failed("hang", f"the server keeps connections in the states {states}")
            time.sleep(0.01)

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed("hang", "the server does not end upon SIGTERM")


def own_files(target):
    """longhaul's own files in the target: (temporary files, journals)."""
    found = [path for path in target.rglob(".*") if "longhaul-" in path.name]
    return ([path for path in found if path.name.endswith(".part")],
            [path for path in found if path.name.endswith(".journal")])


def damage(dice, target, planted):
    """Damages one of longhaul's own files; says how, or None if there is none."""
    parts, journals = own_files(target)
    which = dice.choice(["part", "journal"])
    among = parts if which == "part" else journals
    if not among:
        among = parts or journals
    if not among:
        return None
    path = dice.choice(sorted(among))
    how = dice.choice(DAMAGES)
    kind = "journal" if path.name.endswith(".journal") else "part"
    size = path.stat().st_size
    if how == "truncate":
        os.truncate(path, dice.randrange(size + 1))
    elif how == "extend":
        with open(path, "ab") as file:
            file.write(dice.randbytes(dice.choice([1, 100, 100_000])))
    elif how == "truncate and extend":
        os.truncate(path, dice.randrange(size + 1))
        os.truncate(path, size)
    elif how == "flip" and size:
        with open(path, "r+b") as file:
            for _ in range(dice.choice([1, 4, 50])):
                at = dice.randrange(size)
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes([byte[0] ^ dice.randrange(1, 256)]))
    elif how == "another user's":
        content = path.read_bytes() if kind == "journal" else dice.randbytes(size)
        path.unlink()
        path.write_bytes(content)
        os.chown(path, OTHER_USER, OTHER_USER)
        planted.append(path)
    elif how == "chown":
        os.chown(path, OTHER_USER, OTHER_USER)
        planted.append(path)
    elif how == "chmod":
        os.chmod(path, dice.choice([0o666, 0o620, 0o777]))
    elif how == "second link":
        link = path.with_name(f"link-{path.name}")
        link.unlink(missing_ok=True)
        os.link(path, link)
        planted.append(link)
    return f"{kind}: {how}"


def check_names(source, target, final, planted):
    """Every final name is right, and at the end all names are there and no other."""
    names = lambda top: {path.relative_to(top) for path in top.rglob("*")}
    there = names(target)
    expected = names(source) if source.is_dir() else {Path("large")}
    for name in there & expected:
        original = source / name if source.is_dir() else source
        if original.is_file() and not filecmp.cmp(original, target / name, shallow=False):
            raise Failed("wrong", f"{name} differs")
        if original.is_file() and (target / name).stat().st_uid != os.getuid():
            raise Failed("wrong", f"{name} belongs to another user")
    if final:
        if expected - there:
            raise Failed("failed", f"missing: {sorted(map(str, expected - there))[:3]}")
        left = {name for name in there - expected if target / name not in planted}
        if left:
            raise Failed("left over", f"{sorted(map(str, left))[:3]}")


def run_round(number, seed, server, near, work, tally):
    """One round; what it was, in words."""
    dice = random.Random(seed * 1_000_003 + number)
    what = dice.choice(["small", "large", "mixed"])
    way = dice.choice(["put", "get", "local"])
    protection = dice.choice([[], [], ["--cleartext"]])
    source = near / what
    target_name = f"t{number}"
    target = Path(server.root) / target_name if way == "put" else work / target_name
    target.mkdir()
    # The trailing dot: the contents, so that the target's names are those of the source.
    from_path = source if what == "large" else f"{source}/."
    from_name = what if what == "large" else f"{what}/."
    if way == "put":
        ends = [str(from_path), f"lh://127.0.0.1:{server.port}/{target_name}/"]
    elif way == "get":
        ends = [f"lh://127.0.0.1:{server.port}/near/{from_name}", f"{target}/"]
    else:
        ends = [str(from_path), f"{target}/"]
    streams = ["-P", str(dice.randrange(1, 5))] if dice.random() < 0.7 else []
    extra = dice.choice([[], [], ["--no-fsync"], ["-p"], ["--direct", "always"]])

    def command(block, limit):
        options = ["cp", "-r", *protection, *streams, *extra, "--block", block]
        if limit:
            options += ["--bwlimit", f"{limit}M"]
        return [LONGHAUL, *options, *ends]

    def start(block, limit):
        return subprocess.Popen(command(block, limit), env=server.config, cwd=work,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    seconds = dice.choice([0.3, 0.8, 2.5])
    limit = max(1, int(bytes_of(source) * 8 / seconds / 1e6))
    planted, story = [], [what, way, *protection, *extra, f"{limit} Mb/s"]
    damaging = dice.random() < 1 / 3
    try:
        for _ in range(dice.choice([1, 1, 2, 3])):
            block = dice.choice(BLOCKS)
            copy = start(block, limit)
            moment = dice.uniform(0.01, seconds)
            who = "client" if way == "local" else dice.choice(["client", "server"])
            time.sleep(moment)
            if who == "server":
                # The client is killed as well, or it would go on with the server's successor.
                again = dice.random() < 0.5
                server.kill()
                if not again:
                    copy.kill()
                server.start()
                if again:
                    try:
                        copy.communicate(timeout=HANG_SECONDS)
                    except subprocess.TimeoutExpired:
                        copy.kill()
                        raise Failed("hang", "the client does not go on after the server's end")
            copy.kill()
            copy.communicate()
            tally["kills"] += 1
            story.append(f"{who} killed after {moment:.2f} s, block {block}")
            # A live session works on what has arrived: damage would hit a file before its rename.
            server.await_idle()
            check_names(source, target, False, planted)
            if damaging:
                done = damage(dice, target, planted)
                if done:
                    tally[done] += 1
                    tally["damaged"] += 1
                    story.append(done)
        block = dice.choice(BLOCKS)
        story.append(f"at last block {block}")
        copy = start(block, None)
        try:
            _, said = copy.communicate(timeout=HANG_SECONDS)
        except subprocess.TimeoutExpired:
            copy.kill()
            copy.communicate()
            raise Failed("hang", "the last command does not end")
        check_names(source, target, copy.returncode == 0, planted)
        if copy.returncode != 0:
            raise Failed("failed", f"exit code {copy.returncode}: {said.decode().strip()[-300:]}")
    except Failed as failure:
        return (*failure.args, "; ".join(story))
    finally:
        shutil.rmtree(target, ignore_errors=True)
    return None


def worker(numbers, seed, near, base, index):
    """Runs its rounds with a server of its own; returns a tally and the failures."""
    work = base / f"worker{index}"
    for name in ["home", "far"]:
        (work / name).mkdir(parents=True)
    # A get takes its source from beneath the server's root.
    shutil.copytree(near, work / "far" / "near")
    config = {**os.environ, "HOME": str(work / "home"), "XDG_CONFIG_HOME": str(work / "home")}
    server = Server(config, str(work / "far"))
    tally, failures = Counter(), []
    for number in numbers:
        try:
            failure = run_round(number, seed, server, near, work, tally)
        except Failed as failed:
            failure = (*failed.args, "")
        tally["rounds"] += 1
        if failure:
            kind, detail, story = failure
            failures.append(kind)
            print(f"round {number}: {kind}: {detail}: {story}", flush=True)
            if kind == "hang":
                server.kill()
                server.start()
        if server.process.poll() is not None:
            failures.append("failed")
            print(f"round {number}: the server has ended by itself", flush=True)
            server.start()
    server.end()
    return tally, failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="longhaul-kill.", dir=os.environ.get("DIR")))
    begun = time.monotonic()
    try:
        near = base / "near"
        near.mkdir()
        make_sources(near)
        numbers = [options.only] if options.only is not None else range(options.rounds)
        shares = [numbers[index::options.workers] for index in range(options.workers)]
        tally, failures = Counter(), Counter()
        with concurrent.futures.ProcessPoolExecutor(options.workers) as pool:
            running = [pool.submit(worker, share, options.seed, near, base, index)
                       for index, share in enumerate(shares) if share]
            for done in running:
                counted, failed = done.result()
                tally.update(counted)
                failures.update(failed)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    version = subprocess.run([LONGHAUL, "--version"], capture_output=True, text=True).stdout.strip()
    print(f"{version}, seed {options.seed}, {time.monotonic() - begun:.0f} s")
    print(f"rounds            {tally.pop('rounds', 0):6}")
    print(f"kills             {tally.pop('kills', 0):6}")
    print(f"damages           {tally.pop('damaged', 0):6}")
    for kind in ["wrong", "hang", "failed", "left over"]:
        print(f"{kind:17} {failures[kind]:6}")
    for how, count in sorted(tally.items()):
        print(f"  {how:30} {count:5}")
    return 1 if failures else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
