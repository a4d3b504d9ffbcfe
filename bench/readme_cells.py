"""The runs of README.md's table by row and round-trip time, for bench/readme.sh."""
import csv

LEAST, STOLEN = 5, 0.10


def cells_of(source):
    """Returns the usable runs by label and RTT, one run per label, the RTTs, and the number of runs
    that are not used because the hypervisor took more than STOLEN of the CPU time."""
    cells, rows, skipped = {}, {}, 0
    with open(source, newline="") as file:
        for run in csv.DictReader(file):
            rows.setdefault(run["label"], run)
            if run["status"] != "ok":
                continue
            if float(run["steal_share"] or 0) > STOLEN:
                skipped += 1
                continue
            cells.setdefault((run["label"], float(run["rtt_ms"])), []).append(run)
    return cells, rows, sorted({rtt for _, rtt in cells}), skipped
