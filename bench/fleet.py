"""A fleet for the benchmarks fleet-sites.py and fleet-faults.py: an emulated topology of sites, a hub at one of
them, and an agent at each.

The topology has three exchanges without agents. By default regions 1 and 2 have eleven sites each, and region 3 has two,
behind a trunk that carries one test per direction at a time. Each agent's journal gets triggers that record
the start, the outcome and the acknowledgement of every run in tables of their own (`seen_*`).
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

REGIONS = [11, 11, 2]
RATES = [50, 40, 30, 20]
RTTS = [2, 4, 8, 16, 24]
#: The loss of each direction of a site's link.
LOSS = {"s08": 0.005, "s16": 0.01}
TRUNKS = {("x1", "x2"): (400, 20), ("x1", "x3"): (60, 60), ("x2", "x3"): (60, 80)}
TRIGGERS = """
CREATE TABLE seen_start (run, role, lease, at_ms);
CREATE TABLE seen_result (id INTEGER PRIMARY KEY, run, role, outcome, reason, started_ms, ended_ms, message,
    document, acknowledged DEFAULT 0);
CREATE TABLE seen_stamp (id INTEGER PRIMARY KEY, body, acknowledged DEFAULT 0);
CREATE TRIGGER seen_start AFTER UPDATE OF state ON runs WHEN new.state = 'running'
BEGIN INSERT INTO seen_start VALUES (new.run, new.role, new.lease, new.started_ms); END;
CREATE TRIGGER seen_result AFTER INSERT ON outbox WHEN new.kind = 'result'
BEGIN INSERT INTO seen_result (id, run, role, outcome, reason, started_ms, ended_ms, message, document)
    SELECT new.id, json_extract(new.body, '$.run'), json_extract(new.body, '$.role'),
    json_extract(new.body, '$.outcome'), json_extract(new.body, '$.reason'),
    json_extract(new.body, '$.started_ms'), json_extract(new.body, '$.ended_ms'),
    json_extract(new.body, '$.message'), json_extract(new.body, '$.document') IS NOT NULL; END;
CREATE TRIGGER seen_stamp AFTER INSERT ON outbox WHEN new.kind = 'stamp'
BEGIN INSERT INTO seen_stamp (id, body) VALUES (new.id, new.body); END;
CREATE TRIGGER seen_end AFTER DELETE ON outbox WHEN old.kind IN ('result', 'stamp')
BEGIN UPDATE seen_result SET acknowledged = acknowledged + 1 WHERE id = old.id AND old.kind = 'result';
    UPDATE seen_stamp SET acknowledged = acknowledged + 1 WHERE id = old.id AND old.kind = 'stamp'; END;
