"""Starts a hub on SQLite or on a private PostgreSQL, and reads what it and its database use.

A module of hub-load.py, hub-pages.py and agent-idle.py.
"""

import glob
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time

TICKS = os.sysconf("SC_CLK_TCK")


def used(pids):
    """Returns the CPU time in seconds, the resident memory and its peak in MiB of processes."""
    ticks, resident, peak = 0, 0, 0
    for pid in pids:
        try:
            fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status") if ":" in line)
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += int(fields[11]) + int(fields[12])
        resident += int(status.get("VmRSS", "0 kB").split()[0])
        peak += int(status.get("VmHWM", "0 kB").split()[0])
    return ticks / TICKS, resident / 1024, peak / 1024


class Postgres:
    """A PostgreSQL of Debian in a temporary directory, with its default durability."""

    def __init__(self, directory):
        self.directory = directory
        self.programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))[-1]
        shutil.chown(directory, "postgres", "postgres")
        filled = os.path.exists(f"{directory}/data/PG_VERSION")
        if not filled:
            self.run(["initdb", "--auth=trust", "--username=hub", "--encoding=UTF8", "--no-locale", "-D", f"{directory}/data"])
        settings = ["-c", "listen_addresses=", "-c", "max_connections=40", "-c", "shared_buffers=256MB", "-c", "max_wal_size=2GB"]
        command = self.command(["postgres", "-D", f"{directory}/data", "-k", directory, *settings])
        self.process = subprocess.Popen(command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            if subprocess.run([f"{self.programs}/pg_isready", "-q", "-h", directory]).returncode == 0:
                break
            time.sleep(0.1)
        if not filled:
            self.run(["createdb", "-U", "hub", "-h", directory, "fleet"])
        self.address = f"host={directory} user=hub dbname=fleet"

    def command(self, words):
        program = f"{self.programs}/{words[0]}"
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", program, *words[1:]]

    def run(self, words):
        subprocess.run(self.command(words), cwd="/", check=True, stdout=subprocess.DEVNULL)

    def pids(self):
        """Returns the server and its backends."""
        children = open(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read().split()
        return [self.process.pid, *map(int, children)]

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


class Hub:
    """A running hub; `database` is sqlite or postgres."""

    def __init__(self, program, database, directory):
        self.directory = directory
        self.postgres = self.process = None
        self.data = f"{directory}/hub"
        command = [program, "hub", "--data", self.data, "--listen", "127.0.0.1:0"]
        if database == "postgres":
            os.makedirs(f"{directory}/pg", exist_ok=True)
            self.postgres = Postgres(f"{directory}/pg")
        self.command = command

    def database_arguments(self):
        """Returns the arguments of the generator of a year."""
        return ["--database", self.postgres.address] if self.postgres else ["--data", self.data]

    def start(self):
        command = self.command + (["--database", self.postgres.address] if self.postgres else [])
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        for _ in range(600):
            self.log.seek(0)
            text = self.log.read()
            if "pin of the hub's key is" in text:
                break
            if self.process.poll() is not None:
                raise SystemExit(f"the hub ended: {text}")
            time.sleep(0.1)
        word = lambda before: text.split(before, 1)[1].split()[0]
        self.password = word("with the password ") if "with the password " in text else None
        self.port = int(word("hub on https://").rsplit(":", 1)[1])
        self.pin = word("pin of the hub's key is ")
        self.bearer = None

    def connection(self):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)

    def login(self):
        answer = self.post("/api/v1/login", {"user": "admin", "password": self.password, "label": "bench"})
        self.bearer = answer["token"]

    def headers(self):
        return {"authorization": f"Bearer {self.bearer}"} if self.bearer else {}

    def post(self, path, document):
        connection = self.connection()
        headers = {"content-type": "application/json", **self.headers()}
        connection.request("POST", path, json.dumps(document), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status >= 300:
            raise SystemExit(f"{path}: {answer.status} {text[:300]}")
        return json.loads(text) if text else None

    def get(self, path):
        connection = self.connection()
        connection.request("GET", path, headers=self.headers())
        answer = connection.getresponse()
        return answer.status, answer.read()

    def metrics(self):
        """Returns the metrics of the hub without labels."""
        lines = self.get("/metrics")[1].decode().splitlines()
        pairs = [line.split(" ") for line in lines if line and not line.startswith("#") and "{" not in line]
        return {name: float(value) for name, value in pairs}

    def pids(self):
        return [self.process.pid]

    def database_pids(self):
        return self.postgres.pids() if self.postgres else []

    def stop(self):
        """Ends the hub; `end` ends the database, too."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def end(self):
        if self.process and self.process.poll() is None:
            self.stop()
        if self.postgres:
            self.postgres.stop()
