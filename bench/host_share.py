"""The time of the processors of this host: busy, and stolen by its hypervisor.

A module of the benchmarks of this directory. Benchmarks that run beside other machines state the stolen share, and
exclude runs with a large one.

>>> before = HostTime.parse("cpu  100 0 50 800 40 0 10 0 7 0\\ncpu0 1 2 3", ticks=100)
>>> (before.total, before.busy, before.stolen)
(10.0, 1.6, 0.0)
>>> after = HostTime.parse("cpu  200 0 50 1600 40 0 10 100 7 0", ticks=100)
>>> (after - before).stolen_share
0.1
>>> (before - before).stolen_share
0.0
"""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class HostTime:
    """Seconds of all processors together."""

    total: float
    busy: float
    stolen: float

    @staticmethod
    def now():
        """Returns the time since the host started."""
        with open("/proc/stat") as stat:
            return HostTime.parse(stat.readline(), os.sysconf("SC_CLK_TCK"))

    @staticmethod
    def parse(text, ticks):
        """Reads the first line of /proc/stat, as proc_stat(5) describes it: user, nice, system, idle, iowait, irq,
        softirq, steal, and the guests, which user and nice contain."""
        fields = [int(field) / ticks for field in text.splitlines()[0].split()[1:9]]
        idle, waiting, stolen = fields[3], fields[4], fields[7]
        return HostTime(sum(fields), sum(fields) - idle - waiting - stolen, stolen)

    def __sub__(self, earlier):
        return HostTime(self.total - earlier.total, self.busy - earlier.busy, self.stolen - earlier.stolen)

    @property
    def stolen_share(self):
        """The share of the time that the hypervisor took; 0 to 1."""
        return self.stolen / self.total if self.total else 0.0