"""
TICKS = os.sysconf("SC_CLK_TCK")


class Site:
    """A site of the topology with the properties of its link."""

    def __init__(self, number, region):
        self.name = f"s{number:02d}"
        self.exchange = f"x{region + 1}"
        self.rate = RATES[number % len(RATES)]
        self.rtt = RTTS[number % len(RTTS)]
        self.loss = LOSS.get(self.name, 0.0)


def make_sites(regions=None):
    sites = []
    for region, count in enumerate(regions or REGIONS):
        sites += [Site(len(sites) + number, region) for number in range(1, count + 1)]
    return sites


def path_between(one, other):
    """Returns the configured rate in Mb/s, RTT in ms and loss of each direction of a path."""
    rate, rtt = min(one.rate, other.rate), one.rtt + other.rtt
    if one.exchange != other.exchange:
        trunk = TRUNKS[tuple(sorted((one.exchange, other.exchange)))]
        rate, rtt = min(rate, trunk[0]), rtt + trunk[1]
    return rate, rtt, 1 - (1 - one.loss) * (1 - other.loss)


def topology(sites):
    exchanges = sorted({site.exchange for site in sites})
    names = [site.name for site in sites] + exchanges
    text = "".join(f'[[site]]\nname = "{name}"\n' for name in names)
    for site in sites:
        text += f'[[link]]\nbetween = ["{site.name}", "{site.exchange}"]\nrtt = "{site.rtt}ms"\n'
        text += f'rate = "{site.rate}M"\nqueue = "60ms"\n' + (f"loss = {site.loss}\n" if site.loss else "")
    for (left, right), (rate, rtt) in TRUNKS.items():
        if left in exchanges and right in exchanges:
            text += f'[[link]]\nbetween = ["{left}", "{right}"]\nrtt = "{rtt}ms"\nrate = "{rate}M"\n'
    return text


class Fleet:
    """The topology, the hub and the agents. Everything ends with `close`."""

    def __init__(self, program, directory, sites, emulator=None):
        """`emulator` is the longhaul of `wan` if it is not `program`, for example a release build."""
        self.program, self.directory, self.sites = os.path.abspath(program), directory, sites
        self.emulator = os.path.abspath(emulator or program)
        self.name = f"fleet{os.getpid()}"
        self.hub_arguments = []
        self.processes, self.environment, self.lock = {}, {}, threading.Lock()
        self.addresses = {}

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def up(self):
        with open(self.path("topology.toml"), "w") as file:
            file.write(topology(self.sites))
        subprocess.run([self.emulator, "wan", "up", self.path("topology.toml"), "--name", self.name],
                       check=True, stdout=subprocess.DEVNULL, timeout=60)
        words = self.run_at(self.sites[0].name, ["env"], longhaul=False).stdout.split("\n")
        variables = dict(word.split("=", 1) for word in words if word.startswith("LONGHAUL_"))
        self.addresses = {site.name: variables["LONGHAUL_" + site.name.upper()] for site in self.sites}

    def usages(self):
        """Returns the usage of the hub, the agents and the emulator."""
        usages = {key: usage(process.pid) for key, process in self.processes.items()}
        holder = subprocess.run(["pgrep", "-o", "-f", "--", f"--background --name {self.name} "], text=True,
                                capture_output=True).stdout.split()
        return {**usages, "emulator": usage(int(holder[0]))}

    def close(self):
        for process in self.processes.values():
            process.kill()
        subprocess.run([self.emulator, "wan", "down", "--name", self.name], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=60)

    def command(self, site, arguments, longhaul=True):
        program = [self.program] if longhaul else []
        return [self.emulator, "wan", "exec", "--name", self.name, site, "--", *program, *arguments]

    def run_at(self, site, arguments, longhaul=True, **options):
        environment = {**os.environ, "HOME": self.directory}
        environment.pop("XDG_CONFIG_HOME", None)
        return subprocess.run(self.command(site, arguments, longhaul), env=environment, text=True,
                              capture_output=True, timeout=120, **options)

    def fleet(self, *arguments, check=True):
        """Runs `longhaul fleet ... --json` at the hub's site."""
        done = self.run_at(self.hub_site, ["fleet", *arguments, "--json"])
        if done.returncode != 0:
            if check:
                sys.exit(f"fleet {arguments}: {done.stderr}")
            return None
        return json.loads(done.stdout)

    @property
    def hub_site(self):
        return self.sites[0].name

    @property
    def url(self):
        return f"https://{self.addresses[self.hub_site]}:5280"

    def start(self, key, site, arguments):
        """Starts a longhaul process at a site; its log is `KEY.log`."""
        log = open(self.path(f"{key}.log"), "a")
        environment = {**os.environ, "HOME": self.directory, **self.environment.get(key, {})}
        environment.pop("XDG_CONFIG_HOME", None)
        process = Process(subprocess.Popen(self.command(site, arguments), stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=log, env=environment))
        log.close()
        with self.lock:
            self.processes[key] = process
        return process

    def start_hub(self):
        listen = f"{self.addresses[self.hub_site]}:5280"
        arguments = ["hub", "--data", self.path("hub"), "--listen", listen, *self.hub_arguments]
        return self.start("hub", self.hub_site, arguments)

    def start_agent(self, site, token=None):
        arguments = ["agent", "--state", self.path(site)]
        if token:
            arguments += ["--hub", self.url, "--token", token, "--name", site]
        return self.start(site, site, arguments)

    def login(self):
        """Waits for the first start of the hub, and logs in."""
        words = {}
        wait_for("the hub", lambda: words.update(first_words(self.path("hub.log"))) or len(words) == 2, 60)
        login = ["fleet", "login", self.url, "--pin", words["pin"]]
        wait_for("the login", lambda: self.run_at(self.hub_site, login, input=words["password"])
                 .returncode == 0, 60)

    def enroll(self):
        """Starts all agents, waits until the hub sees them, and adds the triggers to their journals."""
        for site in self.sites:
            self.start_agent(site.name, self.fleet("token", site.name)["token"])
        present = lambda: sum(host["state"] == "present" for host in self.fleet("hosts")["hosts"])
        wait_for("the agents", lambda: present() == len(self.sites), 120)
        for site in self.sites:
            with self.journal(site.name, True) as journal:
                journal.executescript(TRIGGERS)

    def journal(self, site, write=False):
        mode = "rw" if write else "ro"
        journal = sqlite3.connect(f"file:{self.path(site)}/journal.db?mode={mode}", uri=True, timeout=20)
        journal.row_factory = sqlite3.Row
        return journal

    def rows(self, site, query):
        journal = self.journal(site)
        try:
            return [dict(row) for row in journal.execute(query)]
        finally:
            journal.close()

    def mesh(self, seconds, margin, interval, tests=True):
        text = 'name = "sites"\n'
        for site in self.sites:
            text += f'[hosts.{site.name}]\naddress = "{self.addresses[site.name]}"\ninterface = "wan0"\n'
            text += f'capacity = "{site.rate}M"\n'
        far = [site.name for site in self.sites if site.exchange == "x3"]
        near = [site.name for site in self.sites if site.exchange != "x3"]
        if far:
            text += f'[trunks.ocean]\ncapacity = "60M"\nleft = {near}\nright = {far}\n'
        if tests:
            text += f'[tests.mesh]\nkind = "throughput"\nseconds = {seconds}\nmargin = "{margin}s"\nevery = 0\n'
        return text + f'[stamp]\ninterval = "{interval}"\n'

    def apply(self, text, name="mesh.toml"):
        with open(self.path(name), "w") as file:
            file.write(text)
        plan = self.fleet("plan", self.path(name))
        self.fleet("apply", self.path(name))
        return plan


