"""The runs of README.md's table by row and round-trip time, for bench/readme.sh."""
import csv

LEAST, STOLEN = 5, 0.10


def cells_of(source):
    """Returns the usable runs by label and RTT, one run per label, the RTTs, and the number of runs
    that are not used per label and RTT: those that are invalid or failed, and those in which the
    hypervisor took more than STOLEN of the CPU time."""
    cells, rows, unused = {}, {}, {}
    with open(source, newline="") as file:
        for run in csv.DictReader(file):
            rows.setdefault(run["label"], run)
            cell = run["label"], float(run["rtt_ms"])
            if run["status"] != "ok" or float(run["steal_share"] or 0) > STOLEN:
                unused[cell] = unused.get(cell, 0) + 1
                continue
            cells.setdefault(cell, []).append(run)
    return cells, rows, sorted({rtt for _, rtt in cells}), unused
