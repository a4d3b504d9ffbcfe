#!/usr/bin/env python3
"""Kills the hub, the agents and PostgreSQL of a fleet while it measures, and checks that no run is lost or doubled.

Usage: bench/fleet-faults.py LONGHAUL [--sites N,N,N] [--seconds S] [--hub N] [--agents N] [--database N]
                             [--absence S] [--seed N] [--keep DIR]

Runs as root; needs PostgreSQL and a C compiler. The topology and the mesh are those of
fleet-sites.py. The hub stores its data in PostgreSQL, which runs in the directory of the script as the user
postgres. For S seconds, at random times of equal mean distance, the script kills with SIGKILL the hub, random
agents, and all processes of PostgreSQL, and starts them again after 0 to 4 s. Meanwhile

- `wan set --outage` interrupts two links of sites and a trunk, 12 s per minute;
- the journal of s03 is on a tmpfs of 48 MiB, which a file fills for a quarter of the time, and the agent is
  killed meanwhile;
- the clock of s06 steps forward and back by up to a day: a library interposes clock_gettime of its agent and
  commands and changes CLOCK_REALTIME only (clock.c of the integration tests). The kernel has no such clock
  per process or namespace, and libfaketime also changes the CPU clocks.

Then the hub is absent for the time of --absence, and everything runs for a minute without faults. In the end
the script applies a mesh without tests, waits until no run is open and every result is acknowledged, and
compares the database of the hub with the journals of the agents. A supervisor starts processes again that end
by themselves, as systemd does, and counts them. The exit code is 1 if a check failed.
"""

import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import fleet as lab

CLOCK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../crates/longhaul/tests/integration/clock.c")
FULL, STEPPED = "s03", "s06"