class Process:
    """A process at a site, started by `wan exec`."""

    def __init__(self, popen):
        self.popen, self.pid = popen, None
        deadline = time.monotonic() + 30
        while self.pid is None and popen.poll() is None and time.monotonic() < deadline:
            try:
                children = open(f"/proc/{popen.pid}/task/{popen.pid}/children").read().split()
                self.pid = int(children[0]) if children else None
            except OSError:
                pass
            time.sleep(0.002)

    def kill(self, number=signal.SIGKILL):
        try:
            if self.pid:
                os.kill(self.pid, number)
        except ProcessLookupError:
            pass
        if number == signal.SIGKILL:
            try:
                self.popen.wait(20)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()

    def alive(self):
        return self.popen.poll() is None


def usage(pid):
    """Returns the CPU time in seconds of a process without its children, and its memory in MiB."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
    own = int(status["RssAnon"].split()[0]) / 1024
    return (int(fields[11]) + int(fields[12])) / TICKS, int(status["VmRSS"].split()[0]) / 1024, own


def first_words(path):
    """Returns the password and the pin that a hub prints at its first start."""
    words = {}
    try:
        for line in open(path):
            if "with the password" in line:
                words["password"] = line.split()[-1]
            if "pin of the hub" in line:
                words["pin"] = line.split()[-1]
    except OSError:
        pass
    return words


def wait_for(what, condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.3)


class Checks:
    """The results of the checks, printed as a table."""

    def __init__(self):
        self.failed = 0
        print("\n| check | result | detail |\n|---|---|---|")

    def add(self, name, good, detail):
        self.failed += not good
        print(f"| {name} | {'passed' if good else 'FAILED'} | {detail} |", flush=True)


def quantiles(values):
    """Returns the minimum, median and maximum."""
    values = sorted(values)
    return values[0], values[len(values) // 2], values[-1]


def overlaps(fleet, ends_are_known):
    """Returns the pairs of runs that overlap on a resource, by the agents' journals."""
    busy, count = {}, 0
    for site in fleet.sites:
        runs = {}
        for row in fleet.rows(site.name, "SELECT * FROM seen_start"):
            runs[row["run"], row["role"]] = [row["at_ms"], json.loads(row["lease"])]
        for row in fleet.rows(site.name, "SELECT * FROM seen_result"):
            if (row["run"], row["role"]) not in runs or not ends_are_known(row):
                continue
            start, lease = runs[row["run"], row["role"]]
            source, destination = lease["source"], lease["destination"]
            names = list(lease["resources"])
            if ("x3" == exchange_of(fleet, source)) != ("x3" == exchange_of(fleet, destination)):
                names.append("ocean/" + ("left" if exchange_of(fleet, source) == "x3" else "right"))
            count += row["role"] == "source"
            # The server of a run waits for its window; the client carries the traffic.
            if row["role"] == "source":
                for name in {*names, f"{source}/wan0/out", f"{destination}/wan0/in"}:
                    busy.setdefault(name, []).append((start, row["ended_ms"], row["run"]))
    found = []
    for name, spans in busy.items():
        spans.sort()
        found += [(name, one, two) for one, two in zip(spans, spans[1:]) if two[0] < one[1]]
    return found, count, len(busy)


def exchange_of(fleet, name):
    return next(site.exchange for site in fleet.sites if site.name == name)
