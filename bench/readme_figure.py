"""Replaces the runs of an archive of `longhaul matrix quick` by those of a CSV, for bench/readme.sh.

    readme_figure.py MATRIX.SQLITE RUNS.CSV

The archive has one small run per cell. Its runs get the figures of the CSV, and its plan the sizes of
the plan `quick`. The seals of changed documents are removed.
"""
import json
import sqlite3
import sys

from readme_cells import cells_of

database, source = sys.argv[1:]
archive = sqlite3.connect(database)
archive.row_factory = sqlite3.Row
shape = {}
for row in archive.execute("SELECT * FROM run WHERE status = 'ok'"):
    record = json.loads(row["record_json"])
    shape[record["label"], record["condition"]["rtt_ms"]] = dict(row)
archive.execute("DELETE FROM sample")
archive.execute("DELETE FROM run")
cells, rows, times, _ = cells_of(source)
sequence = 0
for (label, rtt), runs in sorted(cells.items()):
    for repeat, run in enumerate(runs, 1):
        sequence += 1
        row = dict(shape[label, rtt])
        record = json.loads(row["record_json"])
        figures = {"sequence": sequence, "attempt": 1, "repeat": repeat,
                   "throughput_bps": int(run["throughput_bps"]), "bytes": int(run["bytes"]),
                   "seconds": float(run["seconds"]), "started_at": run["started_at"]}
        if run["durable_seconds"]:
            figures["durable_seconds"] = float(run["durable_seconds"])
        record.update(figures, samples=[])
        record.pop("cpu", None)
        row.update({key: value for key, value in figures.items() if key in row})
        row.update(record_json=json.dumps(record), seal=None)
        columns = ", ".join(row)
        archive.execute(f"INSERT INTO run ({columns}) VALUES ({', '.join('?' * len(row))})",
                        list(row.values()))
header = json.loads(archive.execute("SELECT header_json FROM matrix").fetchone()[0])
header["plan"].pop("scale", None)
archive.execute("UPDATE matrix SET header_json = ?, seal = NULL", [json.dumps(header)])
archive.commit()