class Postgres:
    """A PostgreSQL server in a directory of its own, on a Unix socket."""

    def __init__(self, directory):
        self.directory = directory
        versions = sorted(os.listdir("/usr/lib/postgresql"), key=int)
        self.programs = f"/usr/lib/postgresql/{versions[-1]}/bin"
        os.mkdir(directory)
        shutil.chown(directory, "postgres", "postgres")
        self.run("initdb", "--auth=trust", "--username=hub", "--encoding=UTF8", "--no-locale", "-D", self.data)
        self.starting = None
        self.start()
        lab.wait_for("PostgreSQL", self.ready, 60)
        self.run("createdb", "-U", "hub", "-h", directory, "fleet")

    @property
    def data(self):
        return f"{self.directory}/data"

    @property
    def address(self):
        return f"host={self.directory} user=hub dbname=fleet"

    def as_user(self, program, *arguments):
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
        return [*user, f"{self.programs}/{program}", *arguments]

    def run(self, program, *arguments):
        return subprocess.run(self.as_user(program, *arguments), cwd="/", check=True, text=True,
                              capture_output=True, timeout=60)

    def start(self):
        log = open(f"{self.directory}.log", "a")
        options = ["-c", "listen_addresses=", "-c", "max_connections=60"]
        self.starting = subprocess.Popen(
            self.as_user("postgres", "-D", self.data, "-k", self.directory, *options), cwd="/",
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def ready(self):
        if self.starting.poll() is not None:
            # The processes of the killed server may still be ending.
            self.start()
        command = self.as_user("pg_isready", "-q", "-h", self.directory)
        return subprocess.run(command, cwd="/", timeout=20).returncode == 0

    def kill(self):
        """Kills the server and all of its processes, which have sessions of their own."""
        pid = self.starting.pid
        children = open(f"/proc/{pid}/task/{pid}/children").read().split()
        for process in [pid, *map(int, children)]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.starting.wait(20)

    def query(self, text):
        row = "SELECT coalesce(json_agg(one), '[]') FROM (" + text + ") one"
        return json.loads(self.run("psql", "-U", "hub", "-h", self.directory, "-At", "-c", row, "fleet").stdout)


class Chaos:
    """The faults, each kind in a thread of its own, and the supervisor of the processes."""

    def __init__(self, fleet, database, options):
        self.fleet, self.database, self.options = fleet, database, options
        self.random = random.Random(options.seed)
        self.done = threading.Event()
        self.down = set()
        # Only one thread at a time kills or starts a process, so that no process runs twice.
        self.locks = collections.defaultdict(threading.Lock)
        self.counts, self.exits = collections.Counter(), []

    def kills(self, count, work):
        """Does `work` `count` times, spread over the time of the faults."""
        mean, end = self.options.seconds / max(count, 1), time.monotonic() + self.options.seconds
        for number in range(count):
            left = max(end - time.monotonic(), 0) / (count - number)
            self.done.wait(min(self.random.uniform(0.5, 1.5) * mean, 1.9 * left))
            work()

    def restart(self, key):
        if key == "hub":
            self.fleet.start_hub()
        else:
            self.fleet.start_agent(key)

    def kill(self, key):
        with self.locks[key]:
            self.down.add(key)
            process = self.fleet.processes[key]
            counted = process.alive()
            process.kill()
            self.counts["hub" if key == "hub" else "agents"] += counted
            self.done.wait(self.random.uniform(0, 4))
            self.restart(key)
            self.down.discard(key)

    def kill_agent(self):
        up = [site.name for site in self.fleet.sites if site.name not in self.down]
        self.kill(self.random.choice(up))

    def kill_database(self):
        self.database.kill()
        self.counts["database"] += 1
        self.done.wait(self.random.uniform(0, 3))
        self.database.start()
        lab.wait_for("PostgreSQL", self.database.ready, 60)

    def links(self):
        exchanges = {site.name: site.exchange for site in self.fleet.sites}
        return [f"{name}-{exchanges[name]}" for name in ("s05", "s14") if name in exchanges] + ["x1-x2"]

    def cut(self):
        """Interrupts links for 12 s of each minute."""
        for link in self.links():
            done = subprocess.run([self.fleet.emulator, "wan", "set", f"{self.fleet.name}/{link}", "--outage",
                                   "20s+12s/60s"], capture_output=True, text=True, timeout=30)
            self.counts["partitions"] += done.returncode == 0
            if done.returncode:
                print(done.stderr, file=sys.stderr)

    def heal(self):
        for link in self.links():
            subprocess.run([self.fleet.emulator, "wan", "set", f"{self.fleet.name}/{link}", "--outage", "none"],
                           check=True, timeout=30, stdout=subprocess.DEVNULL)

    def fill_disk(self):
        self.done.wait(self.options.seconds / 4)
        name = self.fleet.path(FULL, "filler")
        with open(name, "wb", buffering=0) as file:
            for size in (1 << 20, 4096):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    pass
        self.counts["full disks"] += 1
        self.done.wait(self.options.seconds / 8)
        if FULL not in self.down:
            self.kill(FULL)
        self.done.wait(self.options.seconds / 8)
        os.remove(name)

    def step_clock(self):
        for step in ("3600", "-7200", "86400", "-20", "0"):
            self.done.wait(self.options.seconds / 6)
            set_clock(self.fleet, step)
            self.counts["clock steps"] += 1

    def supervise(self):
        while not self.done.wait(0.5):
            for key in list(self.fleet.processes):
                if not self.locks[key].acquire(blocking=False):
                    continue
                try:
                    self.start_again(key)
                finally:
                    self.locks[key].release()

    def start_again(self, key):
        """Starts a process again if it has ended by itself."""
        process = self.fleet.processes[key]
        if process.alive():
            return
        lines = open(self.fleet.path(f"{key}.log")).read().splitlines()
        self.exits.append((key, process.popen.returncode, lines[-1] if lines else ""))
        self.done.wait(1)
        self.restart(key)

    def run(self):
        options = self.options
        supervisor = threading.Thread(target=self.supervise, daemon=True)
        supervisor.start()
        kinds = [lambda: self.kills(options.hub, lambda: self.kill("hub")),
                 lambda: self.kills(options.agents, self.kill_agent),
                 lambda: self.kills(options.database, self.kill_database),
                 self.fill_disk, self.step_clock]
        self.cut()
        threads = [threading.Thread(target=kind) for kind in kinds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.heal()
        say(f"faults over: {dict(self.counts)}; the hub is absent for {options.absence} s")
        with self.locks["hub"]:
            self.fleet.processes["hub"].kill()
            time.sleep(options.absence)
            self.restart("hub")
        self.counts["absences"] += 1


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def set_clock(fleet, step):
    name = fleet.path("clock")
    with open(name + ".new", "w") as file:
        file.write(step + "\n")
    os.rename(name + ".new", name)


def prepare(fleet):
    os.makedirs(fleet.path(FULL), mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=700", "tmpfs", fleet.path(FULL)], check=True)
    set_clock(fleet, "0")
    library = fleet.path("clock.so")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, CLOCK], check=True)
    fleet.environment[STEPPED] = {"LD_PRELOAD": library, "CLOCK_FILE": fleet.path("clock")}


def quiesce(fleet, database):
    """Ends the tests, and waits until nothing is open."""
    with open(fleet.path("empty.toml"), "w") as file:
        file.write(fleet.mesh(2, 5, "1s", tests=False))
    lab.wait_for("the end of the tests", lambda: fleet.fleet("apply", fleet.path("empty.toml"), check=False), 60)
    time.sleep(5)
    open_runs = "SELECT id FROM run WHERE state IN ('planned', 'leased', 'running')"
    lab.wait_for("the open runs", lambda: not database.query(open_runs), 90)
    unsent = "SELECT id FROM outbox WHERE kind = 'result'"
    lab.wait_for("the acknowledgements", lambda: not any(fleet.rows(s.name, unsent) for s in fleet.sites), 90)
    open_here = "SELECT run FROM runs WHERE state != 'over'"
    lab.wait_for("the agents' runs", lambda: not any(fleet.rows(s.name, open_here) for s in fleet.sites), 90)


def check_all(fleet, database, chaos, begun_ms):
    checks = lab.Checks()
    hub = {run["id"]: run for run in database.query(
        "SELECT run.*, d.run IS NOT NULL AS stored FROM run LEFT JOIN run_document d ON d.run = run.id")}
    states = collections.Counter(run["state"] for run in hub.values())
    reasons = collections.Counter(run["reason"] for run in hub.values() if run["state"] != "finished")
    final = ("finished", "failed", "missed", "cancelled")
    bad = [run["id"] for run in hub.values() if run["state"] not in final
           or (run["state"] != "finished") != (run["reason"] is not None) or run["reason"] == "unknown"]
    checks.add("every run has a result or a reason", not bad, f"{dict(states)}; {dict(reasons)}; {bad[:3]}")
    starts, results = journals(fleet)
    twice = [key for key, count in collections.Counter(key[:2] for key in starts).items() if count > 1]
    checks.add("no run started twice", not twice and starts, f"{len(starts)} starts of both roles; {twice[:3]}")
    count = collections.Counter((row["run"], row["role"]) for row in results)
    twice = [key for key, times in count.items() if times > 1]
    checks.add("every run has one outcome per role", not twice, f"{len(results)} outcomes; {twice[:3]}")
    unsent = [row["run"] for row in results if row["acknowledged"] != 1]
    checks.add("every outcome is acknowledged once", not unsent, f"{len(results)} outcomes; {unsent[:3]}")
    check_acknowledged(checks, hub, results)
    open_starts = [key for key in starts if (key[0], key[1]) not in count]
    checks.add("every start has an outcome", not open_starts, f"{open_starts[:3]}")
    found, runs, _ = lab.overlaps(fleet, lambda row: row["outcome"] == "finished")
    checks.add("no overlap on a resource", not found and runs > 0, f"{runs} finished runs; {found[:2]}")
    check_gaps(checks, fleet, hub, begun_ms)
    kinds = collections.Counter(event["kind"] for event in database.query("SELECT kind FROM event"))
    # A journal that has its space already is not full when the disk is, but the runs are.
    full = kinds["disk_full"] + reasons["disk_full"]
    checks.add("events of the clock, events or reasons of the disk", kinds["clock_step"] > 0 and full > 0, str(dict(kinds)))
    exits = collections.Counter((key, code, line[:150]) for key, code, line in chaos.exits)
    # A hub ends with code 3 if it starts while PostgreSQL is down.
    checks.add("no process ended by itself", not [1 for key, code, _ in exits if key != FULL and (key, code) != ("hub", 3)],
               "; ".join(f"{n} x {one}" for one, n in exits.items()) or "none")
    return checks.failed


def journals(fleet):
    starts, results = [], []
    for site in fleet.sites:
        starts += [(row["run"], row["role"], row["at_ms"]) for row in
                   fleet.rows(site.name, "SELECT * FROM seen_start")]
        results += fleet.rows(site.name, "SELECT * FROM seen_result")
    return starts, results


def check_acknowledged(checks, hub, results):
    """Compares the acknowledged outcomes with the database of the hub."""
    state = {"finished": "finished", "failed": "failed", "not_run": "missed", "cancelled": "cancelled"}
    lost, differing, without = [], [], []
    for row in results:
        run, role = hub.get(row["run"]), row["role"]
        if run is None or not run[f"{role}_done"] or run[f"{role}_fate"] != row["outcome"]:
            lost.append((row["run"], role, row["outcome"]))
        elif role == "source":
            # The agent does not know why the hub cancelled a run.
            same = run["reason"] == row["reason"] or run["reason"] == "mesh_changed" and row["outcome"] == "cancelled"
            if run["state"] != state[row["outcome"]] or not same:
                differing.append((row["run"], row["outcome"], row["reason"], run["state"], run["reason"]))
            if bool(row["document"]) != run["stored"]:
                without.append(row["run"])
    sources = {row["run"] for row in results if row["role"] == "source" and row["outcome"] == "finished"}
    invented = [run["id"] for run in hub.values() if run["state"] == "finished" and run["id"] not in sources]
    checks.add("nothing acknowledged is lost", not lost, f"{len(results)} outcomes; {lost[:3]}")
    checks.add("the hub has the outcome and the reason of the source", not differing, f"{differing[:3]}")
    checks.add("the hub has every document", not without, f"{len(sources)} finished runs; {without[:3]}")
    checks.add("no result without a run", not invented, f"{invented[:3]}")


def check_gaps(checks, fleet, hub, begun_ms):
    """Checks that every pair has a run or a reason in every period."""
    planned, ended_ms = collections.defaultdict(list), max(run["planned_ms"] for run in hub.values())
    for run in hub.values():
        planned[run["source"], run["destination"]].append(run["planned_ms"])
    longest = 0
    for times in planned.values():
        times = sorted([begun_ms, *times, ended_ms])
        longest = max(longest, *(b - a for a, b in zip(times, times[1:])))
    pairs = len(fleet.sites) * (len(fleet.sites) - 1)
    bound = 2 * fleet.cycle + 60
    checks.add("longest time of a pair without a run or a reason", longest < bound * 1000 and len(planned) == pairs,
               f"{longest / 1000:.0f} s, bound {bound} s (two cycles and a minute); {len(planned)} pairs")


def torment(fleet, database, options):
    fleet.up()
    fleet.start_hub()
    fleet.login()
    fleet.enroll()
    begun_ms = int(time.time() * 1000)
    fleet.cycle = fleet.apply(fleet.mesh(2, 5, "5s"))["cycle_seconds"]
    say(f"cycle {fleet.cycle} s")
    time.sleep(20)
    chaos = Chaos(fleet, database, options)
    chaos.run()
    say(f"all faults over: {dict(chaos.counts)}")
    time.sleep(60)
    chaos.done.set()
    quiesce(fleet, database)
    print(f"faults: {dict(chaos.counts)}; cycle {fleet.cycle} s")
    return 1 if check_all(fleet, database, chaos, begun_ms) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--sites", default="11,11,2", help="sites of the three regions")
    parser.add_argument("--seconds", type=int, default=480, help="time of the faults")
    parser.add_argument("--hub", type=int, default=50, help="kills of the hub")
    parser.add_argument("--agents", type=int, default=100, help="kills of agents")
    parser.add_argument("--database", type=int, default=20, help="kills of PostgreSQL")
    parser.add_argument("--absence", type=int, default=120, help="seconds of the hub's absence")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--emulator", help="longhaul that runs the emulator, if it is another build")
    parser.add_argument("--keep", help="directory that keeps the data")
    options = parser.parse_args()
    sites = lab.make_sites([int(count) for count in options.sites.split(",")])
    directory = options.keep or tempfile.mkdtemp(prefix="fleet-")
    os.chmod(directory, 0o711)
    fleet = lab.Fleet(options.program, directory, sites, options.emulator)
    database = None
    try:
        prepare(fleet)
        database = Postgres(fleet.path("postgres"))
        fleet.hub_arguments = ["--database", database.address]
        sys.exit(torment(fleet, database, options))
    finally:
        fleet.close()
        if database:
            database.kill()
        if options.keep:
            subprocess.run(["cp", "-a", fleet.path(FULL), fleet.path(FULL + ".kept")])
        subprocess.run(["umount", fleet.path(FULL)])
        if not options.keep:
            shutil.rmtree(directory, ignore_errors=True)


main()
